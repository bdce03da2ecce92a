"""Evaluation and differentiation of matrices tile by tile."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import torch
from torch import Tensor

__all__ = ["Evaluator", "TileEvaluator", "add_all", "in_threads", "mirror", "symmetric_strips"]

_CPU_ENTRIES = 40_000  # entries of a tile; fewer need more calls, more exceed the cache
_CUDA_ENTRIES = 1_048_576  # entries of a tile that occupy a GPU fully
_THREADED_ENTRIES = 131_072  # entries of a tile in threads, larger because threads wait for the GIL
_ALIGNMENT = 8  # entries; tiles start at multiples of this, for aligned memory

Gradients = list[Tensor | None]
Tile = tuple[slice, slice]


class Evaluator(Protocol):
    """Evaluator of a matrix and its vector-Jacobian product.

    If the matrix is ``symmetric``, only its lower triangle is written.
    """

    symmetric: bool

    def fill(self, out: Tensor) -> None:
        """Write the matrix ``N x M`` into ``out``."""

    def vjp(self, weights: Tensor, solution: Tensor | None = None) -> Gradients:
        """Return gradients of the weighted sum of all entries with respect to the inputs.

        Args:
            weights: Weights ``N x M``.
            solution: Vector ``N`` for the gradient of a Gaussian likelihood of a symmetric matrix.
                The weights are then half the difference between ``weights`` (lower triangle) and
                the outer product of ``solution``.
        """


class TileEvaluator:
    """Evaluator of a matrix in rectangular tiles, in as many threads as PyTorch uses.

    Subclasses implement the values and the gradients of one tile. Of a symmetric matrix, only the
    lower triangle is evaluated. ``like`` is a tensor on the matrix's device.
    """

    def __init__(self, num_rows: int, num_columns: int, symmetric: bool, like: Tensor):
        self.symmetric = symmetric
        on_cpu = like.device.type == "cpu"
        threads = torch.get_num_threads() if on_cpu else 1
        entries = _CPU_ENTRIES if on_cpu else _CUDA_ENTRIES
        if threads > 1 and num_rows * num_columns > threads * _THREADED_ENTRIES:
            entries = _THREADED_ENTRIES
        else:
            threads = 1
        if symmetric:
            tiles = _lower_tiles(num_rows, math.isqrt(entries))
        else:
            tiles = _tiles(num_rows, num_columns, entries)
        threads = max(1, min(threads, len(tiles)))
        self._shares = [tiles[number::threads] for number in range(threads)]

    def tile_values(self, rows: slice, columns: slice, keep: bool) -> Tensor:
        """Return the entries in ``rows`` and ``columns``; ``keep`` permits caching."""
        raise NotImplementedError

    def zero_gradients(self) -> Any:
        """Return zeros, to which tiles add their gradients; None for gradients not needed."""
        raise NotImplementedError

    def add_tile_gradients(self, rows: slice, columns: slice, weights: Tensor, total: Any) -> None:
        """Add the gradients of the weighted sum of the tile's entries to ``total``.

        ``weights`` may be overwritten.
        """
        raise NotImplementedError

    def gradients_from(self, totals: Sequence[Any]) -> Gradients:
        """Return the gradients, given the totals of each thread."""
        return add_all(totals)

    def fill(self, out: Tensor) -> None:
        """Write the matrix (if symmetric, its lower triangle) into ``out``."""

        def work(tiles: list[Tile]) -> None:
            for rows, columns in tiles:
                keep = (rows, columns) == tiles[-1]  # vjp starts with the last tile
                out[rows, columns] = self.tile_values(rows, columns, keep)

        in_threads(work, self._shares)

    def vjp(self, weights: Tensor, solution: Tensor | None = None) -> Gradients:
        """Return gradients with respect to the inputs; see :class:`Evaluator`."""

        def work(tiles: list[Tile]) -> Any:
            total, memory = self.zero_gradients(), _TileWeights(weights, solution, self.symmetric)
            for rows, columns in reversed(tiles):
                self.add_tile_gradients(rows, columns, memory.of(rows, columns), total)
            return total

        return self.gradients_from(in_threads(work, self._shares))


class _TileWeights:
    """Weights of a tile's entries; for a symmetric matrix, sums over both triangles."""

    def __init__(self, weights: Tensor, solution: Tensor | None, symmetric: bool):
        self._weights = weights
        self._solution = solution
        self._symmetric = symmetric
        self._memory: dict[tuple[int, int], Tensor] = {}

    def of(self, rows: slice, columns: slice) -> Tensor:
        """Return the weights of one tile; the next tile of this size overwrites them."""
        shape = _shape((rows, columns))
        if shape not in self._memory:
            self._memory[shape] = self._weights.new_empty(shape)
        out, tile, solution = self._memory[shape], self._weights[rows, columns], self._solution
        on_diagonal = self._symmetric and rows == columns
        if solution is not None:
            torch.addr(tile, solution[rows], solution[columns], alpha=-1.0, out=out)
            if on_diagonal:
                out.tril_().diagonal().mul_(0.5)
            return out
        if not self._symmetric or on_diagonal:
            return out.copy_(tile)
        return torch.add(tile, self._weights[columns, rows].mT, out=out)


