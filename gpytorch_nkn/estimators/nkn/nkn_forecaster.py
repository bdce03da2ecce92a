"""Forecasts of one-dimensional series by a network of kernels."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import LinearMean
from gpytorch.models import ExactGP
from gpytorch.priors import NormalPrior
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpytorch_nkn.estimators.nkn.ensemble import mixture_log_density, mixture_quantile
from gpytorch_nkn.estimators.nkn.series_input import as_time, as_vector, is_date
from gpytorch_nkn.estimators.table_input import offset_and_scale, refuse_constant
from gpytorch_nkn.fit import FitResult, Recipe, fit_best_of
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import log_normal_prior

__all__ = ["NKNForecaster", "default_restarts"]


class NKNForecaster(RegressorMixin, BaseEstimator):
    """Gaussian process with a Neural Kernel Network, for series over time.

    Inputs and targets are standardised inside; everything that comes out is in the units that
    went in. The mean is a straight line. Restarts start at different periods of the periodogram,
    and the one with the highest posterior forecasts. Time may be irregular, have gaps and repeat.
    The fit is exact: its cost grows as the cube of the number of points, its memory as the square.

    Args:
        structure: ``"time_series"`` for the network of
            :meth:`~gpytorch_nkn.kernels.NeuralKernelNetwork.time_series`, or any network over one
            input column, whose start values are taken from the data.
        restarts: Number of restarts; ``None`` takes 20 up to 250 points and 6 beyond. Nothing
            improves a forecast as much as more restarts.
        criterion: What restarts are compared by: ``"marginal_likelihood"`` (with the priors),
            ``"loo"`` or ``"blocked_cv"``; see :func:`gpytorch_nkn.fit.fit_best_of`.
        average: Forecast by a mixture of all restarts, which widens bands where they disagree;
            ``False`` forecasts from the best one alone.
        temperature: Divides the log weights of that mixture; above 1 it keeps restarts that fit
            slightly worse.
        priors: Weak log-normal priors (maximum a posteriori); ``False`` for maximum likelihood.
        log_targets: Model the logarithm of positive targets, for variation that grows with the
            level. Means, deviations, bands and densities are those of the targets themselves.
        recipe: Optimiser settings of a restart; ``None`` for the default.
        budget: Wall time in seconds for training; ``None`` for no limit.
        n_jobs: Processes.
        device: Torch device of the computation, such as ``"cuda"``.
        random_state: Seed, or NumPy random state; an integer makes fits reproducible.
        progress: Show a progress bar on a terminal.

    Attributes:
        result_: Record of the fit, :class:`gpytorch_nkn.fit.FitResult`.
        model_: The best restart's Gaussian process, over standardised time and targets.
        x_offset_, x_scale_, y_offset_, y_scale_: The standardisation.
        n_features_in_: 1.

    Example:
        >>> import numpy as np
        >>> time = np.arange(60.0)
        >>> forecaster = NKNForecaster(restarts=2, random_state=0)
        >>> forecaster.fit(time, np.sin(2 * np.pi * time / 12))  # doctest: +ELLIPSIS
        NKNForecaster(...)
        >>> mean, std = forecaster.predict(np.arange(60.0, 72.0), return_std=True)

    Reference: Sun et al. (2018), section 5.1. Their recipe is ``recipe=Recipe.paper()`` with
    ``priors=False``.
    """

    def __init__(
        self,
        structure: str | NeuralKernelNetwork = "time_series",
        *,
        restarts: int | None = None,
        criterion: str = "marginal_likelihood",
        average: bool = False,
        temperature: float = 3.0,
        priors: bool = True,
        log_targets: bool = False,
        recipe: Recipe | None = None,
        budget: float | None = None,
        n_jobs: int = 1,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = True,
    ):
        self.structure = structure
        self.restarts = restarts
        self.criterion = criterion
        self.average = average
        self.temperature = temperature
        self.priors = priors
        self.log_targets = log_targets
        self.recipe = recipe
        self.budget = budget
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags

    def fit(self, x: ArrayLike, y: ArrayLike) -> NKNForecaster:
        """Learn the structure of a series.

        Args:
            x: Time ``N`` or ``N x 1``: numbers, durations, or dates (``datetime64``, pandas with or
                without time zone, periods, ``datetime``).
            y: Targets ``N``.

        Returns:
            The fitted estimator.

        Raises:
            ValueError: Values are NaN or infinite, lengths differ, there are fewer than 3 points
                or fewer than 2 different times, the targets are constant, or they are not
                positive with ``log_targets``.
            TypeError: Time or targets are not numbers or dates, or ``structure`` is neither a
                name nor a network.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # of another fit: a failure of this one must not predict
        self._check_parameters()
        self.time_is_date_ = is_date(x)
        time, target = as_time(x), as_vector(y, "y")
        self._check_data(time, target)
        if self.log_targets:
            target = np.log(target)
        self.n_features_in_ = 1
        self.x_offset_, self.x_scale_ = time.mean(), time.std()
        self.y_offset_, self.y_scale_ = offset_and_scale(target)
        steps = np.diff(np.unique(time))
        if np.median(steps) < 1e-7 * self.x_scale_:
            raise ValueError(
                f"Half of the steps between times are at most {np.median(steps):g} while the times "
                f"spread over {np.ptp(time):g}: no structure can be resolved. Fit the parts apart."
            )
        restarts = default_restarts(time.size) if self.restarts is None else self.restarts
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with torch.inference_mode(False), torch.enable_grad():  # whatever the caller's mode is
            model = _SeriesGP(
                self._tensor((time - self.x_offset_) / self.x_scale_).unsqueeze(-1),
                self._tensor((target - self.y_offset_) / self.y_scale_),
                self._make_kernel(),
                self.priors,
            )
            self.result_: FitResult = fit_best_of(
                model.to(device=self.device, dtype=torch.float64),
                restarts=restarts,
                criterion=self.criterion,
                recipe=self.recipe,
                budget=self.budget,
                seed=seed,
                n_jobs=self.n_jobs,
                progress=self.progress,
            )
        self.model_ = self.result_.model
        return self

    def predict(
        self, x: ArrayLike, return_std: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Mean of new observations, and their standard deviation on request.

        Args:
            x: Time ``M`` or ``M x 1``, of the same kind as in :meth:`fit`.
            return_std: Also return the standard deviation (noise included).

        Returns:
            Mean ``M``, or mean and standard deviation, in units of the targets.
        """
        shares, means, stds = self._mixture(x)
        variances = stds**2
        if self.log_targets:  # moments of log-normals, infinite where a band is very wide
            with np.errstate(over="ignore"):
                means = np.exp(means + variances / 2)
                variances = means**2 * np.expm1(variances)
        mean = shares @ means
        if not return_std:
            return mean
        with np.errstate(invalid="ignore", over="ignore"):
            variance = shares @ (variances + (means - mean) ** 2)
        return mean, np.sqrt(np.where(np.isnan(variance), np.inf, variance))

    def predict_interval(self, x: ArrayLike, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Central band that holds a new observation with probability ``level``.

        Args:
            x: Time ``M`` or ``M x 1``.
            level: Probability between 0 and 1.

        Returns:
            Lower and upper ends ``M``, in units of the targets.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level}.")
        shares, means, stds = self._mixture(x)
        ends = [
            mixture_quantile(shares, means, stds, p) for p in ((1 - level) / 2, (1 + level) / 2)
        ]
        if self.log_targets:
            ends = [np.exp(end) for end in ends]
        return ends[0], ends[1]

    def log_predictive_density(self, x: ArrayLike, y: ArrayLike) -> np.ndarray:
        """Log density of observations under the forecast, point by point.

        Args:
            x: Time ``M`` or ``M x 1``.
            y: Observations ``M``.

        Returns:
            Natural logarithms ``M``, of densities per unit of the targets.
        """
        shares, means, stds = self._mixture(x)
        target = as_vector(y, "y")
        if target.shape != means.shape[1:]:
            raise ValueError(f"x has {means.shape[1]} points and y has {target.size}.")
        if not self.log_targets:
            return mixture_log_density(shares, means, stds, target)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(target)
            densities = mixture_log_density(shares, means, stds, logs) - logs
        return np.where(target > 0, densities, -np.inf)

    def standardised_time(self, x: ArrayLike) -> np.ndarray:
        """Time as :attr:`model_` takes it.

        Args:
            x: Time ``M`` or ``M x 1``, of the same kind as in :meth:`fit`.

        Raises:
            TypeError: Dates came where the fit was over numbers, or the reverse.
        """
        check_is_fitted(self, "result_")
        if is_date(x) != self.time_is_date_:
            kinds = {True: "dates", False: "numbers"}
            raise TypeError(
                f"The series was fitted over {kinds[self.time_is_date_]}, got {kinds[is_date(x)]}."
            )
        return (as_time(x) - self.x_offset_) / self.x_scale_

    def _mixture(self, x: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Shares ``R`` of the restarts, and their means and deviations ``R x M`` (of logs)."""
        inputs = self._tensor(self.standardised_time(x)).unsqueeze(-1)
        if self.average:
            weights = self.result_.weights(self.temperature)
        else:
            weights = {self.result_.best: 1.0}
        moments = [self.result_.member_prediction(number, inputs) for number in weights]
        means = np.stack([mean.cpu().numpy() for mean, _ in moments])
        stds = np.stack([variance.sqrt().cpu().numpy() for _, variance in moments])
        shares = np.array(list(weights.values()))
        return shares, self.y_offset_ + self.y_scale_ * means, self.y_scale_ * stds

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.as_tensor(values, dtype=torch.float64, device=self.device)

    def _make_kernel(self) -> NeuralKernelNetwork:
        if isinstance(self.structure, NeuralKernelNetwork):
            return deepcopy(self.structure)
        return NeuralKernelNetwork.time_series(priors=self.priors)

    def _check_parameters(self) -> None:
        if isinstance(self.structure, str):
            if self.structure != "time_series":
                raise ValueError(
                    f"structure must be 'time_series' or a network, got {self.structure!r}."
                )
        elif not isinstance(self.structure, NeuralKernelNetwork):
            raise TypeError(
                f"structure must be a name or a NeuralKernelNetwork, got {self.structure!r}."
            )
        if not self.temperature > 0:
            raise ValueError(f"temperature must be positive, got {self.temperature}.")

    def _check_data(self, time: np.ndarray, target: np.ndarray) -> None:
        if time.size != target.size:
            raise ValueError(f"x has {time.size} points and y has {target.size}.")
        if time.size < 3:
            raise ValueError(f"A series needs at least 3 points, got {time.size}.")
        if np.ptp(time) == 0:
            raise ValueError(f"All {time.size} points have the same time, {time[0]}.")
        refuse_constant(target)
        if self.log_targets and target.min() <= 0:
            raise ValueError(f"log_targets needs positive targets, got {target.min()}.")


class _SeriesGP(ExactGP):
    """Exact GP with a linear mean over standardised time and targets."""

    def __init__(self, x: Tensor, y: Tensor, kernel: NeuralKernelNetwork, priors: bool):
        # The floor keeps the covariance matrix of a noise-free series well conditioned.
        likelihood = GaussianLikelihood(
            noise_prior=log_normal_prior(0.01, 2.0) if priors else None,
            noise_constraint=GreaterThan(1e-6),
        )
        super().__init__(x, y, likelihood)
        with torch.random.fork_rng():  # LinearMean draws its start from the global random state
            self.mean_module = LinearMean(1).initialize(weights=0.0, bias=0.0)
        if priors:
            mean = self.mean_module
            mean.register_prior("weights_prior", NormalPrior(0.0, 1.0), _get_slope, _set_slope)
            mean.register_prior("bias_prior", NormalPrior(0.0, 2.0), _get_bias, _set_bias)
        self.covar_module = kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def default_restarts(num_points: int) -> int:
    """Restarts that a forecaster takes: more where they are cheap."""
    return 20 if num_points <= 250 else 6


def _get_slope(mean: LinearMean) -> Tensor:
    return mean.weights


def _set_slope(mean: LinearMean, value: Tensor) -> None:
    mean.initialize(weights=value)


def _get_bias(mean: LinearMean) -> Tensor:
    return mean.bias


def _set_bias(mean: LinearMean, value: Tensor) -> None:
    mean.initialize(bias=value)
