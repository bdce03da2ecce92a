"""Predictions of a trained Gaussian process given too many rows for exact inference."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
import torch
from gpytorch.models import ExactGP
from linear_operator.utils.cholesky import psd_safe_cholesky
from scipy.spatial import cKDTree
from scipy.stats import norm
from torch import Tensor

from gpytorch_nkn.estimators.nkn.table_models import TableGP, untrained_model
from gpytorch_nkn.fit import Recipe, Rows, Session, fit_best_of

__all__ = ["LocalPredictor", "SparsePredictor", "sparse_predictors"]

_ROWS_PER_POINT = 5  # least ratio of rows to inducing points for a local process
_LOO_ROWS = 2000  # largest number of rows with leave-one-out predictions
_CHUNK = 2000  # rows whose covariances with inducing points are in memory
_LOCAL_SHARE = 0.4  # fraction of the remaining time for the training of the local process
_PROBE = 500  # largest number of rows at which the sensitivity to the columns is measured

# Constants of the local process
_NEIGHBOURS = 128  # rows for the prediction at a point
_BLOCKS, _BLOCK_ROWS = 20, 300  # neighbourhoods for the training of the kernel
_ITERATIONS = 60
_SEARCHED = 8  # largest number of columns in the search tree, which is slow for more
_LEAST_SCALE = 0.05  # least weight of a column in distances, relative to the largest
_CHUNK_ENTRIES = 4_000_000  # number of covariances in memory
_UNION = 4_000  # largest number of neighbours for a joint distribution


class SparsePredictor:
    """Predictor with inducing points, conditioned on all rows of a model.

    The inducing points ``m x D`` have Titsias' posterior at the hyperparameters of the model
    (:class:`.SparseNKNGP`). ``loo_rows`` are indices of the rows with leave-one-out predictions.
    """

    def __init__(self, model: ExactGP, points: Tensor, seed: int):
        from gpytorch_nkn.models import CollapsedGP

        self.model, rows = model.eval(), Rows.of(model)
        noise = getattr(model.likelihood, "second_noise", model.likelihood.noise).detach()
        noise = noise if rows.noise is None else noise + rows.noise
        self.loo_rows = np.arange(len(rows))
        if len(rows) > _LOO_ROWS:
            self.loo_rows = np.random.default_rng([seed, 1]).choice(len(rows), _LOO_ROWS, False)
        self._noises = noise.expand(len(rows))[self.loo_rows]
        prior = model.covar_module, model.mean_module, points
        with torch.no_grad():
            sparse = CollapsedGP(*prior, lambda: rows.x, rows.y, lambda: noise)
            self.posterior = sparse.posterior()

    @property
    def noise(self) -> float:
        """Noise variance of a new observation."""
        return self.model.likelihood.noise.mean().item()

    @torch.no_grad()
    def moments(self, x: Tensor, *, variance: bool = True) -> tuple[Tensor, Tensor | None]:
        """Return the mean and variance ``M`` of the function at rows ``M x D``, without noise."""
        parts = x.split(_CHUNK)
        if not variance:
            return torch.cat([self.posterior.mean_at(part) for part in parts]), None
        posteriors = [self.posterior.joint(part) for part in parts]
        return torch.cat([p.mean for p in posteriors]), torch.cat([p.variance for p in posteriors])

    @torch.no_grad()
    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        r"""Return leave-one-out means and variances of the observations of ``loo_rows``.

        Given inducing values, observations are independent. Without the observation :math:`y_i` of
        variance :math:`\sigma_i^2`, the mean is :math:`\mu_i - (y_i - \mu_i) h_i / (1 - h_i)`. Here
        :math:`h_i = s_i / \sigma_i^2`, for the variance :math:`s_i` due to the inducing values.
        """
        assert self.model.train_inputs is not None
        x, y = self.model.train_inputs[0][self.loo_rows], self.model.train_targets[self.loo_rows]
        mean, variance = self.moments(x)
        assert variance is not None
        learned, noise = self.posterior.learned_variance(x), self._noises
        ratio = learned / (noise - learned).clamp_min(1e-9 * noise)
        return mean - ratio * (y - mean), variance + learned * ratio + noise

    @torch.no_grad()
    def covariance(self, x: Tensor) -> Tensor:
        """Return the covariance ``M x M`` of the function at rows ``M x D``, without noise."""
        return self.posterior.joint(x).covariance_matrix


class LocalPredictor:
    r"""Predictor with inducing points and a local Gaussian process of their residuals.

    The residuals :math:`r_i` vary on a scale that inducing points do not resolve. The network of
    kernels of their process is learned from random neighbourhoods of rows, which are assumed to be
    independent. The prediction at a point uses its :math:`k` nearest rows N, in :math:`O(k^3)`:

    .. math:: \mu(x) = m(x) + k(x, N) (K_{NN} + \sigma^2 I)^{-1} r_N

    with the mean :math:`m` given the inducing values. Distances are in the numeric columns to which
    :math:`m` is most sensitive, weighted by its RMS derivatives.

    Reference: Snelson and Ghahramani (2007), Local and global sparse Gaussian process
    approximations, whose local part has the same kernel as the global one.
    """

    def __init__(
        self,
        sparse: SparsePredictor,
        rows: Rows,
        *,
        seed: int,
        cat_dims: Sequence[int] = (),
        budget: float | None = None,
    ):
        self.model, self.loo_rows, self._sparse = sparse.model, sparse.loo_rows, sparse
        residuals = rows.y - self._mean(rows.x)
        self._unit = float(residuals.std(correction=0)) or 1.0
        self._known = Rows(rows.x, residuals / self._unit)
        probe = rows.x[:: 1 + len(rows) // _PROBE].detach().clone().requires_grad_()
        with torch.enable_grad():
            (slopes,) = torch.autograd.grad(sparse.posterior.mean_at(probe).sum(), probe)
        rms = slopes.square().mean(0).sqrt().nan_to_num().cpu().numpy()
        numbers = np.setdiff1d(np.arange(len(rms)), cat_dims)
        self._columns = numbers[np.sort(np.argsort(-rms[numbers], kind="stable")[:_SEARCHED])]
        scale = rms[self._columns]
        self._scale = np.maximum(scale, _LEAST_SCALE * (scale.max() or 1.0))
        self._tree = cKDTree(self._coordinates(rows.x))
        self._process = self._learn(seed, cat_dims, budget)
        self.noise = self._process.likelihood.noise.item() * self._unit**2

    def moments(self, x: Tensor, *, variance: bool = True) -> tuple[Tensor, Tensor]:
        """Return the mean and variance ``M`` of the function at rows ``M x D``, without noise."""
        residual, variances = self._residuals(x, self._nearest(x, _NEIGHBOURS))
        return self._mean(x) + residual, variances

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return leave-one-out means and variances of the observations of ``loo_rows``."""
        x, mean = self._known.x[self.loo_rows], self._sparse.leave_one_out()[0]
        near = self._nearest(x, _NEIGHBOURS + 1)
        is_other = near != self.loo_rows[:, None]
        is_other[is_other.all(1), -1] = False
        residual, variance = self._residuals(x, near[is_other].reshape(len(near), -1))
        return mean + residual, variance + self.noise

    def covariance(self, x: Tensor) -> Tensor:
        """Return the covariance ``M x M`` of the function at rows ``M x D``, without noise."""
        near = np.unique(self._nearest(x, max(1, min(_NEIGHBOURS, _UNION // len(x)))))
        return self._conditional(x, near)[1]

    def _mean(self, x: Tensor) -> Tensor:
        """Return means ``M`` given the inducing values alone."""
        return self._sparse.moments(x, variance=False)[0]

    def _residuals(self, x: Tensor, near: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return means and variances ``M`` of residuals, each given ``k`` of the rows ``M x k``."""
        parts = range(0, len(x), max(1, _CHUNK_ENTRIES // near.shape[1] ** 2))
        size = parts.step
        pairs = [self._conditional(x[i : i + size, None], near[i : i + size]) for i in parts]
        means, covariances = zip(*pairs, strict=True)
        return torch.cat(means).squeeze(-1), torch.cat(covariances)[:, 0, 0].clamp_min(0)

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

    def _learn(self, seed: int, cat_dims: Sequence[int], budget: float | None) -> TableGP:
        count = len(self._known)
        centers = np.random.default_rng(seed).choice(count, min(_BLOCKS, count), replace=False)
        rows = self._known[torch.from_numpy(self._nearest(self._known.x[centers], _BLOCK_ROWS))]
        first = Rows(rows.x[0], rows.y[0])
        model = untrained_model("tabular", first, cat_dims)
        rows.set_on(model)
        recipe = Recipe(adam_steps=0, lbfgs_iterations=_ITERATIONS)
        result = fit_best_of(
            model,
            restarts=1,
            initialize="data",
            recipe=recipe,
            budget=budget,
            seed=seed,
            progress=False,
        )
        self.interrupted = result.interrupted
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
    rows: Rows, count: int, session: Session, seed: int, cat_dims: Sequence[int]
) -> Callable[[ExactGP], SparsePredictor | LocalPredictor]:
    """Return a function that makes a model's sparse predictor, given its rows ``N x D``.

    Inducing points are cluster centres or, with category codes, the rows of largest conditional
    variance. A local process is trained with 5 rows per point, no known noise and time left in the
    ``session``. It is used if it increases the leave-one-out log density.
    """
    from gpytorch_nkn.models import select_inducing_points

    select = partial(select_inducing_points, rows.x, count, seed=seed)
    points = None if cat_dims else select()

    def predictor(model: ExactGP) -> SparsePredictor | LocalPredictor:
        inducing = select(kernel=model.covar_module) if points is None else points
        begin = time.monotonic()
        sparse = SparsePredictor(model, inducing, seed)
        seconds = time.monotonic() - begin
        has_time = session.seconds_left > seconds and not session.interrupted  # for a second pass
        has_numbers = rows.x.size(-1) > len(cat_dims)  # for distances
        is_plain = has_numbers and rows.noise is None  # residuals have equal noise
        if is_plain and len(rows) >= _ROWS_PER_POINT * len(inducing) and has_time:
            budget = session.part(_LOCAL_SHARE)
            with suppress(RuntimeError):  # no training
                local = LocalPredictor(sparse, rows, seed=seed, cat_dims=cat_dims, budget=budget)
                session.interrupted |= local.interrupted
                if _log_density(local) > _log_density(sparse):
                    return local
        return sparse

    return predictor


def _log_density(predictor: SparsePredictor | LocalPredictor) -> float:
    """Return the mean leave-one-out log density of the observations of ``loo_rows``."""
    y = predictor.model.train_targets[predictor.loo_rows]
    mean, variance = predictor.leave_one_out()
    return norm.logpdf(*(part.cpu().numpy() for part in (y, mean, variance.sqrt()))).mean()
