"""One of the Gaussian processes that a forecast is made of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from gpytorch.models import ExactGP
from scipy.ndimage import maximum_filter1d, minimum_filter1d
from torch import Tensor

from gpytorch_nkn.averaging import Transform
from gpytorch_nkn.estimators.conditioned_gp import ConditionedGP
from gpytorch_nkn.estimators.series.seasons import typical_step
from gpytorch_nkn.estimators.series.series import view
from gpytorch_nkn.fit import FitResult
from gpytorch_nkn.kernels import DampedTrendKernel, IntegratedWienerKernel, WienerKernel

__all__ = ["CONDITIONED", "Member", "Scales"]

CONDITIONED = 4000  # rows at most that forecasts depend on
_WALKS = (DampedTrendKernel, IntegratedWienerKernel, WienerKernel)
_BLOCK = 1000  # rows, of which each is predicted from all others
_UPPER = 2.0  # standard deviations from the median to the end of an interval of 95 %


@dataclass(frozen=True)
class Scales:
    """How a Gaussian process counts time and targets.

    Attributes:
        x_offset, x_scale: Of time.
        y_offset, y_scale: Of targets on the scale of the transform.
        transform: What it models of the targets.
    """

    x_offset: float
    x_scale: float
    y_offset: float
    y_scale: float
    transform: Transform

    def inputs(self, rows: np.ndarray, device: str | torch.device | None = None) -> Tensor:
        """Inputs for rows ``M x (1 + C)`` of time and covariates, which are scaled already."""
        scaled = np.column_stack([(rows[:, 0] - self.x_offset) / self.x_scale, rows[:, 1:]])
        return torch.as_tensor(scaled, dtype=torch.float64, device=device)

    def targets(self, values: np.ndarray, device: str | torch.device | None = None) -> Tensor:
        """Targets ``M`` as the process has them."""
        scaled = (self.transform.forward(values) - self.y_offset) / self.y_scale
        return torch.as_tensor(scaled, dtype=torch.float64, device=device)

    def moments(self, mean: Tensor, variance: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations ``M`` on the scale of the transform."""
        stds = self.y_scale * variance.sqrt().cpu().numpy()
        return self.y_offset + self.y_scale * mean.cpu().numpy(), stds


