"""Held-out predictions of an exact GP's training targets from one Cholesky factor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn.fit import in_mode, noisy_prior
from gpytorch_nkn.linalg import ExactPosterior

__all__ = ["leave_blocks_out", "leave_one_out", "rolling_forecasts"]


@torch.no_grad()
def leave_one_out(model: ExactGP) -> tuple[Tensor, Tensor]:
    """Return leave-one-out means and variances ``N`` of the training targets, noise included.

    Raises:
        torch.linalg.LinAlgError: The covariance matrix is not positive definite.
    """
    with in_mode(model, training=True):
        mean, covariance = noisy_prior(model)
    center, variance = ExactPosterior(covariance, model.train_targets - mean).leave_one_out()
    return mean + center, variance


@torch.no_grad()
def leave_blocks_out(model: ExactGP, num_blocks: int) -> tuple[Tensor, Tensor]:
    """Return means and variances as in :func:`leave_one_out`, but hold out contiguous blocks.

    Blocks are along the first column. Overfitted hyperparameters predict blocks badly.
    """
    with in_mode(model, training=True):
        mean, covariance = noisy_prior(model)
        order = model.train_inputs[0][:, 0].argsort(stable=True)
    blocks = order.tensor_split(min(num_blocks, len(mean)))
    posterior = ExactPosterior(covariance, model.train_targets - mean)
    parts = zip(*posterior.leave_blocks_out(blocks), strict=True)
    center, variance = (torch.cat(part)[order.argsort()] for part in parts)
    return mean + center, variance


@torch.no_grad()
def rolling_forecasts(
    model: ExactGP, origins: Sequence[int], horizon: int
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Forecast training targets from the targets before each origin.

    .. math:: m = \mu_{o:o+h} + L_{o:o+h,\,:o}\, z_{:o}, \qquad
        \Sigma = L_{o:o+h,\,o:o+h} L_{o:o+h,\,o:o+h}^\top, \qquad z = L^{-1} (y - \mu)

    where :math:`L` is the Cholesky factor of the prior covariance with noise, ``o`` the first row
    of a forecast and ``h`` its number of rows. The rows of the trained model are in order of time.
    Return row indices, means and variances (noise included) of all forecasts, concatenated.

    Raises:
        torch.linalg.LinAlgError: The covariance matrix is not positive definite.
    """
    with in_mode(model, training=True):
        mean, covariance = noisy_prior(model)
    posterior = ExactPosterior(covariance, model.train_targets - mean)
    factor = posterior.factor.tril()
    white = torch.linalg.solve_triangular(factor, posterior.residual.unsqueeze(-1), upper=False)
    means, variances, rows = [], [], []
    for origin in origins:
        ahead = slice(origin, min(len(mean), origin + horizon))
        means.append(mean[ahead] + (factor[ahead, :origin] @ white[:origin])[:, 0])
        variances.append(factor[ahead, ahead].square().sum(-1))
        rows.append(torch.arange(ahead.start, ahead.stop))
    return torch.cat(rows), torch.cat(means), torch.cat(variances)
