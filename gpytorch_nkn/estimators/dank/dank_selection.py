"""Selection of learned kernels on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import eigh
from scipy.spatial.distance import pdist

from gpytorch_nkn.estimators.dank.base_kernel import BaseKernel
from gpytorch_nkn.estimators.dank.dual import Block
from gpytorch_nkn.estimators.dank.extension import Function
from gpytorch_nkn.estimators.dank.relevance import RelevanceKernel, relevance_path
from gpytorch_nkn.estimators.dank.svm import learn_svms, plain_svms
from gpytorch_nkn.fit import as_finished

__all__ = ["Fold", "Path", "Task", "choose", "choose_eta", "confirm", "learn_relevances"]

Fold = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Path:
    """Settings of candidate kernels with relevances, for one lengthscale of the base kernel."""

    widening: float  # factor of the base kernel's lengthscale
    cost: float  # factor of C
    power: int  # power of differences, 1 or 2
    penalties: tuple[float, ...]  # decreasing penalties
    skipped: int = 0  # number of leading penalties that only provide initial values
    shares: tuple[float, ...] = (1.0,)  # weights in an average with the base kernel
    max_iter: int = 20  # largest number of iterations for each penalty

    def members(self) -> list[tuple[int, float]]:
        """Return each candidate's index of the penalty and weight in the average."""
        numbers = range(self.skipped, len(self.penalties))
        return [(number, share) for number in numbers for share in self.shares]


@dataclass(frozen=True)
class Task:
    """Training rows with their SVMs and folds."""

    table: np.ndarray  # rows n x D
    gram: np.ndarray  # their Gram matrix, n x n
    target: np.ndarray  # encoded targets
    blocks: Callable[[np.ndarray, float], list[Block]]  # maps targets and a factor of C to SVMs
    losses: Callable[[np.ndarray, np.ndarray], np.ndarray]  # of decision values M x P and targets M
    folds: Sequence[Fold]  # pairs of training and held-out row indices


def learn_relevances(
    task: Task, base: BaseKernel, paths: Sequence[Path]
) -> tuple[RelevanceKernel | None, float, pd.DataFrame]:
    """Learn the kernel with relevances that predicts held-out rows best.

    Return the kernel (``None`` unless it is better than the base kernel), the factor of ``C``, and
    all candidates.
    """
    trials = [
        (path, base.widened(path.widening))
        for path in paths
        if path.widening == 1.0 or base.lengthscale is not None
    ]
    jobs = [(trial, fold) for trial in trials for fold in task.folds]
    results = _parallel(_path_losses, (task, base), jobs)
    count = len(task.folds)
    parts = [results[i * count : (i + 1) * count] for i in range(len(trials))]
    by_trial = [_by_row(part, task.folds, len(task.table)) for part in parts]
    losses = np.concatenate([_held_out_losses(task, task.gram, 1.0), *by_trial])
    members = [(trial, *member) for trial in trials for member in trial[0].members()]
    best = choose(losses)
    names = [
        {"relevance_penalty": path.penalties[number], "relevance_share": share}
        | {name: getattr(path, name) for name in ("power", "widening", "cost")}
        for (path, _), number, share in members
    ]
    candidates = _list_candidates("relevance", losses, names, best)
    if not best:
        return None, 1.0, candidates
    trial, number, share = members[best - 1]
    path, kernel = trial
    relevances = _path(task, trial, np.arange(len(task.table)), number + 1)[number]
    learned = RelevanceKernel(base, kernel, relevances, path.power, share)
    return learned, path.cost, candidates


def choose(losses: np.ndarray, least: float = 1.0) -> int:
    """Return the index of the kernel with the smallest loss; 0 unless its gain is significant.

    Losses are ``C x n`` for ``C`` kernels, the initial kernel first. ``least`` is the required gain
    in standard errors.
    """
    best = int(np.argmin(losses.mean(axis=1)))
    differences = losses[0] - losses[best]
    return best if differences.sum() > least * math.sqrt(np.sum(differences**2)) else 0


def confirm(task: Task, kernel: Function, cost: float) -> bool:
    """Return whether a kernel, with ``C`` times ``cost``, has less loss than the base kernel."""
    gram = kernel(task.table, task.table)
    losses = [_held_out_losses(task, task.gram, 1.0), _held_out_losses(task, gram, cost)]
    return choose(np.concatenate(losses), 0.0) == 1


def choose_eta(task: Task, shares: Sequence[float], cost: float) -> tuple[int | None, pd.DataFrame]:
    """Choose ``eta``, relative to the squared norm of the dual variables, on held-out rows.

    Return the index of the best value (``None`` for ``F = 1``), and all candidates.
    """
    results = _parallel(_eta_losses, (task, shares, cost), [(fold,) for fold in task.folds])
    losses = _by_row(results, task.folds, len(task.target))
    best = choose(losses)
    names = [{"eta_share": share} for share in shares]
    return (best - 1 if best else None), _list_candidates("eta", losses, names, best)


