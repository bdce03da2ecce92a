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

_EPSILON = 0.01  # epsilon of Adam times the root of the number of features


@dataclass(frozen=True)
class Objective:
    """Objective (4) of the paper and settings of its minimisation."""

    loss: Loss  # averaged over the rows
    weight_penalty: float  # factor of the trace norm of W, or of its squared Frobenius norm
    trace_norm: bool
    feature_penalty: float  # factor of the mean squared norm of the features
    rates: Sequence[float]  # learning rates of the outputs and of the frequencies
    batch_size: int


@dataclass
class Record:
    """Record of a training."""

    losses: list[float] = field(default_factory=list)  # mean of each epoch, without penalties
    cycles: int = 0  # finished cycles
    scores: list[float] = field(default_factory=list)  # at the end of each
    best: int = 0  # number of the cycle with the selected parameters; 0 for the initial ones
    best_epoch: int = 0  # last epoch of that cycle
    epochs: int = 0  # number of epochs of all trainings
    stopped: str = ""  # "budget", "interrupted" or "diverged" if it ended early


class Trainer:
    """Trains a network on mini-batches by steps of Adam and proximal steps."""

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
        """Do a step with a factor of all learning rates, and return the sum of the losses."""
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
        """Pass over the rows in random order, in batches of nearly equal size.

        ``factor`` maps the fraction of the epoch to a factor of the learning rates. Returns the
        mean loss over the rows until ``end``, a time of the monotonic clock.
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
        """Train in cycles, in which the learning rates decrease to zero along a cosine.

        Args:
            x: Rows ``N x (d + 1)``, ones in the last column.
            targets: Labels ``N x 1`` or targets ``N x K``.
            cycles: Numbers of epochs.
            validate: Score of a network; higher is better. Selects the parameters at the end of the
                best cycle, or the initial ones if no score is above ``first``. Without ``validate``
                the last parameters are kept.
            first: Score of the initial parameters.
            close: Changes the parameters at the end of a cycle (without ``validate``, of the last
                one) before they are scored. The next cycle starts from the unchanged parameters.
            patience: Number of cycles without a better score, after which the training stops.
            end: Time of the monotonic clock at which the training stops.
            on_epoch: Called after each epoch.

        Raises:
            FloatingPointError: Values became infinite or NaN in the first cycle.
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
            text = f"Values became infinite or NaN in epoch {len(record.losses) + 1}"
            if not record.cycles:
                raise FloatingPointError(f"{text}: lower weight_penalty, or rescale X.")
            warn_user(
                f"{text}: the values of epoch {record.best_epoch} are kept.", ConvergenceWarning
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
        """Train one cycle, and return whether all values are finite."""
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
