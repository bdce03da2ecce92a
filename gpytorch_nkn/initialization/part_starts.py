"""Start values of the parameters of single kernels from data."""

from __future__ import annotations

import math
from collections import Counter
from functools import cached_property

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_nkn.initialization.assign import assign
from gpytorch_nkn.initialization.change_points import change_points
from gpytorch_nkn.initialization.distances import median_distances
from gpytorch_nkn.initialization.periods import periodogram_peaks
from gpytorch_nkn.kernels import (
    CategoricalKernel,
    ChangePointKernel,
    DataAdaptiveHadamardKernel,
    NonStationarySpectralKernel,
    SpectralComponentKernel,
    StepKernel,
    spec_of,
)
from gpytorch_nkn.kernels.evaluation import unwrap_scales
from gpytorch_nkn.layers import Linear

__all__ = ["PartStarts", "normal"]

_FACTOR = 0.1  # standard deviation of the weights of a Hadamard factor, whose values are near 1
_CHANGES = 3  # number of change points at which steps start
_STEP_WIDTH = 0.01  # width of a step, relative to the span of the inputs
# Standard deviations of the logarithms of parameters with median 1.
_LOG_STDS = {"alpha": 0.5, "variance": 0.0, "outputscale": 0.0}
_FREQUENCY = 0.3  # standard deviation of frequencies, in radians per median distance


