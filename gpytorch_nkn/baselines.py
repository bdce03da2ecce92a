"""Baseline forecasts: a GP with any GPyTorch kernel, and the seasonal naive rule."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.utils.errors import NanError, NotPSDError
from scipy.stats import norm
from torch import Tensor

from gpytorch_nkn.initialization import candidate_periods

if TYPE_CHECKING:
    from botorch.models.gpytorch import GPyTorchModel

__all__ = [
    "GaussianForecast",
    "gp_forecast",
    "rbf_forecast",
    "regular_steps",
    "season_length",
    "seasonal_naive_forecast",
]

MakeKernel = Callable[[Tensor, Tensor, np.random.Generator], Kernel]

_MAX_SEASON_RMSE = 0.8  # of an accepted season, relative to repeating the last value
_MAX_STEPS = 1_000_000  # length of a series above which no season is estimated


@dataclass(frozen=True, eq=False)
class GaussianForecast:
    """Independent normal predictive distributions.

    Args:
        mean: Means ``M``.
        std: Standard deviations ``M``, including noise.
    """

    mean: np.ndarray
    std: np.ndarray

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of the central prediction interval with probability ``level``."""
        half = norm.ppf(0.5 + level / 2) * self.std
        return self.mean - half, self.mean + half

    @np.errstate(under="ignore")
    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Return the natural logarithm of the density of each observation ``M``."""
        return norm.logpdf(y, self.mean, self.std)


def rbf_forecast(
    x: np.ndarray,
    y: np.ndarray,
    x_new: np.ndarray,
    *,
    restarts: int = 5,
    seed: int = 0,
) -> GaussianForecast:
    """Forecast as :func:`gp_forecast` with a scaled RBF kernel.

    Lengthscales start log-uniformly between one step and the range of the inputs.
    """
    return gp_forecast(_make_rbf, x, y, x_new, restarts=restarts, seed=seed)


def gp_forecast(
    make_kernel: MakeKernel,
    x: np.ndarray,
    y: np.ndarray,
    x_new: np.ndarray,
    *,
    restarts: int = 5,
    seed: int = 0,
) -> GaussianForecast:
    """Forecast by an exact GP with a constant mean, fitted by maximum likelihood.

    Inputs and targets are standardised. The forecast uses the L-BFGS run with the highest marginal
    likelihood; runs with numerical failures are ignored.

    Args:
        make_kernel: Returns a kernel with start values, from standardised inputs ``N x 1``,
            standardised targets ``N`` and a random generator. Called once per run.
        x: Inputs ``N``.
        y: Targets ``N``.
        x_new: Inputs ``M`` of the forecast.
        restarts: Number of runs.
        seed: Seed of the generator.
    """
    (x, y), new = _vectors(x, y), _new_inputs(x_new)
    if restarts < 1:
        raise ValueError(f"restarts must be at least 1, got {restarts}.")
    x_scale, y_scale = x.std() or 1.0, y.std() or 1.0
    train_x = torch.from_numpy((x - x.mean()) / x_scale).unsqueeze(-1)  # N x 1
    train_y = torch.from_numpy((y - y.mean()) / y_scale)
    rng = np.random.default_rng(seed)
    runs: list[tuple[GPyTorchModel, float]] = []
    for _ in range(restarts):
        run = _fit(make_kernel, train_x, train_y, rng)
        runs += [] if run is None else [run]
    if not runs:
        raise RuntimeError(f"None of {restarts} runs converged: numerical errors in all of them.")
    model, _ = max(runs, key=lambda run: run[1])
    new_x = torch.from_numpy((new - x.mean()) / x_scale).unsqueeze(-1)
    with torch.no_grad():
        posterior = model.posterior(new_x, observation_noise=True)
        mean, std = (t.squeeze(-1).numpy() for t in (posterior.mean, posterior.variance.sqrt()))
    return GaussianForecast(y.mean() + y_scale * mean, y_scale * std)


def _fit(
    make_kernel: MakeKernel, x: Tensor, y: Tensor, rng: np.random.Generator
) -> tuple[GPyTorchModel, float] | None:
    from botorch.models import SingleTaskGP  # changes GPyTorch's settings when imported
    from botorch.optim.fit import fit_gpytorch_mll_scipy

    likelihood = GaussianLikelihood(noise_constraint=GreaterThan(1e-6))
    likelihood.noise = np.exp(rng.uniform(np.log(1e-3), np.log(0.3)))
    kernel = make_kernel(x, y, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about inputs outside of the unit cube, line searches
        model = SingleTaskGP(
            x, y.unsqueeze(-1), likelihood=likelihood, covar_module=kernel, outcome_transform=None
        )
        try:
            result = fit_gpytorch_mll_scipy(
                ExactMarginalLogLikelihood(model.likelihood, model.to(x)),
                options={"maxiter": 500},
            )
        except (NanError, NotPSDError):
            return None
    value = -float(result.fval)
    return (model, value) if np.isfinite(value) else None


def _make_rbf(x: Tensor, y: Tensor, rng: np.random.Generator) -> Kernel:
    kernel = RBFKernel()
    different = x.unique()
    step = float(different.diff().median()) if different.numel() > 1 else 1.0
    span = float(different[-1] - different[0]) or 1.0
    kernel.lengthscale = np.exp(rng.uniform(np.log(step), np.log(span)))
    scaled = ScaleKernel(kernel)
    scaled.outputscale = 1.0
    return scaled


def seasonal_naive_forecast(
    x: np.ndarray, y: np.ndarray, x_new: np.ndarray, *, seasons: Sequence[float] | None = None
) -> GaussianForecast:
    r"""Forecast by the seasonal naive rule.

    .. math:: \hat y(x) = y(x - k P), \qquad \sigma(x) = \hat\sigma \sqrt{k}

    with the season :math:`P` of :func:`season_length`, the number :math:`k` of seasons back to the
    last observed one, and the root mean square :math:`\hat\sigma` of :math:`y_i - y(x_i - P)`.
    Without a season the last value is repeated, and the variance grows with the number of steps.
    Values between inputs are interpolated.

    Args:
        x: Inputs ``N``.
        y: Targets ``N``.
        x_new: Inputs ``M`` of the forecast.
        seasons: Candidate periods, see :func:`season_length`.

    Reference: Hyndman and Athanasopoulos (2021), Forecasting: Principles and Practice, 5.5.
    """
    (x, y), new = _vectors(x, y), _new_inputs(x_new)
    start, step, index = regular_steps(x)
    season = season_length(x, y, seasons)
    times, values = _merge(x if index is None else index, y)
    one = step if index is None else 1.0  # one step and one season in units of times
    if index is not None:
        new = np.round((new - start) / step)
        season = None if season is None else round(season / step)
    if season is None:
        ahead = np.maximum((new - times[-1]) / one, 1.0)
        gaps = np.diff(times) / one
        sigma = np.sqrt(np.mean(np.diff(values) ** 2 / gaps)) if gaps.size else 0.0
        mean, cycles = np.full(new.shape, values[-1]), ahead
    else:
        cycles = np.maximum(np.ceil((new - times[-1]) / season - 1e-9), 1.0)
        mean = np.interp(new - cycles * season, times, values)
        later = times - season >= times[0]
        errors = values[later] - np.interp(times[later] - season, times, values)
        sigma = np.sqrt(np.mean(errors**2))
    sigma = max(sigma, 1e-6 * (values.std() or 1.0))
    return GaussianForecast(mean, sigma * np.sqrt(cycles))


def season_length(
    x: np.ndarray, y: np.ndarray, seasons: Sequence[float] | None = None
) -> float | None:
    """Estimate the season of a series in units of x, in whole steps for regular series.

    After removal of a linear trend, it compares the root mean squared error of the seasonal naive
    rule with that of repeating the last value. Returns the candidate with the smallest ratio, or
    None if all ratios exceed 0.8.

    Args:
        x: Inputs ``N``.
        y: Targets ``N``.
        seasons: Candidate periods; None for the highest peaks of the periodogram.
    """
    x, y = _vectors(x, y)
    candidates = candidate_periods(x, y) if seasons is None else np.asarray(seasons, dtype=float)
    if not candidates.size:
        return None
    from scipy.signal import correlate  # slow to import

    start, step, index = regular_steps(x)
    times, values = _merge((x - start) / step if index is None else index, y)
    if times[-1] - times[0] > _MAX_STEPS:
        return None
    grid = np.arange(times[0], times[-1] + 0.5)
    values = np.interp(grid, times, values)
    values = values - np.polynomial.Polynomial.fit(grid, values, 1)(grid)
    lags = np.unique(np.round(candidates / step).astype(int))
    lags = lags[(lags >= 2) & (lags <= grid.size // 2)]
    if not lags.size:
        return None
    # mean squared differences at each lag, by the autocorrelation
    steps = np.arange(1, lags[-1] + 1)
    correlation = correlate(values, values, method="fft")[grid.size - 1 + steps]
    squares = np.concatenate([[0.0], np.cumsum(values**2)])
    sums = squares[grid.size - steps] + squares[-1] - squares[steps] - 2 * correlation
    apart = sums.clip(0) / (grid.size - steps)
    tiny = np.finfo(float).tiny
    ratios = [apart[lag - 1] / max(np.mean(apart[:lag]), tiny) for lag in lags]
    best = int(np.argmin(ratios))
    if ratios[best] > _MAX_SEASON_RMSE**2:
        return None
    if index is not None:
        return float(lags[best] * step)
    return float(candidates[np.round(candidates / step).astype(int) == lags[best]][0])


def regular_steps(x: np.ndarray) -> tuple[float, float, np.ndarray | None]:
    """Return the first input, the length of a step, and the number of steps to each input.

    Steps may be missing and may vary by a quarter, as calendar months do. If they vary more, the
    length is the median step and the numbers are None.

    Args:
        x: Sorted inputs ``N``, which may repeat.
    """
    x, _ = _vectors(x, x)
    different = np.unique(x)
    if different.size < 3:
        return float(different[0]), float(np.ptp(different)) or 1.0, None
    gaps = np.diff(different)
    median = float(np.median(gaps))
    number = np.concatenate([[0], np.cumsum(np.round(gaps / median))])
    step, start = np.polyfit(number, different, 1)
    off = np.abs(different - start - step * number).max()
    if number.size != np.unique(number).size or off > 0.25 * step:
        return float(different[0]), median, None
    return float(start), float(step), number[np.searchsorted(different, x)]


def _merge(times: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sorted distinct times and the mean of the values at each."""
    different, inverse = np.unique(times, return_inverse=True)
    return different, np.bincount(inverse, values) / np.bincount(inverse)


def _vectors(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    finite = np.isfinite(x).all() and np.isfinite(y).all()
    if x.ndim != 1 or x.shape != y.shape or not (finite and x.size):
        raise ValueError(
            f"x and y must be finite vectors of one length, got shapes {x.shape} and {y.shape}."
        )
    return x, y


def _new_inputs(x_new: np.ndarray) -> np.ndarray:
    new = np.asarray(x_new, dtype=float)
    if new.ndim != 1 or not np.isfinite(new).all():
        raise ValueError(f"x_new must be a finite vector, got shape {new.shape}.")
    return new
