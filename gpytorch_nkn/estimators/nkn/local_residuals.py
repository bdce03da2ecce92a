"""Local Gaussian process of the residuals of a sparse model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from scipy.spatial import cKDTree
from torch import Tensor

from gpytorch_nkn.estimators.nkn.table_models import TableGP, untrained_model
from gpytorch_nkn.fit import Recipe, fit_best_of

__all__ = ["LocalResiduals"]

_NEIGHBOURS = 128
_BLOCKS, _BLOCK_ROWS = 20, 300  # neighbourhoods for the training of the kernel
_ITERATIONS = 60
_SEARCHED = 8  # largest number of columns in the search tree, which is slow for more
_LEAST_SCALE = 0.05  # least weight of a column in distances, relative to the largest
_MAX_ENTRIES = 40_000_000  # largest number of stored entries: 320 MB
_CHUNK_ENTRIES = 4_000_000  # number of covariances in memory
_UNION = 4_000  # largest number of neighbours for a joint distribution


class LocalResiduals:
    r"""A Gaussian process of residuals, conditioned on the nearest rows of each point.

    The residuals :math:`r_i` vary on a scale that inducing points do not resolve. The network of
    kernels of their process is learned from random neighbourhoods of rows, which are assumed to be
    independent. The prediction at a point uses its :math:`k` nearest rows N, in :math:`O(k^3)`:

    .. math:: \mu(x) = k(x, N) (K_{NN} + \sigma^2 I)^{-1} r_N

    Distances are in the numeric columns to which the function is most sensitive, weighted by the
    sensitivity. Rows are thinned evenly if there are too many.

    Args:
        inputs: Standardised rows ``N x D``.
        residuals: ``N``.
        sensitivity: RMS derivatives ``D`` of the function with respect to the columns.
        like: A tensor with the dtype and the device of the computation.

    Raises:
        RuntimeError: The training of the kernel failed.

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
        every = -(-inputs.size // _MAX_ENTRIES)
        self._inputs, self._residuals = inputs[::every], residuals[::every]
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
        inputs, targets = self._rows(rows)
        covariance = kernel(inputs).to_dense()
        covariance.diagonal(dim1=-2, dim2=-1).add_(self._process.likelihood.noise)
        factor = psd_safe_cholesky(covariance)
        half = torch.linalg.solve_triangular(factor, kernel(inputs, x).to_dense(), upper=False)
        errors = (targets - mean(inputs)).unsqueeze(-1)
        white = torch.linalg.solve_triangular(factor, errors, upper=False)
        means = mean(x) + (half.mT @ white).squeeze(-1)
        own = kernel(x).to_dense() - half.mT @ half
        return means * self._unit, own * self._unit**2

    def _learn(self, seed: int, budget: float | None) -> TableGP:
        rng = np.random.default_rng(seed)
        count = len(self._inputs)
        centers = rng.choice(count, min(_BLOCKS, count), replace=False)
        _, near = self._tree.query(self._tree.data[centers], k=min(_BLOCK_ROWS, count))
        inputs, targets = self._rows(near)
        model = untrained_model({"tabular": "tabular"}, inputs[0], targets[0], self._cat_dims)
        model.set_train_data(inputs, targets, strict=False)
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
        model.set_train_data(inputs[0], targets[0], strict=False)
        return model.eval()

    def _nearest(self, x: Tensor, count: int) -> np.ndarray:
        """Return indices ``M x k`` of the nearest rows of points ``M x D``."""
        count = min(count, len(self._inputs))
        points = x.cpu().numpy()[:, self._columns] * self._scale
        _, near = self._tree.query(points, k=count)
        return near.reshape(len(x), count)

    def _rows(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        inputs = torch.from_numpy(self._inputs[rows]).to(self._like)
        targets = torch.from_numpy(self._residuals[rows] / self._unit).to(self._like)
        return inputs, targets
