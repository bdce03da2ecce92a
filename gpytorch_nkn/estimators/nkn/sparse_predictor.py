"""Predictions of a trained Gaussian process given too many rows for exact inference."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
import torch
from gpytorch.models import ExactGP
from linear_operator.utils.cholesky import psd_safe_cholesky
from scipy.spatial import cKDTree
from scipy.stats import norm
from torch import Tensor

from gpytorch_nkn.estimators.nkn.table_models import TableGP, untrained_model
from gpytorch_nkn.fit import Recipe, Rows, fit_best_of

__all__ = ["LocalResiduals", "SparsePredictor", "sparse_predictors"]

_ROWS_PER_POINT = 5  # least ratio of rows to inducing points for a local process
_LOO_ROWS = 2000  # largest number of rows with leave-one-out predictions
_CHUNK = 2000  # rows whose covariances with inducing points are in memory
_LOCAL_SHARE = 0.4  # fraction of the remaining time for the training of the local process
_PROBE = 500  # rows at which the sensitivity to the columns is measured

# Constants of the local process
_NEIGHBOURS = 128  # rows for the prediction at a point
_BLOCKS, _BLOCK_ROWS = 20, 300  # neighbourhoods for the training of the kernel
_ITERATIONS = 60
_SEARCHED = 8  # largest number of columns in the search tree, which is slow for more
_LEAST_SCALE = 0.05  # least weight of a column in distances, relative to the largest
_CHUNK_ENTRIES = 4_000_000  # number of covariances in memory
_UNION = 4_000  # largest number of neighbours for a joint distribution


class SparsePredictor:
    """Inducing points given all rows of a model and, for many rows, a local process of residuals.

    The inducing points ``m x D`` have Titsias' posterior at the hyperparameters of the model
    (:class:`.SparseNKNGP`). With 5 rows per point, no known noise and time left before ``end`` (of
    the monotonic clock), a local process (:class:`LocalResiduals`) is trained. It is kept if it
    increases the mean leave-one-out log density; ``loo_rows`` are the indices of the rows with such
    predictions.
    """

    def __init__(
        self,
        model: ExactGP,
        points: Tensor,
        seed: int,
        cat_dims: Sequence[int] = (),
        end: float = math.inf,
    ):
        from gpytorch_nkn.models import CollapsedGP

        self.model, rows = model.eval(), Rows.of(model)
        noise = getattr(model.likelihood, "second_noise", model.likelihood.noise).detach()
        noise = noise if rows.noise is None else noise + rows.noise
        self.loo_rows = np.arange(len(rows))
        if len(rows) > _LOO_ROWS:
            self.loo_rows = np.random.default_rng([seed, 1]).choice(len(rows), _LOO_ROWS, False)
        self._noises = noise.expand(len(rows))[self.loo_rows]
        self._local: LocalResiduals | None = None
        prior = model.covar_module, model.mean_module, points
        sparse = CollapsedGP(*prior, lambda: rows.x, rows.y, lambda: noise)
        begin = time.monotonic()
        with torch.no_grad():
            self._posterior = sparse.posterior()
        left = end - 2 * time.monotonic() + begin  # time after a second pass
        has_numbers = points.size(-1) > len(cat_dims)  # for distances
        is_plain = has_numbers and rows.noise is None  # residuals have equal noise
        if is_plain and len(rows) >= _ROWS_PER_POINT * len(points) and left > 0:
            budget = None if math.isinf(left) else _LOCAL_SHARE * left
            self._take_local(rows, seed, cat_dims, budget)

    @property
    def noise(self) -> float:
        """Noise variance of a new observation."""
        if self._local is None:
            return self.model.likelihood.noise.mean().item()
        return self._local.noise

    @torch.no_grad()
    def moments(self, x: Tensor, *, variance: bool = True) -> tuple[Tensor, Tensor | None]:
        """Return the mean and variance ``M`` of the function at rows ``M x D``, without noise."""
        if self._local is not None:
            residual, var = self._local.moments(x)
            return self._mean(x) + residual, var
        return self._inducing_moments(x) if variance else (self._mean(x), None)

    @torch.no_grad()
    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        r"""Return leave-one-out means and variances of the observations of ``loo_rows``.

        Given inducing values, observations are independent. Without the observation :math:`y_i` of
        variance :math:`\sigma_i^2`, the mean is :math:`\mu_i - (y_i - \mu_i) h_i / (1 - h_i)`. Here
        :math:`h_i = s_i / \sigma_i^2`, for the variance :math:`s_i` due to the inducing values.
        """
        assert self.model.train_inputs is not None
        x, y = self.model.train_inputs[0][self.loo_rows], self.model.train_targets[self.loo_rows]
        mean, variance = self._inducing_moments(x)
        parts = [self._posterior.learned_variance(part) for part in x.split(_CHUNK)]
        learned, noise = torch.cat(parts), self._noises
        ratio = learned / (noise - learned).clamp_min(1e-9 * noise)
        mean, variance = mean - ratio * (y - mean), variance + learned * ratio
        if self._local is not None:
            residual, variance = self._local.moments(x, self.loo_rows)
            mean, noise = mean + residual, self._local.noise
        return mean, variance + noise

    @torch.no_grad()
    def covariance(self, x: Tensor) -> Tensor:
        """Return the covariance ``M x M`` of the function at rows ``M x D``, without noise."""
        if self._local is not None:
            return self._local.covariance(x)
        return self._posterior.joint(x).covariance_matrix

    def _mean(self, x: Tensor) -> Tensor:
        """Return means ``M`` given the inducing values alone."""
        return torch.cat([self._posterior.mean_at(part) for part in x.split(_CHUNK)])

    def _inducing_moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and variances ``M`` given the inducing values alone."""
        posteriors = [self._posterior.joint(part) for part in x.split(_CHUNK)]
        return torch.cat([p.mean for p in posteriors]), torch.cat([p.variance for p in posteriors])

    def _log_densities(self) -> np.ndarray:
        """Return leave-one-out log densities of the observations of ``loo_rows``."""
        y = self.model.train_targets[self.loo_rows]
        mean, variance = self.leave_one_out()
        return norm.logpdf(*(part.cpu().numpy() for part in (y, mean, variance.sqrt())))

    def _take_local(
        self, rows: Rows, seed: int, cat_dims: Sequence[int], budget: float | None
    ) -> None:
        """Train the local process, and keep it if it predicts rows better."""
        probe, before = rows.x[:_PROBE].detach().clone().requires_grad_(), self._log_densities()
        with torch.enable_grad():
            (slopes,) = torch.autograd.grad(self._mean(probe).sum(), probe)
        with torch.no_grad(), suppress(RuntimeError):  # no training: inducing points alone
            residuals = Rows(rows.x, rows.y - self._mean(rows.x))
            rms = slopes.square().mean(0).sqrt()
            self._local = LocalResiduals(
                residuals, rms, seed=seed, cat_dims=cat_dims, budget=budget
            )
            if not self._log_densities().mean() > before.mean():  # also if it is NaN
                self._local = None


