"""What restarts are compared by, per data point, higher is better."""

from __future__ import annotations

import math

import torch
from gpytorch.models import ExactGP

from gpytorch_nkn.fit.objective import noisy_prior
from gpytorch_nkn.linalg import ExactPosterior

__all__ = ["CRITERIA", "evaluate_criterion"]

CRITERIA = ("marginal_likelihood", "loo", "blocked_cv")


def evaluate_criterion(model: ExactGP, criterion: str, loss: float, num_blocks: int) -> float:
    """Value of a criterion for a trained model in training mode.

    ``marginal_likelihood`` is the log posterior per point (with the priors, if there are any).
    ``loo`` is the leave-one-out log predictive density. ``blocked_cv`` leaves out contiguous
    blocks along the first input column instead. Both condition with the hyperparameters fixed,
    which costs one inverse; a restart that has over-fitted its hyperparameters shows in them,
    because what lies in a block must be predicted from the other blocks.
    """
    if criterion == "marginal_likelihood":
        return -loss / model.train_targets.numel()
    with torch.no_grad():
        mean, covariance = noisy_prior(model)
    targets = model.train_targets
    try:
        posterior = ExactPosterior(covariance, targets - mean)
    except torch.linalg.LinAlgError:
        return math.nan
    if criterion == "loo":
        center, variance = posterior.leave_one_out()
    else:
        n = mean.size(-1)
        column = model.train_inputs[0].reshape(-1, n, model.train_inputs[0].size(-1))[0, :, 0]
        blocks = list(column.argsort(stable=True).tensor_split(min(num_blocks, n)))
        parts = zip(*posterior.leave_blocks_out(blocks), strict=True)
        back = torch.cat(blocks).argsort()
        center, variance = (torch.cat(part, -1)[..., back] for part in parts)
    error = posterior.residual - center
    density = -0.5 * (error.square() / variance + variance.log() + math.log(2 * math.pi))
    return density.mean().item()
