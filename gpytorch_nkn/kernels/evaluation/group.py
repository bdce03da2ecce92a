"""Primitives that are evaluated together, and their memory on a tile."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from gpytorch_nkn.kernels.evaluation.inputs import Inputs
from gpytorch_nkn.kernels.evaluation.program import Primitive
from gpytorch_nkn.linalg import Pool

__all__ = ["Block", "Group", "Tile", "add_dots", "bind_primitives"]


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
        make = members[0].formula.group or _SingleKernels
        bound.append(make(members, start, theta, inputs))
        start += len(members)
    return bound


def _likeness(primitive: Primitive) -> tuple:
    sizes = tuple(slot.stop - slot.start for slot in primitive.slots)
    return primitive.formula, primitive.dims, sizes, primitive.scale is None


class Block:
    """Memory for several matrices, as rows ``G x E`` and as matrices ``G x m x n``."""

    def __init__(self, flat: Tensor, shape: tuple[int, int]):
        self.flat = flat
        self.matrices = flat.view(-1, *shape)


class Tile:
    """Memory for tiles of one size ``m x n``, and what primitives have in common on a tile."""

    def __init__(self, inputs: Inputs, shape: tuple[int, int], pool: Pool, ones: Tensor):
        self.ones = ones
        self.rows = self.columns = slice(0)
        self.on_diagonal = False
        self._shape = shape
        self._inputs = inputs
        self._pool = pool
        self._blocks: dict[Hashable, Block] = {}
        self._known: set[Hashable] = set()

    def move(self, rows: slice, columns: slice) -> None:
        """Go to other rows and columns."""
        self.rows, self.columns = rows, columns
        self.on_diagonal = self._inputs.symmetric and rows == columns
        self._known.clear()

    def block(self, key: Hashable, count: int = 1) -> Block:
        """Memory for ``count`` matrices, the same one whenever it is asked for."""
        found = self._blocks.get(key)
        if found is None:
            flat = self._pool(count, self._shape[0] * self._shape[1])
            found = self._blocks[key] = Block(flat, self._shape)
        return found

    def difference(self, dim: int) -> Tensor:
        """``x - x'`` in one column, ``1 x E``."""
        key = ("difference", dim)
        block = self.block(key)
        if key not in self._known:
            self._known.add(key)
            x1, x2 = self._inputs.column(dim)
            torch.sub(x1[self.rows], x2[:, self.columns], out=block.matrices[0])
        return block.flat

    def square(self, dims: tuple[int, ...]) -> Tensor:
        """Squared distances over the columns ``dims``, ``1 x E``."""
        key = ("square", dims)
        block = self.block(key)
        if key not in self._known:
            self._known.add(key)
            if len(dims) == 1:
                torch.square(self.difference(dims[0]), out=block.flat)
            else:
                left, right = self._inputs.square_factors(dims)
                out = block.matrices[0]
                torch.mm(left[self.rows], right[:, self.columns], out=out).clamp_min_(0.0)
                if self.on_diagonal:  # rounding there would be magnified by a square root
                    out.fill_diagonal_(0.0)
        return block.flat

    def product(self, dims: tuple[int, ...]) -> Tensor:
        """Inner products over the columns ``dims``, ``1 x E``."""
        key = ("product", dims)
        block = self.block(key)
        if key not in self._known:
            self._known.add(key)
            x1, x2 = self._inputs.columns(dims)
            torch.mm(x1[self.rows], x2[self.columns].mT, out=block.matrices[0])
        return block.flat


