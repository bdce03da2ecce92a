"""Predictions of each observation from those before it."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["one_step_ahead"]


def one_step_ahead(factor: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    r"""Mean and standard deviation of each value given those before it (noise included).

    .. math::
        \mu_n = r_n - L_{nn} e_n, \qquad \sigma_n = L_{nn}, \qquad L e = r

    Args:
        factor: Lower Cholesky factor L of the covariance of the values, ``N x N``; what stands
            above its diagonal does not count.
        residual: Values r less their prior mean, ``N``.

    Returns:
        Means and standard deviations ``N`` of the residuals; the first are those of the prior.

    Reference: Dawid (1984), Present position and potential developments: the prequential approach.
    """
    innovations = torch.linalg.solve_triangular(factor, residual.unsqueeze(-1), upper=False)[..., 0]
    std = factor.diagonal()
    return residual - std * innovations, std
