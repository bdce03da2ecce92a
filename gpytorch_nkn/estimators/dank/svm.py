"""SVMs with a learned factor, trained by scikit-learn's SVC or SVR."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn import config_context
from sklearn.svm import SVC, SVR

from gpytorch_nkn.estimators.dank.dual import Block, DualProblem, maximize
from gpytorch_nkn.estimators.dank.extension import smooth_coefficients, times_factor

__all__ = ["FittedSVMs", "fit_svms", "learn_svms", "plain_svms", "solve_svms"]

_TOL = 1e-3  # tolerance of the optimality conditions, scikit-learn's default
_CACHE = 500  # cache of scikit-learn in MB
_MAX_STEPS = 10_000_000  # largest number of iterations of scikit-learn's solver
_FACTOR_TOL, _FACTOR_STEPS = 1e-6, 100  # tolerance and steps of the dual problem with a factor
_QUICK_TOL, _QUICK_STEPS = 1e-5, 50  # tolerance and steps in comparisons of eta
_MIN_ETA = 1e-12  # smallest eta relative to the squared norm of the dual variables


def solve_svms(
    gram: np.ndarray, blocks: Sequence[Block], *, tol: float = _TOL, quick: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return dual variables ``m`` and intercepts ``P`` of SVMs with a Gram matrix ``n x n``.

    ``tol`` is in units of labels or of the targets' standard deviation. ``quick`` limits the number
    of steps, because nearly singular kernels need very many.
    """
    steps = 5_000 + 100 * len(gram) if quick else _MAX_STEPS
    solutions = [_solve(gram, block, tol, steps) for block in blocks]
    variables, intercepts = zip(*solutions, strict=True)
    return np.concatenate(variables), np.array(intercepts)


def _solve(gram: np.ndarray, block: Block, tol: float, steps: int) -> tuple[np.ndarray, float]:
    """Return dual variables and intercept of one SVM."""
    count, targets, machine = block.count, block.targets, SVC()
    if block.epsilon is not None:
        machine, tol = SVR(epsilon=block.epsilon), tol * (float(np.std(targets)) or 1.0)
    elif not count or np.ptp(targets) == 0.0:  # rows of at most one class
        return np.zeros(count), targets[0] if count else 0.0
    if count < len(gram):
        rows = block.rows[:count]
        gram = gram[np.ix_(rows, rows)]
    machine.random_state = 0  # avoids NumPy's global random state
    machine.set_params(kernel="precomputed", tol=tol, cache_size=_CACHE, max_iter=steps)
    # A filter of the warning that the limit of steps was reached would act on all threads.
    machine._warn_from_fit_status = lambda: None
    # Skip validation, which takes longer than training a small SVM.
    with config_context(assume_finite=True, skip_parameter_validation=True):
        machine.fit(gram, targets, sample_weight=block.upper[:count])
    signed = np.zeros(count)
    signed[machine.support_] = machine.dual_coef_[0]
    signed = signed * block.signs if block.epsilon is None else np.concatenate([signed, -signed])
    return np.clip(signed, 0.0, block.upper), machine.intercept_[0]


@dataclass(frozen=True)
class FittedSVMs:
    """SVMs with the kernel ``k F``."""

    variables: np.ndarray  # dual variables of all blocks, m
    signed: np.ndarray  # signed dual coefficients, n x P
    intercepts: np.ndarray  # P
    eta: float = math.inf
    learned: np.ndarray | None = None  # coefficients from which F was learned; None for F = 1
    coefficients: np.ndarray | None = None  # map of base kernel values to features of F, n x P
    features: np.ndarray | None = None  # features of the training rows, n x P; None for F = 1

    @property
    def norm(self) -> float:
        """Squared norm of the dual variables: the paper's ``eta``."""
        return float(self.variables @ self.variables)

    def outputs(self, cross: np.ndarray) -> np.ndarray:
        """Return decision values ``M x P``, given base kernel values ``M x n``."""
        if self.coefficients is not None and self.features is not None:
            cross = times_factor(cross, cross @ self.coefficients, self.features)
        return cross @ self.signed + self.intercepts


def plain_svms(gram: np.ndarray, blocks: Sequence[Block], *, quick: bool = False) -> FittedSVMs:
    """Train SVMs with the base kernel."""
    variables, intercepts = solve_svms(gram, blocks, quick=quick)
    return FittedSVMs(variables, DualProblem(gram, blocks).signed(variables), intercepts)


def fit_svms(
    gram: np.ndarray, blocks: Sequence[Block], share: float | None, eta: float
) -> FittedSVMs:
    """Train SVMs with a factor, or with the base kernel if ``eta`` is infinite.

    ``share``, if not ``None``, sets ``eta`` to this multiple of the dual variables' squared norm.
    """
    gram = 0.5 * (gram + gram.T)
    svms = plain_svms(gram, blocks)
    if share is not None and svms.norm > 0.0:
        eta = share * svms.norm
    return learn_svms(gram, blocks, eta, svms.variables) if np.isfinite(eta) else svms


def learn_svms(
    gram: np.ndarray,
    blocks: Sequence[Block],
    eta: float,
    start: np.ndarray,
    *,
    quick: bool = False,
    spectrum: tuple[np.ndarray, np.ndarray] | None = None,
) -> FittedSVMs:
    """Learn a factor, starting from dual variables ``m``; extend it and train SVMs with it.

    ``quick`` takes fewer steps. ``spectrum`` has the eigenvalues and eigenvectors of ``gram``, if
    known.
    """
    least = _MIN_ETA * float(start @ start)
    if eta < least:
        raise ValueError(f"eta must be at least {least:g} for a finite F, got {eta:g}.")
    problem = DualProblem(gram, blocks, eta)
    tol, steps = (_QUICK_TOL, _QUICK_STEPS) if quick else (_FACTOR_TOL, _FACTOR_STEPS)
    point = maximize(problem, start, tol=tol, max_iter=steps)
    coefficients = smooth_coefficients(gram, point.signed, eta, spectrum)
    features, learned = None, gram
    if coefficients is not None:
        features = gram @ coefficients
        learned = times_factor(gram, features, features)
    variables, intercepts = solve_svms(learned, blocks, quick=quick)
    signed = problem.signed(variables)
    return FittedSVMs(variables, signed, intercepts, eta, point.signed, coefficients, features)
