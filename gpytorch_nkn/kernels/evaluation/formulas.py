"""Values and gradients of primitive kernels on a tile, in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gpytorch_nkn.kernels.evaluation.group import Block, Group, Tile, add_dots
from gpytorch_nkn.kernels.evaluation.inputs import Inputs, Moments
from gpytorch_nkn.kernels.evaluation.program import Kind, Primitive

__all__ = ["bind_primitives"]


def bind_primitives(primitives: Sequence[Primitive], theta: Tensor, inputs: Inputs) -> list[Group]:
    """Groups of primitives that are neighbours and alike, with the values of their parameters."""
    groups: list[list[Primitive]] = []
    for primitive in primitives:
        if groups and _likeness(groups[-1][0]) == _likeness(primitive):
            groups[-1].append(primitive)
        else:
            groups.append([primitive])
    bound: list[Group] = []
    start = 0
    for members in groups:
        bound.append(_GROUPS[members[0].kind](members, start, theta, inputs))
        start += len(members)
    return bound


def _likeness(primitive: Primitive) -> tuple:
    sizes = tuple(slot.stop - slot.start for slot in primitive.slots)
    return primitive.kind, primitive.dims, sizes, primitive.scale is None


class _Radial(Group):
    """Functions of ``z``, the squared distance in units of the lengthscales times a constant.

    The constants make the functions simple: ``exp(z)`` of an RBF kernel, ``(1 + z)^-alpha`` of a
    rational quadratic one, polynomials of ``sqrt(z)`` times ``exp(-sqrt(z))`` of Matern kernels.
    """

    def __init__(self, primitives: Sequence[Primitive], start: int, theta: Tensor, inputs: Inputs):
        super().__init__(primitives, start, theta, inputs)
        *alpha, self._lengthscale = self.parameters
        self._alpha = alpha[0] if alpha else None
        if alpha:
            constant, self._exponent = 0.5 / alpha[0], -alpha[0]
            self._slope_factor = self._exponent
        else:
            constant, self._slope_factor = _CONSTANTS[self.kind], _SLOPE_FACTORS[self.kind]
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

    def _evaluate(self, tile: Tile, out: Block) -> None:
        _RADIAL_VALUES[self.kind](self, tile, out)

    def argument(self, tile: Tile, out: Block) -> Tensor:
        """Write ``z`` (``1 + z`` for rational quadratic kernels) into ``out``, ``G x E``."""
        if self._shared:
            torch.mul(tile.square(self.dims), self._coefficient, out=out.flat)
            return out.flat.add_(self._offset) if self._offset else out.flat
        left, right = self._left[:, tile.rows], self._right[..., tile.columns]
        torch.bmm(left, right, out=out.matrices)
        if tile.on_diagonal:
            out.matrices.diagonal(dim1=1, dim2=2).fill_(self._offset)
        if self.kind is Kind.RBF:
            return out.flat.clamp_max_(0.0)
        return out.flat.clamp_min_(self._offset)

    def rbf(self, tile: Tile, out: Block) -> None:
        self.argument(tile, out).exp_()

    def rational_quadratic(self, tile: Tile, out: Block) -> None:
        base, log = self.block(tile, "base"), self.block(tile, "log")
        torch.log(self.argument(tile, base), out=log.flat)
        torch.mul(log.flat, self._exponent, out=out.flat).exp_()

    def matern12(self, tile: Tile, out: Block) -> None:
        distance = self.argument(tile, self.block(tile, "distance")).sqrt_()
        torch.neg(distance, out=out.flat).exp_()

    def matern32(self, tile: Tile, out: Block) -> None:
        distance = self.argument(tile, self.block(tile, "distance")).sqrt_()
        decay = torch.neg(distance, out=self.block(tile, "slope").flat).exp_()
        torch.addcmul(decay, distance, decay, out=out.flat)

    def matern52(self, tile: Tile, out: Block) -> None:
        square = self.argument(tile, self.block(tile, "square"))
        distance = torch.sqrt(square, out=self.block(tile, "distance").flat)
        decay = torch.neg(distance, out=out.flat).exp_()
        slope = torch.addcmul(decay, distance, decay, out=self.block(tile, "slope").flat)
        torch.addcmul(slope, square, decay, value=1 / 3, out=out.flat)

    def _pull_back(self, tile: Tile, values: Block, weights: Block, sums: list[Tensor]) -> None:
        of_coefficient, of_exponent, *of_moments = sums
        flat = weights.flat
        if self.kind in (Kind.MATERN32, Kind.MATERN52):
            flat.mul_(self.block(tile, "slope").flat)
        else:
            flat.mul_(values.flat)
        if self.kind is Kind.RATIONAL_QUADRATIC:
            log = self.block(tile, "log").flat
            add_dots(of_exponent, flat, log, tile, out=log)
            flat.div_(self.block(tile, "base").flat)
        elif self.kind is Kind.MATERN12:
            distance = self.block(tile, "distance").flat
            flat.div_(distance).masked_fill_(distance == 0, 0.0)
        if self._shared:
            of_coefficient.addmv_(flat, tile.square(self.dims)[0])
        if self._moments is not None:
            if tile.on_diagonal:  # no distance: what moments leave of it would be rounding
                weights.matrices.diagonal(dim1=1, dim2=2).zero_()
            self._moments.add(tile.rows, tile.columns, weights.matrices, of_moments)

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


_CONSTANTS = {Kind.RBF: -0.5, Kind.MATERN12: 1.0, Kind.MATERN32: 3.0, Kind.MATERN52: 5.0}
_SLOPE_FACTORS = {Kind.RBF: 1.0, Kind.MATERN12: -0.5, Kind.MATERN32: -0.5, Kind.MATERN52: -1 / 6}
_RADIAL_VALUES: dict[Kind, Callable[[_Radial, Tile, Block], None]] = {
    Kind.RBF: _Radial.rbf,
    Kind.MATERN12: _Radial.matern12,
    Kind.MATERN32: _Radial.matern32,
    Kind.MATERN52: _Radial.matern52,
    Kind.RATIONAL_QUADRATIC: _Radial.rational_quadratic,
}


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


_GROUPS: dict[Kind, type[Group]] = {
    **dict.fromkeys(_RADIAL_VALUES, _Radial),
    Kind.PERIODIC: _Periodic,
    Kind.ZERO_MEAN_PERIODIC: _Periodic,
    Kind.LINEAR: _Linear,
    Kind.CENTERED_LINEAR: _Linear,
    Kind.SPECTRAL_COMPONENT: _SpectralComponent,
}
