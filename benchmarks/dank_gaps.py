"""How fast the solvers of the dual problem close their gap, and how definite the kernels are."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from benchmarks.dank_large import load_eeg
from benchmarks.dank_protocol import fit, load_split
from gpytorch_nkn.estimators.dank.base_kernel import BaseKernel
from gpytorch_nkn.estimators.dank.dank_classifier import DANKClassifier
from gpytorch_nkn.estimators.dank.support_vectors.dual import (
    Block,
    DualPoint,
    DualProblem,
    classification_blocks,
)
from gpytorch_nkn.estimators.dank.support_vectors.learner import Learner
from gpytorch_nkn.estimators.dank.support_vectors.solvers import SOLVERS, solve

__all__ = ["Watched", "measure_gaps"]

_LEVELS = (1e-2, 1e-3, 1e-4, 1e-5)  # relative to the objective of the machines
_TOL = 1e-5
_NEW_ROWS = 1000
_FEW = 10  # steps before the eigenvalues


class _OutOfTimeError(Exception):
    pass


class Watched(DualProblem):
    """A problem that notes the best feasible objective against processor time.

    Args:
        gram: As of :class:`DualProblem`.
        blocks: As there.
        eta: As there.
        tau: As there.
        seconds: After which to stop.
    """

    def __init__(
        self, gram: np.ndarray, blocks: Sequence[Block], eta: float, tau: float, seconds: float
    ):
        super().__init__(gram, blocks, eta, tau)
        self.seconds = seconds
        self.start = time.process_time()
        self.times: list[float] = []
        self.values: list[float] = []

    def evaluate(self, variables: np.ndarray) -> DualPoint:
        """The same; raises when time is up."""
        point = super().evaluate(variables)
        elapsed = time.process_time() - self.start
        if self._is_feasible(variables) and not (self.values and point.value <= self.values[-1]):
            self.times.append(elapsed)
            self.values.append(point.value)
        if elapsed > self.seconds:
            raise _OutOfTimeError
        return point

    def seconds_to(self, value: float) -> float | None:
        """Until the objective reached a value; ``None`` if it did not."""
        for elapsed, reached in zip(self.times, self.values, strict=True):
            if reached >= value:
                return elapsed
        return None

    def _is_feasible(self, variables: np.ndarray) -> bool:
        slack = 1e-9 * self.upper.max()
        if (variables < -slack).any() or (variables > self.upper + slack).any():
            return False
        sums = [
            abs(block.signs @ variables[part])
            for block, part in zip(self.blocks, self.parts, strict=True)
        ]
        return max(sums) <= slack * len(variables)


def measure_gaps(rows: int = 3000, seconds: float = 20.0) -> str:
    """Markdown: seconds to gaps, on heart and on rows of EEG; then the least eigenvalues.

    Args:
        rows: Of EEG.
        seconds: Of the processor after which a solver is stopped.
    """
    heart = load_split("heart", "half", 0)
    _, tuned = fit("svm", heart, None)
    eeg = load_eeg(0)
    some = np.sort(np.random.default_rng(0).permutation(len(eeg.y))[:rows])
    new = slice(None, _NEW_ROWS)
    cases = [
        ("heart", heart.X, heart.y, heart.test_inputs, tuned["C"], tuned["gamma"]),
        ("EEG", eeg.X[some], eeg.y[some], eeg.test_inputs[new], 32.0, 100.0),
    ]
    title = "| problem | solver | " + " | ".join(f"{level:g}" for level in _LEVELS)
    lines = [title + " | stopped, certified | steps |", "| --- " * (len(_LEVELS) + 4) + "|"]
    eigenvalues = []
    for name, X, y, new_X, cost, gamma in cases:
        for tau in (0.0, 0.01):
            for share in (1.0, 1.0 / len(X)):
                title = f"{name}, n = {len(X)}, tau = {tau:g}, eta = {share:.2g} of the norm"
                lines += _gaps(title, X, y, cost, gamma, tau, share, seconds)
                print("\n".join(lines[-2:]), file=sys.stderr, flush=True)
                eigenvalues.append(_eigenvalues(title, X, y, new_X, cost, gamma, tau, share))
                print(eigenvalues[-1], file=sys.stderr, flush=True)
    head = ["| problem | rank of F | least eigenvalue | relative |", "| --- " * 4 + "|"]
    return "\n".join(
        [
            "CPU seconds until the relative gap to the maximum is below a level (from the SVM's "
            f"solution; `-`: not within {seconds:g} s), until the solver stops by itself as its "
            f"certified gap is at most {_TOL:g}, and steps:",
            "",
            *lines,
            "",
            "Learned kernels between all rows of training and test (smooth extension):",
            "",
            *head,
            *eigenvalues,
        ]
    )


def _gaps(
    title: str,
    X: np.ndarray,
    y: np.ndarray,
    cost: float,
    gamma: float,
    tau: float,
    share: float,
    seconds: float,
) -> list[str]:
    gram = BaseKernel("rbf", gamma)(X, X)
    codes = np.unique(y, return_inverse=True)[1]
    blocks = classification_blocks(codes, 2, np.full(len(y), cost))
    start = Learner(tau, "smooth", "fista", _TOL, 1000, 1e-3).plain(gram, blocks).variables
    eta = share * float(start @ start)
    runs = {}
    for solver in SOLVERS:
        problem = Watched(gram, blocks, eta, tau, seconds)
        outcome = None
        try:
            outcome = solve(
                problem, problem.project(start), solver=solver, tol=_TOL, max_iter=10**6
            )
        except _OutOfTimeError:
            pass
        runs[solver] = problem, outcome, time.process_time() - problem.start
    exact = Watched(gram, blocks, eta, tau, 2 * seconds)
    try:
        solve(exact, exact.project(start), solver="fista", tol=1e-9, max_iter=10**6)
    except _OutOfTimeError:
        pass
    best = max(exact.values[-1], *(problem.values[-1] for problem, _, _ in runs.values()))
    point = DualProblem(gram, blocks, eta, tau).evaluate(start)
    scale = abs(best - point.factor.penalty)
    lines = []
    for solver, (problem, outcome, elapsed) in runs.items():
        cells = []
        for level in _LEVELS:
            when = problem.seconds_to(best - level * scale)
            cells.append("-" if when is None else f"{when:.3g}")
        stopped = "not" if outcome is None else f"{elapsed:.3g} s, {outcome.relative_gap:.1e}"
        steps = "" if outcome is None else str(outcome.iterations)
        lines.append(f"| {title} | {solver} | " + " | ".join([*cells, stopped, steps]) + " |")
    return lines


def _eigenvalues(
    title: str,
    X: np.ndarray,
    y: np.ndarray,
    new_X: np.ndarray,
    cost: float,
    gamma: float,
    tau: float,
    share: float,
) -> str:
    options: dict[str, Any] = {"C": cost, "gamma": gamma, "relevance": None, "n_clusters": 1}
    norm = DANKClassifier(eta="norm", max_iter=1, **options)
    last = DANKClassifier(tau=tau, max_iter=_FEW, **options)
    with warnings.catch_warnings():  # a kernel is one after few steps, too
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = last.set_params(eta=share * norm.fit(X, y).eta_).fit(X, y)
    gram = model.learned_kernel(np.concatenate([X, new_X]))
    values = np.linalg.eigvalsh(0.5 * (gram + gram.T))
    lowest, highest = float(values[0]), float(values[-1])
    return f"| {title} | {model.rank_} | {lowest:.1e} | {lowest / highest:.1e} |"
