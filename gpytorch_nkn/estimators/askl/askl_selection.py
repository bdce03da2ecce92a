"""Early stopping on held-out rows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from gpytorch_nkn.estimators.askl.askl_network import LOSSES, SpectralNetwork
from gpytorch_nkn.estimators.askl.askl_training import Objective, Trainer
from gpytorch_nkn.estimators.askl.leave_one_out import leave_one_out_ridge
from gpytorch_nkn.estimators.table_input import stratified_folds
from gpytorch_nkn.fit import Session, warn_user

__all__ = ["Outcome", "Selection", "SpectralTask", "doubling_cycles", "held_out_parts"]

_FIRST_CYCLE = 5  # number of epochs in the first cycle
_PATIENCE = 2  # cycles without a better score that end a training, with one held-out part
_TOLERANCE = 0.5  # required gain of a longer training, in standard errors
_RIDGE_ROWS = 20_000  # largest number of rows of a ridge regression
_MAX_REFIT = 20_000  # largest number of rows for a final training on all rows
_FACTORS = 2.0 ** np.arange(-2, 6.1, 0.5)  # candidate factors of ridge regression's class outputs


def doubling_cycles(epochs: int) -> list[int]:
    """Return the lengths of cycles that end after 5, 10, 20, 40, ... and, last, all epochs."""
    totals = [0]
    while totals[-1] < epochs:
        totals.append(min(max(_FIRST_CYCLE, 2 * totals[-1]), epochs))
    return np.diff(totals).tolist()


def held_out_parts(
    count: int, rng: np.random.RandomState, labels: np.ndarray | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return pairs of random training and held-out row indices, stratified by class.

    There are five pairs below 600 rows, three below 1000, otherwise one. Each holds out 20 % of the
    rows; from 6000 rows on about 1000 rows, but at least 10 %.
    """
    splits = int(np.clip(count // 1000, 5, 10))
    number = 1 if count >= 1000 else 3 if count >= 600 else 5
    codes = np.zeros(count) if labels is None else labels
    folds = stratified_folds(codes, splits, rng)[:number]
    return [(np.setdiff1d(np.arange(count), held_out), held_out) for held_out in folds]


@dataclass(frozen=True, eq=False)
class SpectralTask:
    """Rows and targets for training."""

    x: Tensor  # rows N x (d + 1), ones in the last column, float32
    targets: Tensor  # targets of the loss, N rows
    ridge_targets: Tensor  # targets of ridge regression, float64 N x K
    loss: str
    scores: Callable[[Tensor, Tensor], Tensor]  # scores N of outputs; higher is better

    def rows(self, numbers: np.ndarray) -> SpectralTask:
        """Return the task of a subset of the rows."""
        rows = torch.from_numpy(numbers).to(self.x.device)
        parts = self.x[rows], self.targets[rows], self.ridge_targets[rows]
        return SpectralTask(*parts, self.loss, self.scores)


class Outcome(NamedTuple):
    """Record of a training."""

    losses: list[float]  # mean loss of each epoch, without penalties
    scores: list[float]  # scores of held-out rows after ridge regression and after each cycle
    best_epoch: int  # epoch of the selected parameters; 0 for ridge regression
    epochs: int  # number of epochs of all trainings


class _State(NamedTuple):
    """Parameters after a number of epochs, and scores of held-out rows, if any."""

    values: Tensor
    epoch: int
    scores: np.ndarray


def _choose(scores: np.ndarray) -> int:
    """Return the index of the best candidate, or of a shorter training if not significantly worse.

    Rows of the scores ``C x N`` are ridge regression, then trainings of increasing length.
    """
    best = int(scores.mean(1).argmax())
    for earlier in range(1, best):
        gain = scores[best] - scores[earlier]
        if gain.mean() <= _TOLERANCE * gain.std() / math.sqrt(len(gain)):
            return earlier
    return best


@dataclass
class Selection:
    """Repeated training of one network from the same start, with one budget and progress bar.

    Scores of held-out rows select the number of cycles, or ridge regression on the initial
    features. With the squared loss, ridge regression also sets the weights after each cycle,
    because features converge faster. Below 20,000 rows, the network is finally trained on all rows.
    If ``held_out`` is empty, all cycles use all rows.
    """

    network: SpectralNetwork
    objective: Objective
    task: SpectralTask
    cycles: Sequence[int]
    held_out: Sequence[tuple[np.ndarray, np.ndarray]]
    session: Session
    rng: np.random.RandomState

    def run(self) -> Outcome:
        """Train the network, and return a record of the training.

        Raises:
            FloatingPointError: Values became infinite or NaN in the first cycle.
            KeyboardInterrupt: Ctrl-C was pressed before the first step.
        """
        refit = len(self.held_out) > 1 or len(self.task.x) < _MAX_REFIT
        self.start, self.epochs = self.network.values.clone(), 0
        self.trainings = len(self.held_out) + (refit or not self.held_out)
        self.bar = self.session.bar(self.trainings * sum(self.cycles), "fit", "epoch")
        with self.bar:
            losses, means, state = self._select(refit)
        self.network.values.copy_(state.values)
        if self.session.interrupted:
            warn_user(
                f"Interrupted after {self.epochs} epochs: the parameters of epoch {state.epoch} of "
                "one training are kept (0: ridge regression)."
            )
        return Outcome(losses, means, state.epoch, self.epochs)

    def _select(self, refit: bool) -> tuple[list[float], list[float], _State]:
        """Return losses, mean scores and the state with the best number of cycles."""
        if not self.held_out:
            losses, states = self._train(self.task, self.cycles)
            return losses, [], states[-1]
        by_fold: list[list[_State]] = []
        losses = []
        for rows, held in self.held_out:
            if by_fold and self.session.is_over:
                break
            curve, states = self._train(self.task.rows(rows), self.cycles, self.task.rows(held))
            if not (by_fold and self.session.interrupted):
                losses = losses if by_fold else curve
                by_fold.append(states)
        table = np.stack(
            [np.concatenate([s.scores for s in row]) for row in zip(*by_fold, strict=False)]
        )
        chosen, means = _choose(table), table.mean(1).tolist()
        if refit and not self.session.is_over:
            if not chosen:
                self.network.values.copy_(self.start)
                self._ridge(self.task)
                return [], means, _State(self.network.values.clone(), 0, np.empty(0))
            again, states = self._train(self.task, self.cycles[:chosen])
            if not self.session.interrupted:
                return again, means, states[-1]
        return losses, means, by_fold[0][chosen]

    def _train(
        self, task: SpectralTask, cycles: Sequence[int], held: SpectralTask | None = None
    ) -> tuple[list[float], list[_State]]:
        """Train from the start within a part of the budget; return losses and a state per cycle.

        With held-out rows, ridge regression on the initial features is a state before the others.
        """
        network, end = self.network, math.inf
        if self.session.budget is not None:
            end = time.monotonic() + self.session.seconds_left / self.trainings
        self.trainings = max(self.trainings - 1, 1)
        trainer, states = Trainer(network, self.objective, self.rng), list[_State]()

        def add_state(with_ridge: bool) -> None:
            resumed = network.values.clone()  # without ridge weights, which would overfit
            if with_ridge:
                self._ridge(task)
            scores = np.empty(0)
            if held is not None:
                outputs = held.scores(network.outputs(held.x), held.targets)
                scores = outputs.double().cpu().numpy()
            states.append(_State(network.values.clone(), len(trainer.losses), scores))
            network.values.copy_(resumed)

        network.values.copy_(self.start)
        if held is not None:
            add_state(True)
        with self.session.interruptible(lambda: trainer.steps or self.epochs):
            for number, length in enumerate(cycles, 1):
                try:
                    trainer.cycle(task.x, task.targets, length, end, self.bar.update)
                except FloatingPointError as error:
                    if number == 1:
                        raise FloatingPointError(
                            f"{error}: lower weight_penalty, or rescale X."
                        ) from None
                    text = f"{error}: the training ends with epoch {states[-1].epoch}."
                    warn_user(text, ConvergenceWarning)
                    break
                over = time.monotonic() >= end
                last = held is not None or over or number == len(cycles)
                add_state(task.loss == "squared_error" and last and len(self.held_out) > 0)
                means = [state.scores.mean() for state in states[1:]] if held is not None else [0]
                stale = len(means) - 1 - int(np.argmax(means)) >= _PATIENCE
                if over or (stale and len(self.held_out) == 1):
                    break
        if not states:  # interrupted
            add_state(False)
        self.epochs += len(trainer.losses)
        return trainer.losses, states

    def _ridge(self, task: SpectralTask) -> None:
        """Set the weights by ridge regression on the current features."""
        if len(task.x) > _RIDGE_ROWS:
            task = task.rows(np.sort(self.rng.choice(len(task.x), _RIDGE_ROWS, replace=False)))
        features = torch.cat(list(self.network.features_in_double(task.x[:, :-1].double())))
        ridge = leave_one_out_ridge(features, task.ridge_targets, self.rng)
        factor = 1.0
        if task.loss != "squared_error":  # scale the outputs, whose targets are -1 and 1
            targets, loss = task.targets[ridge.rows], LOSSES[task.loss]
            losses = [float(loss(ridge.outputs * factor, targets)) for factor in _FACTORS]
            factor = float(_FACTORS[np.argmin(losses)])
        self.network.weight.copy_(factor * ridge.weight.mT)
        self.network.intercept.copy_(factor * ridge.intercept)
