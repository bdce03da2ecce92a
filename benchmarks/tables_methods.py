"""What a practitioner may take for a table: how each is trained, and what it predicts."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from scipy.stats import loguniform, norm, randint, uniform
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold, ParameterSampler
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from gpytorch_nkn.estimators import NKNRegressor

__all__ = ["METHODS", "Distribution", "Method", "missing_packages"]

Sample = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Distribution:
    """Of new observations: quantiles ``L x M`` at probabilities ``L``, and log densities ``M``.

    ``log_density`` takes observations ``M`` and the resolution they have, if any; ``None`` where a
    method tells none.
    """

    quantiles: Callable[[np.ndarray], np.ndarray]
    log_density: Callable[[np.ndarray, float | None], np.ndarray] | None


@dataclass(frozen=True, eq=False)
class Fitted:
    """Means ``M`` at rows ``M x D``, and distributions there."""

    mean: Callable[[np.ndarray], np.ndarray]
    distribution: Callable[[np.ndarray], Distribution]


@dataclass(frozen=True)
class Method:
    """A method by its title, what it needs to be installed, and how it is trained.

    Attributes:
        title: Of the tables.
        fit: Takes rows, targets, a seed, and the seconds that tuning may take.
        packages: Names of modules.
        max_rows: Training rows beyond which it takes too long.
    """

    title: str
    fit: Callable[[np.ndarray, np.ndarray, int, float], Fitted]
    packages: tuple[str, ...] = ()
    max_rows: int = 1_000_000


def missing_packages(method: str) -> list[str]:
    """Of a method, those that are not installed."""
    return [name for name in METHODS[method].packages if find_spec(name) is None]


def _normal(mean: np.ndarray, std: np.ndarray) -> Distribution:
    def log_density(y: np.ndarray, resolution: float | None) -> np.ndarray:
        if resolution is None:
            return norm.logpdf(y, mean, std)
        distance, half = np.abs(y - mean) / std, resolution / (2 * std)
        upper, lower = norm.logcdf(half - distance), norm.logcdf(-half - distance)
        return upper + np.log1p(-np.exp(lower - upper)) - np.log(resolution)

    return Distribution(lambda levels: mean + std * norm.ppf(levels)[:, None], log_density)


# -- ours


def _nkn(X: np.ndarray, y: np.ndarray, seed: int, seconds: float) -> Fitted:
    model = NKNRegressor(random_state=seed, progress=False).fit(X, y)
    return Fitted(
        model.predict,
        lambda new: Distribution(
            lambda levels: model.predict_quantiles(new, levels).T,
            lambda values, step: model.log_predictive_density(new, values, resolution=step),
        ),
    )


# -- those that predict points: noise is normal, as wide as out-of-fold residuals


def _with_residuals(
    make: Callable[..., BaseEstimator],
    space: dict | None = None,
    *,
    first: dict | None = None,
    tuned: bool = False,
) -> Callable[[np.ndarray, np.ndarray, int, float], Fitted]:
    """Random search by five folds: the settings to begin with (the defaults, or what is first),
    then others until the time is over. Without tuning these are all."""

    def fit(X: np.ndarray, y: np.ndarray, seed: int, seconds: float) -> Fitted:
        begin = time.process_time()
        best, found = _out_of_fold(lambda: make(seed, **(first or {})), X, y, seed), first or {}
        if tuned:
            for options in ParameterSampler(space, 10_000, random_state=seed):
                slowest = time.process_time() - begin
                if slowest >= seconds:
                    break
                error = _out_of_fold(lambda options=options: make(seed, **options), X, y, seed)
                if error < best:
                    best, found = error, options
        model = make(seed, **found).fit(X, y)

        def distribution(new: np.ndarray) -> Distribution:
            mean = model.predict(new)
            return _normal(mean, np.full(len(mean), best))

        return Fitted(model.predict, distribution)

    return fit


def _out_of_fold(
    make: Callable[[], BaseEstimator], X: np.ndarray, y: np.ndarray, seed: int
) -> float:
    """Root mean squared error of five folds."""
    errors = np.empty_like(y)
    for train, test in KFold(5, shuffle=True, random_state=seed).split(X):
        errors[test] = make().fit(X[train], y[train]).predict(X[test]) - y[test]
    return float(np.sqrt(np.mean(errors**2)))


def _lightgbm(seed: int, **options: float) -> BaseEstimator:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(random_state=seed, n_jobs=1, verbose=-1, subsample_freq=1, **options)


def _catboost(seed: int, **options: float) -> BaseEstimator:
    from catboost import CatBoostRegressor

    return CatBoostRegressor(
        random_seed=seed, thread_count=1, verbose=False, allow_writing_files=False, **options
    )


def _hist(seed: int, **options: float) -> BaseEstimator:
    return HistGradientBoostingRegressor(random_state=seed, **options)


def _svr(seed: int, **options: float) -> BaseEstimator:
    scaled = _Scaled(SVR(**options))
    return make_pipeline(StandardScaler(), scaled)


def _ridge(seed: int) -> BaseEstimator:
    return make_pipeline(StandardScaler(), RidgeCV(np.logspace(-4, 4, 17)))


def _ebm(seed: int) -> BaseEstimator:
    from interpret.glassbox import ExplainableBoostingRegressor

    return ExplainableBoostingRegressor(random_state=seed, n_jobs=1)


class _Scaled(BaseEstimator):
    """A regressor of standardised targets."""

    def __init__(self, regressor: BaseEstimator):
        self.regressor = regressor

    def fit(self, X: np.ndarray, y: np.ndarray) -> _Scaled:
        self.offset_, self.scale_ = y.mean(), y.std()
        self.regressor.fit(X, (y - self.offset_) / self.scale_)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.offset_ + self.scale_ * self.regressor.predict(X)


_LIGHTGBM = {
    "learning_rate": loguniform(0.01, 0.2),
    "n_estimators": randint(50, 1500),
    "num_leaves": randint(4, 64),
    "min_child_samples": randint(2, 40),
    "subsample": uniform(0.5, 0.5),
    "colsample_bytree": uniform(0.5, 0.5),
    "reg_lambda": loguniform(1e-3, 10),
}
_CATBOOST = {
    "learning_rate": loguniform(0.02, 0.2),
    "iterations": randint(200, 1500),
    "depth": randint(3, 9),
    "l2_leaf_reg": loguniform(0.5, 20),
}
_HIST = {
    "learning_rate": loguniform(0.01, 0.2),
    "max_iter": randint(50, 1000),
    "max_leaf_nodes": randint(4, 64),
    "min_samples_leaf": randint(2, 40),
    "l2_regularization": loguniform(1e-3, 10),
}
_SVR = {
    "C": loguniform(0.3, 300),
    "gamma": loguniform(0.003, 1),
    "epsilon": loguniform(0.003, 0.3),
}


# -- those that predict distributions


def _ngboost(X: np.ndarray, y: np.ndarray, seed: int, seconds: float) -> Fitted:
    from ngboost import NGBRegressor

    model = NGBRegressor(random_state=seed, verbose=False).fit(X, y)

    def distribution(new: np.ndarray) -> Distribution:
        found = model.pred_dist(new)
        return _normal(found.loc, found.scale)

    return Fitted(model.predict, distribution)


def _catboost_normal(X: np.ndarray, y: np.ndarray, seed: int, seconds: float) -> Fitted:
    model = _catboost(seed, loss_function="RMSEWithUncertainty").fit(X, y)

    def distribution(new: np.ndarray) -> Distribution:
        mean, variance = model.predict(new).T
        return _normal(mean, np.sqrt(variance))

    return Fitted(lambda new: model.predict(new)[:, 0], distribution)


def _forest(X: np.ndarray, y: np.ndarray, seed: int, seconds: float) -> Fitted:
    from quantile_forest import RandomForestQuantileRegressor

    model = RandomForestQuantileRegressor(500, min_samples_leaf=2, random_state=seed).fit(X, y)

    def distribution(new: np.ndarray) -> Distribution:
        def quantiles(levels: np.ndarray) -> np.ndarray:
            return np.atleast_2d(model.predict(new, quantiles=list(levels)).T)

        return Distribution(quantiles, None)

    return Fitted(lambda new: model.predict(new, quantiles="mean"), distribution)


def _single_task(X: np.ndarray, y: np.ndarray, seed: int, seconds: float) -> Fitted:
    import torch
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.transforms import Normalize, Standardize
    from gpytorch.mlls import ExactMarginalLogLikelihood

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = SingleTaskGP(
            torch.from_numpy(X),
            torch.from_numpy(y)[:, None],
            input_transform=Normalize(X.shape[1]),
            outcome_transform=Standardize(1),
        )
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))

    def moments(new: np.ndarray) -> Sample:
        with torch.no_grad():
            found = model.posterior(torch.from_numpy(new), observation_noise=True)
            return found.mean.numpy()[:, 0], found.variance.sqrt().numpy()[:, 0]

    return Fitted(lambda new: moments(new)[0], lambda new: _normal(*moments(new)))


def _sklearn_gp(X: np.ndarray, y: np.ndarray, seed: int, seconds: float) -> Fitted:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel() * RBF(np.full(X.shape[1], 2.0), (1e-2, 1e4)) + WhiteKernel(0.1)
    model = make_pipeline(
        StandardScaler(), GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    return Fitted(model.predict, lambda new: _normal(*model.predict(new, return_std=True)))


METHODS: dict[str, Method] = {
    "nkn": Method("NKNRegressor", _nkn),
    "lightgbm": Method("LightGBM", _with_residuals(_lightgbm), ("lightgbm",)),
    "lightgbm_tuned": Method(
        "LightGBM, tuned", _with_residuals(_lightgbm, _LIGHTGBM, tuned=True), ("lightgbm",)
    ),
    "catboost": Method("CatBoost", _with_residuals(_catboost), ("catboost",)),
    "catboost_tuned": Method(
        "CatBoost, tuned", _with_residuals(_catboost, _CATBOOST, tuned=True), ("catboost",)
    ),
    "hist": Method("HistGradientBoosting", _with_residuals(_hist)),
    "hist_tuned": Method("HistGradientBoosting, tuned", _with_residuals(_hist, _HIST, tuned=True)),
    "ngboost": Method("NGBoost", _ngboost, ("ngboost",)),
    "catboost_normal": Method("CatBoost with uncertainty", _catboost_normal, ("catboost",)),
    "forest": Method("quantile forest", _forest, ("quantile_forest",)),
    "ridge": Method("ridge", _with_residuals(_ridge)),
    "svr_tuned": Method(
        "SVR, tuned", _with_residuals(_svr, _SVR, first={"C": 10.0}, tuned=True), max_rows=8000
    ),
    "ebm": Method("EBM", _with_residuals(_ebm), ("interpret",)),
    "singletask": Method("SingleTaskGP", _single_task, max_rows=3500),
    "sklearn_gp": Method("scikit-learn's GP", _sklearn_gp, max_rows=1200),
}
