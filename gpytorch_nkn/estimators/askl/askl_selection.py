"""Early stopping: the number of epochs, by held-out rows."""

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
from gpytorch_nkn.estimators.askl.askl_training import Objective, Record, Trainer
from gpytorch_nkn.estimators.askl.leave_one_out import leave_one_out_ridge
from gpytorch_nkn.fit import Session, warn_user

__all__ = ["SpectralTask", "doubling_cycles", "held_out_parts", "train"]

_FIRST_CYCLE = 5  # epochs
_PATIENCE = 2  # cycles without a better score, if there is one held-out part
_TOLERANCE = 0.5  # required gain of a longer training in standard errors
_RIDGE_ROWS = 20_000  # largest number of rows of a ridge regression
_MAX_REFIT = 20_000  # largest number of rows for a final training on all rows
_FACTORS = 2.0 ** np.arange(-2, 6.1, 0.5)  # candidate factors of ridge outputs for classes


def doubling_cycles(epochs: int) -> list[int]:
    """Lengths of cycles that end after 5, 10, 20, 40, ... and finally all epochs."""
    totals = [0]
    while totals[-1] < epochs:
        totals.append(min(max(_FIRST_CYCLE, 2 * totals[-1]), epochs))
    return np.diff(totals).tolist()


def held_out_parts(
    count: int, rng: np.random.RandomState, labels: np.ndarray | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Random training and held-out rows, stratified by class.

    Five parts of 20 % are held out in turn below 600 rows, three below 1000, otherwise one part of
    1000 rows (10 to 20 %). One row of every class is never held out.
    """
    parts, fraction = 1, max(0.1, min(1000 / count, 0.2))
    if count < 1000:
        parts, fraction = (5 if count < 600 else 3), 0.2
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
    chosen = ((np.arange(number) + rng.uniform()) * len(free) / max(number, 1)).astype(int)
    turns = np.arange(number) % parts
    pairs = []
    for part in range(min(parts, number)):
        held = np.zeros(count, dtype=bool)
        held[free[chosen[turns == part]]] = True
        pairs.append((np.flatnonzero(~held), np.flatnonzero(held)))
    return pairs


@dataclass(frozen=True, eq=False)
class SpectralTask:
    """Rows and targets of a training."""

    x: Tensor  # rows N x (d + 1), ones in the last column, float32
    targets: Tensor  # for the loss, N rows
    ridge_targets: Tensor  # for a ridge regression, float64 N x K
    loss: str
    scores: Callable[[Tensor, Tensor], Tensor]  # N, of outputs for targets; higher is better

    def rows(self, numbers: np.ndarray) -> SpectralTask:
        """The task with some of the rows."""
        rows = torch.from_numpy(numbers).to(self.x.device)
        parts = self.x[rows], self.targets[rows], self.ridge_targets[rows]
        return SpectralTask(*parts, self.loss, self.scores)


def train(
    network: SpectralNetwork,
    objective: Objective,
    task: SpectralTask,
    cycles: Sequence[int],
    held_out: Sequence[tuple[np.ndarray, np.ndarray]],
    session: Session,
    rng: np.random.RandomState,
) -> Record:
    """Train a network for the number of cycles that predicts held-out rows best.

    Ridge regression on the initial features is another candidate. With the squared loss, ridge
    regression also sets the weights at the end of each cycle, because features converge faster than
    weights. Then the network is trained on all rows, unless there are many. Without ``held_out``
    (pairs of training and held-out rows), all rows are used for all cycles.
    """
    runs = _Runs(network, objective, task, cycles, held_out, session, rng)
    with runs.bar:
        return runs.select() if held_out else runs.outcome(runs.train(task, cycles), [])


def _choose(scores: np.ndarray) -> int:
    """Index of the best candidate, or of an earlier cycle that is not significantly worse.

    Scores are ``C x N``, of candidates by row; the first candidate has no training.
    """
    best = int(scores.mean(1).argmax())
    for earlier in range(1, best):
        less = scores[best] - scores[earlier]
        if less.mean() <= _TOLERANCE * less.std() / math.sqrt(len(less)):
            return earlier
    return best


class _Runs:
    """Trainings of one network from the same start, with one budget and progress bar."""

    def __init__(
        self,
        network: SpectralNetwork,
        objective: Objective,
        task: SpectralTask,
        cycles: Sequence[int],
        held_out: Sequence[tuple[np.ndarray, np.ndarray]],
        session: Session,
        rng: np.random.RandomState,
    ):
        self.network, self.objective, self.task, self.rng = network, objective, task, rng
        self.cycles, self.held_out, self.session = cycles, held_out, session
        self.refit = len(held_out) > 1 or len(task.x) < _MAX_REFIT
        self.start = network.values.clone()
        self.epochs = 0
        self._trainings = len(held_out) + (self.refit or not held_out)
        self.bar = session.bar(self._trainings * sum(cycles), "fit", "epoch")

    def select(self) -> Record:
        """Train without each held-out part in turn, and then on all rows."""
        task, network = self.task, self.network
        found: list[list[np.ndarray]] = []
        kept: tuple[Record, list[Tensor], Tensor] | None = None
        for rows, held in self.held_out:
            if kept is not None and self.session.seconds_left <= 0:
                break
            record, scores, states = self._validate(task.rows(rows), task.rows(held))
            found.append(scores)
            if kept is None:
                kept = record, states, network.values.clone()
            if record.stopped == "interrupted":
                return self.outcome(record, [float(part.mean()) for part in scores])
        assert kept is not None
        shortest = min(len(scores) for scores in found)
        table = np.stack(
            [np.concatenate(parts) for parts in zip(*(f[:shortest] for f in found), strict=True)]
        )
        chosen, means = _choose(table), table.mean(1).tolist()
        record, states, values = kept
        if not self.refit:
            network.values.copy_(states[chosen])
            record.best_epoch = sum(self.cycles[:chosen])
        elif self.session.seconds_left > 0:
            network.values.copy_(self.start)
            if chosen == 0:
                self._ridge(task)
                return self.outcome(Record(), means)
            again = self.train(task, self.cycles[:chosen], close=self._close(task))
            if again.stopped != "interrupted":
                return self.outcome(again, means)
            record.stopped = again.stopped
            network.values.copy_(values)
        return self.outcome(record, means)

    def outcome(self, record: Record, means: list[float]) -> Record:
        """Add mean scores and the number of epochs to a record, and warn of an interruption."""
        if record.stopped == "interrupted":
            warn_user(
                f"Interrupted after {self.epochs} epochs: the parameters of epoch "
                f"{record.best_epoch} of a training are kept (0: ridge regression)."
            )
        record.scores, record.epochs = means, self.epochs
        return record

    def train(self, task: SpectralTask, cycles: Sequence[int], **options: Any) -> Record:
        """Train once, within a part of the budget."""
        end = math.inf
        if self.session.budget is not None:
            end = time.monotonic() + self.session.seconds_left / self._trainings
        self._trainings = max(self._trainings - 1, 1)
        trainer = Trainer(self.network, self.objective, self.rng)
        options = {"end": end, "on_epoch": self.bar.update} | options
        record = trainer.run(task.x, task.targets, cycles, **options)
        self.epochs += len(record.losses)
        return record

    def _validate(
        self, task: SpectralTask, held: SpectralTask
    ) -> tuple[Record, list[np.ndarray], list[Tensor]]:
        """Train from the start, and set the network to the best candidate.

        Returns the record, scores of held-out rows for each candidate and, if there is no final
        training on all rows, parameters of each candidate.
        """
        network, scores, states = self.network, [], []

        def score(network: SpectralNetwork) -> float:
            found = held.scores(network.outputs(held.x), held.targets)
            scores.append(found.double().cpu().numpy())
            if not self.refit:
                states.append(network.values.clone())
            return float(scores[-1].mean())

        network.values.copy_(self.start)
        self._ridge(task)
        first, candidate = score(network), network.values.clone()
        network.values.copy_(self.start)  # training from the ridge regression overfits
        patience = _PATIENCE if len(self.held_out) == 1 else None
        options = {"first": first, "close": self._close(task), "patience": patience}
        record = self.train(task, self.cycles, validate=score, **options)
        if record.best == 0:
            network.values.copy_(candidate)
            record.best_epoch = 0
        return record, scores, states

    def _close(self, task: SpectralTask) -> Callable[[], object] | None:
        """Function at the end of a cycle: ridge regression, which minimises the squared loss."""
        return (lambda: self._ridge(task)) if task.loss == "squared_error" else None

    def _ridge(self, task: SpectralTask) -> None:
        """Set the weights by ridge regression on the current features."""
        if len(task.x) > _RIDGE_ROWS:
            task = task.rows(np.sort(self.rng.choice(len(task.x), _RIDGE_ROWS, replace=False)))
        features = torch.cat(list(self.network.features_in_double(task.x[:, :-1].double())))
        ridge = leave_one_out_ridge(features, task.ridge_targets, self.rng)
        factor = 1.0
        if task.loss != "squared_error":  # outputs for targets -1 and 1 have another scale
            targets, loss = task.targets[ridge.rows], LOSSES[task.loss]
            losses = [float(loss(ridge.outputs * factor, targets)) for factor in _FACTORS]
            factor = float(_FACTORS[np.argmin(losses)])
        self.network.weight.copy_(factor * ridge.weight.mT)
        self.network.intercept.copy_(factor * ridge.intercept)
