"""Activation functions of kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gpytorch_nkn.layers.layer import Layer

__all__ = ["Activation", "polynomial"]


class Activation(Layer):
    r"""Power series with non-negative coefficients, applied to each input kernel.

    .. math:: k_o = f(k_o), \qquad f(z) = \sum_{m \ge 0} c_m z^m,\; c_m \ge 0

    Powers and sums of kernels are kernels, hence :math:`f(k)` is valid. The exponential grows fast;
    use it after units with values of order one.

    Args:
        in_features: Number of input and output units.
        coefficients: ``"exp"`` for :math:`e^z`, or the coefficients :math:`c_0, c_1, \dots` of a
            polynomial, at least one of them positive.

    Raises:
        ValueError: ``coefficients`` is another string, or its numbers are negative, not finite or
            all zero.

    Reference: Sun et al. (2018), section 3.1, activation functions.
    """

    def __init__(self, in_features: int, coefficients: str | Sequence[float]):
        super().__init__(in_features, in_features)
        if isinstance(coefficients, str):
            if coefficients != "exp":
                raise ValueError(
                    "coefficients must be 'exp' or a sequence of non-negative numbers, "
                    f"got {coefficients!r}."
                )
            self.coefficients: str | tuple[float, ...] = coefficients
            return
        numbers = tuple(float(c) for c in coefficients)
        if any(c < 0 or not math.isfinite(c) for c in numbers) or not any(numbers):
            raise ValueError(
                "coefficients must be finite and non-negative, at least one of them positive, "
                f"got {numbers}."
            )
        self.coefficients = numbers

    def forward(self, values: Tensor) -> Tensor:
        """Map values ``... x C x E``, real or complex, to values of the same shape."""
        if isinstance(self.coefficients, str):
            return values.exp()
        return polynomial(self.coefficients, values)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.coefficients!r}"


def polynomial(coefficients: Sequence[float], values: Tensor) -> Tensor:
    """Evaluate a polynomial elementwise, given coefficients in ascending order."""
    result = torch.full_like(values, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):  # Horner's scheme
        result = result * values + coefficient
    return result
