"""The matrices of a partly observed grid, where few enough cells are unknown."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gpytorch_nkn.linalg.grid.kronecker import kronecker_multiply
from gpytorch_nkn.linalg.grid.partial_kronecker import PartialKronecker

__all__ = ["dense_matrices", "unknown_cells"]

_CHUNK_ELEMENTS = 2**23  # numbers in a temporary array
_SPARE = 1.5  # a box may hold so many times the cells that are wanted


def unknown_cells(system: PartialKronecker) -> Tensor:
    """Cells ``B x u`` that systems are solved for, for each of the B entries of the batch."""
    grid = system.grid
    mask = grid.missing if system.in_holes else grid.observed
    cells = mask.shape[mask.dim() - grid.num_dims :]
    return mask.expand(*system.batch_shape, *cells).reshape(-1, cells.numel())


def dense_matrices(system: PartialKronecker) -> Iterator[Tensor]:
    r"""The matrices :math:`(A^{-1})_{hh}`, or :math:`A_{oo}` where holes are the larger part.

    Args:
        system: Covariance and observed cells.

    Yields:
        One matrix ``h x h`` (or ``o x o``) after the other, for each entry of the batch.
    """
    masks = unknown_cells(system)
    for number, mask in enumerate(masks):
        if not system.in_holes:
            yield _observed(system, number, mask)
        elif mask.numel() > _SPARE * int(mask.sum()):
            yield _by_columns(system, number, mask)
        else:
            yield _by_squares(system, number, mask)


def _by_squares(system: PartialKronecker, number: int, mask: Tensor) -> Tensor:
    """Sums over one dimension after the other, of products of two rows of the eigenvectors."""
    rows = [_entry(system, part, number, 2) for part in system.expand]
    squares = [(q.unsqueeze(-2) * q.unsqueeze(-3)).flatten(-3, -2) for q in rows]
    inverse = _entry(system, system.inverse, number, system.num_dims)
    whole = kronecker_multiply(squares, inverse)  # h_1^2 x ... x h_P^2
    sizes = [part.size(-2) for part in rows]
    whole = whole.reshape([size for size in sizes for _ in range(2)])
    whole = whole.permute(*range(0, 2 * len(sizes), 2), *range(1, 2 * len(sizes), 2))
    whole = whole.reshape(mask.numel(), mask.numel())
    return whole if bool(mask.all()) else whole[mask][:, mask]


def _observed(system: PartialKronecker, number: int, mask: Tensor) -> Tensor:
    index = torch.unravel_index(mask.nonzero()[:, 0], system.grid.shape)
    matrix = torch.ones((), dtype=system.inverse.dtype, device=system.inverse.device)
    for factor, own in zip(system.factors, index, strict=True):
        one = _entry(system, factor, number, 2)
        matrix = matrix * one[own.unsqueeze(-1), own.unsqueeze(0)]
    noise = _entry(system, system.noise, number, system.num_dims).reshape(())
    matrix.diagonal().add_(noise)
    return matrix


def _by_columns(system: PartialKronecker, number: int, mask: Tensor) -> Tensor:
    """Products with unit vectors, some at a time."""
    places = mask.nonzero()[:, 0]
    batch = system.batch_shape
    cells = [rows.numel() for rows in system.grid.rows]
    chunk = max(1, _CHUNK_ELEMENTS // max(1, system.inverse.numel() * max(1, batch.numel())))
    columns = [system.inverse.new_zeros(0, len(places))]
    for some in places.split(chunk):
        units = torch.zeros(
            len(some), batch.numel(), len(mask), dtype=system.inverse.dtype, device=mask.device
        )
        units[torch.arange(len(some), device=mask.device), number, some] = 1.0
        image = system.multiply(units.view(len(some), *batch, *cells))
        columns.append(image.reshape(len(some), batch.numel(), len(mask))[:, number, mask])
    return torch.cat(columns)


def _entry(system: PartialKronecker, tensor: Tensor, number: int, event_dims: int) -> Tensor:
    """One entry of the batch of a tensor that broadcasts to it."""
    event = tensor.shape[tensor.dim() - event_dims :]
    return tensor.expand(*system.batch_shape, *event).reshape(-1, *event)[number]
