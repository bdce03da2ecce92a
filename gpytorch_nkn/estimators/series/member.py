"""Member of a forecaster's mixture: a trained Gaussian process."""

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
from gpytorch_nkn.estimators.series.series import Series, view
from gpytorch_nkn.estimators.table_input import offset_and_scale, scaled_variance
from gpytorch_nkn.fit import FitResult, Rows
from gpytorch_nkn.kernels import DampedTrendKernel, IntegratedWienerKernel, WienerKernel

__all__ = ["CONDITIONED", "Member", "Scales"]

CONDITIONED = 4000  # largest number of rows that a forecast is conditioned on
_WALKS = (DampedTrendKernel, IntegratedWienerKernel, WienerKernel)
_BLOCK = 1000  # number of rows per block of leave-one-out errors
_QUARTILES = 1.349  # distance of the quartiles of a normal distribution in standard deviations
_HALF_WIDTH = 2.0  # half width of a 95 % interval in standard deviations


@dataclass(frozen=True)
class Scales:
    """Offsets and scales of time and of the transformed targets."""

    x_offset: float
    x_scale: float
    y_offset: float
    y_scale: float
    transform: Transform

    @classmethod
    def of(cls, x_offset: float, x_scale: float, transform: Transform, seen: Series) -> Scales:
        """Learn offset and scale of the targets from rows of a series.

        With known noise, rows have weights 1 / (s^2 + noise); the quartiles determine s.
        """
        values = transform.forward(seen.values)
        offset, scale = offset_and_scale(values)
        if seen.noise is not None:
            s = np.subtract(*np.quantile(values, [0.75, 0.25])) / _QUARTILES or scale
            weights = 1 / (s**2 + scaled_variance(transform, seen.values, seen.noise, 1.0))
            offset = np.average(values, weights=weights)
            scale = np.sqrt(np.average((values - offset) ** 2, weights=weights)) or scale
        return cls(x_offset, x_scale, float(offset), float(scale), transform)

    def data(
        self,
        rows: np.ndarray,
        values: np.ndarray,
        noise: np.ndarray | None,
        device: str | torch.device | None = None,
    ) -> Rows:
        """Scale rows ``M x (1 + C)``, targets ``M`` and known noise variances ``M``."""
        x, y = self.inputs(rows, device), self.targets(values, device)
        if noise is None:
            return Rows(x, y)
        noise = scaled_variance(self.transform, values, noise, self.y_scale)
        return Rows(x, y, torch.as_tensor(noise).to(y))

    def inputs(self, rows: np.ndarray, device: str | torch.device | None = None) -> Tensor:
        """Scale the time in rows ``M x (1 + C)``, whose covariates are scaled already."""
        scaled = np.column_stack([(rows[:, 0] - self.x_offset) / self.x_scale, rows[:, 1:]])
        return torch.as_tensor(scaled, dtype=torch.float64, device=device)

    def targets(self, values: np.ndarray, device: str | torch.device | None = None) -> Tensor:
        """Transform and scale targets ``M``."""
        scaled = (self.transform.forward(values) - self.y_offset) / self.y_scale
        return torch.as_tensor(scaled, dtype=torch.float64, device=device)

    def moments(self, mean: Tensor, variance: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations ``M`` on the scale of the transform."""
        stds = self.y_scale * variance.sqrt().cpu().numpy()
        return self.y_offset + self.y_scale * mean.cpu().numpy(), stds


@dataclass(eq=False)
class Member:
    """Trained Gaussian process of one structure."""

    name: str  # name of the structure
    scales: Scales
    result: FitResult
    log_density: float = np.nan  # mean log density of rolling forecasts, per target
    calibration: float = 1.0  # calibration factor of standard deviations
    horizon: int = 1  # number of steps ahead for which the member is calibrated
    reach: int = CONDITIONED  # number of last rows from which the member uses a subset
    span: float = 1.0  # median duration of the horizon, including gaps in the series
    log_prior: float = 0.0  # log prior weight
    weight: float = 0.0
    is_sum: bool = False  # whether the kernel is one of the built-in sums
    shifts: tuple[float, ...] = ()  # times at which the level shifts
    _shift_variance: float = 0.0  # of future level shifts, per horizon and transformed
    _conditioned: ConditionedGP | None = field(default=None, repr=False)
    _limits: _Limits = field(init=False, repr=False)

    @property
    def transform(self) -> str:
        """Name of the transform of the targets, such as ``"log"``."""
        return self.scales.transform.name

    @property
    def model(self) -> ExactGP:
        """The Gaussian process."""
        return self.result.model

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the training."""
        return self.result.interrupted

    def scores(self, rows: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
        """Draw joint standard normal scores ``S x M`` of observations at rows ``M x (1 + C)``."""
        covariance = self._gaussian(rows, joint=True)[1].cpu().numpy()
        values, vectors = np.linalg.eigh(covariance)  # also works for repeated rows
        root = vectors * np.sqrt(values.clip(0)) / np.sqrt(np.diag(covariance))[:, None]
        return rng.standard_normal((count, len(rows))) @ root.T

    def moments(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations ``M`` of transformed observations."""
        means, stds = self.scales.moments(*self._gaussian(rows, joint=False))
        stds = self.calibration * stds
        last = self.model.train_inputs[0][-1].cpu().numpy()  # last observation
        leads = (rows[:, 0] - self.scales.x_offset - self.scales.x_scale * last[0]) / self.span
        stds = np.sqrt(stds**2 + self._shift_variance * np.maximum(leads, 0.0))
        return self._limits.applied(means, stds, leads, self._effects(rows, means, last[1:]))

    def _effects(self, rows: np.ndarray, means: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Return effects ``2 x M`` of the covariates, compared with usual and with last values."""
        if not last.size:
            return np.zeros((2, len(rows)))
        usual = np.tile(rows, (2, 1))
        usual[:, 1:] = np.repeat([0 * last, last], len(rows), axis=0)
        others, _ = self.process().moments(self.scales.inputs(usual, self._device), variance=False)
        unchanged = self.scales.moments(others, torch.zeros_like(others))[0]
        return means - unchanged.reshape(2, -1)

    def _gaussian(self, rows: np.ndarray, *, joint: bool) -> tuple[Tensor, Tensor]:
        """Return scaled means ``M`` of observations, and variances or (``joint``) covariances."""
        x = self.scales.inputs(rows, self._device)
        process = self.process()
        mean, variance = process.moments(x, variance=not joint)
        if variance is not None:
            return mean, variance + process.noise
        covariance = process.covariance(x)
        covariance.diagonal().add_(process.noise)
        return mean, covariance

    def accepts(self, values: np.ndarray, *, strict: bool) -> bool:
        """Return whether the transform is defined for targets ``N``.

        Unless ``strict``, the identity drops bounds that targets exceed.
        """
        transform = self.scales.transform
        if not strict and transform.is_identity and not transform.accepts(values):
            self.scales = replace(self.scales, transform=Transform())
        return self.scales.transform.accepts(values)

    def condition(self, rows: np.ndarray, values: np.ndarray, noise: np.ndarray | None) -> None:
        """Condition on new observations ``N`` in order of time, without training.

        :func:`.view` thins a long series. Arguments are as in :meth:`Scales.data`.
        """
        self.scales = replace(
            self.scales, transform=self.scales.transform.extended_to(float(values.max()))
        )
        self.limit(rows[:, 0], values)
        seen = view(len(values), self.reach, CONDITIONED)
        noise = None if noise is None else noise[seen]
        data = self.scales.data(rows[seen], values[seen], noise, self._device)
        self._conditioned = None
        step = typical_step(rows[:, 0]) / self.scales.x_scale
        for kernel in self.model.modules():
            if self.is_sum and isinstance(kernel, _WALKS):  # walks are zero before their origin
                kernel.initialize(origin=min(kernel.origin.item(), float(data.x[0, 0]) - step))
        self.model.likelihood = data.likelihood(self.model.likelihood)
        data.set_on(self.model)

    def limit(self, time: np.ndarray, values: np.ndarray) -> None:
        """Set the limits of forecasts from the changes in the observations ``N``."""
        transform = self.scales.transform
        scaled, bounds = transform.forward(values), transform.ends
        if self.transform == "probit":  # the probit scale has no bounds
            bounds = (-np.inf, np.inf)
        is_log = self.transform in ("log", "log1p")
        after = np.searchsorted(time, [at for at in self.shifts if time[0] < at < time[-1]])
        sizes = np.abs(scaled[after] - scaled[after - 1])
        shift = float(sizes.max(initial=0.0))
        self._limits = _Limits.of(time, scaled, bounds, self.horizon, shift, is_log=is_log)
        # Neither one shift nor a shock (two shifts) is evidence of later shifts.
        number = max(len(sizes) - 2, 0) * self.span / float(np.ptp(time))
        self._shift_variance = number * float(np.square(sizes).mean()) if number else 0.0

    @torch.no_grad()
    def errors(self) -> np.ndarray:
        """Return absolute standardised leave-one-out errors ``N``, each within a block of rows."""
        errors, rows = [], torch.arange(len(self.model.train_targets))[:CONDITIONED]
        for block in map(self.process().at, rows.split(_BLOCK)):
            mean, variance = block.leave_one_out()
            errors.append((block.targets - mean).abs() / variance.sqrt())
        return torch.cat(errors).cpu().numpy()

    def process(self) -> ConditionedGP:
        """Return the posterior given the observations, which is computed once."""
        if self._conditioned is None:
            self._conditioned = ConditionedGP(self.model)
        return self._conditioned

    @property
    def _device(self) -> torch.device:
        return self.model.train_targets.device


@dataclass(frozen=True)
class _Limits:
    """Limits of forecasts, from the largest change between windows of the horizon's length."""

    lowest: float  # range of the last window, on the scale of the transform
    highest: float
    change: float  # largest change per horizon beyond this range
    bounds: tuple[float, float]  # bounds of the targets
    is_log: bool  # whether only the rise limits the intervals
    length: float  # of the observations, in horizons

    @classmethod
    def of(
        cls,
        time: np.ndarray,
        scaled: np.ndarray,
        bounds: tuple[float, float],
        horizon: int,
        shift: float,
        *,
        is_log: bool,
    ) -> _Limits:
        """Compute limits from scaled observations ``N``: the largest change, times ``1 + 1 / n``.

        After ``n`` exchangeable windows, the next one exceeds all with probability ``1 / (n + 1)``.
        A decline may be as large as the growth before it, as after the peak of an epidemic.
        The size of a level shift is added, because the last window may begin before the shift.
        """
        starts = np.unique(time, return_index=True)[1]
        highest, lowest = (end.reduceat(scaled, starts) for end in (np.maximum, np.minimum))
        size = max(min(horizon, len(starts) // 2), 1)
        inside = slice(size // 2, len(starts) - (size - 1) // 2)  # centres of complete windows
        highest = maximum_filter1d(highest, size)[inside]
        lowest = minimum_filter1d(lowest, size)[inside]
        count = max(len(starts) / size - 1, 1.0)
        more = (1 + 1 / count) * horizon / size
        rise, fall = highest[size:] - highest[:-size], lowest[:-size] - lowest[size:]
        change = more * max(float(rise.max()), float(fall.max()), 0.0)
        low, high = float(lowest[-1]) - shift, float(highest[-1]) + shift
        return cls(low, high, change, bounds, is_log, len(starts) / horizon)

    def applied(
        self, means: np.ndarray, stds: np.ndarray, leads: np.ndarray, effects: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Limit means and standard deviations ``M`` at lead times ``M``, in horizons.

        Exponential growth becomes linear after a lead time of the length of the observations.
        Effects ``K x M`` of covariates widen the limits, because covariates may change faster than
        the series did.
        """
        times = np.maximum(leads, 1.0)
        growing = np.minimum(times, self.length) if self.is_log else times
        rise, linear = growing * self.change, (times - growing) * self.change
        low, high = self.lowest - times * self.change, self.highest + rise + np.log1p(linear)
        low, high = low + effects.min(0).clip(max=0), high + effects.max(0).clip(min=0)
        low, high = np.clip(low, *self.bounds), np.clip(high, *self.bounds)
        limited = np.where(leads > 0, np.clip(means, low, high), means)
        # If a mean exceeds its limit, the interval is at least as wide as the excess.
        means, stds = limited, np.maximum(stds, np.abs(limited - means) / _HALF_WIDTH)
        margin = np.maximum(high - means, rise + np.abs(effects).max(0))
        if not self.is_log:
            margin = np.maximum(margin, means - low)
        return means, np.where(
            (leads > 0) & (margin > 0), np.minimum(stds, margin / _HALF_WIDTH), stds
        )
