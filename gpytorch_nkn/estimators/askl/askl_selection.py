"""The length of a training, chosen by rows that are held out of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpytorch_nkn.estimators.askl.askl_network import LOSSES, SpectralNetwork
from gpytorch_nkn.estimators.askl.askl_training import Record, Trainer
from gpytorch_nkn.estimators.askl.leave_one_out import (
    ridge_by_left_out_rows,
    ridge_operations,
)
from gpytorch_nkn.fit import Session, warn_user

__all__ = ["Outcome", "Plan", "SpectralTask", "doubling_cycles", "held_out_parts", "train"]

_FIRST_CYCLE = 5  # epochs
_TOLERANCE = 0.5  # standard errors by which a longer training has to be better
_LEAST_RIDGE = 250  # rows, by which the time of more is estimated
_RIDGE_SHARE = 0.4  # of the time of a training, for the ridge regression that it is to improve on
_COSINE = 40  # operations that a cosine is worth
_FACTORS = 2.0 ** np.arange(-2, 6.1, 0.5)  # of the outputs of a ridge regression on classes


def doubling_cycles(epochs: int) -> list[int]:
    """Cycles at whose ends 5, 10, 20, 40, ... epochs have passed, and at last all of them."""
    totals = [0]
    while totals[-1] < epochs:
        totals.append(min(max(_FIRST_CYCLE, 2 * totals[-1]), epochs))
    return np.diff(totals).tolist()


def held_out_parts(
    count: int,
    parts: int,
    fraction: float,
    rng: np.random.RandomState,
    labels: np.ndarray | None = None,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Random rows to train on and rows to hold out, with the same shares of every class.

    Every class has a row that is never held out, so one of a single row is always trained on.

    Args:
        count: Number of rows.
        parts: Number of parts to hold out in turn, which have no row in common.
        fraction: Share of the rows that each holds.
        rng: Where draws come from.
        labels: Classes ``N``, if there are any.

    Returns:
        Numbers of the rows to train on and of those held out, in increasing order; fewer pairs
        than asked for where there are too few rows to hold out.
    """
    order = rng.permutation(count)
    first = np.zeros(count, dtype=bool)
    if labels is None:
        first[order[0]] = True
    else:
        order = order[np.argsort(labels[order], kind="stable")]
        _, starts = np.unique(labels[order], return_index=True)
        first[order[starts]] = True
    free = order[~first[order]]
    number = min(round(parts * fraction * count), len(free))
    places = ((np.arange(number) + rng.uniform()) * len(free) / max(number, 1)).astype(int)
    turns = np.arange(number) % parts
    pairs = []
    for part in range(min(parts, number)):
        held = np.zeros(count, dtype=bool)
        held[free[places[turns == part]]] = True
        pairs.append((np.flatnonzero(~held), np.flatnonzero(held)))
    return pairs


@dataclass(frozen=True, eq=False)
class SpectralTask:
    """What is to be learned.

    Attributes:
        x: Rows ``N x (d + 1)``, ones in the last column, float32.
        targets: What the loss compares with, ``N`` rows.
        ridge_targets: What a ridge regression compares with, float64 ``N x K``; ``None`` for none.
        loss: Name of the loss.
        scores: Scores ``N`` of outputs for targets, the higher the better.
    """

    x: Tensor
    targets: Tensor
    ridge_targets: Tensor | None
    loss: str
    scores: Callable[[Tensor, Tensor], Tensor]

    def rows(self, numbers: np.ndarray) -> SpectralTask:
        """The same for some of the rows."""
        rows = torch.from_numpy(numbers).to(self.x.device)
        ridge = None if self.ridge_targets is None else self.ridge_targets[rows]
        return SpectralTask(self.x[rows], self.targets[rows], ridge, self.loss, self.scores)


