"""One of the Gaussian processes that a forecast is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn.averaging import Transform
from gpytorch_nkn.estimators.conditioned_gp import ConditionedGP
from gpytorch_nkn.estimators.series.seasons import typical_step
from gpytorch_nkn.estimators.series.series_filter import WALKS, SeriesFilter
from gpytorch_nkn.fit import FitResult

__all__ = ["CONDITIONED", "Member", "Scales"]

CONDITIONED = 4000  # last rows that forecasts depend on without a filter


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
        log_prior: Log of its weight before it is scored.
        weight: Its weight in the forecast.
        is_sum: Its kernel is one of the built-in sums.
    """

    name: str
    scales: Scales
    result: FitResult
    log_density: float = np.nan
    spread: float = 1.0
    log_prior: float = 0.0
    weight: float = 0.0
    is_sum: bool = False
    _conditioned: ConditionedGP | None = field(default=None, repr=False)
    _filter: SeriesFilter | None = field(default=None, repr=False)

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
        return means, self.spread * stds

    def _gaussian(self, rows: np.ndarray, *, joint: bool) -> tuple[Tensor, Tensor]:
        """Scaled means ``M`` of observations, and their variances or (joint) covariances."""
        x = self.scales.inputs(rows, self._device)
        if self._filter is not None and self._filter.covers(x):
            mean, covariance = self._filter.forecast(x)
            return mean, covariance if joint else covariance.diagonal()
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

    def condition(
        self,
        rows: np.ndarray,
        values: np.ndarray,
        *,
        seconds: float = math.inf,
        filtered: bool = True,
    ) -> None:
        """Forecast from other observations ``N``, in the order of time, without new training.

        Of more than :data:`CONDITIONED` observations, forecasts depend on all by a filter where
        the process has one, and else on the last of them.

        Args:
            rows, values: See :meth:`Scales.inputs`; in units of the data.
            seconds: Time for a filter.
            filtered: Use a filter if there is one.
        """
        x, y = self.scales.inputs(rows, self._device), self.scales.targets(values, self._device)
        step = typical_step(rows[:, 0]) / self.scales.x_scale
        self._conditioned = self._filter = None
        if filtered and len(y) > CONDITIONED:
            self._filter = SeriesFilter.of(self.model, x, y, step, seconds, moves=self.is_sum)
        x, y = x[-CONDITIONED:], y[-CONDITIONED:]
        for kernel in self.model.modules():
            if self.is_sum and isinstance(kernel, WALKS):  # which are zero before their origin
                kernel.initialize(origin=min(kernel.origin.item(), float(x[0, 0]) - step))
        self.model.set_train_data(x, y, strict=False)
        if self._filter is None:
            self._process().prepare()

    @torch.no_grad()
    def errors(self) -> np.ndarray:
        """Absolute standardised errors ``N`` of its targets, each predicted from all others."""
        process = self._process()
        mean, variance = process.leave_one_out()
        return ((process.targets - mean).abs() / variance.sqrt()).cpu().numpy()

    @property
    def _device(self) -> torch.device:
        return self.model.train_targets.device

    def _process(self) -> ConditionedGP:
        if self._conditioned is None:
            self._conditioned = ConditionedGP(self.model)
        return self._conditioned
