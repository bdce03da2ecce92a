"""SVMs with a fixed kernel, by scikit-learn's LIBSVM."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, SVR

from gpytorch_nkn.estimators.dank.support_vectors.dual import Block
from gpytorch_nkn.estimators.dank.support_vectors.smo import solve_pairs

__all__ = ["MAX_STEPS", "comparison_steps", "solve_quadratic", "solve_svms"]

_CACHE = 500  # MB
MAX_STEPS = 10_000_000
_FAR = 1e3  # times the range of targets, of the row that takes up the sum


def comparison_steps(count: int) -> int:
    """Pairs to update at most where SVMs are compared, given the number of rows.

    Many times what an SVM takes, unless ``C`` is huge and the kernel all but singular.
    """
    return 5_000 + 100 * count


def solve_svms(
    gram: np.ndarray, blocks: Sequence[Block], tol: float, *, max_steps: int = MAX_STEPS
) -> tuple[np.ndarray, np.ndarray]:
    """Dual variables and intercepts of support vector machines with all rows.

    Args:
        gram: Gram matrix of all rows, ``n x n``.
        blocks: One SVM, or those of all pairs of classes.
        tol: Tolerance of the optimality conditions, relative to the labels, or to the standard
            deviation of the targets.
        max_steps: Pairs of variables to update at most; what is returned then is feasible. The
            default is that of LIBSVM itself, scikit-learn's has none.

    Returns:
        Variables ``m`` of all blocks, one after the other, and intercepts ``P``.
    """
    if len(blocks) > 1:
        return _solve_pairs_of_classes(gram, blocks, tol, max_steps)
    (block,) = blocks
    if not block.bias:
        return _solve_without_bias(gram, block, tol, max_steps), np.zeros(1)
    upper, targets = block.bounds, block.targets
    if block.epsilon is not None:
        signed, intercepts = _regression(
            gram, targets, upper, block.epsilon, tol * (float(np.std(targets)) or 1.0), max_steps
        )
        return _of_both_signs(signed, block), intercepts
    if np.ptp(targets) == 0.0:  # one class alone
        return np.zeros(len(targets)), targets[:1]
    support, _, coefficients, intercepts = _train(
        gram, (targets > 0).astype(np.float64), upper, tol, max_steps
    )
    variables = np.zeros(len(gram))
    variables[support] = coefficients[0] * block.signs[support]
    return np.clip(variables, 0.0, upper), intercepts


def solve_quadratic(
    block: Block, curvature: np.ndarray, slope: np.ndarray, tol: float, max_steps: int
) -> np.ndarray:
    """Variables of one SVM that maximise ``c'u + slope's - s'Bs / 2``.

    For labels, signed variables lie between 0 and C or -C and 0. From the middle m of that on it
    is a regression without a tube, but for their sum, which one more row takes up, far away.
    """
    upper, width = block.bounds, block.epsilon or 0.0
    if block.epsilon is not None:
        middle, targets = np.zeros(len(upper)), block.targets + slope
        tol *= float(np.std(block.linear[: len(upper)])) or 1.0
    else:
        curvature = curvature[np.ix_(block.rows, block.rows)]
        middle, upper = 0.5 * block.signs * upper, 0.5 * upper
        targets = block.signs * block.linear + slope[block.rows] - curvature @ middle
    count, total = len(middle), float(middle.sum())
    if total:
        reach = float(np.abs(curvature).sum(axis=1).max()) * 2.0 * float(upper.max())
        far = np.sign(total) * _FAR * (float(np.abs(targets).max()) + reach)
        widened = np.zeros((count + 1, count + 1))
        widened[:count, :count] = curvature
        curvature = widened
        targets, upper = np.append(targets, far), np.append(upper, abs(total))
    moved = _regression(curvature, targets, upper, width, tol, max_steps)[0][:count]
    if block.epsilon is not None:
        return _of_both_signs(moved, block)
    return np.clip(block.signs * (middle + moved), 0.0, block.upper)


def _solve_without_bias(gram: np.ndarray, block: Block, tol: float, max_steps: int) -> np.ndarray:
    """Variables of one SVM whose sum is free: two rows at the edges of the tube take it up."""
    count, width = block.count, block.epsilon or 0.0
    kernel = np.zeros((count + 2, count + 2))
    kernel[:count, :count] = gram
    residual = np.append(block.targets, [width, -width])
    low, high = -block.bounds, block.bounds
    if block.epsilon is None:
        low, high = np.where(block.signs > 0, 0.0, low), np.where(block.signs > 0, high, 0.0)
    else:
        tol *= float(np.std(block.targets)) or 1.0
    low, high = np.append(low, [0.0, -np.inf]), np.append(high, [np.inf, 0.0])
    signed = np.zeros(count + 2)
    solve_pairs(kernel, residual, signed, low, high, tol, epsilon=width, max_steps=max_steps)
    if block.epsilon is None:
        return block.signs * signed[:count]
    return _of_both_signs(signed[:count], block)


def _solve_pairs_of_classes(
    gram: np.ndarray, blocks: Sequence[Block], tol: float, max_steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """The SVMs of all pairs of classes, by one call of LIBSVM."""
    num_classes = (1 + math.isqrt(1 + 8 * len(blocks))) // 2
    codes, upper = np.zeros(len(gram)), np.empty(len(gram))
    for second, block in enumerate(blocks[: num_classes - 1], start=1):
        codes[block.rows[block.signs < 0]] = second
        upper[block.rows] = block.upper
    support, counts, coefficients, intercepts = _train(gram, codes, upper, tol, max_steps)
    ends = np.cumsum([0, *counts])
    own = [slice(a, b) for a, b in zip(ends[:-1], ends[1:], strict=True)]
    variables = []
    for (first, second), block in zip(combinations(range(num_classes), 2), blocks, strict=True):
        signed = np.zeros(len(gram))
        for part, row in ((own[first], second - 1), (own[second], first)):
            signed[support[part]] = coefficients[row, part]
        variables.append(np.clip(signed[block.rows] * block.signs, 0.0, block.upper))
    return np.concatenate(variables), intercepts


def _of_both_signs(signed: np.ndarray, block: Block) -> np.ndarray:
    """The two variables of each row of a regression."""
    both = np.concatenate([np.maximum(signed, 0.0), np.maximum(-signed, 0.0)])
    return np.minimum(both, block.upper)


def _regression(
    gram: np.ndarray,
    targets: np.ndarray,
    upper: np.ndarray,
    epsilon: float,
    tol: float,
    max_steps: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Signed dual coefficients ``n``, and the intercept, of shape 1; ``tol`` is absolute."""
    support, _, coefficients, intercepts = _train(gram, targets, upper, tol, max_steps, epsilon)
    signed = np.zeros(len(gram))
    signed[support] = coefficients[0]
    return signed, intercepts


def _train(
    gram: np.ndarray,
    targets: np.ndarray,
    upper: np.ndarray,
    tol: float,
    max_steps: int,
    epsilon: float | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Support vectors, their numbers by class, dual coefficients and intercepts.

    Raises:
        ValueError: The dual coefficients are not finite because the Gram matrix is too large.
    """
    machine = SVC() if epsilon is None else SVR(epsilon=epsilon)
    machine.random_state = 0  # SVC and SVR would draw a seed from NumPy's global random state
    machine.set_params(kernel="precomputed", tol=tol, C=1.0, cache_size=_CACHE, max_iter=max_steps)
    # Validation takes many times as long as the training of a small SVM.
    with (
        config_context(assume_finite=True, skip_parameter_validation=True),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(gram, targets, sample_weight=upper)
    return machine.support_, machine.n_support_, machine.dual_coef_, machine.intercept_
