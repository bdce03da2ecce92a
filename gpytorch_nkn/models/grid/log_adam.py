"""Adam in the logarithms of positive parameters."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from gpytorch import Module
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn.functional import softplus

from gpytorch_nkn.fit import Adam
from gpytorch_nkn.kernels.evaluation import has_softplus

__all__ = ["LogAdam", "LogParameters", "period_counts"]

_MAX_FAILURES = 5  # steps in a row that led nowhere


class _Entry(NamedTuple):
    parameter: Tensor
    window: slice


class LogParameters:
    """A vector that an optimiser moves, and the parameters that follow it.

    Positive parameters (softplus of a raw value, with a lower bound or none) are moved by their
    logarithms: a step then is a share of the value, whatever its unit. Others are moved as they
    are. Periods and frequencies are moved by less, one over the number of periods in the data: a
    change by a share shifts the last period by that share times their number.

    Args:
        model: The model; its trainable parameters must be of one dtype and device.
        cycles: Number of periods in the data, for parameters that are periods or frequencies.

    Attributes:
        values: The vector, in steps that are alike for all parameters.
    """

    def __init__(self, model: Module, cycles: dict[int, Tensor]):
        entries, positive, rates = [], [], []
        lowest: list[Tensor] = []
        highest: list[Tensor] = []
        offset = 0
        for _, parameter, constraint in model.named_parameters_and_constraints():
            if not parameter.requires_grad:
                continue
            window = slice(offset, offset + parameter.numel())
            entries.append(_Entry(parameter, window))
            offset = window.stop
            positive.append(torch.full((parameter.numel(),), _is_positive(constraint)))
            free = constraint is None or constraint.enforced  # else raw values have the bounds
            infinite = torch.tensor(math.inf)
            low, high = (
                (-infinite, infinite) if free else (constraint.lower_bound, constraint.upper_bound)
            )
            for bounds, end in ((lowest, low), (highest, high)):
                bounds.append(end.to(parameter.data).expand_as(parameter).reshape(-1))
            count = cycles.get(id(parameter))
            if count is None:
                rates.append(torch.ones(parameter.numel()))
            else:
                rates.append(1 / count.detach().double().cpu().reshape(-1).clamp_min(1.0))
        if not entries:
            raise ValueError("The model has no trainable parameters.")
        like = entries[0].parameter
        self._entries = entries
        self._positive = torch.cat(positive).to(like.device)
        self._rates = torch.cat(rates).to(like)
        self._bounds = torch.cat(lowest).to(like), torch.cat(highest).to(like)
        self._start = self._to_logs(self._raw())
        self.values = torch.zeros_like(self._start)

    def write(self) -> None:
        """Set the parameters to what the vector says."""
        logs = self._start + self._rates * self.values
        above = logs.exp()
        raw = torch.where(
            self._positive,
            above + torch.log(-torch.expm1(-above)),  # the inverse of softplus
            logs,
        ).clamp(*self._bounds)
        with torch.no_grad():
            for parameter, window in self._entries:
                parameter.copy_(raw[window].view(parameter.shape))

    def gradient(self) -> Tensor:
        """Gradient by the vector, from that of the parameters, which are set to none."""
        parts = [
            torch.zeros_like(p).reshape(-1) if p.grad is None else p.grad.reshape(-1)
            for p, _ in self._entries
        ]
        for parameter, _ in self._entries:
            parameter.grad = None
        above = softplus(self._raw()).clamp_min(torch.finfo(self.values.dtype).tiny)
        slope = torch.where(self._positive, -above / torch.expm1(-above), 1.0)
        return torch.cat(parts) * slope * self._rates

    def snapshot(self) -> Tensor:
        """Copy of the raw values."""
        return self._raw().clone()

    def restore(self, raw: Tensor) -> None:
        """Set parameters and vector to a copy of the raw values."""
        with torch.no_grad():
            for parameter, window in self._entries:
                parameter.copy_(raw[window].view(parameter.shape))
        self._start = self._to_logs(raw)
        self.values = torch.zeros_like(self.values)

    def _raw(self) -> Tensor:
        return torch.cat([p.detach().reshape(-1) for p, _ in self._entries])

    def _to_logs(self, raw: Tensor) -> Tensor:
        tiny = torch.finfo(raw.dtype).tiny
        return torch.where(self._positive, softplus(raw).clamp_min(tiny).log(), raw)


def _is_positive(constraint: Interval | None) -> bool:
    """Whether a value is the softplus of its raw value, plus a lower bound."""
    if constraint is None or not constraint.enforced or not has_softplus(constraint):
        return False
    return not bool(constraint.upper_bound.isfinite().any())


class LogAdam:
    """Adam on :class:`LogParameters`, which steps back where a step leads nowhere.

    Args:
        parameters: What it moves.
        on_step: Called after each step.
        end: Time of the monotonic clock at which to stop.

    Attributes:
        steps: Number of steps so far.
    """

    def __init__(self, parameters: LogParameters, on_step: Callable[[], object], end: float):
        self.parameters = parameters
        self.on_step = on_step
        self.end = end
        self.steps = 0
        self._shrink = 1.0
        self._failures = 0
        self._good: Tensor | None = None
        self._last = torch.zeros_like(parameters.values)
        self._adam = Adam(parameters.values)

    def step(self, loss: Callable[[], Tensor], rate: float) -> float:
        """Make one step.

        After a loss or gradient that is not finite, or an error of the model, it goes back to
        where the last one was and makes half the step.

        Args:
            loss: What is to become smaller.
            rate: Learning rate.

        Returns:
            The loss before the step.

        Raises:
            TimeoutError: The time is over.
            ArithmeticError, RuntimeError: The first step, or several in a row, led nowhere.
        """
        if time.monotonic() >= self.end:
            raise TimeoutError
        while True:
            try:
                with torch.enable_grad():
                    value = loss()
                    value.backward()
                gradient = self.parameters.gradient()
                if bool(value.isfinite()) and bool(gradient.isfinite().all()):
                    break
                raise ArithmeticError("The loss or its gradient is not finite.")
            except (ArithmeticError, RuntimeError):
                self._failures += 1
                if self._good is None or self._failures > _MAX_FAILURES:
                    raise
                self.parameters.restore(self._good)
                self._shrink *= 0.5
                self._adam = Adam(self.parameters.values)
                self._move(self._last, rate)
        self._failures = 0
        self._good, self._last = self.parameters.snapshot(), gradient
        self._move(gradient, rate)
        self.steps += 1
        self.on_step()
        return float(value.detach())

    def _move(self, gradient: Tensor, rate: float) -> None:
        self._adam.step(gradient, rate * self._shrink)
        self.parameters.write()


def period_counts(kernels: Iterable[Module], coordinates: Iterable[Tensor]) -> dict[int, Tensor]:
    """Number of periods in the data, for raw parameters that are periods or frequencies."""
    cycles: dict[int, Tensor] = {}
    for kernel, x in zip(kernels, coordinates, strict=True):
        span = (x.amax(0) - x.amin(0)).amax()
        for part in kernel.modules():
            if not isinstance(part, Kernel):
                continue
            own = part._parameters
            if "raw_period_length" in own:
                cycles[id(own["raw_period_length"])] = span / part.period_length
            if "raw_mixture_means" in own:
                cycles[id(own["raw_mixture_means"])] = span * part.mixture_means
            if "frequency" in own:
                cycles[id(own["frequency"])] = (span / (2 * math.pi)).expand_as(own["frequency"])
    return cycles