def _shape(tile: Tile) -> tuple[int, int]:
    rows, columns = tile
    return rows.stop - rows.start, columns.stop - columns.start


def _lower_tiles(size: int, side: int) -> list[Tile]:
    edges = _even_edges(size, side)
    parts = [slice(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True)]
    return [(parts[i], parts[j]) for i in range(len(parts)) for j in range(i + 1)]


def _tiles(num_rows: int, num_columns: int, entries: int) -> list[Tile]:
    width = min(num_columns, max(entries // max(num_rows, 1), math.isqrt(entries)))
    height = max(1, entries // max(width, 1))
    rows, columns = _even_edges(num_rows, height), _even_edges(num_columns, max(width, 1))
    return [
        (slice(a, b), slice(c, d))
        for a, b in zip(rows[:-1], rows[1:], strict=True)
        for c, d in zip(columns[:-1], columns[1:], strict=True)
    ]


def _even_edges(size: int, most: int) -> list[int]:
    """Split a range into parts of about equal size, at most ``most``; return their edges.

    All edges but the last are multiples of ``_ALIGNMENT``.
    """
    parts = max(1, math.ceil(size / max(_ALIGNMENT, most // _ALIGNMENT * _ALIGNMENT)))
    step = math.ceil(size / parts / _ALIGNMENT) * _ALIGNMENT
    return [*range(0, size, max(step, 1)), size]


def symmetric_strips(size: int, parts: int) -> list[tuple[int, int]]:
    """Return row ranges of a lower triangle with about equal numbers of entries."""
    edges = [round(size * math.sqrt(part / parts)) for part in range(parts + 1)]
    return [(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True) if a < b]


def mirror(matrix: Tensor) -> None:
    """Copy the lower triangles of ``... x N x N`` into the upper ones, in place."""
    edges = _even_edges(matrix.size(-1), 256)  # blocks that fit into the cache
    parts = [slice(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True)]
    for number, rows in enumerate(parts):
        for columns in parts[:number]:
            matrix[..., columns, rows] = matrix[..., rows, columns].mT
        block = matrix[..., rows, rows]
        matrix[..., rows, rows] = block.tril() + block.tril(-1).mT


def add_all(gradients: Sequence[list[Any]]) -> list[Any]:
    """Sum lists of gradients entry by entry, in the memory of the first list."""
    total, *rest = gradients
    for others in rest:
        for gradient, other in zip(total, others, strict=True):
            if gradient is not None and other is not None:
                gradient += other
    return total


def in_threads(work: Callable[[Any], Any], shares: Sequence[Any]) -> list[Any]:
    """Apply ``work`` to every share, each in its own thread if there are several.

    Threads inherit the grad and inference mode of the caller, and use one PyTorch thread each.
    """
    if len(shares) == 1:
        return [work(shares[0])]
    grad_enabled, num_threads = torch.is_grad_enabled(), torch.get_num_threads()
    inference = torch.is_inference_mode_enabled()

    def in_thread(share: Any) -> Any:
        torch.set_num_threads(1)
        with torch.inference_mode(inference), torch.set_grad_enabled(grad_enabled):
            return work(share)

    try:
        with ThreadPoolExecutor(len(shares)) as pool:
            return list(pool.map(in_thread, shares))
    finally:
        torch.set_num_threads(num_threads)
