"""One of the Gaussian processes that a forecast is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import LinearMean, ZeroMean
from gpytorch.models import ExactGP
from gpytorch.priors import NormalPrior
from torch import Tensor

from gpytorch_nkn.averaging import PredictiveMixture, Transform
from gpytorch_nkn.estimators.conditioned_gp import ConditionedGP
from gpytorch_nkn.estimators.series.seasons import typical_step
from gpytorch_nkn.estimators.series.series_filter import WALKS, SeriesFilter
from gpytorch_nkn.fit import FitResult
from gpytorch_nkn.layers import log_normal_prior
from gpytorch_nkn.linalg import ExactPosterior

__all__ = ["CONDITIONED", "Judgement", "Member", "Scales", "SeriesGP", "judge"]

CONDITIONED = 4000  # the last rows, that forecasts depend on where no filter takes in all of them
_ORIGINS = 48  # of rolling forecasts
_WINDOWS = 2.0  # of forecasts, as many as a process's own deviations count for


class Judgement(NamedTuple):
    """What rolling forecasts say of a process.

    Attributes:
        log_density: Mean log density of the targets that came, with deviations times ``spread``.
        spread: Factor of its deviations.
    """

    log_density: float
    spread: float


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

    def inputs(self, rows: np.ndarray, device: str | None) -> Tensor:
        """Inputs for rows ``M x (1 + C)`` of time and covariates, which are scaled already."""
        scaled = np.column_stack([(rows[:, 0] - self.x_offset) / self.x_scale, rows[:, 1:]])
        return torch.as_tensor(scaled, dtype=torch.float64, device=device)

    def targets(self, values: np.ndarray, device: str | None) -> Tensor:
        """Targets ``M`` as the process has them."""
        scaled = (self.transform.forward(values) - self.y_offset) / self.y_scale
        return torch.as_tensor(scaled, dtype=torch.float64, device=device)

    def moments(self, mean: Tensor, variance: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Means and deviations ``M``, on the scale of the transform, of what the process says."""
        stds = self.y_scale * variance.sqrt().cpu().numpy()
        return self.y_offset + self.y_scale * mean.cpu().numpy(), stds


@dataclass(eq=False)
class Member:
    """A Gaussian process that has been tried, and what came of it.

    Attributes:
        name: Name of its structure.
        scales: How it counts time and targets.
        result: Record of its training; None if that failed.
        log_density: Mean log density of rolling forecasts, per target; NaN if it failed.
        log_prior: Logarithm of its weight before that counts.
        spread: Factor of its deviations, by rolling forecasts.
        weight: Its weight in the forecast.
        seconds: Wall time.
        status: ``ok``, ``interrupted`` or ``failed: ...``.
        is_sum: Its kernel is one of those that are tried by default.
        pace: Seconds that a judgement took, by the square of its rows.
    """

    name: str
    scales: Scales
    result: FitResult | None
    log_density: float = np.nan
    log_prior: float = 0.0
    spread: float = 1.0
    weight: float = 0.0
    seconds: float = 0.0
    status: str = "ok"
    is_sum: bool = False
    pace: float = 0.0
    _conditioned: ConditionedGP | None = field(default=None, repr=False)
    _filter: SeriesFilter | None = field(default=None, repr=False)

    @property
    def transform(self) -> str:
        """The name of what it models of the targets, such as ``"log"``."""
        return self.scales.transform.name

    @property
    def model(self) -> ExactGP:
        """Its Gaussian process."""
        assert self.result is not None
        return self.result.model

    def scores(
        self, rows: np.ndarray, count: int, rng: np.random.Generator, device: str | None
    ) -> np.ndarray:
        """Joint draws ``S x M`` of observations, each less its mean and by its deviation.

        See :meth:`Scales.inputs` for the rows.
        """
        x = self.scales.inputs(rows, device)
        if self._filter is not None and self._filter.covers(x):
            covariance = self._filter.forecast(x)[1].numpy()
        else:
            conditioned = self._process()
            covariance = conditioned.covariance(x).cpu().numpy()
            covariance[np.diag_indices_from(covariance)] += conditioned.noise
        values, vectors = np.linalg.eigh(covariance)  # sound where rows repeat, too
        root = vectors * np.sqrt(values.clip(0))
        return (
            rng.standard_normal((count, len(rows)))
            @ (root / np.sqrt(np.diag(covariance))[:, None]).T
        )

    def moments(self, rows: np.ndarray, device: str | None) -> tuple[np.ndarray, np.ndarray]:
        """Means and deviations ``M`` of observations, on the scale of its transform."""
        x = self.scales.inputs(rows, device)
        if self._filter is not None and self._filter.covers(x):
            mean, covariance = self._filter.forecast(x)
            variance = covariance.diagonal()
        else:
            conditioned = self._process()
            mean, of_function = conditioned.moments(x)
            assert of_function is not None
            variance = of_function + conditioned.noise
        means, stds = self.scales.moments(mean, variance)
        return means, self.spread * stds

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
        device: str | None,
        *,
        seconds: float | None = None,
        filtered: bool = True,
    ) -> None:
        """Forecast from other observations ``N``, in the order of time, with no new training.

        Of more than :data:`CONDITIONED` observations, forecasts depend on all by a filter where
        the process has one, and else on the last of them.

        Args:
            rows, values: See :meth:`Scales.inputs`; in units of the data.
            device: Of the process.
            seconds: Time that this has: forecasts depend on as many of the last observations as
                that is enough for.
            filtered: May be by a filter.
        """
        x, y = self.scales.inputs(rows, device), self.scales.targets(values, device)
        step = typical_step(rows[:, 0]) / self.scales.x_scale
        self._conditioned = self._filter = None
        if filtered and len(y) > CONDITIONED:
            self._filter = SeriesFilter.of(self.model, x, y, step, seconds, moves=self.is_sum)
        last = slice(-CONDITIONED, None)
        if seconds is not None and self._filter is None and self.pace:
            last = slice(-min(CONDITIONED, int((seconds / self.pace) ** 0.5) + 1), None)
        x, y = x[last], y[last]
        for kernel in self.model.modules():
            if self.is_sum and isinstance(kernel, WALKS):  # which are zero ahead of their origin
                kernel.initialize(origin=min(kernel.origin.item(), float(x[0, 0]) - step))
        self.model.set_train_data(x, y, strict=False)

    def prepare(self) -> None:
        """Do what all forecasts have in common."""
        if self._filter is None:
            self._process().prepare()

    @torch.no_grad()
    def errors(self) -> np.ndarray:
        """Absolute standardised errors ``N`` of its targets, each predicted from all others."""
        conditioned = self._process()
        mean, variance = conditioned.leave_one_out()
        return ((conditioned.targets - mean).abs() / variance.sqrt()).cpu().numpy()

    def _process(self) -> ConditionedGP:
        if self._conditioned is None:
            self._conditioned = ConditionedGP(self.model)
        return self._conditioned