@dataclass(frozen=True)
class Plan:
    """How to train.

    Attributes:
        cycles: Epochs of each cycle.
        held_out: Rows to train on and to hold out, in turn; none to train on all and keep the end.
        refit: Train on all rows for as long as was best, instead of keeping a network that was
            trained without the held-out rows (the first, if there are several).
        patience: Cycles without a better score after which to stop, with one such part.
        batch_size: Largest size of a batch.
        budget: Seconds from the call of :func:`train` on; ``None`` for no limit.
        progress: Show a progress bar on a terminal.
    """

    cycles: Sequence[int]
    held_out: Sequence[tuple[np.ndarray, np.ndarray]]
    refit: bool
    patience: int
    batch_size: int
    budget: float | None
    progress: bool


@dataclass(frozen=True)
class Outcome:
    """How it went.

    Attributes:
        losses: Mean loss of each epoch of the training that is kept.
        scores: Mean score of the held-out rows for each candidate: the ridge regression (or the
            start), then the end of each cycle.
        best_epoch: Number of epochs after which the parameters are kept.
        epochs: Number of all epochs, those of other trainings included.
    """

    losses: list[float]
    scores: list[float]
    best_epoch: int
    epochs: int


def train(
    network: SpectralNetwork,
    make_trainer: Callable[[], Trainer],
    task: SpectralTask,
    plan: Plan,
    rng: np.random.RandomState,
) -> Outcome:
    """Train a network, for the number of cycles that predicts held-out rows best.

    A candidate besides them is ridge regression on the features to start from, so that training
    is never much worse than doing without it. With the squared loss, ridge regression takes the
    place of the weights at the end of cycles, too: features are learned in fewer epochs than it
    takes the weights to follow.

    Args:
        network: The network, prepared, at its start values.
        make_trainer: Makes a trainer of it, with an optimiser that remembers nothing.
        task: What is to be learned.
        plan: How.
        rng: Where orders come from.
    """
    runs = _Runs(network, make_trainer, plan, rng)
    with runs.bar:
        if not plan.held_out:
            record = runs.train(task, plan.cycles)
            runs.warn_if_interrupted(record, record.best_epoch)
            return Outcome(record.losses, [], record.best_epoch, runs.epochs)
        return _select(runs, task)


def _select(runs: _Runs, task: SpectralTask) -> Outcome:
    """Train without held-out rows, in turn, and then on all of them if the plan says so."""
    plan, network = runs.plan, runs.network
    found: list[list[np.ndarray]] = []
    kept: tuple[Record, list[Tensor], Tensor] | None = None
    for rows, held in plan.held_out:
        if found and runs.late():
            break
        record, scores, states = runs.validate(task.rows(rows), task.rows(held))
        found.append(scores)
        if kept is None:
            kept = record, states, network.values.clone()
        if record.stopped == "interrupted":
            runs.warn_if_interrupted(record, record.best_epoch)
            means = [float(part.mean()) for part in scores]
            return Outcome(record.losses, means, record.best_epoch, runs.epochs)
    assert kept is not None
    shortest = min(len(scores) for scores in found)
    table = np.stack(
        [np.concatenate(parts) for parts in zip(*(f[:shortest] for f in found), strict=True)]
    )
    chosen, means = _choose(table), table.mean(1).tolist()
    record, states, values = kept
    if plan.refit and runs.can_refit(task, chosen):
        again = Record()
        network.values.copy_(runs.start)
        if chosen == 0:
            runs.ridge(task, runs.seconds_left)
        else:
            again = runs.train(task, plan.cycles[:chosen], close=runs.close(task))
        if again.stopped != "interrupted":
            return Outcome(again.losses, means, again.best_epoch, runs.epochs)
        runs.warn_if_interrupted(again, record.best_epoch)
        network.values.copy_(values)
        return Outcome(record.losses, means, record.best_epoch, runs.epochs)
    if plan.refit:  # no time is left: the network of the first part
        return Outcome(record.losses, means, record.best_epoch, runs.epochs)
    network.values.copy_(states[chosen])
    return Outcome(record.losses, means, sum(plan.cycles[:chosen]), runs.epochs)


