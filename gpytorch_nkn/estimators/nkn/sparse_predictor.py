"""Predictions of a trained GP through inducing points."""

from __future__ import annotations

from copy import deepcopy

import torch
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn.models import SparseNKNGP, select_inducing_points

__all__ = ["SparsePredictor", "select_points"]


def select_points(inputs: Tensor, count: int, seed: int) -> Tensor:
    """Inducing points for rows ``N x D``, by k-means."""
    return select_inducing_points(inputs, count, method="kmeans", seed=seed)


class SparsePredictor:
    """Titsias' posterior at the hyperparameters of an exact GP; see :class:`SparseNKNGP`.

    Args:
        model: A GP with ``mean_module``, ``covar_module``, homoskedastic Gaussian noise and inputs
            ``N x D``.
        points: Inducing points ``m x D``.
    """

    num_bytes = 0  # nothing that would be worth forgetting

    def __init__(self, model: ExactGP, points: Tensor):
        self.model = model.eval()
        assert model.train_inputs is not None
        self._sparse = SparseNKNGP(
            model.train_inputs[0],
            model.train_targets.unsqueeze(-1),
            structure=model.covar_module,
            inducing_points=points,
            learn_inducing_points=False,
            likelihood=deepcopy(model.likelihood),
            mean_module=deepcopy(model.mean_module),
            outcome_transform=None,
        ).eval()

    @property
    def noise(self) -> float:
        """Variance of the noise."""
        return self.model.likelihood.noise.item()

    def moments(self, x: Tensor, *, variance: bool = True) -> tuple[Tensor, Tensor | None]:
        """Mean and variance ``M`` of the function at rows ``M x D``, without noise."""
        mean, own = self._sparse.predict(x)
        return mean.squeeze(-1), own.squeeze(-1) if variance else None

    @torch.no_grad()
    def covariance(self, x: Tensor) -> Tensor:
        """Covariance ``M x M`` of the function at rows ``M x D``, without noise."""
        return self._sparse(x).covariance_matrix

    def release(self) -> None:
        """Nothing to forget."""
