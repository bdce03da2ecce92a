"""How the methods of the regression benchmark are trained, on one table each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import (
    InducingPointKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    RBFKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.models import ExactGP
from gpytorch.settings import fast_computations, max_cholesky_size
from linear_operator.utils.errors import NanError, NotPSDError
from sklearn.cluster import KMeans
from torch import Tensor

from gpytorch_nkn.baselines import GaussianForecast
from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.initialization import initialize_model, median_distances
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import Linear

__all__ = ["EXACT_ROWS", "METHODS", "Prediction", "Settings", "fit_method", "settings_in_use"]

EXACT_ROWS = 2000  # up to which the others are trained on all rows at once, as in the paper
METHODS = {
    "nkn": "NKNRegressor",
    "rbf": "RBF-ARD",
    "matern": "Matern-5/2-ARD",
    "rbf_linear": "RBF-ARD + linear",
    "sm4": "spectral mixture 4",
    "paper": "the paper's NKN",
}
_MIXTURES = 4
_INDUCING = "inducing points"
_NETWORK = "NKNRegressor of these kernels alone"  # which trains them on blocks of rows


@dataclass(frozen=True)
class Settings:
    """What all methods have in common.

    Attributes:
        restarts: Starts, of which the best counts; the paper's recipe has one.
        iterations: Of L-BFGS, per start.
        paper_steps: Of Adam, in the paper's recipe, whose own number is 20,000.
        inducing: Inducing points of what is trained by VFE; 0 leaves those methods out.
    """

    restarts: int = 2
    iterations: int = 120
    paper_steps: int = 20_000
    inducing: int = 0

    def __post_init__(self) -> None:
        if min(self.restarts, self.iterations, self.paper_steps) < 1 or self.inducing < 0:
            raise ValueError(f"Restarts, iterations and steps must be positive, got {self}.")

    @property
    def recipe(self) -> Recipe:
        """Of every method but the paper's."""
        return Recipe(adam_steps=0, lbfgs_iterations=self.iterations)


@dataclass(frozen=True, eq=False)
class Prediction:
    """Of new observations, in units of the targets.

    Attributes:
        mean: Means ``M``.
        band: Gives the ends ``M`` of the central 95 % bands.
        log_density: Gives the log density ``M`` of the observations ``M``.
    """

    mean: np.ndarray
    band: Callable[[], tuple[np.ndarray, np.ndarray]]
    log_density: Callable[[np.ndarray], np.ndarray]


Predict = Callable[[np.ndarray], Prediction]


def settings_in_use(method: str, settings: Settings, num_rows: int) -> dict | None:
    """How a method is trained on so many rows, as plain values; None where it is left out."""
    used: dict = {"L-BFGS iterations": settings.iterations, "starts": settings.restarts}
    if method == "paper":
        used = {"Adam steps": settings.paper_steps, "starts": 1}
    if method == "nkn" or num_rows <= EXACT_ROWS:
        return used
    if method in ("sm4", "paper"):
        return used | {_INDUCING: settings.inducing} if settings.inducing else None
    return used | {"as": _NETWORK}


def fit_method(
    method: str, X: np.ndarray, y: np.ndarray, *, settings: Settings, seed: int
) -> Predict:
    """Train a method; inputs and targets are standardised inside.

    Args:
        method: Key of ``METHODS``.
        X: Inputs ``N x D``.
        y: Targets ``N``.
        settings: Restarts and steps.
        seed: Determines every draw.

    Returns:
        What predicts at new inputs ``M x D``.

    Raises:
        ValueError: The method is left out at so many rows.
    """
    used = settings_in_use(method, settings, len(y))
    if used is None:
        raise ValueError(f"{method} is left out beyond {EXACT_ROWS} rows without inducing points.")
    if method == "nkn":
        return _estimator("auto", X, y, settings, seed)
    if used.get("as") == _NETWORK:
        parts = _PARTS[method](X.shape[1])
        network = NeuralKernelNetwork(parts, [Linear(len(parts), 1)])
        return _estimator(network, X, y, settings, seed)
    return _exact_or_sparse(method, X, y, settings, seed, sparse=_INDUCING in used)


def _estimator(
    structure: str | NeuralKernelNetwork,
    X: np.ndarray,
    y: np.ndarray,
    settings: Settings,
    seed: int,
) -> Predict:
    estimator = NKNRegressor(
        structure,
        restarts=settings.restarts,
        recipe=settings.recipe,
        random_state=seed,
    ).fit(X, y)

    def predict(new: np.ndarray) -> Prediction:
        mean, _ = estimator.predict(new, return_std=True)
        return Prediction(
            mean,
            lambda: estimator.predict_interval(new, 0.95),
            lambda values: estimator.log_predictive_density(new, values),
        )

    return predict


