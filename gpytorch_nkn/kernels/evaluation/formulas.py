"""Formulas of the primitives: values, and values and gradients on tiles, in closed form.

Of each family there are the values by ordinary operations, which can be differentiated twice, and
a group: the same in the memory of tiles, with the gradient written out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gpytorch_nkn.kernels.distances import (
    distances,
    matern32_of,
    matern52_of,
    squared_distances,
)
from gpytorch_nkn.kernels.evaluation.group import Block, Group, Tile, add_dots
from gpytorch_nkn.kernels.evaluation.inputs import Inputs, Moments
from gpytorch_nkn.kernels.evaluation.program import Primitive
from gpytorch_nkn.kernels.formula import Formula

__all__ = [
    "CENTERED_LINEAR",
    "LINEAR",
    "MATERN",
    "PERIODIC",
    "RATIONAL_QUADRATIC",
    "RBF",
    "SPECTRAL_COMPONENT",
    "ZERO_MEAN_PERIODIC",
]


def _scaled_square(x1: Tensor, x2: Tensor, lengthscale: Tensor) -> Tensor:
    """Squared distances in units of the lengthscales."""
    return squared_distances(x1 / lengthscale, x2 / lengthscale)


def _rbf(x1: Tensor, x2: Tensor, lengthscale: Tensor) -> Tensor:
    return (-0.5 * _scaled_square(x1, x2, lengthscale)).exp()


def _matern12(x1: Tensor, x2: Tensor, lengthscale: Tensor) -> Tensor:
    return (-distances(x1 / lengthscale, x2 / lengthscale)).exp()


def _matern32(x1: Tensor, x2: Tensor, lengthscale: Tensor) -> Tensor:
    return matern32_of(3 * _scaled_square(x1, x2, lengthscale))


def _matern52(x1: Tensor, x2: Tensor, lengthscale: Tensor) -> Tensor:
    return matern52_of(5 * _scaled_square(x1, x2, lengthscale))


def _rational_quadratic(x1: Tensor, x2: Tensor, alpha: Tensor, lengthscale: Tensor) -> Tensor:
    square = _scaled_square(x1, x2, lengthscale)
    return (-alpha * (square / (2 * alpha)).log1p()).exp()


class _Radial(Group):
    """Functions of ``z``, the squared distance in units of the lengthscales times a constant.

    The constants make the functions simple: ``exp(z)`` of an RBF kernel, ``(1 + z)^-alpha`` of a
    rational quadratic one, polynomials of ``sqrt(z)`` times ``exp(-sqrt(z))`` of Matern kernels.

    Attributes:
        constant: What the squared distance is multiplied by.
        slope_factor: Of the derivative by ``z``.
    """

    constant: float = 1.0
    slope_factor: float = 1.0

    def __init__(self, primitives: Sequence[Primitive], start: int, theta: Tensor, inputs: Inputs):
        super().__init__(primitives, start, theta, inputs)
        *alpha, self._lengthscale = self.parameters
        self._alpha = alpha[0] if alpha else None
        constant: Tensor | float = self.constant
        self._slope_factor: Tensor | float = self.slope_factor
        if alpha:
            constant, self._exponent = 0.5 / alpha[0], -alpha[0]
            self._slope_factor = self._exponent
        self._coefficient = constant / self._lengthscale.square()  # G x 1 or G x d
        self._offset = 1.0 if alpha else 0.0
        self._shared = self._coefficient.size(1) == 1
        self._moments = None
        if not self._shared:
            self._left, self._right = inputs.scaled_square_factors(
                self.dims, self._coefficient, self._offset
            )
        if not self._shared or inputs.with_gradients:
            self._moments = inputs.square_moments(self.dims)

    def _zeros(self) -> list[Tensor]:
        zeros = self._lengthscale.new_zeros
        moments = [] if self._moments is None else self._moments.zeros(self.size)
        return [zeros(self.size), zeros(self.size), *moments]

    def _argument(self, tile: Tile, out: Block) -> Tensor:
        """Write ``z`` (``1 + z`` for rational quadratic kernels) into ``out``, ``G x E``."""
        if self._shared:
            torch.mul(tile.square(self.dims), self._coefficient, out=out.flat)
            return out.flat.add_(self._offset) if self._offset else out.flat
        left, right = self._left[:, tile.rows], self._right[..., tile.columns]
        torch.bmm(left, right, out=out.matrices)
        if tile.on_diagonal:
            out.matrices.diagonal(dim1=1, dim2=2).fill_(self._offset)
        return out.flat.clamp_max_(0.0) if self.constant < 0 else out.flat.clamp_min_(self._offset)

    def _pull_back(self, tile: Tile, values: Block, weights: Block, sums: list[Tensor]) -> None:
        of_coefficient, of_exponent, *of_moments = sums
        flat = weights.flat
        self._pull_back_slope(tile, values, flat, of_exponent)
        if self._shared:
            of_coefficient.addmv_(flat, tile.square(self.dims)[0])
        if self._moments is not None:
            if tile.on_diagonal:  # no distance: what moments leave of it would be rounding
                weights.matrices.diagonal(dim1=1, dim2=2).zero_()
            self._moments.add(tile.rows, tile.columns, weights.matrices, of_moments)

    def _pull_back_slope(
        self, tile: Tile, values: Block, weights: Tensor, of_exponent: Tensor
    ) -> None:
        """Turn weights of values into those of ``z``, but for ``slope_factor``."""
        raise NotImplementedError

    def _gradients(self, sums: list[Tensor]) -> list[Tensor]:
        of_coefficient, of_exponent, *of_moments = sums
        if self._shared:
            of_coefficient = of_coefficient.unsqueeze(-1)
        else:
            assert self._moments is not None
            of_coefficient = self._moments.of_squares(of_moments)
        of_coefficient = of_coefficient * self._slope_factor
        of_lengthscale = -2 * of_coefficient * self._coefficient / self._lengthscale
        if self._alpha is None:
            return [of_lengthscale]
        through_constant = (of_coefficient * self._coefficient).sum(1, keepdim=True) / self._alpha
        return [-of_exponent.unsqueeze(-1) - through_constant, of_lengthscale]

    def _input_gradients(self, sums: list[Tensor]) -> list[Tensor]:
        assert self._moments is not None
        factor = (2 * self._slope_factor * self._coefficient).unsqueeze(1)
        return [factor * part for part in self._moments.of_differences(sums[2:])]


class _RBF(_Radial):
    constant, slope_factor = -0.5, 1.0

    def _evaluate(self, tile: Tile, out: Block) -> None:
        self._argument(tile, out).exp_()

    def _pull_back_slope(
        self, tile: Tile, values: Block, weights: Tensor, of_exponent: Tensor
    ) -> None:
        weights.mul_(values.flat)


class _RationalQuadratic(_Radial):
    def _evaluate(self, tile: Tile, out: Block) -> None:
        base, log = self.block(tile, "base"), self.block(tile, "log")
        torch.log(self._argument(tile, base), out=log.flat)
        torch.mul(log.flat, self._exponent, out=out.flat).exp_()

    def _pull_back_slope(
        self, tile: Tile, values: Block, weights: Tensor, of_exponent: Tensor
    ) -> None:
        weights.mul_(values.flat)
        log = self.block(tile, "log").flat
        add_dots(of_exponent, weights, log, tile, out=log)
        weights.div_(self.block(tile, "base").flat)


class _Matern12(_Radial):
    constant, slope_factor = 1.0, -0.5

    def _evaluate(self, tile: Tile, out: Block) -> None:
        distance = self._argument(tile, self.block(tile, "distance")).sqrt_()
        torch.neg(distance, out=out.flat).exp_()

    def _pull_back_slope(
        self, tile: Tile, values: Block, weights: Tensor, of_exponent: Tensor
    ) -> None:
        distance = self.block(tile, "distance").flat
        weights.mul_(values.flat).div_(distance).masked_fill_(distance == 0, 0.0)


class _Matern32(_Radial):
    constant, slope_factor = 3.0, -0.5

    def _evaluate(self, tile: Tile, out: Block) -> None:
        distance = self._argument(tile, self.block(tile, "distance")).sqrt_()
        decay = torch.neg(distance, out=self.block(tile, "slope").flat).exp_()
        torch.addcmul(decay, distance, decay, out=out.flat)

    def _pull_back_slope(
        self, tile: Tile, values: Block, weights: Tensor, of_exponent: Tensor
    ) -> None:
        weights.mul_(self.block(tile, "slope").flat)


class _Matern52(_Matern32):
    constant, slope_factor = 5.0, -1 / 6

    def _evaluate(self, tile: Tile, out: Block) -> None:
        square = self._argument(tile, self.block(tile, "square"))
        distance = torch.sqrt(square, out=self.block(tile, "distance").flat)
        decay = torch.neg(distance, out=out.flat).exp_()
        slope = torch.addcmul(decay, distance, decay, out=self.block(tile, "slope").flat)
        torch.addcmul(slope, square, decay, value=1 / 3, out=out.flat)


RBF = Formula(_rbf, group=_RBF, code=0)
MATERN = {  # by smoothness
    0.5: Formula(_matern12, group=_Matern12, code=1),
    1.5: Formula(_matern32, group=_Matern32, code=2),
    2.5: Formula(_matern52, group=_Matern52, code=3),
}
RATIONAL_QUADRATIC = Formula(_rational_quadratic, group=_RationalQuadratic, code=4)


def _periodic(
    x1: Tensor, x2: Tensor, lengthscale: Tensor, period: Tensor, *factor: Tensor
) -> Tensor:
    period, lengthscale = period.unsqueeze(-2), lengthscale.unsqueeze(-2)
    angle = math.pi * (x1.unsqueeze(-2) - x2.unsqueeze(-3)) / period  # ... x N x M x D
    exponent = (-2 * angle.sin().square() / lengthscale).sum(-1)
    return 1 + exponent.expm1() * factor[0] if factor else exponent.exp()


def _zero_mean_factor(lengthscale: Tensor) -> Tensor:
    """``1 / (1 - exp(-z) I0(z))`` for ``z = 1 / lengthscale``, exact where z is small too."""
    z = lengthscale.reciprocal()
    small = z < 0.05
    tiny = torch.where(small, z, 0.01)
    # 1 - i0e(z) = sum_k (-1)^(k+1) c_k z^k with c_k = (2k)! / (2^k (k!)^3)
    series = sum(
        (-1) ** (k + 1) * math.factorial(2 * k) / (2**k * math.factorial(k) ** 3) * tiny**k
        for k in range(1, 9)
    )
    plain = 1 - torch.special.i0e(torch.where(small, 1.0, z))
    return torch.where(small, series, plain).reciprocal()


def _zero_mean_slope(lengthscale: Tensor, factor: Tensor) -> Tensor:
    """Derivative of 1 / (1 - exp(-z) I0(z)) by the lengthscale 1 / z."""
    z = lengthscale.reciprocal()
    return factor.square() * (torch.special.i0e(z) - torch.special.i1e(z)) * z.square()


class _Periodic(Group):
    """``exp(e)`` with ``e = -2 sum sin^2(pi (x - x') / p) / l``, or ``1 + f (exp(e) - 1)``."""

    def __init__(self, primitives: Sequence[Primitive], start: int, theta: Tensor, inputs: Inputs):
        super().__init__(primitives, start, theta, inputs)
        lengthscale, period, *factor = self.parameters
        self._factor = factor[0] if factor else None
        self._frequency = math.pi / period
        self._coefficient = -2 / lengthscale
        # Of each column, also where columns share one.
        self._frequencies = self._frequency.expand(-1, len(self.dims)).split(1, 1)
        self._coefficients = self._coefficient.expand(-1, len(self.dims)).split(1, 1)

    def _zeros(self) -> list[Tensor]:
        zeros, num_dims = self._frequency.new_zeros, len(self.dims)
        # In columns of memory: what is added for one column of the inputs is a whole vector.
        sums = [zeros(num_dims, self.size), zeros(num_dims, self.size), zeros(self.size)]
        if self.inputs.with_gradients:
            sums.append(zeros(self.size, self.inputs.x1.size(0), num_dims))
            sums.append(zeros(self.size, self.inputs.x2.size(0), num_dims))
        return sums

    def _evaluate(self, tile: Tile, out: Block) -> None:
        for number, dim in enumerate(self.dims):
            angle, square = self._memory(tile, number)
            torch.mul(tile.difference(dim), self._frequencies[number], out=angle.flat)
            torch.sin(angle.flat, out=square).square_()
            if number == 0:
                torch.mul(square, self._coefficients[number], out=out.flat)
            else:
                out.flat.addcmul_(square, self._coefficients[number])
        if self._factor is None:
            out.flat.exp_()
        else:
            decay = torch.expm1(out.flat, out=self.block(tile, "decay").flat)
            torch.mul(decay, self._factor, out=out.flat).add_(1.0)

    def _pull_back(self, tile: Tile, values: Block, weights: Block, sums: list[Tensor]) -> None:
        of_coefficient, of_frequency, of_factor, *of_inputs = sums
        flat, slope_of_exponent = weights.flat, values.flat
        if self._factor is not None:
            decay = self.block(tile, "decay").flat
            add_dots(of_factor, flat, decay, tile, out=values.flat)
            slope_of_exponent = decay.add_(1.0).mul_(self._factor)
        flat.mul_(slope_of_exponent)
        for number, dim in enumerate(self.dims):
            angle, square = self._memory(tile, number)
            add_dots(of_coefficient[number], flat, square, tile, out=square)
            slope = angle.flat.mul_(2.0).sin_().mul_(flat)
            of_frequency[number].addmv_(slope, tile.difference(dim)[0])
            if of_inputs:
                of_inputs[0][:, tile.rows, number] += angle.matrices.sum(2)
                of_inputs[1][:, tile.columns, number] -= angle.matrices.sum(1)

    def _gradients(self, sums: list[Tensor]) -> list[Tensor]:
        lengthscale, period, *factor = self.parameters
        of_lengthscale = sums[0].mT * -self._coefficient / lengthscale
        of_period = sums[1].mT * self._coefficient * -self._frequency / period
        parts = [
            part if part.size(1) == parameter.size(1) else part.sum(1, keepdim=True)
            for part, parameter in ((of_lengthscale, lengthscale), (of_period, period))
        ]
        return [*parts, sums[2].unsqueeze(-1)] if factor else parts

    def _input_gradients(self, sums: list[Tensor]) -> list[Tensor]:
        factor = (self._coefficient * self._frequency).unsqueeze(1)
        return [factor * part for part in sums[3:]]

    def _memory(self, tile: Tile, number: int) -> tuple[Block, Tensor]:
        return self.block(tile, f"angle {number}"), self.block(tile, f"square {number}").flat


PERIODIC = Formula(_periodic, group=_Periodic, code=5)
ZERO_MEAN_PERIODIC = Formula(
    _periodic,
    group=_Periodic,
    code=8,
    derived=_zero_mean_factor,
    derived_slope=_zero_mean_slope,
    max_columns=1,
)


def _linear(x1: Tensor, x2: Tensor, variance: Tensor, center: Tensor | float = 0.0) -> Tensor:
    return ((x1 - center) * variance) @ (x2 - center).mT


class _Linear(Group):
    """``sum v (x - c) (x' - c)``, with or without centers."""

    def __init__(self, primitives: Sequence[Primitive], start: int, theta: Tensor, inputs: Inputs):
        super().__init__(primitives, start, theta, inputs)
        variance, *center = self.parameters
        self._multiple = not center and variance.size(1) == 1 and not inputs.with_gradients
        if self._multiple:  # of one and the same product
            self._variance = variance
            return
        x1, x2 = inputs.columns(self.dims)
        shift = center[0].unsqueeze(1) if center else x1.new_zeros(1, 1, 1)
        self._x1, self._x2 = x1 - shift, x2 - shift
        self._left = self._x1 * variance.unsqueeze(1)
        self._right = self._x2.mT.expand(self.size, -1, -1)
        self._moments = Moments(inputs, self._x1, self._x2, with_squares=False)

    def _zeros(self) -> list[Tensor]:
        if self._multiple:
            return [self._variance.new_zeros(self.size)]
        return self._moments.zeros(self.size)

    def _evaluate(self, tile: Tile, out: Block) -> None:
        if self._multiple:
            torch.mul(tile.product(self.dims), self._variance, out=out.flat)
        else:
            torch.bmm(self._left[:, tile.rows], self._right[..., tile.columns], out=out.matrices)

    def _pull_back(self, tile: Tile, values: Block, weights: Block, sums: list[Tensor]) -> None:
        if self._multiple:
            sums[0].addmv_(weights.flat, tile.product(self.dims)[0])
        else:
            self._moments.add(tile.rows, tile.columns, weights.matrices, sums)

    def _gradients(self, sums: list[Tensor]) -> list[Tensor]:
        if self._multiple:
            return [sums[0].unsqueeze(-1)]
        variance, *center = self.parameters
        across, rows = sums[0][..., :-1], sums[0][..., -1:]
        parts = [(self._x1 * across).sum(1)]
        if center:
            parts.append(-variance * (across + self._x1 * rows).sum(1))
        return [
            part if part.size(1) == parameter.size(1) else part.sum(1, keepdim=True)
            for part, parameter in zip(parts, self.parameters, strict=True)
        ]

    def _input_gradients(self, sums: list[Tensor]) -> list[Tensor]:
        variance = self.parameters[0].unsqueeze(1)
        return [variance * part[..., :-1] for part in sums]


LINEAR = Formula(_linear, group=_Linear, code=6)
CENTERED_LINEAR = Formula(_linear, group=_Linear, code=7)


def _spectral_component(x1: Tensor, x2: Tensor, lengthscale: Tensor, frequency: Tensor) -> Tensor:
    middle = x1.mean(-2, keepdim=True).detach()
    phases1, phases2 = (((x - middle) * frequency).sum(-1) for x in (x1, x2))
    return _rbf(x1, x2, lengthscale) * (phases1.unsqueeze(-1) - phases2.unsqueeze(-2)).cos()


class _SpectralComponent(Group):
    """``exp(z) cos(a - a')``: squared distances and phases ``a`` of the rows, in radians."""

    def __init__(self, primitives: Sequence[Primitive], start: int, theta: Tensor, inputs: Inputs):
        super().__init__(primitives, start, theta, inputs)
        lengthscale, self._frequency = self.parameters
        self._coefficient = -0.5 / lengthscale.square()  # G x 1 or G x d
        self._left, self._right = inputs.scaled_square_factors(self.dims, self._coefficient)
        self._moments = inputs.square_moments(self.dims)
        self._x1, self._x2 = inputs.centered(self.dims)
        frequencies = self._frequency.expand(-1, len(self.dims))
        self._phases1 = (frequencies @ self._x1.mT).unsqueeze(2)  # G x N x 1
        self._phases2 = (frequencies @ self._x2.mT).unsqueeze(1)  # G x 1 x M

    def _zeros(self) -> list[Tensor]:
        of_phases = torch.zeros_like(self._phases1), torch.zeros_like(self._phases2)
        return [*of_phases, *self._moments.zeros(self.size)]

    def _evaluate(self, tile: Tile, out: Block) -> None:
        decay, angle = self.block(tile, "decay"), self.block(tile, "angle")
        torch.bmm(self._left[:, tile.rows], self._right[..., tile.columns], out=decay.matrices)
        if tile.on_diagonal:
            decay.matrices.diagonal(dim1=1, dim2=2).fill_(0.0)
        decay.flat.clamp_max_(0.0).exp_()
        phases1, phases2 = self._phases1[:, tile.rows], self._phases2[..., tile.columns]
        torch.sub(phases1, phases2, out=angle.matrices)
        torch.cos(angle.flat, out=out.flat).mul_(decay.flat)

    def _pull_back(self, tile: Tile, values: Block, weights: Block, sums: list[Tensor]) -> None:
        of_phases1, of_phases2, *of_moments = sums
        angle = self.block(tile, "angle")
        angle.flat.sin_().mul_(self.block(tile, "decay").flat).mul_(weights.flat)
        of_phases1[:, tile.rows] -= angle.matrices.sum(2, keepdim=True)
        of_phases2[..., tile.columns] += angle.matrices.sum(1, keepdim=True)
        weights.flat.mul_(values.flat)
        if tile.on_diagonal:  # no distance: what moments leave of it would be rounding
            weights.matrices.diagonal(dim1=1, dim2=2).zero_()
        self._moments.add(tile.rows, tile.columns, weights.matrices, of_moments)

    def _gradients(self, sums: list[Tensor]) -> list[Tensor]:
        of_phases1, of_phases2, *of_moments = sums
        of_coefficient = self._moments.of_squares(of_moments)
        of_lengthscale = -2 * of_coefficient * self._coefficient / self.parameters[0]
        of_frequency = of_phases1.squeeze(2) @ self._x1 + of_phases2.squeeze(1) @ self._x2
        return [
            part if part.size(1) == parameter.size(1) else part.sum(1, keepdim=True)
            for part, parameter in zip((of_lengthscale, of_frequency), self.parameters, strict=True)
        ]

    def _input_gradients(self, sums: list[Tensor]) -> list[Tensor]:
        of_phases1, of_phases2, *of_moments = sums
        factor, frequency = (2 * self._coefficient).unsqueeze(1), self._frequency.unsqueeze(1)
        of_x1, of_x2 = self._moments.of_differences(of_moments)
        return [
            factor * of_x1 + frequency * of_phases1,
            factor * of_x2 + frequency * of_phases2.mT,
        ]


SPECTRAL_COMPONENT = Formula(_spectral_component, group=_SpectralComponent, code=9)
