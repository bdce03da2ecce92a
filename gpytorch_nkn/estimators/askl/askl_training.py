"""Training of spectral networks by mini-batches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from gpytorch_nkn.estimators.askl.askl_network import Loss, SpectralNetwork
from gpytorch_nkn.estimators.askl.askl_optimizers import Momentum, Optimizer
from gpytorch_nkn.fit import Session, warn_user
from gpytorch_nkn.linalg import singular_value_threshold

__all__ = ["Record", "SpectralObjective", "Trainer"]


@dataclass(frozen=True)
class SpectralObjective:
    """What is minimised, equation (4) of the paper.

    Attributes:
        loss: Mean of this over the rows.
        weight_penalty: Factor of the trace norm of the weights, or of their squared Frobenius norm.
        trace_norm: Which of the two.
        feature_penalty: Factor of the mean squared norm of the features.
    """

    loss: Loss
    weight_penalty: float
    trace_norm: bool
    feature_penalty: float


@dataclass
class Record:
    """How a training went.

    Attributes:
        losses: Mean loss of each epoch, without penalties, while the parameters moved.
        cycles: Number of cycles that ended.
        scores: Score of the validation part at the end of each.
        best: Cycle whose parameters are kept, from 1 on; 0 for those before the training.
        best_epoch: Its last epoch.
        stopped: Why it ended early: ``"budget"``, ``"interrupted"``, ``"diverged"``, or nothing.
    """

    losses: list[float] = field(default_factory=list)
    cycles: int = 0
    scores: list[float] = field(default_factory=list)
    best: int = 0
    best_epoch: int = 0
    stopped: str = ""


class Trainer:
    """Moves a network by mini-batches: the optimiser's step, then the proximal one.

    Args:
        network: The network, prepared.
        optimizer: Moves its parameters.
        objective: What is minimised.
        rates: Learning rates of the outputs and of the frequencies of each layer.
    """

    def __init__(
        self,
        network: SpectralNetwork,
        optimizer: Optimizer,
        objective: SpectralObjective,
        rates: list[float],
    ):
        self.network, self.optimizer, self.objective = network, optimizer, objective
        self.rates = rates

    def step(self, x: Tensor, targets: Tensor, factor: float = 1.0) -> Tensor:
        """One step on a batch.

        Args:
            x: Rows ``M x (d + 1)``, ones in the last column.
            targets: Labels ``M x 1`` or targets ``M x K``.
            factor: Of all learning rates.

        Returns:
            Sum of the losses before the step.
        """
        objective, network = self.objective, self.network
        total = network.add_gradient(
            x, targets, objective.loss, feature_penalty=objective.feature_penalty
        )
        weight = network.weight
        if objective.weight_penalty and not objective.trace_norm:
            own = network.gradient[: weight.numel()].view_as(weight)
            own.add_(weight, alpha=2 * objective.weight_penalty)
        rates = [factor * rate for rate in self.rates]
        self.optimizer.step(rates)
        threshold = rates[0] * self.optimizer.reach * objective.weight_penalty
        if objective.trace_norm and threshold:
            weight.copy_(singular_value_threshold(weight, threshold))
        return total

    def epoch(
        self,
        x: Tensor,
        targets: Tensor,
        batch_size: int,
        rng: np.random.RandomState,
        factor: Callable[[int, int], float],
        end: float = math.inf,
    ) -> float:
        """One pass over the rows in random order, by batches of almost the same size.

        Args:
            x: Rows ``N x (d + 1)``.
            targets: Their targets.
            batch_size: Largest size of a batch.
            rng: Where the order comes from.
            factor: Of the learning rates, by number of the batch and their count.
            end: Time of the monotonic clock at which to stop.

        Returns:
            Mean loss over the rows that were seen.
        """
        order = torch.from_numpy(rng.permutation(len(x))).to(x.device)
        x, targets = x[order], targets[order]
        count = -(-len(x) // batch_size)
        bounds = [len(x) * number // count for number in range(count + 1)]
        total = torch.zeros((), dtype=torch.float64, device=x.device)
        seen = 0
        for number in range(count):
            rows = slice(bounds[number], bounds[number + 1])
            total += self.step(x[rows], targets[rows], factor(number, count))
            seen = rows.stop
            if time.monotonic() >= end:
                break
        return float(total) / seen

    def run(
        self,
        x: Tensor,
        targets: Tensor,
        cycles: Sequence[int],
        *,
        batch_size: int,
        rng: np.random.RandomState,
        validate: Callable[[SpectralNetwork], float] | None = None,
        first: float = -math.inf,
        close: Callable[[], object] | None = None,
        patience: int | None = None,
        end: float = math.inf,
        on_epoch: Callable[[], object] = lambda: None,
    ) -> Record:
        """Cycles of epochs, in each of which the learning rates fall to zero along a cosine.

        Args:
            x: Rows ``N x (d + 1)``.
            targets: Their targets.
            cycles: Numbers of epochs.
            batch_size: Largest size of a batch.
            rng: Where orders come from.
            validate: Score, the higher the better; the parameters at the end of the best cycle are
                kept, or those that the network came with if none is better than ``first``. Without
                it the last are kept.
            first: Score of the parameters that the network came with.
            close: Changes the parameters at the end of a cycle to those that are scored and kept
                (without ``validate``, at the end of the last). The next cycle starts from what they
                were before.
            patience: Cycles with a lower score than an earlier one after which to stop; ``None``
                for no end. (``first`` does not count.)
            end: Time of the monotonic clock at which to stop, and to which the rates fall.
            on_epoch: Called after each epoch.

        Raises:
            FloatingPointError: Values that are not finite came up in the first cycle.
            KeyboardInterrupt: Ctrl-C came before the first step.
        """
        values, record = self.network.values, Record()
        best, top = values.clone(), first
        peak = 0
        session = Session()
        with session.interruptible(lambda: self.optimizer.steps):
            for number, length in enumerate(cycles, start=1):
                if not self._cycle(record, x, targets, length, batch_size, rng, end, on_epoch):
                    record.stopped = "diverged"
                    break
                record.cycles, over = number, time.monotonic() >= end
                own: Tensor | None = None
                if close is not None and (validate is not None or over or number == len(cycles)):
                    own = values.clone()
                    close()
                score = 0.0
                if validate is not None:
                    score = validate(self.network)
                    record.scores.append(score)
                    peak = 1 + int(np.argmax(record.scores))
                if validate is None or score > top:
                    best.copy_(values)
                    top, record.best, record.best_epoch = score, number, len(record.losses)
                if own is not None:
                    values.copy_(own)
                if validate is not None and patience is not None and number - peak >= patience:
                    break
                if over:
                    record.stopped = "budget"
                    break
        if session.interrupted:
            record.stopped = "interrupted"
            if validate is None or not record.cycles:
                best.copy_(values)
                record.best_epoch = len(record.losses)
        if record.stopped == "diverged":
            self._warn_of_divergence(record)
        values.copy_(best)
        return record

    def _cycle(
        self,
        record: Record,
        x: Tensor,
        targets: Tensor,
        length: int,
        batch_size: int,
        rng: np.random.RandomState,
        end: float,
        on_epoch: Callable[[], object],
    ) -> bool:
        """Epochs along one cosine; returns whether all values stayed finite."""
        begin = time.monotonic()

        for done in range(length):

            def factor(number: int, count: int, done: int = done) -> float:
                share = (done + number / count) / length
                if end < math.inf:
                    share = max(share, (time.monotonic() - begin) / max(end - begin, 1e-9))
                return 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))

            try:
                loss = self.epoch(x, targets, batch_size, rng, factor, end)
            except (np.linalg.LinAlgError, torch.linalg.LinAlgError):
                loss = math.nan
            if not (math.isfinite(loss) and bool(self.network.weight.isfinite().all())):
                return False
            record.losses.append(loss)
            on_epoch()
            if time.monotonic() >= end:
                break
        return True

    def _warn_of_divergence(self, record: Record) -> None:
        epochs = len(record.losses)
        rates = (
            f"learning rates of {self.rates[0]:g} for the weights and "
            f"{[float(f'{rate:.3g}') for rate in self.rates[1:]]} for the frequencies are too large"
        )
        shrinkage = 2 * self.rates[0] * self.objective.weight_penalty
        if isinstance(self.optimizer, Momentum) and not self.objective.trace_norm and shrinkage > 1:
            rates = (
                f"weight_penalty={self.objective.weight_penalty:g} is too large for gradient "
                f"descent at a learning rate of {self.rates[0]:g} for the weights; twice their "
                "product should stay below 1"
            )
        if not record.cycles:
            raise FloatingPointError(
                f"Epoch {epochs + 1} led to values that are not finite: {rates}."
            )
        warn_user(
            f"Epoch {epochs + 1} led to values that are not finite, and those of epoch "
            f"{record.best_epoch} are kept: {rates}.",
            ConvergenceWarning,
        )
