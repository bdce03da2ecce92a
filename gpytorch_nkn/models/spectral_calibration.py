"""Noise of a GP of low rank by the density of rows that were left out."""

from __future__ import annotations

import math

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

__all__ = ["noise_factor"]

_LARGEST = 100.0


def noise_factor(
    gram: Tensor, cross: Tensor, features: Tensor, residual: Tensor, noise: Tensor
) -> float:
    r"""The factor :math:`\nu \ge 1` of the noise under which left-out rows are most likely.

    Frequencies that have fitted some noise leave too little of it. With the eigenvectors of the
    Gram matrix of the training rows, mean and variance of a left-out row are sums over features
    for any factor:

    .. math:: \phi^\top U (\Lambda + \nu)^{-1} U^\top b, \qquad
        \nu\, \phi^\top U (\Lambda + \nu)^{-1} U^\top \phi + \nu \sigma^2

    Args:
        gram: :math:`\Phi^\top \Phi / \sigma^2` ``P x P`` of the training rows.
        cross: :math:`b = \Phi^\top r / \sigma^2` ``P``.
        features: Of the left-out rows ``V x P``.
        residual: Theirs ``V``.
        noise: Variances of their noise ``V``.
    """
    values, vectors = torch.linalg.eigh(gram.double())
    values = values.clamp_min(0.0)
    rotated = features.double() @ vectors
    squares, weighted = rotated.square(), rotated * (vectors.mT @ cross.double())
    residual, noise = residual.double(), noise.double()

    def loss(log_factor: float) -> float:
        factor = math.exp(log_factor)
        shrunk = 1 / (values + factor)
        variance = factor * (squares @ shrunk + noise)
        error = residual - weighted @ shrunk
        return float((variance.log() + error.square() / variance).mean())

    found = minimize_scalar(loss, bounds=(0.0, math.log(_LARGEST)), method="bounded")
    return math.exp(found.x) if found.fun < loss(0.0) else 1.0