class SeriesGP(ExactGP):
    """Exact GP over scaled time and targets.

    Args:
        x: Inputs ``N x (1 + C)``, time and covariates.
        y: Targets ``N``.
        kernel: Its kernel.
        priors: Weak priors on noise and mean.
        line: The mean is linear; else it is zero.
    """

    def __init__(self, x: Tensor, y: Tensor, kernel: Kernel, priors: bool, *, line: bool):
        # The floor keeps the covariance matrix of a noise-free series well conditioned.
        noise = (0.01, 2.0) if line else (0.05, 1.5)
        likelihood = GaussianLikelihood(
            noise_prior=log_normal_prior(*noise) if priors else None,
            noise_constraint=GreaterThan(1e-6),
        )
        if not line:
            likelihood.noise = noise[0]
        super().__init__(x, y, likelihood)
        self.mean_module = ZeroMean()
        if line:
            with torch.random.fork_rng():  # LinearMean draws its start from the global state
                self.mean_module = LinearMean(x.size(-1)).initialize(weights=0.0, bias=0.0)
            if priors:
                mean = self.mean_module
                mean.register_prior("weights_prior", NormalPrior(0.0, 1.0), _slope, _set_slope)
                mean.register_prior("bias_prior", NormalPrior(0.0, 2.0), _bias, _set_bias)
        self.covar_module = kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


@torch.no_grad()
def judge(
    model: SeriesGP, scales: Scales, values: np.ndarray, horizon: int, first: int
) -> Judgement:
    r"""Compare rolling forecasts with the targets that come next.

    The Cholesky factor of the covariance of all targets holds the forecasts from every origin:

    .. math:: m = L_{o:o+h,\,:o}\, z_{:o}, \qquad \Sigma = L_{o:o+h,\,o:o+h} L_{o:o+h,\,o:o+h}^\top,
        \qquad z = L^{-1} r

    Evidence is about one step ahead. Several steps ahead, deviations are off where a process
    does not hold for good (a slope that wandered once widens every band). They are multiplied by
    the mean absolute standardised error over that of a normal variable, less moved by a few wild
    targets than squares would be, and shrunk to one: by as many windows of the horizon as the
    series holds after the first origin, against two windows for the process itself.

    The hyperparameters are those of all targets.

    Args:
        model: A trained process, whose rows are in the order of time.
        scales: How it counts targets.
        values: Targets ``N`` in units of the data.
        horizon: Targets ``h`` that are forecast from each origin.
        first: The first origin; 48 of them are spread from there to the last target.
    """
    model.eval()
    assert model.train_inputs is not None
    x, y = model.train_inputs[0], model.train_targets
    covariance = model.covar_module(x).to_dense()
    covariance.diagonal().add_(model.likelihood.noise)
    mean = model.mean_module(x)
    posterior = ExactPosterior(covariance, y - mean)
    factor = posterior.factor.tril()
    white = torch.linalg.solve_triangular(factor, posterior.residual.unsqueeze(-1), upper=False)
    means, variances, rows = [], [], []
    for origin in np.unique(np.linspace(first, len(y) - 1, _ORIGINS).astype(int)).tolist():
        ahead = slice(origin, min(len(y), origin + horizon))
        means.append(mean[ahead] + (factor[ahead, :origin] @ white[:origin])[:, 0])
        variances.append(factor[ahead, ahead].square().sum(-1))
        rows.append(np.arange(ahead.start, ahead.stop))
    row = np.concatenate(rows)
    forecast, variance = torch.cat(means), torch.cat(variances)
    errors = (y[row] - forecast).abs() / variance.sqrt()
    windows = (len(y) - first) / horizon
    ratio = float(errors.mean()) * math.sqrt(math.pi / 2)
    spread = (_WINDOWS + windows * ratio) / (_WINDOWS + windows)
    mean_ahead, std = scales.moments(forecast, variance)
    said = PredictiveMixture(np.ones(1), mean_ahead[None], spread * std[None], (scales.transform,))
    return Judgement(float(said.log_density(values[row]).mean()), spread)


def _slope(mean: LinearMean) -> Tensor:
    return mean.weights


def _set_slope(mean: LinearMean, value: Tensor) -> None:
    mean.initialize(weights=value)


def _bias(mean: LinearMean) -> Tensor:
    return mean.bias


def _set_bias(mean: LinearMean, value: Tensor) -> None:
    mean.initialize(bias=value)