def _choose(scores: np.ndarray) -> int:
    """Number of the best candidate, or of an earlier cycle that is as good within the noise.

    Args:
        scores: Of the candidates, the first without training, at each row, ``C x N``.
    """
    best = int(scores.mean(1).argmax())
    for earlier in range(1, best):
        less = scores[best] - scores[earlier]
        if less.mean() <= _TOLERANCE * less.std() / math.sqrt(len(less)):
            return earlier
    return best


class _Runs:
    """Trainings of one network from the same start, which share a budget and a bar."""

    def __init__(
        self,
        network: SpectralNetwork,
        make_trainer: Callable[[], Trainer],
        plan: Plan,
        rng: np.random.RandomState,
    ):
        self.network, self.make_trainer, self.plan, self.rng = network, make_trainer, plan, rng
        self.start = network.values.clone()
        self.epochs = self._done = 0
        self._limit = math.inf  # of the present training
        self._ridge_rows = 0  # of the first ridge regression
        self._seconds = 0.0  # of an operation of the last one
        self._count = len(plan.held_out) + (plan.refit or not plan.held_out)
        self._session = Session(budget=plan.budget, progress=plan.progress)
        self._begin = time.monotonic()
        self.bar = self._session.bar(self._count * sum(plan.cycles), "fit", "epoch")

    @property
    def seconds_left(self) -> float:
        """What the budget has left."""
        return self._session.seconds_left

    def late(self) -> bool:
        """Whether the budget has nothing left."""
        return self.seconds_left <= 0

    def _part_end(self) -> float:
        """Until when the next training may go on."""
        if self.plan.budget is None:
            return math.inf
        return self._begin + self.plan.budget * (self._done + 1) / self._count

    def ridge(self, task: SpectralTask, seconds: float = math.inf, *, whole: bool = False) -> bool:
        """Set the weights to a ridge regression of as many rows as there is time for.

        Args:
            task: What is to be learned.
            seconds: What it may take.
            whole: Do nothing if that is too little for all rows.

        Returns:
            Whether it did.
        """
        if task.ridge_targets is None:
            return False
        count = len(task.x)
        if seconds < math.inf:
            rows = self._affordable_rows(task, seconds) if seconds > 0 else 0
            if rows < count:
                if whole or (rows == 0 and self.plan.cycles):
                    return False
                rows = max(rows, min(_LEAST_RIDGE, count))
                task = task.rows(np.sort(self.rng.choice(count, rows, replace=False)))
        self._ridge_rows = self._ridge_rows or len(task.x)
        begin = time.monotonic()
        _set_ridge_weights(self.network, task, self.rng)
        self._seconds = (time.monotonic() - begin) / self._operations(task)
        return True

    def _operations(self, task: SpectralTask, rows: int | None = None) -> float:
        """About how many operations a ridge regression of so many rows takes (of all of them)."""
        count, network = len(task.x) if rows is None else rows, self.network
        outputs = 1 if task.ridge_targets is None else task.ridge_targets.size(1)
        features = network.terms * network.num_features * (2 * task.x.size(1) + _COSINE)
        return count * features + ridge_operations(count, network.num_features, outputs)

    def _affordable_rows(self, task: SpectralTask, seconds: float) -> int:
        """Rows whose ridge regression takes no more than some seconds; 0 for too few."""
        count = len(task.x)
        if not self._seconds and count > _LEAST_RIDGE:
            values, begin = self.network.values.clone(), time.monotonic()
            some = task.rows(np.linspace(0, count - 1, _LEAST_RIDGE).astype(int))
            _set_ridge_weights(self.network, some, np.random.RandomState(0))
            taken = time.monotonic() - begin
            self._seconds, seconds = taken / self._operations(some), seconds - taken
            self.network.values.copy_(values)
        low, high = 0, count
        while low < high:  # the operations grow with the rows
            middle = (low + high + 1) // 2
            if self._seconds * self._operations(task, middle) <= seconds:
                low = middle
            else:
                high = middle - 1
        return low if low >= min(_LEAST_RIDGE, count) else 0

    def can_refit(self, task: SpectralTask, chosen: int) -> bool:
        """Whether there is time for a training on all rows that ends with a candidate."""
        left = self.seconds_left
        if left == math.inf or task.ridge_targets is None:
            return left > 0
        if chosen == 0:  # the ridge regression, of more rows than the first one
            return self._affordable_rows(task, left) > self._ridge_rows
        seconds = self._seconds * self._operations(task)
        return left > (2 * seconds if task.loss == "squared_error" else 0)

    def train(self, task: SpectralTask, cycles: Sequence[int], **options: Any) -> Record:
        """One training, within its part of the budget."""
        end = self._limit = math.inf
        if self.plan.budget is not None:
            end = self._limit = self._part_end()
            # what closes the last cycle takes its time, too; without enough of it, it is left out
            left = end - time.monotonic()
            seconds = self._seconds * self._operations(task)
            if options.get("close") is not None and seconds <= left / 2:
                end -= seconds
        self._done += 1
        record = self.make_trainer().run(
            task.x,
            task.targets,
            cycles,
            batch_size=self.plan.batch_size,
            rng=self.rng,
            end=end,
            on_epoch=self.bar.update,
            **options,
        )
        self.epochs += len(record.losses)
        return record

    def validate(
        self, task: SpectralTask, held: SpectralTask
    ) -> tuple[Record, list[np.ndarray], list[Tensor]]:
        """Train from the start, and leave the network at the best candidate.

        Returns:
            The record, scores of the held-out rows for each candidate, and its parameters (not if
            the network is trained again, on all rows).
        """
        network, scores, states = self.network, [], []

        def score(network: SpectralNetwork) -> float:
            found = held.scores(network.outputs(held.x), held.targets)
            scores.append(found.double().cpu().numpy())
            if not self.plan.refit:
                states.append(network.values.clone())
            return float(scores[-1].mean())

        network.values.copy_(self.start)
        ridge = self.ridge(task, _RIDGE_SHARE * (self._part_end() - time.monotonic()))
        first, candidate = score(network), network.values.clone()
        network.values.copy_(self.start)  # a training from the ridge regression fits the noise
        patience = self.plan.patience if len(self.plan.held_out) == 1 else None
        record = self.train(
            task,
            self.plan.cycles,
            validate=score,
            first=first,
            close=self.close(task),
            patience=patience,
        )
        if record.best == 0 and (ridge or record.cycles):
            network.values.copy_(candidate)
            record.best_epoch = 0
        return record, scores, states

    def close(self, task: SpectralTask) -> Callable[[], object] | None:
        """What ends a cycle: ridge regression on the features, where that minimises the loss."""
        if task.ridge_targets is None or task.loss != "squared_error":
            return None
        return lambda: self.ridge(task, self._limit - time.monotonic(), whole=True)

    def warn_if_interrupted(self, record: Record, epoch: int) -> None:
        """Say what an interruption leaves."""
        if record.stopped == "interrupted":
            kept = f"the parameters of epoch {epoch} of a training are kept"
            if epoch == 0:
                kept = "what training was to improve on predicts better so far, and is kept"
            warn_user(f"Interrupted after {self.epochs} epochs; {kept}.")


def _set_ridge_weights(
    network: SpectralNetwork, task: SpectralTask, rng: np.random.RandomState
) -> None:
    """Set the weights to a ridge regression on the present features."""
    assert task.ridge_targets is not None
    blocks = network.features_in_double(task.x[:, :-1].double())
    ridge = ridge_by_left_out_rows(blocks, task.ridge_targets, rng)
    factor = 1.0
    if task.loss != "squared_error":  # outputs for -1 and 1 have another scale than those of a loss
        targets, loss = task.targets[ridge.rows], LOSSES[task.loss]
        losses = [float(loss(ridge.left_out * factor, targets)) for factor in _FACTORS]
        factor = float(_FACTORS[np.argmin(losses)])
    network.weight.copy_(factor * ridge.weight.mT)
    network.intercept.copy_(factor * ridge.intercept)
