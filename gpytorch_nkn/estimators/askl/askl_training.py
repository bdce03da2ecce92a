"""Training of spectral networks by mini-batches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gpytorch_nkn.estimators.askl.askl_network import Loss, SpectralNetwork
from gpytorch_nkn.linalg import singular_value_threshold

__all__ = ["Objective", "Trainer"]

_EPSILON = 0.01  # Adam's epsilon times the square root of the number of features


@dataclass(frozen=True)
class Objective:
    """Objective, equation 4 of the paper, and learning rates."""

    loss: Loss  # loss, averaged over the rows
    weight_penalty: float  # factor of the trace norm of W, or of its squared Frobenius norm
    trace_norm: bool
    feature_penalty: float  # factor of the mean squared norm of the features
    rates: Sequence[float]  # learning rates of the weights and of the frequencies
    batch_size: int


class Trainer:
    """Trains a network on mini-batches by Adam steps and proximal steps."""

    def __init__(self, network: SpectralNetwork, objective: Objective, rng: np.random.RandomState):
        self.network, self.objective, self.rng = network, objective, rng
        groups = []
        for values, gradient in network.parts():
            values.grad = gradient
            groups.append({"params": [values]})
        epsilon = _EPSILON / math.sqrt(network.num_features)
        self.optimizer = torch.optim.Adam(groups, eps=epsilon, fused=True)
        self.steps = 0
        self.losses: list[float] = []  # mean loss of each epoch, without penalties

    def step(self, x: Tensor, targets: Tensor, factor: float = 1.0) -> Tensor:
        """Take a step, with learning rates times ``factor``; return the sum of the losses."""
        objective, network = self.objective, self.network
        total = network.compute_gradient(
            x, targets, objective.loss, feature_penalty=objective.feature_penalty
        )
        weight = network.weight
        if objective.weight_penalty and not objective.trace_norm:
            grad = network.gradient[: weight.numel()].view_as(weight)
            grad.add_(weight, alpha=2 * objective.weight_penalty)
        for group, rate in zip(self.optimizer.param_groups, objective.rates, strict=False):
            group["lr"] = factor * rate
        self.optimizer.step()
        self.steps += 1
        threshold = factor * objective.rates[0] * objective.weight_penalty
        if objective.trace_norm and threshold:
            weight.copy_(singular_value_threshold(weight, threshold))
        return total

    def epoch(
        self, x: Tensor, targets: Tensor, factor: Callable[[float], float], end: float
    ) -> float:
        """Train for one epoch, in random batches of nearly equal size; return the mean loss.

        ``factor`` maps the completed fraction of the epoch to a factor of the learning rates. The
        epoch stops early at ``end``, a time of the monotonic clock.
        """
        order = torch.from_numpy(self.rng.permutation(len(x))).to(x.device)
        x, targets = x[order], targets[order]
        count = -(-len(x) // self.objective.batch_size)
        bounds = [len(x) * number // count for number in range(count + 1)]
        total = torch.zeros((), dtype=torch.float64, device=x.device)
        num_rows = 0
        for number in range(count):
            rows = slice(bounds[number], bounds[number + 1])
            total += self.step(x[rows], targets[rows], factor(number / count))
            num_rows = rows.stop
            if time.monotonic() >= end:
                break
        return float(total) / num_rows

    def cycle(
        self, x: Tensor, targets: Tensor, length: int, end: float, on_epoch: Callable[[], object]
    ) -> None:
        """Train for ``length`` epochs, with learning rates that decrease to zero along a cosine.

        Rows are ``N x (d + 1)`` with ones in the last column, and targets ``N x K`` (labels
        ``N x 1``). ``on_epoch`` is called after each epoch. Training stops at ``end`` of the
        monotonic clock.

        Raises:
            FloatingPointError: A value becomes infinite or NaN.
        """
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
                raise FloatingPointError(
                    f"Values became infinite or NaN in epoch {len(self.losses) + 1}"
                )
            self.losses.append(loss)
            on_epoch()
            if time.monotonic() >= end:
                break
