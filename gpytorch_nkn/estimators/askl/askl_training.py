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
from gpytorch_nkn.fit import Session, warn_user
from gpytorch_nkn.linalg import singular_value_threshold

__all__ = ["Objective", "Record", "Trainer"]

_EPSILON = 0.01  # of Adam, over the root of the number of features: stops where gradients vanish


@dataclass(frozen=True)
class Objective:
    """Equation (4) of the paper, and how it is minimised."""

    loss: Loss  # its mean over the rows
    weight_penalty: float  # factor of the trace norm of W, or of its squared Frobenius norm
    trace_norm: bool
    feature_penalty: float  # factor of the mean squared norm of the features
    rates: Sequence[float]  # learning rates of the outputs and of the frequencies
    batch_size: int


@dataclass
class Record:
    """The course of a training."""

    losses: list[float] = field(default_factory=list)  # mean of each epoch, without penalties
    cycles: int = 0  # that ended
    scores: list[float] = field(default_factory=list)  # at the end of each
    best: int = 0  # cycle whose parameters are kept, from 1 on; 0 for those before the training
    best_epoch: int = 0  # its last epoch
    epochs: int = 0  # in all, those of other trainings included
    stopped: str = ""  # "budget", "interrupted" or "diverged" if it ended early


class Trainer:
    """Moves a network by mini-batches: a step of Adam, then the proximal one."""

    def __init__(self, network: SpectralNetwork, objective: Objective, rng: np.random.RandomState):
        self.network, self.objective, self.rng = network, objective, rng
        groups = []
        for values, gradient in network.parts():
            values.grad = gradient
            groups.append({"params": [values]})
        epsilon = _EPSILON / math.sqrt(network.num_features)
        self.optimizer = torch.optim.Adam(groups, eps=epsilon, fused=True)
        self.steps = 0

    def step(self, x: Tensor, targets: Tensor, factor: float = 1.0) -> Tensor:
        """One step on a batch, with a factor of all learning rates; returns the sum of losses."""
        objective, network = self.objective, self.network
        total = network.add_gradient(
            x, targets, objective.loss, feature_penalty=objective.feature_penalty
        )
        weight = network.weight
        if objective.weight_penalty and not objective.trace_norm:
            own = network.gradient[: weight.numel()].view_as(weight)
            own.add_(weight, alpha=2 * objective.weight_penalty)
        for group, rate in zip(self.optimizer.param_groups, objective.rates, strict=False):
            group["lr"] = factor * rate
        self.optimizer.step()
        self.steps += 1
        threshold = factor * objective.rates[0] * objective.weight_penalty
        if objective.trace_norm and threshold:
            weight.copy_(singular_value_threshold(weight, threshold))
        return total

    def epoch(
        self,
        x: Tensor,
        targets: Tensor,
        factor: Callable[[float], float] = lambda share: 1.0,
        end: float = math.inf,
    ) -> float:
        """One pass over the rows in random order, by batches of almost the same size.

        Learning rates have a factor by the fraction of the epoch that has passed. Returns the mean
        loss over the rows seen until ``end``, a time of the monotonic clock.
        """
        order = torch.from_numpy(self.rng.permutation(len(x))).to(x.device)
        x, targets = x[order], targets[order]
        count = -(-len(x) // self.objective.batch_size)
        bounds = [len(x) * number // count for number in range(count + 1)]
        total = torch.zeros((), dtype=torch.float64, device=x.device)
        seen = 0
        for number in range(count):
            rows = slice(bounds[number], bounds[number + 1])
            total += self.step(x[rows], targets[rows], factor(number / count))
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
        validate: Callable[[SpectralNetwork], float] | None = None,
        first: float = -math.inf,
        close: Callable[[], object] | None = None,
        patience: int | None = None,
        end: float = math.inf,
        on_epoch: Callable[[], object] = lambda: None,
    ) -> Record:
        """Cycles of epochs, in each of which the learning rates fall to zero along a cosine.

        Args:
            x: Rows ``N x (d + 1)``, ones in the last column.
            targets: Labels ``N x 1`` or targets ``N x K``.
            cycles: Numbers of epochs.
            validate: Score, the higher the better; the parameters at the end of the best cycle are
                kept, or those that the network came with if none is better than ``first``. Without
                it the last are kept.
            first: Score of the parameters that the network came with.
            close: Changes the parameters at the end of a cycle to those that are scored and kept
                (without ``validate``, at the end of the last). The next cycle starts from the
                parameters before.
            patience: Cycles without a better score after which to stop.
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
        with session.interruptible(lambda: self.steps):
            for number, length in enumerate(cycles, start=1):
                if not self._cycle(record, x, targets, length, end, on_epoch):
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
                if over:
                    record.stopped = "budget"
                stale = patience is not None and number - peak >= patience
                if over or (stale and validate is not None):
                    break
        if session.interrupted:
            record.stopped = "interrupted"
            if validate is None or not record.cycles:
                best.copy_(values)
                record.best_epoch = len(record.losses)
        if record.stopped == "diverged":
            text = f"Epoch {len(record.losses) + 1} led to values that are not finite"
            if not record.cycles:
                raise FloatingPointError(f"{text}: lower weight_penalty, or rescale X.")
            warn_user(
                f"{text}, and those of epoch {record.best_epoch} are kept.", ConvergenceWarning
            )
        values.copy_(best)
        return record

    def _cycle(
        self,
        record: Record,
        x: Tensor,
        targets: Tensor,
        length: int,
        end: float,
        on_epoch: Callable[[], object],
    ) -> bool:
        """Epochs along one cosine; returns whether all values stayed finite."""
        begin = time.monotonic()
        for done in range(length):

            def factor(share: float, done: int = done) -> float:
                share = (done + share) / length
                if end < math.inf:
                    share = max(share, (time.monotonic() - begin) / max(end - begin, 1e-9))
                return 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))

            try:
                loss = self.epoch(x, targets, factor, end)
            except (np.linalg.LinAlgError, torch.linalg.LinAlgError):
                loss = math.nan
            if not (math.isfinite(loss) and bool(self.network.weight.isfinite().all())):
                return False
            record.losses.append(loss)
            on_epoch()
            if time.monotonic() >= end:
                break
        return True