class Group:
    """Primitives of one formula on the same columns, evaluated together.

    A subclass states the values on a tile and, as sums over the entries that are added up tile by
    tile, what the gradients are made of: ``_zeros``, ``_evaluate``, ``_pull_back``, ``_gradients``
    and ``_input_gradients``.

    Args:
        primitives: ``G`` primitives whose parameters follow upon each other.
        start: Number of the first one in the network.
        theta: Parameters of the whole network.
        inputs: Inputs of the whole matrix.
    """

    def __init__(self, primitives: Sequence[Primitive], start: int, theta: Tensor, inputs: Inputs):
        first, last = primitives[0], primitives[-1]
        self.formula, self.dims = first.formula, first.dims
        self.size = len(primitives)
        self.units = slice(start, start + self.size)
        self.slot = slice(first.slots[0].start, (last.scale or last.slots[-1]).stop)
        self.inputs = inputs
        block = theta[self.slot].view(self.size, -1)
        sizes = [slot.stop - slot.start for slot in first.slots]
        self.parameters = list(block.split(sizes + [1] * (first.scale is not None), dim=1))
        self._scale = self.parameters.pop() if first.scale is not None else None

    def zeros(self) -> list[Tensor]:
        """Zeros to which sums over the entries are added."""
        return [*self._zeros(), self.parameters[0].new_zeros(self.size)]

    def evaluate(self, tile: Tile, out: Block) -> None:
        """Write the primitives' values into ``out``."""
        if self._scale is None:
            self._evaluate(tile, out)
        else:
            unscaled = self.block(tile, "unscaled")
            self._evaluate(tile, unscaled)
            torch.mul(unscaled.flat, self._scale, out=out.flat)

    def pull_back(self, tile: Tile, values: Block, weights: Block, sums: list[Tensor]) -> None:
        """Add to ``sums`` what the gradients of the weighted sum of the values are made of.

        Tile and values are as :meth:`evaluate` has left them; they and the weights are overwritten.
        """
        if self._scale is not None:
            unscaled = self.block(tile, "unscaled")
            add_dots(sums[-1], weights.flat, unscaled.flat, tile, out=values.flat)
            weights.flat.mul_(self._scale)
            values = unscaled
        self._pull_back(tile, values, weights, sums[:-1])

    def write_gradient(self, sums: list[Tensor], of_theta: Tensor) -> None:
        """Write the gradient of the parameters into that of all parameters."""
        parts = self._gradients(sums[:-1])
        if self._scale is not None:
            parts = [*parts, sums[-1].unsqueeze(-1)]
        of_theta[self.slot] = torch.cat(parts, -1).flatten()

    def add_input_gradients(self, sums: list[Tensor], of_x1: Tensor, of_x2: Tensor) -> None:
        """Add the gradients of the inputs ``N x D`` and ``M x D``."""
        for total, part in zip((of_x1, of_x2), self._input_gradients(sums[:-1]), strict=True):
            total.index_add_(1, torch.tensor(self.dims, device=total.device), part.sum(0))

    def block(self, tile: Tile, name: str) -> Block:
        """Memory of this group on a tile."""
        return tile.block((self.units.start, name), self.size)

    def _zeros(self) -> list[Tensor]:
        raise NotImplementedError

    def _evaluate(self, tile: Tile, out: Block) -> None:
        raise NotImplementedError

    def _pull_back(self, tile: Tile, values: Block, weights: Block, sums: list[Tensor]) -> None:
        raise NotImplementedError

    def _gradients(self, sums: list[Tensor]) -> list[Tensor]:
        """Gradients of the parameters, each ``G x`` its size."""
        raise NotImplementedError

    def _input_gradients(self, sums: list[Tensor]) -> list[Tensor]:
        """Gradients ``G x N x d`` and ``G x M x d`` of the inputs' columns."""
        raise NotImplementedError


class _SingleKernels(Group):
    """Primitives one by one, by the values of their formula and its gradient or autograd's."""

    def __init__(self, primitives: Sequence[Primitive], start: int, theta: Tensor, inputs: Inputs):
        super().__init__(primitives, start, theta, inputs)
        self._x1, self._x2 = inputs.columns(self.dims)

    def _zeros(self) -> list[Tensor]:
        sums = [torch.zeros_like(parameter) for parameter in self.parameters]
        inputs = (self._x1, self._x2) if self.inputs.with_gradients else ()
        return [*sums, *(x.new_zeros(self.size, *x.shape) for x in inputs)]

    def _evaluate(self, tile: Tile, out: Block) -> None:
        for number in range(self.size):
            arguments = self._arguments(tile, number)
            out.matrices[number].copy_(self.formula.values(*arguments))

    def _pull_back(self, tile: Tile, values: Block, weights: Block, sums: list[Tensor]) -> None:
        of_parameters = sums[: len(self.parameters)]
        of_inputs = sums[len(self.parameters) :]
        for number in range(self.size):
            arguments = self._arguments(tile, number)
            of_x1, of_x2, *others = self._pulled_back(weights.matrices[number], arguments)
            for total, part in zip(of_parameters, others, strict=True):
                total[number] += part
            if of_inputs:
                of_inputs[0][number, tile.rows] += of_x1
                of_inputs[1][number, tile.columns] += of_x2

    def _pulled_back(self, weights: Tensor, arguments: list[Tensor]) -> Sequence[Tensor]:
        if self.formula.pull_back is not None:
            return self.formula.pull_back(weights, *arguments)
        x1, x2, *parameters = arguments
        one = x1.detach().requires_grad_(True)
        other = one if x1 is x2 else x2.detach().requires_grad_(True)
        given = [parameter.detach().requires_grad_(True) for parameter in parameters]
        sources = [one, *([] if x1 is x2 else [other]), *given]
        with torch.enable_grad():
            values = self.formula.values(one, other, *given)
        found = torch.autograd.grad(values, sources, weights, allow_unused=True)
        gradients = [
            torch.zeros_like(source) if part is None else part
            for source, part in zip(sources, found, strict=True)
        ]
        if x1 is x2:
            gradients.insert(1, torch.zeros_like(x1))
        return gradients

    def _arguments(self, tile: Tile, number: int) -> list[Tensor]:
        left = self._x1[tile.rows]
        right = left if tile.on_diagonal else self._x2[tile.columns]
        return [left, right, *(parameter[number] for parameter in self.parameters)]

    def _gradients(self, sums: list[Tensor]) -> list[Tensor]:
        return sums[: len(self.parameters)]

    def _input_gradients(self, sums: list[Tensor]) -> list[Tensor]:
        return sums[len(self.parameters) :]


def add_dots(total: Tensor, first: Tensor, second: Tensor, tile: Tile, out: Tensor) -> None:
    """Add the sums ``G`` of the products of two tensors ``G x E``; ``out`` is for products."""
    total.addmv_(torch.mul(first, second, out=out), tile.ones)