class LocalResiduals:
    r"""A Gaussian process of residuals, conditioned on the nearest rows of each point.

    The residuals :math:`r_i` vary on a scale that inducing points do not resolve. The network of
    kernels of their process is learned from random neighbourhoods of rows, which are assumed to be
    independent. The prediction at a point uses its :math:`k` nearest rows N, in :math:`O(k^3)`:

    .. math:: \mu(x) = k(x, N) (K_{NN} + \sigma^2 I)^{-1} r_N

    Distances are in the numeric columns to which the function is most sensitive. They are weighted
    by the ``sensitivity``, the RMS derivatives ``D`` of the function.

    Reference: Snelson and Ghahramani (2007), Local and global sparse Gaussian process
    approximations, whose local part has the same kernel as the global one.
    """

    def __init__(
        self,
        residuals: Rows,
        sensitivity: Tensor,
        *,
        seed: int,
        cat_dims: Sequence[int] = (),
        budget: float | None = None,
    ):
        self._cat_dims = tuple(cat_dims)
        self._unit = float(residuals.y.std(correction=0)) or 1.0
        self._known = Rows(residuals.x, residuals.y / self._unit)
        rms = sensitivity.cpu().numpy()
        ordered = np.argsort(-rms, kind="stable")
        self._columns = np.sort(ordered[~np.isin(ordered, self._cat_dims)][:_SEARCHED])
        scale = rms[self._columns]
        self._scale = np.maximum(scale, _LEAST_SCALE * scale.max())
        if not self._scale.max() > 0:
            self._scale = np.ones_like(scale)
        self._tree = cKDTree(self._coordinates(residuals.x))
        self._process = self._learn(seed, budget)
        self.noise = self._process.likelihood.noise.item() * self._unit**2

    def moments(self, x: Tensor, indices: np.ndarray | None = None) -> tuple[Tensor, Tensor]:
        """Return means and variances ``M`` at standardised inputs ``M x D``, without noise.

        If the inputs are rows of the fit, with these ``indices``, each is predicted by other rows.
        """
        near = self._nearest(x, _NEIGHBOURS + (indices is not None))
        if indices is not None:
            is_other = near != indices[:, None]
            is_other[is_other.all(1), -1] = False
            near = near[is_other].reshape(len(near), -1)
        size = max(1, _CHUNK_ENTRIES // near.shape[1] ** 2)
        parts = [
            self._conditional(x[start : start + size, None], near[start : start + size])
            for start in range(0, len(x), size)
        ]
        means, covariances = zip(*parts, strict=True)
        return torch.cat(means).squeeze(-1), torch.cat(covariances)[:, 0, 0].clamp_min(0)

    def covariance(self, x: Tensor) -> Tensor:
        """Return the covariance ``M x M`` at standardised inputs ``M x D``, given neighbours."""
        near = np.unique(self._nearest(x, max(1, min(_NEIGHBOURS, _UNION // len(x)))))
        return self._conditional(x, near)[1]

    @torch.no_grad()
    def _conditional(self, x: Tensor, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return means ``... x q`` and covariances ``... x q x q`` at ``... x q x D``."""
        kernel, mean = self._process.covar_module, self._process.mean_module
        known = self._known[torch.from_numpy(rows)]
        covariance = kernel(known.x).to_dense()
        covariance.diagonal(dim1=-2, dim2=-1).add_(self._process.likelihood.noise)
        factor = psd_safe_cholesky(covariance)
        half = torch.linalg.solve_triangular(factor, kernel(known.x, x).to_dense(), upper=False)
        errors = (known.y - mean(known.x)).unsqueeze(-1)
        white = torch.linalg.solve_triangular(factor, errors, upper=False)
        means = mean(x) + (half.mT @ white).squeeze(-1)
        posterior = kernel(x).to_dense() - half.mT @ half
        return means * self._unit, posterior * self._unit**2

    def _learn(self, seed: int, budget: float | None) -> TableGP:
        count = len(self._known)
        centers = np.random.default_rng(seed).choice(count, min(_BLOCKS, count), replace=False)
        rows = self._known[torch.from_numpy(self._nearest(self._known.x[centers], _BLOCK_ROWS))]
        first = Rows(rows.x[0], rows.y[0])
        model = untrained_model("tabular", first, self._cat_dims)
        rows.set_on(model)
        recipe = Recipe(adam_steps=0, lbfgs_iterations=_ITERATIONS)
        with torch.enable_grad():
            fit_best_of(
                model,
                restarts=1,
                initialize="data",
                recipe=recipe,
                budget=budget,
                seed=seed,
                progress=False,
            )
        first.set_on(model)
        return model.eval()

    def _nearest(self, x: Tensor, count: int) -> np.ndarray:
        """Return indices ``M x k`` of the nearest rows of points ``M x D``."""
        count = min(count, len(self._known))
        _, near = self._tree.query(self._coordinates(x), k=count)
        return near.reshape(len(x), count)

    def _coordinates(self, x: Tensor) -> np.ndarray:
        """Return coordinates ``M x d``, whose distances determine the neighbours."""
        return x.cpu().numpy()[:, self._columns] * self._scale


def sparse_predictors(
    rows: Rows, count: int, seed: int, cat_dims: Sequence[int] = (), end: float = math.inf
) -> Callable[[ExactGP], SparsePredictor]:
    """Return a function that makes a model's sparse predictor, given its rows ``N x D``.

    Inducing points are cluster centres or, with category codes, the rows of largest conditional
    variance.
    """
    from gpytorch_nkn.models import select_inducing_points

    points = None if cat_dims else select_inducing_points(rows.x, count, seed=seed)

    def predictor(model: ExactGP) -> SparsePredictor:
        inducing = points
        if inducing is None:
            inducing = select_inducing_points(rows.x, count, kernel=model.covar_module, seed=seed)
        return SparsePredictor(model, inducing, seed, cat_dims, end)

    return predictor