def _exact_or_sparse(
    method: str, X: np.ndarray, y: np.ndarray, settings: Settings, seed: int, *, sparse: bool
) -> Predict:
    x_offset, x_scale = X.mean(0), X.std(0)
    x_scale = np.where(x_scale > 0, x_scale, 1.0)
    y_offset, y_scale = y.mean(), y.std() or 1.0
    inputs = torch.from_numpy((X - x_offset) / x_scale)
    targets = torch.from_numpy((y - y_offset) / y_scale)
    model = _GP(inputs, targets, _KERNELS[method](X.shape[1])).double()
    initialize = _start_mixture if method == "sm4" else _start_from_data
    if sparse:
        observe = _fit_sparse(model, method, settings, seed, initialize)
    else:
        paper = replace(Recipe.paper(), adam_steps=settings.paper_steps)
        observe = fit_best_of(
            model,
            restarts=1 if method == "paper" else settings.restarts,
            recipe=paper if method == "paper" else settings.recipe,
            initialize=initialize,
            seed=seed,
            progress=False,
        ).predict

    def predict(new: np.ndarray) -> Prediction:
        mean, variance = observe(torch.from_numpy((new - x_offset) / x_scale))
        forecast = GaussianForecast(
            y_offset + y_scale * mean.numpy(), y_scale * variance.sqrt().numpy()
        )
        return Prediction(forecast.mean, forecast.interval, forecast.log_density)

    return predict


class _GP(ExactGP):
    def __init__(self, x: Tensor, y: Tensor, kernel: Kernel):
        super().__init__(x, y, GaussianLikelihood())
        self.mean_module = ConstantMean()
        self.covar_module = kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def _start_from_data(model: ExactGP, seed: int, restart: int) -> None:
    initialize_model(model, seed=seed, restart=restart)


def _start_mixture(model: ExactGP, seed: int, restart: int) -> None:
    """As the lengthscales of an RBF: near no frequency, from median distances.

    A start from the spectrum of the data, which the kernel offers, fails in several dimensions.
    """
    initialize_model(model, seed=seed, restart=restart)  # the noise
    rng = np.random.default_rng([seed, restart, 2])
    kernel = model.covar_module
    medians = median_distances(model.train_inputs[0])
    shape = tuple(kernel.mixture_scales.shape)  # Q x 1 x D
    lengths = 0.6 * medians * torch.from_numpy(np.exp(rng.standard_normal(shape)))
    kernel.mixture_scales = 1 / (2 * math.pi * lengths)
    kernel.mixture_means = torch.from_numpy(rng.uniform(0.01, 0.05, shape)) / medians
    weights = torch.from_numpy(rng.dirichlet(np.full(_MIXTURES, 5.0)))
    kernel.mixture_weights = weights.clamp_min(1e-3)


def _fit_sparse(
    model: _GP,
    method: str,
    settings: Settings,
    seed: int,
    initialize: Callable[[ExactGP, int, int], None],
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Variational free energy (Titsias 2009) with GPyTorch's own means."""
    inputs, targets = model.train_inputs[0], model.train_targets
    clusters = KMeans(min(settings.inducing, len(targets)), n_init=1, random_state=seed)
    centers = torch.from_numpy(clusters.fit(inputs.numpy()).cluster_centers_)
    runs = []
    for restart in range(1 if method == "paper" else settings.restarts):
        start = _GP(inputs, targets, _KERNELS[method](inputs.size(-1))).double()
        initialize(start, seed, restart)
        start.covar_module = InducingPointKernel(
            start.covar_module, centers.clone(), start.likelihood
        )
        loss = _train_sparse(start.train(), method, settings)
        if math.isfinite(loss):
            runs.append((loss, start))
    if not runs:
        raise RuntimeError("Every start failed.")
    best = min(runs, key=lambda run: run[0])[1].eval()

    def observe(new: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad(), max_cholesky_size(2**31):
            predictive = best.likelihood(best(new))
            return predictive.mean, predictive.variance

    return observe


def _train_sparse(model: _GP, method: str, settings: Settings) -> float:
    """Train a model with inducing points, which it may move; the last loss, NaN if it failed."""
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    optimizer: torch.optim.Optimizer
    if method == "paper":
        steps = settings.paper_steps
        optimizer = torch.optim.Adam(model.parameters(), lr=Recipe.paper().learning_rate)
    else:
        steps = 1
        optimizer = torch.optim.LBFGS(
            model.parameters(), max_iter=settings.iterations, line_search_fn="strong_wolfe"
        )

    def closure() -> float:
        optimizer.zero_grad()
        loss = -mll(model(*model.train_inputs), model.train_targets)
        loss.backward()
        return loss.item()

    try:
        with max_cholesky_size(2**31), fast_computations(False, False, False):
            for _ in range(steps):
                optimizer.step(closure)
            return closure()
    except (NanError, NotPSDError):
        return math.nan


def _rbf(dim: int) -> list[Kernel]:
    return [RBFKernel(ard_num_dims=dim)]


def _matern(dim: int) -> list[Kernel]:
    return [MaternKernel(nu=2.5, ard_num_dims=dim)]


def _rbf_linear(dim: int) -> list[Kernel]:
    return [RBFKernel(ard_num_dims=dim), LinearKernel(ard_num_dims=dim)]


_PARTS = {"rbf": _rbf, "matern": _matern, "rbf_linear": _rbf_linear}
_KERNELS: dict[str, Callable[[int], Kernel]] = {
    "rbf": lambda dim: ScaleKernel(*_rbf(dim)),
    "matern": lambda dim: ScaleKernel(*_matern(dim)),
    "rbf_linear": lambda dim: ScaleKernel(_rbf(dim)[0]) + LinearKernel(ard_num_dims=dim),
    "sm4": lambda dim: SpectralMixtureKernel(num_mixtures=_MIXTURES, ard_num_dims=dim),
    "paper": lambda dim: NeuralKernelNetwork.regression(dim, priors=False),
}
