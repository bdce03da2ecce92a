"""Predictions of a trained Gaussian process given too many rows for exact inference."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

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

_ROWS_PER_POINT = 20  # least ratio of rows to inducing points for held-out rows
_HELD_OUT = 2000  # largest number of held-out rows
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
    """Inducing points given all rows and, for many rows, a local process of the residuals.

    The inducing points ``m x D`` have Titsias' posterior at the hyperparameters of an exact GP
    (:class:`.SparseNKNGP`). With ``rows_held_out``, which are not among the other rows, a local
    process (:class:`LocalResiduals`) is trained, and kept if it predicts them better.
    """

    def __init__(
        self,
        model: ExactGP,
        points: Tensor,
        rows: Rows,
        rows_held_out: Rows | None,
        seed: int,
        cat_dims: Sequence[int] = (),
    ):
        self.model = model.eval()
        self._points, self._seed, self._cat_dims = points, seed, tuple(cat_dims)
        self._rows: Rows | None = rows  # until predictions are prepared
        self.rows_held_out = rows_held_out
        self._held_out = np.empty((3, 0))  # targets, means and variances of the held-out rows
        self._learned = getattr(model.likelihood, "second_noise", model.likelihood.noise).detach()
        self._posterior: Any = None  # of the inducing values, once predictions are prepared
        self._local: LocalResiduals | None = None

    @property
    def noise(self) -> float:
        """Noise variance of a new observation."""
        self.prepare()
        if self._local is None:
            return self.model.likelihood.noise.mean().item()
        return self._local.noise

    @torch.no_grad()
    def moments(self, x: Tensor, *, variance: bool = True) -> tuple[Tensor, Tensor | None]:
        """Return the mean and variance ``M`` of the function at rows ``M x D``, without noise."""
        self.prepare()
        if self._local is not None:
            rest, own = self._local.moments(x)
            return self._mean(x) + rest, own
        if not variance:
            return self._mean(x), None
        parts = [self._posterior.joint(part) for part in x.split(_CHUNK)]
        return torch.cat([one.mean for one in parts]), torch.cat([one.variance for one in parts])

    @torch.no_grad()
    def covariance(self, x: Tensor) -> Tensor:
        """Return the covariance ``M x M`` of the function at rows ``M x D``, without noise."""
        self.prepare()
        if self._local is None:
            return self._posterior.joint(x).covariance_matrix
        return self._local.covariance(x)

    def _mean(self, x: Tensor) -> Tensor:
        """Return means ``M`` given the inducing values alone."""
        return torch.cat([self._posterior.mean_at(part) for part in x.split(_CHUNK)])

    def _predict_held_out(self, rows: Rows) -> np.ndarray:
        mean, variance = self.moments(rows.x)
        assert variance is not None
        noise = self.noise if rows.noise is None else self._learned + rows.noise
        return torch.stack([rows.y, mean, variance + noise]).cpu().numpy()

    def prepare(self, end: float = math.inf) -> np.ndarray:
        """Compute the posterior; train no local process after ``end`` of the monotonic clock.

        Returns targets, means and variances ``3 x H`` of the held-out rows.
        """
        rows, held_out = self._rows, self.rows_held_out
        if rows is None:
            return self._held_out
        from gpytorch_nkn.models import CollapsedGP

        noise = self._learned if rows.noise is None else self._learned + rows.noise
        prior = self.model.covar_module, self.model.mean_module, self._points
        sparse = CollapsedGP(*prior, lambda: rows.x, rows.y, lambda: noise)
        begin = time.monotonic()
        with torch.no_grad():
            self._posterior = sparse.posterior()
        seconds = time.monotonic() - begin
        self._rows = None
        if held_out is None:
            return self._held_out
        self._held_out = self._predict_held_out(held_out)
        left = end - time.monotonic() - seconds  # time after a second pass
        has_numbers = self._points.size(-1) > len(self._cat_dims)  # for distances
        if has_numbers and rows.noise is None and left > seconds:  # residuals have equal noise
            self._take_local(rows, held_out, None if math.isinf(left) else _LOCAL_SHARE * left)
        return self._held_out

    def _take_local(self, rows: Rows, held_out: Rows, budget: float | None) -> None:
        """Train the local process, and keep it if it predicts held-out rows better."""
        assert self.model.train_inputs is not None
        some = self.model.train_inputs[0][:_PROBE].detach().clone().requires_grad_()
        with torch.enable_grad():
            (slopes,) = torch.autograd.grad(self._mean(some).sum(), some)
        try:
            with torch.no_grad():
                self._local = LocalResiduals(
                    rows.x.cpu().numpy(),
                    (rows.y - self._mean(rows.x)).cpu().numpy(),
                    slopes.square().mean(0).sqrt().cpu().numpy(),
                    self.model.train_targets,
                    seed=self._seed,
                    cat_dims=self._cat_dims,
                    budget=budget,
                )
        except RuntimeError:  # no training: predict by the inducing points alone
            return
        both = [self._held_out, self._predict_held_out(held_out)]
        before, after = (norm.logpdf(y, mean, np.sqrt(v)).mean() for y, mean, v in both)
        if after > before:
            self._held_out = both[1]
        else:
            self._local = None


class LocalResiduals:
    r"""A Gaussian process of residuals, conditioned on the nearest rows of each point.

    The residuals :math:`r_i` vary on a scale that inducing points do not resolve. The network of
    kernels of their process is learned from random neighbourhoods of rows, which are assumed to be
    independent. The prediction at a point uses its :math:`k` nearest rows N, in :math:`O(k^3)`:

    .. math:: \mu(x) = k(x, N) (K_{NN} + \sigma^2 I)^{-1} r_N

    Distances are in the numeric columns to which the function is most sensitive. They are weighted
    by the ``sensitivity``, the RMS derivatives ``D`` of the function. Computations have the dtype
    and the device of ``like``.

    Reference: Snelson and Ghahramani (2007), Local and global sparse Gaussian process
    approximations, whose local part has the same kernel as the global one.
    """

    def __init__(
        self,
        inputs: np.ndarray,
        residuals: np.ndarray,
        sensitivity: np.ndarray,
        like: Tensor,
        *,
        seed: int,
        cat_dims: Sequence[int] = (),
        budget: float | None = None,
    ):
        self._cat_dims = tuple(cat_dims)
        self._inputs, self._residuals = inputs, residuals
        self._like = like.new_empty(0)
        ordered = np.argsort(-sensitivity, kind="stable")
        self._columns = np.sort(ordered[~np.isin(ordered, self._cat_dims)][:_SEARCHED])
        scale = sensitivity[self._columns]
        self._scale = np.maximum(scale, _LEAST_SCALE * scale.max())
        if not self._scale.max() > 0:
            self._scale = np.ones_like(scale)
        self._tree = cKDTree(self._inputs[:, self._columns] * self._scale)
        self._unit = float(self._residuals.std()) or 1.0
        self._process = self._learn(seed, budget)
        self.noise = self._process.likelihood.noise.item() * self._unit**2

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and variances ``M`` at standardised inputs ``M x D``, without noise."""
        near = self._nearest(x, _NEIGHBOURS)
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
        known = self._rows(rows)
        covariance = kernel(known.x).to_dense()
        covariance.diagonal(dim1=-2, dim2=-1).add_(self._process.likelihood.noise)
        factor = psd_safe_cholesky(covariance)
        half = torch.linalg.solve_triangular(factor, kernel(known.x, x).to_dense(), upper=False)
        errors = (known.y - mean(known.x)).unsqueeze(-1)
        white = torch.linalg.solve_triangular(factor, errors, upper=False)
        means = mean(x) + (half.mT @ white).squeeze(-1)
        own = kernel(x).to_dense() - half.mT @ half
        return means * self._unit, own * self._unit**2

    def _learn(self, seed: int, budget: float | None) -> TableGP:
        rng = np.random.default_rng(seed)
        count = len(self._inputs)
        centers = rng.choice(count, min(_BLOCKS, count), replace=False)
        _, near = self._tree.query(self._tree.data[centers], k=min(_BLOCK_ROWS, count))
        rows = self._rows(near)
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
        count = min(count, len(self._inputs))
        points = x.cpu().numpy()[:, self._columns] * self._scale
        _, near = self._tree.query(points, k=count)
        return near.reshape(len(x), count)

    def _rows(self, rows: np.ndarray) -> Rows:
        own = self._inputs[rows], self._residuals[rows] / self._unit
        return Rows(*(torch.from_numpy(part).to(self._like) for part in own))


def sparse_predictors(
    rows: Rows, count: int, seed: int, cat_dims: Sequence[int] = ()
) -> Callable[[ExactGP], SparsePredictor]:
    """Return a function that makes a model's sparse predictor, given rows ``N x D``.

    Inducing points are cluster centres or, with category codes, the rows of largest conditional
    variance. With 20 rows per inducing point, some rows are held out.
    """
    from gpytorch_nkn.models import select_inducing_points

    inputs, held_out = rows.x, None
    if len(rows) >= _ROWS_PER_POINT * count:
        rng = np.random.default_rng([seed, 1])
        is_held_out = np.zeros(len(rows), dtype=bool)
        is_held_out[rng.choice(len(rows), min(_HELD_OUT, len(rows) // 20), replace=False)] = True
        mask = torch.from_numpy(is_held_out).to(inputs.device)
        held_out, rows = rows[mask], rows[~mask]
    points = None if cat_dims else select_inducing_points(inputs, count, seed=seed)

    def predictor(model: ExactGP) -> SparsePredictor:
        own = points
        if own is None:
            own = select_inducing_points(inputs, count, kernel=model.covar_module, seed=seed)
        return SparsePredictor(model, own, rows, held_out, seed, cat_dims)

    return predictor