@dataclass(eq=False)
class Member:
    """A trained Gaussian process.

    Attributes:
        name: Name of its structure.
        scales: How it counts time and targets.
        result: Record of its training.
        log_density: Mean log density of rolling forecasts, per target.
        spread: Factor of its standard deviations, by rolling forecasts.
        horizon, reach: Steps ahead that it is calibrated for, and last rows it depends on.
        span: The typical time that so many steps take, gaps of the series included.
        log_prior: Log of its weight before it is scored.
        weight: Its weight in the forecast.
        is_sum: Its kernel is one of the built-in sums.
    """

    name: str
    scales: Scales
    result: FitResult
    log_density: float = np.nan
    spread: float = 1.0
    horizon: int = 1
    reach: int = CONDITIONED
    span: float = 1.0
    log_prior: float = 0.0
    weight: float = 0.0
    is_sum: bool = False
    _conditioned: ConditionedGP | None = field(default=None, repr=False)
    _limits: _Limits | None = field(default=None, repr=False)

    @property
    def transform(self) -> str:
        """The name of what it models of the targets, such as ``"log"``."""
        return self.scales.transform.name

    @property
    def model(self) -> ExactGP:
        """Its Gaussian process."""
        return self.result.model

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended its training."""
        return self.result.interrupted

    def scores(self, rows: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
        """Joint standardised draws ``S x M`` of observations at rows ``M x (1 + C)``."""
        covariance = self._gaussian(rows, joint=True)[1].cpu().numpy()
        values, vectors = np.linalg.eigh(covariance)  # sound where rows repeat, too
        root = vectors * np.sqrt(values.clip(0)) / np.sqrt(np.diag(covariance))[:, None]
        return rng.standard_normal((count, len(rows))) @ root.T

    def moments(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations ``M`` of observations, on the scale of its transform."""
        means, stds = self.scales.moments(*self._gaussian(rows, joint=False))
        stds = self.spread * stds
        if self._limits is None:
            return means, stds
        return self._limits.applied(means, stds, self._leads(rows))

    def _leads(self, rows: np.ndarray) -> np.ndarray:
        """Time from the last observation ``M``, in spans of the horizon."""
        last = self.model.train_inputs[0][-1, 0].item()
        begin = self.scales.x_offset + self.scales.x_scale * last
        return (rows[:, 0] - begin) / self.span

    def _gaussian(self, rows: np.ndarray, *, joint: bool) -> tuple[Tensor, Tensor]:
        """Scaled means ``M`` of observations, and their variances or (joint) covariances."""
        x = self.scales.inputs(rows, self._device)
        process = self._process()
        mean, variance = process.moments(x, variance=not joint)
        if variance is not None:
            return mean, variance + process.noise
        covariance = process.covariance(x)
        covariance.diagonal().add_(process.noise)
        return mean, covariance

    def holds(self, values: np.ndarray, *, strict: bool) -> bool:
        """Whether it can have targets ``N``; if not strict, bounds that they break are dropped."""
        transform = self.scales.transform
        if not strict and transform.is_identity and not transform.holds(values):
            self.scales = replace(self.scales, transform=Transform())
        return self.scales.transform.holds(values)

    def condition(self, rows: np.ndarray, values: np.ndarray) -> None:
        """Forecast from other observations ``N``, in the order of time, without new training.

        Of many, forecasts depend on a part (:func:`~gpytorch_nkn.estimators.series.series.view`).

        Args:
            rows, values: See :meth:`Scales.inputs`; in units of the data.
        """
        self.scales = replace(
            self.scales, transform=self.scales.transform.reaching(float(values.max()))
        )
        self.limit(rows[:, 0], values)
        seen = view(len(values), self.reach, CONDITIONED)
        x = self.scales.inputs(rows[seen], self._device)
        self._conditioned = None
        step = typical_step(rows[:, 0]) / self.scales.x_scale
        for kernel in self.model.modules():
            if self.is_sum and isinstance(kernel, _WALKS):  # which are zero before their origin
                kernel.initialize(origin=min(kernel.origin.item(), float(x[0, 0]) - step))
        y = self.scales.targets(values[seen], self._device)
        self.model.set_train_data(x, y, strict=False)

    def limit(self, time: np.ndarray, values: np.ndarray) -> None:
        """Bound forecasts by the growth that was seen in the observations ``N``."""
        self._limits = _Limits.of(self.scales.transform, time, values, self.horizon)

    @torch.no_grad()
    def errors(self) -> np.ndarray:
        """Absolute standardised errors ``N`` of its targets, each from the others of its block."""
        found = []
        for part in self._process().blocks(_BLOCK, CONDITIONED):
            mean, variance = part.leave_one_out()
            found.append((part.targets - mean).abs() / variance.sqrt())
        return torch.cat(found).cpu().numpy()

    def prepare(self) -> None:
        """Do what all predictions have in common."""
        self._process().prepare()

    @property
    def _device(self) -> torch.device:
        return self.model.train_targets.device

    def _process(self) -> ConditionedGP:
        if self._conditioned is None:
            self._conditioned = ConditionedGP(self.model)
        return self._conditioned


@dataclass(frozen=True)
class _Limits:
    """Ends of intervals, by the largest growth in windows of the horizon's length.

    Attributes:
        lowest, highest: Of the last window, on the scale of the transform.
        fall, rise: Beyond it, for each horizon.
        is_log: The rise alone bounds intervals: falls of logarithms say nothing of it.
    """

    lowest: float
    highest: float
    fall: float
    rise: float
    is_log: bool

    @classmethod
    def of(
        cls, transform: Transform, time: np.ndarray, values: np.ndarray, horizon: int
    ) -> _Limits:
        """Those of observations ``N``: the largest growth, and less beyond it the more windows.

        The next of ``n`` exchangeable windows exceeds all others with probability ``1 / (n + 1)``.
        """
        scaled = transform.forward(values)
        starts = np.unique(time, return_index=True)[1]
        highest, lowest = (end.reduceat(scaled, starts) for end in (np.maximum, np.minimum))
        size = max(min(horizon, len(starts) // 2), 1)
        inside = slice(size // 2, len(starts) - (size - 1) // 2)  # middles of whole windows
        highest = maximum_filter1d(highest, size)[inside]
        lowest = minimum_filter1d(lowest, size)[inside]
        count = max(len(starts) / size - 1, 1.0)
        more = (1 + 1 / count) * horizon / size
        rise = more * max(float((highest[size:] - highest[:-size]).max()), 0.0)
        is_log = transform.name in ("log", "log1p")
        fall = more * max(float((lowest[:-size] - lowest[size:]).max()), 0.0)
        return cls(float(lowest[-1]), float(highest[-1]), fall, rise, is_log)

    def applied(
        self, means: np.ndarray, stds: np.ndarray, leads: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations ``M`` within the limits, at lead times in horizons."""
        times = np.maximum(leads, 1.0)
        low, high = self.lowest - times * self.fall, self.highest + times * self.rise
        means = np.where(leads > 0, np.clip(means, low, high), means)
        room = np.maximum(high - means, times * self.rise)
        if not self.is_log:
            room = np.maximum(room, np.maximum(means - low, times * self.fall))
        return means, np.where((leads > 0) & (room > 0), np.minimum(stds, room / _UPPER), stds)
