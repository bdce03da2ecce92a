"""Forecaster for sktime's pipelines, searches and evaluations (needs sktime).

Example::

    from gpytorch_nkn.sktime import SktimeNKNForecaster
    from sktime.datasets import load_airline

    series = load_airline()
    forecaster = SktimeNKNForecaster(random_state=0).fit(series, fh=range(1, 13))
    forecaster.predict()
    forecaster.predict_interval(coverage=[0.8, 0.95])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from gpytorch_nkn._optional import needs

with needs("gpytorch_nkn.sktime"):
    import pandas as pd
    from sktime.forecasting.base import BaseForecaster, ForecastingHorizon

from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.kernels import NeuralKernelNetwork

__all__ = ["SktimeNKNForecaster"]


class SktimeNKNForecaster(BaseForecaster):
    """:class:`gpytorch_nkn.estimators.NKNForecaster` as an sktime forecaster.

    Point forecasts are medians. Missing values are gaps. ``X`` contains covariates; forecasts need
    their future values. ``update`` adds observations without new training; with
    ``update_params=False``, it only moves the cutoff, as in sktime.

    Arguments other than ``horizon`` have the same meaning and units (days for seasons of dates) as
    in :class:`gpytorch_nkn.estimators.NKNForecaster`.

    Args:
        horizon: Number of steps ahead for which candidates are scored. ``None`` uses the last step
            of a relative ``fh`` passed to ``fit``, otherwise one season (6 without a season).

    Attributes:
        forecaster_: The fitted :class:`~gpytorch_nkn.estimators.NKNForecaster`.

    Examples:
        >>> from gpytorch_nkn.sktime import SktimeNKNForecaster
        >>> from sktime.datasets import load_airline
        >>> forecaster = SktimeNKNForecaster(quality="fast", random_state=0)
        >>> forecaster.fit(load_airline()).predict(fh=[1, 2]).index.astype(str).tolist()
        ['1961-01', '1961-02']
    """

    _tags = {
        "authors": ["gpytorch_nkn authors"],
        "maintainers": ["gpytorch_nkn authors"],
        "python_dependencies": ["torch", "gpytorch"],
        "capability:multivariate": False,
        "capability:exogenous": True,
        "capability:categorical_in_X": False,
        "capability:insample": True,
        "capability:missing_values": True,
        "capability:pred_int": True,
        "capability:pred_int:insample": True,
        "capability:random_state": True,
        "capability:update": True,
        "property:randomness": "derandomized",
        "requires-fh-in-fit": False,
        "y_inner_mtype": "pd.Series",
        "X_inner_mtype": "pd.DataFrame",
    }

    def __init__(
        self,
        structure: str | NeuralKernelNetwork = "auto",
        seasons: str | float | ArrayLike = "auto",
        transform: Literal["auto", "identity", "log", "log1p", "sqrt", "logit"] = "auto",
        bounds: Sequence[float | None] | None = None,
        horizon: int | None = None,
        quality: Literal["fast", "default"] = "default",
        outliers: Literal["auto", "keep"] = "auto",
        restarts: int | None = None,
        recipe: Recipe | None = None,
        budget: float | None = None,
        n_jobs: int = 1,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = True,
    ):
        given = locals()
        for name in self.get_param_names():
            setattr(self, name, given[name])
        super().__init__()

    def _fit(
        self, y: pd.Series, X: pd.DataFrame | None, fh: ForecastingHorizon | None
    ) -> SktimeNKNForecaster:
        options = self.get_params(deep=False)
        if self.horizon is None and fh is not None and fh.is_relative:
            last = int(np.max(fh.to_numpy()))
            options["horizon"] = last if last > 0 else None
        self.forecaster_ = NKNForecaster(**options).fit(y, covariates=X)
        return self

    def _update(
        self, y: pd.Series, X: pd.DataFrame | None = None, update_params: bool = True
    ) -> SktimeNKNForecaster:
        if update_params:
            self.forecaster_.update(y, covariates=X)
        return self

    def _predict(self, fh: ForecastingHorizon, X: pd.DataFrame | None) -> pd.Series:
        times, known = self._times_and_covariates(fh, X)
        median = self.forecaster_.predict(times, covariates=known)
        return pd.Series(median, times, name=self.forecaster_.observed_.name)

    def _predict_quantiles(
        self, fh: ForecastingHorizon, X: pd.DataFrame | None, alpha: list[float]
    ) -> pd.DataFrame:
        times, known = self._times_and_covariates(fh, X)
        columns = pd.MultiIndex.from_product([[self._variable], alpha])
        quantiles = self.forecaster_.predict_quantiles(times, alpha, covariates=known)
        return pd.DataFrame(quantiles, times, columns)

    def _predict_var(
        self, fh: ForecastingHorizon, X: pd.DataFrame | None = None, cov: bool = False
    ) -> pd.DataFrame:
        if cov:
            raise NotImplementedError(
                "cov must be False, got True; forecaster_.sample_paths(...) draws joint samples."
            )
        times, known = self._times_and_covariates(fh, X)
        _, std = self.forecaster_.predict(times, return_std=True, covariates=known)
        return pd.DataFrame({self._variable: std**2}, times)

    @property
    def _variable(self) -> Any:
        """Name of the series, or 0 if the series has no name."""
        name = self.forecaster_.observed_.name
        return 0 if name is None else name

    def _times_and_covariates(
        self, fh: ForecastingHorizon, X: pd.DataFrame | None
    ) -> tuple[pd.Index, pd.DataFrame | None]:
        """Return the times of a horizon, training times included, and their covariates."""
        times = fh.to_absolute_index(self.cutoff)
        if X is None:
            return times, None
        seen = self.forecaster_.observed_covariates_
        return times, pd.concat([X, seen[~seen.index.isin(X.index)]]).reindex(times)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return options for quick fits in sktime's tests."""
        quick = Recipe(adam_steps=0, lbfgs_iterations=1)
        shared = {"quality": "fast", "recipe": quick, "random_state": 0, "progress": False}
        shared |= {"transform": "identity", "outliers": "keep"}  # one candidate per fit
        return [shared, {**shared, "seasons": ()}]
