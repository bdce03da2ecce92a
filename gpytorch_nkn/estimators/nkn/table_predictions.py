"""Predictions of a mixture of Gaussian processes for the rows of a table."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from gpytorch_nkn.averaging import PredictiveMixture, Transform
from gpytorch_nkn.estimators.nkn.counts import CountMixture, log_exposures
from gpytorch_nkn.estimators.nkn.ensemble import Ensemble
from gpytorch_nkn.estimators.nkn.table_targets import Targets
from gpytorch_nkn.estimators.nkn.target_columns import ColumnPredictions, by_column

__all__ = ["TablePredictions"]

# Width of the Gaussian around each of eight draws in their standard deviation: half of the
# distance between neighbours.
_BANDWIDTH = 0.2


class TablePredictions(ColumnPredictions):
    """Moments, distributions and samples at rows of a table, after the fit of an ensemble."""

    likelihood: str
    y_transform_: Transform
    y_offset_: float
    y_scale_: float
    _ensemble: Ensemble
    _targets: Targets

    @by_column
    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        exposure: ArrayLike | None = None,
        observation_noise: bool = True,
    ) -> Any:
        """Predict the mean of new observations, and standard deviation or covariance on request.

        Args:
            X: Rows ``M x D``.
            return_std: Also return standard deviations ``M``.
            return_cov: Also return the covariance ``M x M``.
            exposure: Exposures ``M`` of counts, or one number; ``None`` for 1: the rate.
            observation_noise: Include the noise of an observation; ``False`` for the uncertainty
                of the function alone.

        Returns:
            Mean ``M``, or mean and standard deviations or covariance, in units of the targets.
            The mean is always of observations. With a transform, log-normal tails would dominate
            the moments. Values of the process more than a standard deviation beyond both the
            targets of the fit and the median are therefore clipped.

        Raises:
            ValueError: Both ``return_std`` and ``return_cov`` are set, ``return_cov`` is set for
                transformed targets, or ``X`` does not match the fit.
        """
        if return_std and return_cov:
            raise ValueError("At most one of return_std and return_cov can be True, got both.")
        rows, indices, offset = self._drawn_with(X, exposure)
        is_linear = self.y_transform_.is_linear
        if return_cov:
            if not is_linear:
                raise ValueError(
                    "return_cov needs targets without a transform, bounds or counts "
                    f"(y_transform_ 'identity'), got {self.y_transform_.name!r}; sample_y is joint."
                )
            return self._mean_and_covariance(rows, indices, observation_noise)
        if is_linear and not return_std:
            weights, means, *_ = self._components(rows, indices, variance=False)
            return weights @ means
        noise = observation_noise or not is_linear
        mean, std = self._targets.moments(self._mixture(rows, indices, offset, noise=noise))
        if return_std and noise != observation_noise:
            std = self._targets.moments(self._mixture(rows, indices, offset, noise=False))[1]
        return (mean, std) if return_std else mean

    @by_column
    def predict_distribution(  # type: ignore[override]
        self, X: ArrayLike, /, *, exposure: ArrayLike | None = None
    ) -> PredictiveMixture | CountMixture:
        """Predict the distributions of new observations.

        Args:
            X: Rows ``M x D``.
            exposure: As in :meth:`predict`.

        Returns:
            The mixture, with ``quantile(p)`` and ``std()``, each ``M``, and ``log_density(y)`` of
            observations ``M``, in units of the targets.
        """
        return self._mixture(*self._drawn_with(X, exposure), noise=True)

    def _drawn_with(
        self, X: ArrayLike, exposure: ArrayLike | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the results of :meth:`_drawn`, and logarithms ``M`` of exposures."""
        rows, indices = self._drawn(X)
        return rows, indices, log_exposures(self.likelihood, exposure, indices.shape[1])

    def _mean_and_covariance(
        self, rows: np.ndarray, indices: np.ndarray, noise: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean ``M`` and covariance ``M x M`` of the mixture."""
        ensemble = self._ensemble
        weights, means, _, of_gaps = self._components(rows, indices, variance=False)
        mean = weights @ means
        covariance = np.zeros((len(mean), len(mean)))
        for member, weight in enumerate(ensemble.weights):
            for own in indices:
                part = ensemble.covariance(member, self._tensor(rows[own]), noise=noise)
                covariance += weight / len(indices) * part
        covariance *= self.y_scale_**2 * (ensemble.widening if noise else 1.0)
        # Missing values of different rows are independent: only the diagonal changes.
        members = (means - mean).reshape(len(ensemble.weights), len(indices), -1)
        central = members.mean(1)
        covariance += (ensemble.weights * central.T) @ central
        spread = ensemble.weights @ members.var(1) + weights @ of_gaps
        covariance[np.diag_indices_from(covariance)] += spread
        return mean, covariance

    @by_column
    def sample_y(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = 0,
        *,
        exposure: ArrayLike | None = None,
        observation_noise: bool = True,
    ) -> np.ndarray:
        """Draw joint samples of observations.

        Args:
            X: Rows ``M x D``.
            n_samples: Number of samples.
            random_state: Seed, or NumPy random state.
            exposure: As in :meth:`predict`.
            observation_noise: Draw observations; ``False`` draws the function.

        Returns:
            Samples ``M x n_samples``, each of one member, one noise component and one draw of the
            missing values.
        """
        if not isinstance(n_samples, Integral) or n_samples < 1:
            raise ValueError(f"n_samples must be an integer of at least 1, got {n_samples!r}.")
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        rows, indices, offset = self._drawn_with(X, exposure)
        mixture = self._mixture(rows, indices, offset, noise=observation_noise)
        widening = self._ensemble.widening if observation_noise else 1.0
        num_widths = len(self._ensemble.widths) if observation_noise else 1
        of_gaps = self._components(rows, indices, variance=False)[3]
        of_gaps = of_gaps / (widening * self.y_scale_**2)

        @cache
        def root(component: int) -> np.ndarray:
            """Return the root ``M x M`` of a member's correlations at a draw of missing values."""
            member, number = divmod(component, len(indices))
            x = self._tensor(rows[indices[number]])
            covariance = self._ensemble.covariance(member, x, noise=observation_noise)
            covariance[np.diag_indices_from(covariance)] += of_gaps[component]
            values, vectors = np.linalg.eigh(covariance)
            return vectors * np.sqrt(values.clip(0)) / np.sqrt(np.diag(covariance))[:, None]

        def scores(component: int, count: int) -> np.ndarray:
            return rng.standard_normal((count, len(offset))) @ root(component // num_widths).T

        return mixture.sample(n_samples, rng, scores).T

    def _mixture(
        self, rows: np.ndarray, indices: np.ndarray, offset: np.ndarray, *, noise: bool
    ) -> Any:
        """Return distributions of observations, or of the function, at results of ``_drawn``."""
        weights, means, variances, of_gaps = self._components(rows, indices, noise=noise)
        means = means + offset
        transform = self.y_transform_
        if noise:
            return self._ensemble.mixture(weights, means, variances, of_gaps, transform)
        stds = np.sqrt(variances + of_gaps)
        smooth = replace(transform, whole=False)  # a function of counts is not rounded
        return PredictiveMixture(weights, means, stds, (smooth,) * len(weights))

    def _components(
        self, rows: np.ndarray, indices: np.ndarray, *, variance: bool = True, noise: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return weights ``R S``, means and variances ``R S x M`` of members and draws.

        The last array ``R S x M`` is the variance due to missing values. Each draw becomes a
        Gaussian, because a mixture of 8 points would exclude the values between them. The moments
        of the mixture do not change.
        """
        ensemble, count, gaps = self._ensemble, len(indices), indices[0] != indices[-1]
        means, variances = ensemble.moments(self._tensor(rows), variance=variance, noise=noise)
        variances = self.y_scale_**2 * variances[:, indices]
        means = self.y_offset_ + self.y_scale_ * means[:, indices]  # R x S x M
        middle, spread = means.mean(1, keepdims=True), means.var(1, keepdims=True)
        means = np.where(gaps, middle + math.sqrt(1 - _BANDWIDTH**2) * (means - middle), means)
        noises = self.y_scale_**2 * ensemble.gap_noises[:, None, None]
        of_gaps = np.broadcast_to(gaps * (_BANDWIDTH**2 * spread + noises), means.shape)
        weights = np.repeat(ensemble.weights, count) / count
        flat = (part.reshape(-1, len(gaps)) for part in (means, variances, of_gaps))
        return weights, *flat
