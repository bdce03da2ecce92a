"""Blocks of observed cells that have the shape of the missing ones."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from gpytorch_nkn.devices import permutation

__all__ = ["hole_blocks", "is_scattered"]

_OVERLAP = 0.3  # share of a block that may lie on missing cells
_SIDE = 0.25  # of a block where nothing is missing, in sizes of the grid
_MAX_SHARE = 0.25  # of the observed cells that a block may take
_POSITIONS = 9  # candidates per dimension


def hole_blocks(missing: Tensor, num_blocks: int, *, near: bool = False, seed: int = 0) -> Tensor:
    """Blocks to leave out, for finding out how well holes of this shape are filled.

    Each block is the pattern of missing cells moved elsewhere, such that at most 30 % of it lies
    on missing cells, far from the other blocks or, if wanted, near the hole. A pattern that
    leaves no room for that is moved around the edges; if that is not enough, a smaller box or, of
    scattered cells, some of them are moved. A complete grid gets boxes of a quarter of its sides.

    Args:
        missing: Which cells are missing, ``n_1 x ... x n_P``.
        num_blocks: Their number B; fewer are returned if there are not so many places.
        near: Take the places nearest to the hole, at least half its sides from each other, instead
            of places all over the grid.
        seed: Determines the places.

    Returns:
        ``B x n_1 x ... x n_P``, observed cells only; none if no block leaves most of the observed
        cells where they are.
    """
    generator = torch.Generator().manual_seed(seed + 0x5EED)  # not the user's own stream
    pattern = missing if bool(missing.any()) else _box(missing)
    around = [_spread(-(size // 2), (size - 1) // 2) for size in missing.shape]
    smaller, overlap = _smaller(pattern, missing, generator)
    found = missing.new_zeros(0, *missing.shape)
    for own, candidates, share in (
        (pattern, _inside(pattern), _OVERLAP),
        (pattern, around, _OVERLAP),
        (smaller, _inside(smaller) if overlap < 1 else around, overlap),
    ):
        shifts = list(itertools.product(*candidates))
        order = permutation(len(shifts), generator).tolist()
        some = _choose([shifts[i] for i in order], own, missing, num_blocks, share, near)
        if len(some) > len(found):
            found = some
        if len(found) >= num_blocks:
            break
    return found


def is_scattered(missing: Tensor) -> bool:
    """Whether missing cells have observed neighbours nearly as often as if thrown in at random.

    Args:
        missing: Which cells are missing, ``n_1 x ... x n_P``.
    """
    if not bool(missing.any()):
        return False
    alike = seen = 0
    for dim in range(missing.dim()):
        count = missing.size(dim) - 1
        first, second = missing.narrow(dim, 0, count), missing.narrow(dim, 1, count)
        alike += 2 * int((first & second).sum())
        seen += int(first.sum()) + int(second.sum())
    # By chance a neighbour is missing as often as any cell; in a hole nearly always.
    share = float(missing.double().mean())
    return alike < 0.5 * (1 + share) * seen


def _inside(pattern: Tensor) -> list[list[int]]:
    """Shifts of each dimension by which a pattern stays within the grid."""
    return [
        _spread(-first, size - 1 - last)
        for (first, last), size in zip(_extents(pattern), pattern.shape, strict=True)
    ]


def _extents(pattern: Tensor) -> list[tuple[int, int]]:
    extents = []
    for dim in range(pattern.dim()):
        others = [d for d in range(pattern.dim()) if d != dim]
        rows = (pattern.any(dim=others) if others else pattern).nonzero()[:, 0]
        extents.append((int(rows[0]), int(rows[-1])))
    return extents


def _smaller(pattern: Tensor, missing: Tensor, generator: torch.Generator) -> tuple[Tensor, float]:
    """A part of a pattern that leaves no room, and how much of it may lie on missing cells.

    Of scattered cells some of them; else a box of the same proportions.
    """
    sides = [last - first + 1 for first, last in _extents(pattern)]
    wanted = _MAX_SHARE * int((~missing).sum())
    if is_scattered(pattern):
        chance = min(1.0, wanted / int(pattern.sum()))
        draws = torch.rand(pattern.shape, generator=generator, dtype=torch.float32, device="cpu")
        return pattern & (draws.to(pattern.device) < 0.95 * chance), 1.0
    factor = min(1.0, (wanted / math.prod(sides)) ** (1 / len(sides)))
    box = torch.zeros_like(pattern)
    box[tuple(slice(0, max(1, int(factor * side))) for side in sides)] = True
    return box, _OVERLAP


def _box(missing: Tensor) -> Tensor:
    box = torch.zeros_like(missing)
    box[tuple(slice(0, max(1, int(_SIDE * size))) for size in missing.shape)] = True
    return box


def _spread(low: int, high: int) -> list[int]:
    """At most nine integers from low to high, evenly spread."""
    count = min(_POSITIONS, high - low + 1)
    if count <= 1:
        return [low]
    return sorted({low + round((high - low) * k / (count - 1)) for k in range(count)})


def _choose(
    shifts: list[tuple[int, ...]],
    pattern: Tensor,
    missing: Tensor,
    num_blocks: int,
    overlap: float,
    near: bool,
) -> Tensor:
    """Farthest places first, or nearest ones, among those that are free enough."""
    dims = tuple(range(pattern.dim()))
    observed = int((~missing).sum())
    free: list[tuple[tuple[int, ...], Tensor]] = []
    for shift in shifts:
        moved = pattern.roll(shift, dims)
        block = moved & ~missing
        size = int(block.sum())
        if size >= (1 - overlap) * int(moved.sum()) and 0 < size <= _MAX_SHARE * observed:
            free.append((shift, block))
    scale = torch.tensor([float(size) for size in pattern.shape])
    places = torch.tensor([shift for shift, _ in free]) / scale if free else torch.zeros(0)
    chosen: list[int] = []
    if near and free:
        sides = torch.tensor([last - first + 1 for first, last in _extents(pattern)])
        for i in places.square().sum(-1).argsort().tolist():
            apart = ((places[i] - places[chosen]) * scale).abs() >= 0.5 * sides
            if len(chosen) < num_blocks and bool(apart.any(-1).all()):
                chosen.append(i)
        num_blocks = len(chosen)
    while len(chosen) < min(num_blocks, len(free)):
        if not chosen:
            chosen.append(0)
            continue
        distances = torch.cdist(places, places[chosen]).amin(-1)
        if float(distances.max()) == 0:
            break
        chosen.append(int(distances.argmax()))
    if not chosen:
        return missing.new_zeros(0, *pattern.shape)
    return torch.stack([free[i][1] for i in chosen])
