"""What of a learned kernel to keep, by held-out rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.spatial.distance import pdist

from gpytorch_nkn.estimators.dank.base_kernel import BaseKernel
from gpytorch_nkn.estimators.dank.support_vectors import (
    Block,
    Learner,
    RelevanceKernel,
    RelevanceTerm,
    reciprocal_neighbours,
    relevance_path,
)
from gpytorch_nkn.fit import as_finished, progress_bar

__all__ = [
    "Blocks",
    "Candidate",
    "Fold",
    "Path",
    "Task",
    "average",
    "choose",
    "choose_eta",
    "confirm",
    "learn_relevances",
    "list_candidates",
    "losses_of_etas",
]

Blocks = Callable[[np.ndarray, float], list[Block]]
Fold = tuple[np.ndarray, np.ndarray]

_EXCESS = 0.1  # relative excess of the error, over which a kernel's weight falls
_NEGLIGIBLE = 1e-3  # share below which a kernel is dropped from a sum


@dataclass(frozen=True)
class Path:
    """Relevances to try, from one base kernel.

    Attributes:
        widening: Factor of the width of the base kernel.
        cost: Factor of ``C``.
        power: Of differences, 1 or 2.
        penalties: Falling.
        skipped: So many penalties, the first, are no candidates, but lead to the others.
        shares: Of the kernel with relevances in a sum with the base kernel.
        max_iter: Iterations for each penalty.
    """

    widening: float
    cost: float
    power: int
    penalties: tuple[float, ...]
    skipped: int = 0
    shares: tuple[float, ...] = (1.0,)
    max_iter: int = 20

    def members(self) -> list[tuple[int, float]]:
        """Places of penalties, and shares, of the candidates."""
        places = range(self.skipped, len(self.penalties))
        return [(place, share) for place in places for share in self.shares]


@dataclass(frozen=True)
class Task:
    """Rows to learn from, and what SVMs there are for them.

    Attributes:
        gram: Gram matrix of the base kernel, ``n x n``.
        target: Encoded targets, ``n``.
        blocks: Makes SVMs of encoded targets and a factor of ``C``.
        losses: Loss of each row, given decision values and encoded targets.
        folds: Rows to train with, and rows to predict; all rows are predicted equally often.
        learner: How factors are learned.
        distances: Between rows, ``n x n``, for the reciprocal extension.
        n_jobs: Processes, as joblib's.
        progress: Whether to show a bar on a terminal.
    """

    gram: np.ndarray
    target: np.ndarray
    blocks: Blocks
    losses: Callable[[np.ndarray, np.ndarray], np.ndarray]
    folds: Sequence[Fold]
    learner: Learner
    distances: np.ndarray | None
    n_jobs: int | None
    progress: bool


@dataclass(frozen=True)
class Candidate:
    """A kernel that was tried.

    Attributes:
        stage: What it was a candidate of: ``"relevance"`` or ``"eta"``. The second starts from the
            kernel that the first one chose, whose relevances have seen all rows, so mean losses
            are too good there, for all candidates alike.
        params: What it is, by name; empty for the kernel to start from.
        mean_loss: Over held-out rows: share of wrong classes, or mean squared error.
        gain: Mean loss of the kernel to start from, less this one.
        error: Standard error of that.
        weight: Of the kernel in what was chosen.
    """

    stage: str
    params: dict[str, Any]
    mean_loss: float
    gain: float
    error: float
    weight: float


def learn_relevances(
    task: Task,
    base: BaseKernel,
    table: np.ndarray,
    paths: Sequence[Path],
    weigh: Callable[[np.ndarray], np.ndarray],
) -> tuple[RelevanceKernel | None, float, list[Candidate]]:
    """Kernels with relevances that predict held-out rows better than the base kernel, if any.

    Args:
        task: Rows and SVMs.
        base: The base kernel.
        table: Inputs ``n x D``.
        paths: What to try. Kernels without a width are not widened.
        weigh: Makes weights of kernels of their losses, kernels by rows, base kernel first.

    Returns:
        The kernel, or ``None`` for the base kernel; the factor of ``C`` to use with it; all
        candidates.
    """
    if base.width is None:
        paths = [path for path in paths if path.widening == 1.0]
    wide = [base if path.widening == 1.0 else base.widened(path.widening) for path in paths]
    scales = [_scale(kernel, path.power, table) for path, kernel in zip(paths, wide, strict=True)]
    trials = list(zip(paths, wide, scales, strict=True))
    jobs = [(trial, fold) for trial in trials for fold in task.folds]
    found = _parallel(
        task,
        "relevances",
        _path_job,
        (task, base, table),
        jobs,
    )
    count = len(task.folds)
    reference = [_fold_losses(task, task.gram, 1.0, fold)[None] for fold in task.folds]
    losses = np.concatenate(
        [
            _by_row(parts, task.folds, len(table))
            for parts in [
                reference,
                *(found[i * count : (i + 1) * count] for i in range(len(paths))),
            ]
        ]
    )
    members = [(trial, *member) for trial in trials for member in trial[0].members()]
    weights = weigh(losses)
    names = [
        {
            "relevance_penalty": path.penalties[place],
            "power": path.power,
            "widening": path.widening,
            "cost": path.cost,
            "relevance_share": share,
        }
        for (path, _, _), place, share in members
    ]
    candidates = list_candidates("relevance", losses, names, weights)
    terms: list[RelevanceTerm] = []
    cost = 1.0
    for trial in trials:
        path, kernel, _ = trial
        chosen = [
            (weight, place, share)
            for weight, (other, place, share) in zip(weights[1:], members, strict=True)
            if other is trial and weight > 0.0
        ]
        if not chosen:
            continue
        cost = path.cost
        last = max(place for _, place, _ in chosen)
        found_weights = _path(task, task.gram, table, trial, np.arange(len(table)), last + 1)
        for weight, place, share in chosen:
            terms.append(RelevanceTerm(weight * share, kernel, found_weights[place], path.power))
    terms = [term for term in terms if term.weights.any() or term.wide is not base]
    if not terms:
        return None, 1.0, candidates
    return RelevanceKernel(base, 1.0 - sum(t.share for t in terms), tuple(terms)), cost, candidates


def choose(losses: np.ndarray, least: float = 1.0) -> np.ndarray:
    """All of the weight for the kernel with the least loss, if it is better for sure.

    Args:
        losses: Kernels by rows, that to start from first.
        least: Standard errors that its gain must exceed.

    Returns:
        Weights of the kernels: one of them is 1.
    """
    best = int(np.argmin(losses.mean(axis=1)))
    differences = losses[0] - losses[best]
    shares = np.zeros(len(losses))
    shares[best if differences.sum() > least * math.sqrt(np.sum(differences**2)) else 0] = 1.0
    return shares


@np.errstate(under="ignore")  # small terms vanish
def average(losses: np.ndarray) -> np.ndarray:
    r"""Weights that fall as kernels are worse than the best, for sure and by much.

    .. math::
        \pi_c \propto \exp\bigl(-z_c^2 / 2 - (r_c / 0.1)^2 / 2\bigr)

    with ``z`` the mean difference to the best over its standard error, and ``r`` the relative
    excess of the mean loss. To average protects from the luck of the best.

    Args:
        losses: Kernels by rows, that to start from first.

    Returns:
        Weights of the kernels, which sum to 1.
    """
    means = losses.mean(axis=1)
    best = int(np.argmin(means))
    if not means[best] > 0.0:
        return choose(losses)
    differences = losses - losses[best]
    errors = differences.std(axis=1, ddof=1) / math.sqrt(losses.shape[1])
    certain = np.divide(differences.mean(axis=1), errors, out=np.zeros(len(losses)),
                        where=errors > 0.0)  # fmt: skip
    excess = (means / means[best] - 1.0) / _EXCESS
    shares = np.exp(-0.5 * (certain**2 + excess**2))
    shares /= shares.sum()
    shares[shares < _NEGLIGIBLE] = 0.0
    return shares / shares.sum()


def confirm(task: Task, gram: np.ndarray, cost: float) -> bool:
    """Whether a kernel learned from some rows is better than the base kernel with more.

    Its Gram matrix is that of the rows of the task; ``cost`` is the factor of ``C`` with it.
    """
    losses = [
        _by_row(
            [_fold_losses(task, g, c, fold)[None] for fold in task.folds], task.folds, len(gram)
        )
        for g, c in ((task.gram, 1.0), (gram, cost))
    ]
    return bool(choose(np.concatenate(losses), 0.0)[1])


def choose_eta(task: Task, shares: Sequence[float]) -> tuple[int | None, list[Candidate]]:
    """``eta``, relative to the squared norm of dual variables, by held-out rows.

    Factors are learned without a threshold there, which only sets the rank.

    Args:
        task: Rows and SVMs.
        shares: Values to try, falling.

    Returns:
        Place of the best share, or ``None`` for ``F = 1``; all candidates.
    """
    found = _parallel(
        task,
        "eta",
        _eta_job,
        (task, shares),
        [(fold,) for fold in task.folds],
    )
    losses = _by_row(found, task.folds, len(task.target))
    weights = choose(losses)
    best = int(np.argmax(weights))
    names = [{"eta_share": share} for share in shares]
    candidates = list_candidates("eta", losses, names, weights)
    return (best - 1 if best else None), candidates


def list_candidates(
    stage: str, losses: np.ndarray, names: Sequence[dict[str, Any]], weights: np.ndarray
) -> list[Candidate]:
    candidates = []
    for name, row, weight in zip([{}, *names], losses, weights, strict=True):
        gains = losses[0] - row
        error = float(np.sqrt(np.sum(gains**2))) / len(gains)
        candidates.append(
            Candidate(stage, name, float(row.mean()), float(gains.mean()), error, float(weight))
        )
    return candidates


def _by_row(parts: Sequence[np.ndarray], folds: Sequence[Fold], count: int) -> np.ndarray:
    """Mean losses of the held-out rows, kernels by rows."""
    sums, times = np.zeros((len(parts[0]), count)), np.zeros(count)
    for losses, (_, held_out) in zip(parts, folds, strict=True):
        sums[:, held_out] += losses
        times[held_out] += 1.0
    return sums[:, times > 0] / times[times > 0]


def _fold_losses(task: Task, gram: np.ndarray, cost: float, fold: Fold) -> np.ndarray:
    """Losses of held-out rows with SVMs of a given kernel."""
    known, held_out = fold
    svms = task.learner.compared(gram[np.ix_(known, known)], task.blocks(task.target[known], cost))
    return task.losses(svms.outputs(gram[np.ix_(held_out, known)]), task.target[held_out])


Trial = tuple[Path, BaseKernel, float]


def _path(
    task: Task, gram: np.ndarray, table: np.ndarray, trial: Trial, rows: np.ndarray, stop: int
) -> list[np.ndarray]:
    """Relevances for the first penalties of a path."""
    path, kernel, scale = trial
    inputs = table[rows]
    return relevance_path(
        gram[np.ix_(rows, rows)] if path.widening == 1.0 else kernel(inputs, inputs),
        inputs,
        task.blocks(task.target[rows], path.cost),
        path.penalties[:stop],
        scale=scale,
        power=path.power,
        tol=task.learner.machine_tol,
        max_iter=path.max_iter,
    )


def _path_losses(
    task: Task, base: BaseKernel, table: np.ndarray, trial: Trial, fold: Fold
) -> np.ndarray:
    """Losses of held-out rows, candidates of a path by rows."""
    path, kernel, _ = trial
    found = _path(task, task.gram, table, trial, fold[0], len(path.penalties))
    losses = []
    for place, share in path.members():
        term = RelevanceTerm(share, kernel, found[place], path.power)
        gram = RelevanceKernel(base, 1.0 - share, (term,))(table, table)
        losses.append(_fold_losses(task, gram, path.cost, fold))
    return np.stack(losses)


def _eta_losses(task: Task, shares: Sequence[float], fold: Fold) -> np.ndarray:
    """Losses of held-out rows: of the base kernel, then of each value of ``eta``."""
    known, held_out = fold
    truth = task.target[held_out]
    distances = None if task.distances is None else task.distances[np.ix_(known, held_out)]
    return losses_of_etas(
        task.learner,
        task.gram[np.ix_(known, known)],
        task.gram[np.ix_(held_out, known)],
        task.blocks(task.target[known], 1.0),
        shares,
        lambda outputs: task.losses(outputs, truth),
        distances,
    )


def losses_of_etas(
    learner: Learner,
    gram: np.ndarray,
    cross: np.ndarray,
    blocks: Sequence[Block],
    shares: Sequence[float],
    losses: Callable[[np.ndarray], np.ndarray],
    distances: np.ndarray | None = None,
) -> np.ndarray:
    """Losses of held-out rows: of the base kernel, then of each value of ``eta``.

    Args:
        learner: How factors are learned.
        gram: Gram matrix of the rows to train with, ``n x n``.
        cross: Kernel between held-out rows and these, ``M x n``.
        blocks: SVMs of the rows to train with.
        shares: Of the squared norm of dual variables, falling.
        losses: Of held-out rows, ``M``, given decision values ``M x P``.
        distances: Between the rows, ``n x M``, for the reciprocal extension.
    """
    plain = learner.compared(gram, blocks)
    found = [losses(plain.outputs(cross))]
    if not plain.norm:  # nothing is a support vector, so nothing is learned
        return np.stack(found * (1 + len(shares)))
    spectrum = eigh(gram) if distances is None else None
    partners = None if distances is None else reciprocal_neighbours(distances)
    start = plain.variables
    for share in shares:
        svms = learner.quick(gram, blocks, share * plain.norm, start, spectrum)
        start = start if svms.learned is None else svms.learned
        found.append(losses(svms.outputs(cross, partners)))
    return np.stack(found)


def _scale(kernel: BaseKernel, power: int, table: np.ndarray) -> float:
    """What makes penalties of relevances free of units.

    That of squared differences is the squared width of the kernel, or half the mean squared
    distance of two rows where it has none; of absolute ones a quarter of the median distance.
    """
    if power == 1:
        return float(np.median(pdist(table, "cityblock"))) / 4.0 or 1.0
    if kernel.width is not None:
        return kernel.width**2
    return float(table.var(axis=0).sum()) or 1.0


def _path_job(shared: tuple, trial: Any, fold: Any) -> Any:
    task, base, table = shared
    return _path_losses(task, base, table, trial, fold)


def _eta_job(shared: tuple, fold: Any) -> Any:
    task, shares = shared
    return _eta_losses(task, shares, fold)


def _parallel(
    task: Task, name: str, function: Callable[..., Any], shared: tuple, jobs: Sequence[tuple]
) -> list[Any]:
    """Results of ``function(shared, *job)``, in the order of the jobs."""
    results: dict[int, Any] = {}
    with (
        progress_bar(task.progress, len(jobs), name) as bar,
        closing(as_finished(function, jobs, task.n_jobs, shared=shared)) as found,
    ):
        for number, result in found:
            results[number] = result
            bar.update()
    return [results[number] for number in range(len(jobs))]
