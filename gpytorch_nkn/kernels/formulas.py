"""Formulas of GPyTorch's kernels."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gpytorch_nkn.kernels.distances import center_of, cosine_of, distances, matern32_of, matern52_of
from gpytorch_nkn.kernels.formula import Formula, stationary

__all__ = ["COSINE", "LINEAR", "MATERN", "PERIODIC", "RATIONAL_QUADRATIC", "RBF", "linear", "wrap"]


def rbf(square: Tensor) -> Tensor:
    """Return values of an RBF kernel at squared distances."""
    return (-0.5 * square).exp()


def _matern12(x1: Tensor, x2: Tensor, lengthscale: Tensor) -> Tensor:
    return (-distances(x1 / lengthscale, x2 / lengthscale)).exp()


def _rational_quadratic(square: Tensor, alpha: Tensor) -> Tensor:
    return (-alpha * (square / (2 * alpha)).log1p()).exp()


RBF = stationary(rbf, code=0)
MATERN = {  # formulas by nu
    0.5: Formula(_matern12, code=1),
    1.5: stationary(lambda square: matern32_of(3 * square), code=2),
    2.5: stationary(lambda square: matern52_of(5 * square), code=3),
}
RATIONAL_QUADRATIC = stationary(_rational_quadratic, code=4)
COSINE = stationary(lambda square: cosine_of(math.pi**2 * square))


def wrap(
    x1: Tensor, x2: Tensor, lengthscale: Tensor, period: Tensor, *others: Tensor
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Map each column to a circle of radius ``1 / sqrt(l)``, with one turn per period.

    Squared distances of points are ``4 sum sin^2(pi (x - x') / p) / l``.
    """
    rate, radius = 2 * math.pi / period, lengthscale.rsqrt()
    center = center_of(x1)

    def point(x: Tensor) -> Tensor:
        angle = (x - center) * rate
        return torch.cat([radius * angle.cos(), radius * angle.sin()], -1)

    left = point(x1)
    return left, left if x1 is x2 else point(x2), others


PERIODIC = stationary(rbf, points=wrap, code=5)


def linear(x1: Tensor, x2: Tensor, variance: Tensor, center: Tensor | float = 0.0) -> Tensor:
    """Return inner products of centred inputs, ``sum v (x - c) (x' - c)``."""
    left = (x1 - center) * variance
    return left @ (x2 - center).to(left.dtype).mT  # x2 may have a lower precision than parameters


LINEAR = Formula(linear, code=6)
