"""Evaluation of a program in ordinary differentiable operations, for second derivatives."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gpytorch_nkn.kernels.evaluation.layer_formulas import polynomial
from gpytorch_nkn.kernels.evaluation.program import (
    Kind,
    LayerKind,
    LayerStep,
    Primitive,
    Program,
)

__all__ = ["differentiable_values"]


def differentiable_values(program: Program, theta: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    """The matrix ``N x M``, in which every operation can be differentiated twice.

    Args:
        program: The network.
        theta: Its parameters ``T``.
        x1, x2: Inputs ``N x D`` and ``M x D``; the same tensor for a symmetric matrix.
    """
    values = torch.stack([_primitive(p, theta, x1, x2) for p in program.primitives])
    primitives = values
    for layer in program.layers:
        if layer.skip:
            values = torch.cat([values, primitives])
        values = _layer(layer, theta, values)
    return values[0]


def _primitive(primitive: Primitive, theta: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    parameters = primitive.parameters(theta)
    left, right = x1[:, list(primitive.dims)], x2[:, list(primitive.dims)]
    if primitive.kind in (Kind.LINEAR, Kind.CENTERED_LINEAR):
        variance, *center = parameters
        if center:
            left, right = left - center[0], right - center[0]
        value = (left * variance) @ right.mT
    elif primitive.kind in (Kind.PERIODIC, Kind.ZERO_MEAN_PERIODIC):
        lengthscale, period, *factor = parameters
        angle = math.pi * (left.unsqueeze(1) - right) / period
        exponent = (-2 * angle.sin().square() / lengthscale).sum(-1)
        value = 1 + exponent.expm1() * factor[0] if factor else exponent.exp()
    elif primitive.kind is Kind.SPECTRAL_COMPONENT:
        lengthscale, frequency = parameters
        square = _square(left / lengthscale, right / lengthscale, x1 is x2)
        middle = left.mean(0).detach()
        phases1, phases2 = (((x - middle) * frequency).sum(-1) for x in (left, right))
        value = _radial(Kind.RBF, square) * (phases1.unsqueeze(1) - phases2).cos()
    else:
        *alpha, lengthscale = parameters
        square = _square(left / lengthscale, right / lengthscale, x1 is x2)
        value = _radial(primitive.kind, square, *alpha)
    return value if primitive.scale is None else value * primitive.scale.of(theta)


def _square(x1: Tensor, x2: Tensor, symmetric: bool) -> Tensor:
    if x1.size(-1) == 1:
        return (x1 - x2.mT).square()
    center = x1.mean(0).detach()  # differences of squares are exact near zero only
    x1, x2 = x1 - center, x2 - center
    norms1, norms2 = x1.square().sum(-1, keepdim=True), x2.square().sum(-1, keepdim=True)
    square = (norms1 + norms2.mT - 2 * x1 @ x2.mT).clamp_min(0.0)
    if not symmetric:
        return square
    # Rounding there would be magnified by the square root of a Matern kernel.
    on_diagonal = torch.eye(len(x1), dtype=torch.bool, device=x1.device)
    return square.masked_fill(on_diagonal, 0.0)


def _radial(kind: Kind, square: Tensor, alpha: Tensor | None = None) -> Tensor:
    if kind is Kind.RBF:
        return (-0.5 * square).exp()
    if alpha is not None:
        return (-alpha * (square / (2 * alpha)).log1p()).exp()
    # The smallest distances are not quite zero, for the sake of the root's derivative.
    if kind is Kind.MATERN12:
        return (-square.clamp_min(1e-30).sqrt()).exp()
    if kind is Kind.MATERN32:
        distance = (3 * square).clamp_min(1e-30).sqrt()
        return (1 + distance) * (-distance).exp()
    distance = (5 * square).clamp_min(1e-30).sqrt()
    return (1 + distance + 5 / 3 * square) * (-distance).exp()


def _layer(layer: LayerStep, theta: Tensor, values: Tensor) -> Tensor:
    if layer.kind is LayerKind.LINEAR:
        assert layer.weight is not None
        weight = layer.weight.of(theta).view(layer.out_features, layer.in_features)
        result = torch.einsum("oc,cnm->onm", weight, values)
        return result if layer.bias is None else result + layer.bias.of(theta)[:, None, None]
    if layer.kind is LayerKind.PRODUCT:
        return values.unflatten(0, (layer.out_features, -1)).prod(1)
    if layer.kind is LayerKind.EXPONENTIAL:
        return values.exp()
    return polynomial(layer.coefficients, values)