class PartStarts:
    """Sets start values of one kernel after another; copies of a kernel get different values."""

    def __init__(
        self, x: Tensor, target: Tensor, rng: np.random.Generator, restart: int, joint: set[int]
    ):
        self.x, self.target, self.rng, self.restart = x, target, rng, restart
        self.joint = joint  # ids of kernels over several columns
        self.num_periodic: Counter[int] = Counter()  # periods set so far, by column
        self.num_steps: Counter[tuple[int, str]] = Counter()  # steps set so far, by column and side
        self.scaled: set[int] = set()  # ids of networks inside a ScaleKernel
        self.peaks: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # by column
        self.changes: dict[int, np.ndarray] = {}  # by column

    def set_on(self, part: Kernel, columns: list[int]) -> None:
        """Set the start values of a kernel over columns, without the kernels inside it."""
        if part.has_lengthscale and part.raw_lengthscale.requires_grad:
            self._start_lengthscale(part, columns)
        if isinstance(part, SpectralComponentKernel) and part.frequency.requires_grad:
            value = part.frequency.detach()
            radians = _FREQUENCY * normal(self.rng, value)
            part.initialize(frequency=radians / self._distances(value, columns))
        if isinstance(part, DataAdaptiveHadamardKernel) and part.weights.requires_grad:
            part.initialize(weights=_FACTOR * normal(self.rng, part.weights))
        if _is_periodic(part) and part.raw_period_length.requires_grad:
            self._start_periods(part, columns)
        if isinstance(part, StepKernel | ChangePointKernel):
            self._start_steps(part, columns)
        for name, log_std in _LOG_STDS.items():
            raw = part._parameters.get(f"raw_{name}")
            if raw is not None and raw.requires_grad:
                value = self._log_normal(getattr(part, name), log_std)
                if name == "outputscale" and self._is_only_variance(part):
                    value = value * self._variance()
                assign(part, name, value)
        spec = spec_of(part)
        if spec is not None and spec.start is not None:
            spec.start(part, self.x[:, columns])

    def _start_lengthscale(self, part: Kernel, columns: list[int]) -> None:
        value = part.lengthscale
        if _is_periodic(part) or isinstance(part, CategoricalKernel):  # dimensionless
            assign(part, "lengthscale", self._log_normal(value, 0.7))
            return
        typical = self._distances(value, columns)
        if id(part) in self.joint or isinstance(part, NonStationarySpectralKernel):
            # joint distances grow with the root of the number of columns
            typical = math.sqrt(len(columns)) * typical
        assign(part, "lengthscale", 0.6 * typical * self._log_normal(value, 1.0))

    def _start_periods(self, part: Kernel, columns: list[int]) -> None:
        values = part.period_length.detach().clone()
        # the numbers of periods and columns may differ
        for dim, column in zip(range(values.size(-1)), columns, strict=False):
            values[..., dim] = self._draw_periods(values[..., dim], column)
        assign(part, "period_length", values)

    def _draw_periods(self, like: Tensor, column: int) -> Tensor:
        if column not in self.peaks:
            self.peaks[column] = self._find_peaks(column)
        (periods, shares), shape = self.peaks[column], tuple(like.shape)
        position = self.num_periodic[column]
        self.num_periodic[column] += 1
        if self.restart < 2:
            chosen = np.full(shape, periods[position % periods.size])
        else:
            chance = (shares + 1e-12) / (shares + 1e-12).sum()
            chosen = self.rng.choice(periods, size=shape, p=chance)
        jitter = np.exp(0.005 * self.rng.standard_normal(shape))  # equal copies would stay equal
        return torch.as_tensor(chosen * jitter, dtype=like.dtype, device=like.device)

    def _find_peaks(self, column: int) -> tuple[np.ndarray, np.ndarray]:
        """Return :func:`periodogram_peaks`; without a peak, three fractions of the span."""
        values, targets = self._arrays(column)
        trend = ("cubic", "smooth")[self.restart % 2]
        periods, shares = periodogram_peaks(values, targets, trend=trend)
        if periods.size == 0:
            span = np.ptp(values) or 1.0
            return span / np.array([4.0, 8.0, 16.0]), np.ones(3)
        return periods, shares

    def _start_steps(self, part: StepKernel | ChangePointKernel, columns: list[int]) -> None:
        is_step = isinstance(part, StepKernel)
        column, side = columns[0 if is_step else part.switch_dim], part.side if is_step else "after"
        if column not in self.changes:
            self.changes[column] = self._find_changes(column)
        locations, shape = self.changes[column], tuple(part.location.shape)
        indices = self.num_steps[column, side] + np.arange(shape[-1])
        self.num_steps[column, side] += shape[-1]
        low, high = float(self.x[:, column].min()), float(self.x[:, column].max())
        chosen = np.broadcast_to(locations[indices % locations.size], shape)
        if self.restart:
            rng = self.rng
            drawn = np.where(
                rng.random(shape) < 0.5,
                rng.choice(locations, size=shape),
                rng.uniform(low, high, shape),
            )
            chosen = drawn if self.restart > 1 else np.where(rng.random(shape) < 0.5, chosen, drawn)
        if part.raw_location.requires_grad:
            values = torch.as_tensor(np.sort(chosen, axis=-1)).to(part.location)
            assign(part, "location", values)
        if part.raw_width.requires_grad:
            width = _STEP_WIDTH * ((high - low) or 1.0)
            assign(part, "width", width * self._log_normal(part.width, 0.5))

    def _find_changes(self, column: int) -> np.ndarray:
        """Return change points of the targets, strongest first, then quantiles of the inputs."""
        values, targets = self._arrays(column)
        changes = change_points(values, targets, num_candidates=_CHANGES)
        quantiles = np.quantile(values, [0.5, 0.25, 0.75])
        return np.array([*(change.location for change in changes), *quantiles])

    def _is_only_variance(self, kernel: Kernel) -> bool:
        """Return whether a kernel is the outermost ScaleKernel of a network with convex outputs."""
        network, scales = unwrap_scales(kernel)
        layers = getattr(network, "layers", None)
        if not scales or not layers or id(network) in self.scaled:
            return False
        self.scaled.add(id(network))
        return isinstance(layers[-1], Linear) and layers[-1].is_simplex

    def _variance(self) -> Tensor:
        target = self.target
        variance = target.var() if target.numel() > 1 else target.new_ones(())
        return torch.where(variance > 0, variance, 1.0)

    @cached_property
    def _medians(self) -> Tensor:
        return median_distances(self.x)

    def _distances(self, value: Tensor, columns: list[int]) -> Tensor:
        """Return median distances for a parameter, averaged unless it has one per column."""
        medians = self._medians[columns].to(value)
        return medians if value.size(-1) == len(medians) else medians.mean()

    def _arrays(self, column: int) -> tuple[np.ndarray, np.ndarray]:
        values, targets = self.x[:, column].detach(), self.target
        return values.double().cpu().numpy(), targets.double().cpu().numpy()

    def _log_normal(self, like: Tensor, scale: float) -> Tensor:
        draws = np.exp(scale * self.rng.standard_normal(tuple(like.shape)))
        return torch.as_tensor(draws, dtype=like.dtype, device=like.device)


def _is_periodic(part: Kernel) -> bool:
    return "raw_period_length" in part._parameters


def normal(rng: np.random.Generator, like: Tensor) -> Tensor:
    """Draw standard normal values of the shape, dtype and device of a tensor."""
    return torch.as_tensor(rng.standard_normal(tuple(like.shape))).to(like)