def _list_candidates(
    stage: str, losses: np.ndarray, names: Sequence[dict[str, Any]], best: int
) -> pd.DataFrame:
    """Return a row for the initial kernel and each candidate with the parameters ``names``."""
    table, gains = (
        pd.DataFrame([{"stage": stage} | name for name in ({}, *names)]),
        losses[0] - losses,
    )
    return table.assign(
        mean_loss=losses.mean(1),
        gain=gains.mean(1),
        error=np.sqrt((gains**2).sum(1)) / gains.shape[1],
        weight=1.0 * (table.index == best),
    )


def _by_row(parts: Sequence[np.ndarray], folds: Sequence[Fold], count: int) -> np.ndarray:
    """Return losses ``C x n`` of kernels at held-out rows, averaged over repetitions."""
    sums, times = np.zeros((len(parts[0]), count)), np.zeros(count)
    for losses, (_, held_out) in zip(parts, folds, strict=True):
        sums[:, held_out] += losses
        times[held_out] += 1.0
    return sums[:, times > 0] / times[times > 0]


def _held_out_losses(task: Task, gram: np.ndarray, cost: float) -> np.ndarray:
    """Return mean losses ``1 x n`` of held-out rows for a given kernel."""
    parts = [_fold_losses(task, gram, cost, fold)[None] for fold in task.folds]
    return _by_row(parts, task.folds, len(gram))


def _fold_losses(task: Task, gram: np.ndarray, cost: float, fold: Fold) -> np.ndarray:
    """Return losses of held-out rows for SVMs with a given kernel."""
    train_rows, held_out = fold
    blocks = task.blocks(task.target[train_rows], cost)
    svms = plain_svms(gram[np.ix_(train_rows, train_rows)], blocks, quick=True)
    return task.losses(svms.outputs(gram[np.ix_(held_out, train_rows)]), task.target[held_out])


Trial = tuple[Path, BaseKernel]


def _path(task: Task, trial: Trial, rows: np.ndarray, stop: int) -> list[np.ndarray]:
    """Return relevances for the first ``stop`` penalties of a path."""
    path, kernel = trial
    inputs = task.table[rows]
    return relevance_path(
        task.gram[np.ix_(rows, rows)] if path.widening == 1.0 else kernel(inputs, inputs),
        inputs,
        task.blocks(task.target[rows], path.cost),
        path.penalties[:stop],
        scale=_scale(kernel, path.power, task.table),
        power=path.power,
        max_iter=path.max_iter,
    )


def _path_losses(shared: tuple[Task, BaseKernel], trial: Trial, fold: Fold) -> np.ndarray:
    """Return losses ``C x m`` of a path's candidates at held-out rows."""
    task, base = shared
    path, kernel = trial
    relevances = _path(task, trial, fold[0], len(path.penalties))
    learned = [
        RelevanceKernel(base, kernel, relevances[number], path.power, share)
        for number, share in path.members()
    ]
    grams = (k(task.table, task.table) for k in learned)
    return np.stack([_fold_losses(task, gram, path.cost, fold) for gram in grams])


def _eta_losses(shared: tuple[Task, Sequence[float], float], fold: Fold) -> np.ndarray:
    """Return losses ``C x m`` of the base kernel, then of each ``eta``, at held-out rows."""
    task, shares, cost = shared
    train_rows, held_out = fold
    gram, cross = task.gram[np.ix_(train_rows, train_rows)], task.gram[np.ix_(held_out, train_rows)]
    blocks, truth = task.blocks(task.target[train_rows], cost), task.target[held_out]
    plain = plain_svms(gram, blocks, quick=True)
    losses = [task.losses(plain.outputs(cross), truth)]
    if not plain.norm:  # without support vectors the factor is one
        return np.stack(losses * (1 + len(shares)))
    spectrum = eigh(gram)
    for share in shares:
        svms = learn_svms(
            gram, blocks, share * plain.norm, plain.variables, quick=True, spectrum=spectrum
        )
        losses.append(task.losses(svms.outputs(cross), truth))
    return np.stack(losses)


def _scale(kernel: BaseKernel, power: int, table: np.ndarray) -> float:
    """Return the scale of powers of differences, the unit of relevance penalties."""
    if power == 1:
        return float(np.median(pdist(table, "cityblock"))) / 4.0 or 1.0
    if kernel.lengthscale is not None:
        return kernel.lengthscale**2
    return float(table.var(axis=0).sum()) or 1.0


def _parallel(function: Callable[..., Any], shared: tuple, jobs: Sequence[tuple]) -> list[Any]:
    """Return ``function(shared, *job)`` for all jobs, in order."""
    results = dict(as_finished(function, jobs, None, shared=shared))
    return [results[number] for number in range(len(jobs))]
