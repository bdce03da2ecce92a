"""Product of one kernel per group of columns, with Kronecker structure on a grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from gpytorch.kernels import Kernel
from linear_operator import to_dense
from linear_operator.operators import (
    InterpolatedLinearOperator,
    KroneckerProductLinearOperator,
    LinearOperator,
    MaskedLinearOperator,
)
from torch import Tensor, nn

from gpytorch_nkn.kernels.batch_kernel import BatchKernel
from gpytorch_nkn.kernels.factors import check_factors, is_small
from gpytorch_nkn.kernels.network import kernel_values

__all__ = ["KroneckerKernel"]


class KroneckerKernel(BatchKernel):
    r"""Product of one kernel per group of columns, with Kronecker structure on a grid.

    .. math:: k(x, x') = \prod_p k_p(x_p, x'_p)

    Products of kernels are kernels. For all cells of the grid in C order the matrix is
    :math:`K_1 \otimes \dots \otimes K_P`, whose eigenvalues GPyTorch computes from the factors.
    For any selection of cells, repeated or not, the matrix has rows and columns of this product.
    Beyond ``gpytorch.settings.max_cholesky_size`` inputs it is a linear operator, solved by
    conjugate gradients, unless a dense matrix is less work. Values at other inputs are exact and
    dense. The grid may contain cells without observations.

    For one grid with Gaussian noise :class:`gpytorch_nkn.models.KroneckerGridGP` is faster; this
    kernel is for other models, likelihoods and sums of kernels.

    Args:
        kernels: One kernel per group of columns, each for inputs ``... x n x c_p``.
        coordinates: Coordinates of the grid, one tensor ``n_p`` or ``n_p x c_p`` per group, in any
            order and with any spacing. Inputs have the columns of all groups, and are on the grid
            if they equal its coordinates up to rounding.
        active_dims: As in :class:`gpytorch.kernels.Kernel`.

    Raises:
        TypeError: An entry of ``kernels`` is not a kernel.
        ValueError: The numbers of kernels and groups differ, or coordinates are not finite or not
            distinct. On evaluation: the number of input columns is wrong.

    Reference: Saatci (2011), Scalable Inference for Structured Gaussian Process Models, chapter 5.

    Example:
        >>> from gpytorch.kernels import PeriodicKernel, RBFKernel
        >>> coordinates = [torch.linspace(0, 1, 3), torch.linspace(0, 1, 4)]
        >>> kernel = KroneckerKernel([RBFKernel(), PeriodicKernel()], coordinates)
        >>> type(kernel(kernel.cells()).evaluate_kernel()).__name__
        'KroneckerProductLinearOperator'
    """

    def __init__(
        self,
        kernels: Sequence[Kernel],
        coordinates: Sequence[Tensor],
        *,
        active_dims: tuple[int, ...] | None = None,
    ):
        super().__init__(active_dims=active_dims)
        self._grid = _Grid(coordinates)
        self.kernels = nn.ModuleList(check_factors(kernels, self.coordinates))

    @property
    def coordinates(self) -> list[Tensor]:
        """Coordinates of each group, ``n_p x c_p``."""
        return self._grid.coordinates()

    @property
    def is_stationary(self) -> bool:
        """Whether all factors are stationary."""
        return all(kernel.is_stationary for kernel in self.kernels)

    def cells(self) -> Tensor:
        """Return the inputs of all cells of the grid in C order, ``n_1 ... n_P x D``."""
        coordinates = self.coordinates
        rows = torch.cartesian_prod(
            *(torch.arange(len(part), device=part.device) for part in coordinates)
        ).view(-1, len(coordinates))
        parts = [part[row] for part, row in zip(coordinates, rows.unbind(-1), strict=True)]
        return torch.cat(parts, -1)

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any
    ) -> Tensor | LinearOperator:
        """Return values ``... x N x M`` (``... x N`` with ``diag``) for inputs ``... x N x D``."""
        columns = self._grid.columns()
        if x1.size(-1) != columns[-1].stop:
            raise ValueError(
                f"Inputs must have {columns[-1].stop} columns, as the coordinates, "
                f"got {x1.size(-1)}."
            )
        if not diag:
            structured = self._structured(x1, x2, params)
            if structured is not None:
                return structured
        values: Any = None
        for kernel, group in zip(self.kernels, columns, strict=True):
            new = kernel_values(kernel, x1[..., group], x2[..., group], diag, **params)
            values = new if values is None else values * new
        return values

    def _structured(self, x1: Tensor, x2: Tensor, params: dict) -> LinearOperator | None:
        """Return the matrix as an operator of its factors; ``None`` if dense is better."""
        if x1.requires_grad or x2.requires_grad:  # the factors depend on coordinates only
            return None
        size = math.prod(map(len, self.coordinates))
        work = size * sum(map(len, self.coordinates))  # of a product with a vector
        large = not is_small(x1.size(-2) * x2.size(-2), work)
        if not large and (x1.size(-2), x2.size(-2)) != (size, size):
            return None
        cells1 = self._grid.find(x1)
        same = x1 is x2 or torch.equal(x1, x2)
        cells2 = cells1 if cells1 is None or same else self._grid.find(x2)
        if cells1 is None or cells2 is None:
            return None
        everything = torch.arange(size, device=cells1.device)
        complete = all(
            c.size(-1) == size and bool((c == everything).all()) for c in (cells1, cells2)
        )
        if not complete and not large:
            return None
        factors = [
            to_dense(kernel(part, part, **params))
            for kernel, part in zip(self.kernels, self.coordinates, strict=True)
        ]
        whole: LinearOperator = KroneckerProductLinearOperator(*factors)
        batch_shape = torch.broadcast_shapes(whole.batch_shape, x1.shape[:-2], x2.shape[:-2])
        whole = whole.expand(*batch_shape, *whole.matrix_shape)
        if complete:
            return whole
        if same and cells1.dim() == 1 and bool((cells1.diff() > 0).all()):
            mask = torch.zeros_like(everything, dtype=torch.bool)
            mask[cells1] = True
            return MaskedLinearOperator(whole, mask, mask)
        arguments: list[Tensor] = []
        for cells in (cells1, cells2):
            index = cells.unsqueeze(-1).expand(*batch_shape, -1, 1)
            arguments += [index, torch.ones_like(index, dtype=x1.dtype)]
        return InterpolatedLinearOperator(whole, *arguments)


class _Grid(nn.Module):
    """Coordinates of the grid, in a separate module because they have no batch."""

    def __init__(self, coordinates: Sequence[Tensor]):
        super().__init__()
        if len(coordinates) == 0:
            raise ValueError("coordinates must contain at least one tensor, got none.")
        self._number = len(coordinates)
        for number, part in enumerate(coordinates):
            part = part[:, None] if part.dim() == 1 else part
            if part.dim() != 2 or part.numel() == 0 or not part.isfinite().all():
                raise ValueError(
                    f"coordinates[{number}] must be a finite tensor n or n x c, got "
                    f"shape {tuple(part.shape)}."
                )
            if not part.is_floating_point():
                part = part.to(torch.get_default_dtype())
            distinct = len(part.unique(dim=0))
            if distinct < len(part):
                raise ValueError(
                    f"coordinates[{number}] must be distinct, got {len(part)} with {distinct} "
                    "different values."
                )
            self.register_buffer(f"coordinates_{number}", part.detach().clone())

    def coordinates(self) -> list[Tensor]:
        """Return the coordinates of each group, ``n_p x c_p``."""
        return [getattr(self, f"coordinates_{number}") for number in range(self._number)]

    def columns(self) -> list[slice]:
        """Return the input columns of each group."""
        widths = [part.size(-1) for part in self.coordinates()]
        return [slice(end - n, end) for end, n in zip(accumulate(widths), widths, strict=True)]

    def find(self, x: Tensor) -> Tensor | None:
        """Return indices ``... x N`` of cells in C order; ``None`` if an input is not on the grid.

        Inputs that are equal throughout the batch have indices without batch dimensions.
        """
        first = x.flatten(0, -3)[0] if x.dim() > 2 and x.size(0) else x
        if x.dim() > 2 and bool((x == first).all()):
            x = first
        cells = torch.zeros(x.shape[:-1], dtype=torch.long, device=x.device)
        for part, group in zip(self.coordinates(), self.columns(), strict=True):
            rows = _find_rows(part.to(x), x[..., group])
            if rows is None:
                return None
            cells = cells * len(part) + rows
        return cells


def _find_rows(table: Tensor, x: Tensor) -> Tensor | None:
    """Return the indices of rows ``... x N x c`` in a table ``n x c``, if it has all of them."""
    keys = torch.zeros(len(table), dtype=torch.long, device=x.device)
    wanted = torch.zeros(x.shape[:-1], dtype=torch.long, device=x.device)
    for column, value in zip(table.unbind(-1), x.unbind(-1), strict=True):
        levels, codes = column.unique(sorted=True, return_inverse=True)
        value = value.contiguous()
        above = torch.searchsorted(levels, value).clamp(min(1, len(levels) - 1), len(levels) - 1)
        below = (above - 1).clamp_min(0)
        nearest = torch.where(value - levels[below] < levels[above] - value, below, above)
        rounding = 4 * torch.finfo(x.dtype).eps * levels.abs().max()
        if not ((levels[nearest] - value).abs() <= rounding).all():
            return None
        keys, wanted = keys * len(levels) + codes, wanted * len(levels) + nearest
    keys, order = keys.sort()
    index = torch.searchsorted(keys, wanted).clamp_max(len(keys) - 1)
    return order[index] if bool((keys[index] == wanted).all()) else None
