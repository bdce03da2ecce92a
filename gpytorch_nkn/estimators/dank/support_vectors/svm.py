"""Machines with a fixed kernel, by scikit-learn's LIBSVM."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from itertools import combinations

import numpy as np
from sklearn import config_context
from sklearn.svm import SVC, SVR

from gpytorch_nkn.estimators.dank.support_vectors.dual import Block

__all__ = ["comparison_steps", "solve_machines", "solve_regression"]

_CACHE = 500  # MB
_STEPS = 10_000_000


def comparison_steps(count: int) -> int:
    """Pairs to update at most where machines are compared, given the number of rows.

    Many times what a machine takes, unless ``C`` is huge and the kernel all but singular.
    """
    return 5_000 + 100 * count


def solve_machines(
    gram: np.ndarray, blocks: tuple[Block, ...], tol: float, *, max_steps: int = _STEPS
) -> tuple[np.ndarray, np.ndarray]:
    """Dual variables and intercepts of support vector machines with all rows.

    Args:
        gram: Gram matrix of all rows, ``n x n``.
        blocks: One machine, or those of all pairs of classes.
        tol: Tolerance of the optimality conditions, relative to the labels, or to the standard
            deviation of the targets.
        max_steps: Pairs of variables to update at most; what is returned then is feasible. The
            default is that of LIBSVM itself, scikit-learn's has none.

    Returns:
        Variables ``m`` of all blocks, one after the other, and intercepts ``P``.
    """
    with _unchecked():
        if len(blocks) > 1:
            return _solve_pairs_of_classes(gram, blocks, tol, max_steps)
        variables, intercept = _solve(gram, blocks[0], tol, max_steps)
    return variables, np.array([intercept])


def _solve_pairs_of_classes(
    gram: np.ndarray, blocks: tuple[Block, ...], tol: float, max_steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """The machines of all pairs of classes, by one call of LIBSVM."""
    num_classes = (1 + math.isqrt(1 + 8 * len(blocks))) // 2
    codes, upper = np.zeros(len(gram), dtype=np.intp), np.empty(len(gram))
    for second, block in enumerate(blocks[: num_classes - 1], start=1):
        codes[block.rows[block.signs < 0]] = second
        upper[block.rows] = block.upper
    machine = _classifier(tol, max_steps)
    machine.fit(gram, codes, sample_weight=upper)
    ends = np.cumsum([0, *machine.n_support_])
    own = [slice(a, b) for a, b in zip(ends[:-1], ends[1:], strict=True)]
    variables = []
    for (first, second), block in zip(combinations(range(num_classes), 2), blocks, strict=True):
        signed = np.zeros(len(gram))
        for part, row in ((own[first], second - 1), (own[second], first)):
            signed[machine.support_[part]] = machine.dual_coef_[row, part]
        variables.append(np.clip(signed[block.rows] * block.signs, 0.0, block.upper))
    return np.concatenate(variables), np.asarray(machine.intercept_, dtype=np.float64)


def _solve(gram: np.ndarray, block: Block, tol: float, max_steps: int) -> tuple[np.ndarray, float]:
    if block.epsilon is None:
        machine = _classifier(tol, max_steps)
        machine.fit(gram, block.signs, sample_weight=block.upper)
        signed = _signed(machine, len(gram))
        return np.clip(signed * block.signs, 0.0, block.upper), float(machine.intercept_[0])
    upper = block.upper[: len(gram)]
    targets = block.linear[: len(gram)] + block.epsilon
    machine = _regressor(block.epsilon, tol * (float(np.std(targets)) or 1.0), max_steps)
    machine.fit(gram, targets, sample_weight=upper)
    signed = _signed(machine, len(gram))
    both = np.concatenate([np.maximum(signed, 0.0), np.maximum(-signed, 0.0)])
    return np.minimum(both, block.upper), float(machine.intercept_[0])


def solve_regression(
    gram: np.ndarray,
    targets: np.ndarray,
    upper: np.ndarray,
    epsilon: float,
    tol: float,
    max_steps: int,
) -> np.ndarray:
    """Signed dual coefficients ``n`` of a regression; ``tol`` is absolute."""
    with _unchecked():
        machine = _regressor(epsilon, tol, max_steps).fit(gram, targets, sample_weight=upper)
    return _signed(machine, len(gram))


def _signed(machine: SVC | SVR, count: int) -> np.ndarray:
    signed = np.zeros(count)
    signed[machine.support_] = machine.dual_coef_[0]
    return signed


class _Classifier(SVC):
    """Without a warning where the number of steps is reached, which is meant to be."""

    def _warn_from_fit_status(self) -> None:
        pass


class _Regressor(SVR):
    """Without a warning where the number of steps is reached, which is meant to be."""

    def _warn_from_fit_status(self) -> None:
        pass


def _unchecked() -> AbstractContextManager[None]:
    """Without checks of what was checked before, which take as long as small machines do."""
    return config_context(assume_finite=True, skip_parameter_validation=True)


def _regressor(epsilon: float, tol: float, max_steps: int) -> SVR:
    machine = _Regressor(
        C=1.0,
        epsilon=epsilon,
        kernel="precomputed",
        tol=tol,
        cache_size=_CACHE,
        max_iter=max_steps,
    )
    machine.random_state = 0  # it draws a seed, by default from NumPy's global state
    return machine


def _classifier(tol: float, max_steps: int) -> SVC:
    return _Classifier(
        C=1.0,
        kernel="precomputed",
        tol=tol,
        cache_size=_CACHE,
        max_iter=max_steps,
        random_state=0,
    )
