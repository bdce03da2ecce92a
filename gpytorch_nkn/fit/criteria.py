"""What restarts are compared by, per data point, higher is better."""

from __future__ import annotations

import math

import torch
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn.fit.objective import noisy_prior
from gpytorch_nkn.linalg import block_predictions

__all__ = ["CRITERIA", "evaluate_criterion"]

CRITERIA = ("marginal_likelihood", "loo", "blocked_cv")


def evaluate_criterion(model: ExactGP, criterion: str, loss: float, num_blocks: int) -> float:
    """Value of a criterion for a trained model in training mode.

    ``marginal_likelihood`` is the log posterior per point (with the priors, if there are any).
    ``loo`` is the leave-one-out log predictive density. ``blocked_cv`` leaves out contiguous
    blocks along the first input column instead. Both condition with the hyperparameters fixed,
    which costs one inverse; a restart that has over-fitted its hyperparameters shows in them,
    because what lies in a block must be foretold from the other blocks.
    """
    if criterion == "marginal_likelihood":
        return -loss / model.train_targets.numel()
    with torch.no_grad():
        mean, covariance = noisy_prior(model)
    n = mean.size(-1)
    order = torch.arange(n, device=mean.device)
    if criterion == "blocked_cv":
        column = model.train_inputs[0].reshape(-1, n, model.train_inputs[0].size(-1))[0, :, 0]
        blocks = list(column.argsort(stable=True).tensor_split(min(num_blocks, n)))
    else:
        blocks = list(order.unsqueeze(-1))
    residuals = (model.train_targets - mean).reshape(-1, n)
    covariances = covariance.expand(*mean.shape, n).reshape(-1, n, n)
    densities = []
    for residual, matrix in zip(residuals, covariances, strict=True):
        try:
            predictions = block_predictions(matrix, residual, blocks)
        except torch.linalg.LinAlgError:
            return math.nan
        for block, (center, variance) in zip(blocks, predictions, strict=True):
            densities.append(_log_density(residual[block], center, variance))
    return torch.cat(densities).mean().item()


def _log_density(value: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return -0.5 * ((value - mean).square() / variance + variance.log() + math.log(2 * math.pi))
