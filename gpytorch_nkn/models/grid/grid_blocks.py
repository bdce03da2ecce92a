"""Blocks of observed cells that have the shape of the missing ones."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from gpytorch_nkn._devices import permutation

__all__ = ["hole_blocks", "is_scattered"]

_OVERLAP = 0.3  # largest fraction of a moved hole on missing cells
_SIDE = 0.25  # side of the blocks of a complete grid, as a fraction of the grid's side
_MAX_SHARE, _SCATTERED_SHARE = 0.5, 0.25  # largest fractions of the observed cells in a block
_BALLS, _BALLS_SHARE = 300, 0.1  # balls in a block, and their largest fraction of observed cells
_SHARED = 0.5  # largest fraction of a moved hole that another one may share
_POSITIONS = {1: 9, 2: 9}  # shifts per dimension; 5 in grids of more dimensions
_FEW = 3  # number of blocks that suffices


def hole_blocks(
    missing: Tensor,
    num_blocks: int,
    *,
    pattern: Tensor | None = None,
    near: bool = False,
    seed: int = 0,
) -> Tensor:
    """Return blocks of observed cells to hold out, of the shape of the holes.

    Each block is the pattern of missing cells at another position, with at most 30 % of the pattern
    on missing cells. A pattern at an edge of the grid is also mirrored to the opposite edge. The
    cells between the edge and the moved pattern are held out too, because a model extrapolates to a
    missing side. A large pattern is moved only as far as half of the observed cells remain. For
    scattered missing cells, blocks are balls around observed cells; their radii are distances of
    missing cells to the nearest observed cell. The blocks of a complete grid are boxes with a
    quarter of its sides.

    Args:
        missing: Which cells are missing, ``n_1 x ... x n_P``.
        num_blocks: Largest number B of blocks.
        pattern: The missing cells to move; ``None`` for all of them.
        near: Take the positions nearest to the hole, at least half its sides from each other,
            instead of positions across the grid.
        seed: Determines the positions.

    Returns:
        Blocks ``B x n_1 x ... x n_P`` of observed cells; B is 0 if every block would hold out too
        many cells.
    """
    generator = torch.Generator().manual_seed(seed + 0x5EED)  # apart from other uses of the seed
    device, missing = missing.device, missing.cpu()
    pattern = missing if pattern is None else pattern.cpu()
    if not bool(pattern.any()):
        pattern = _box(missing)
    scattered = is_scattered(pattern)
    most = (_SCATTERED_SHARE if scattered else _MAX_SHARE) * int((~missing).sum())
    found: list[Tensor] = []
    for inside in (True, False):
        blocks = _moved(pattern, missing, most, inside)
        order = permutation(len(blocks), generator).tolist()
        chosen = (_nearest if near else _farthest)([blocks[i] for i in order], num_blocks)
        found = max(found, chosen, key=len)
        if len(found) >= min(num_blocks, _FEW):
            break
    if not found and not scattered:
        found = _grown(pattern, missing, most)[:num_blocks]
    found = found or _balls(pattern, missing, num_blocks, generator)
    return torch.stack(found).to(device) if found else missing.new_zeros(0, *missing.shape)


def is_scattered(missing: Tensor) -> bool:
    """Whether missing cells have about as many observed neighbours as random cells."""
    if not bool(missing.any()):
        return False
    alike = seen = 0
    for dim in range(missing.dim()):
        count = missing.size(dim) - 1
        first, second = missing.narrow(dim, 0, count), missing.narrow(dim, 1, count)
        alike += 2 * int((first & second).sum())
        seen += int(first.sum()) + int(second.sum())
    # The fraction of missing neighbours is that of the grid for random cells, and near 1 in holes.
    fraction = float(missing.double().mean())
    return alike < 0.5 * (1 + fraction) * seen


class _Moved(NamedTuple):
    """Cells to hold out, the part in the moved pattern, and the pattern's position."""

    block: Tensor
    own: Tensor
    position: Tensor  # shifts as fractions of the sides, then 1 for each mirrored dimension


def _moved(pattern: Tensor, missing: Tensor, most: float, inside: bool) -> list[_Moved]:
    """Return the distinct blocks of at most ``most`` cells.

    The pattern stays ``inside`` the grid, or is moved by up to half of its sides.
    """
    sizes = pattern.shape
    corner = [first for first, _ in _extents(pattern)]
    least = (1 - _OVERLAP) * int(pattern.sum())
    found: dict[bytes, _Moved] = {}
    for mirrored, source in _mirrored(pattern):
        extents = _extents(source)
        shifts = [
            _spread(-first, size - 1 - last, pattern.dim())
            if inside
            else _spread(-(size // 2), (size - 1) // 2, pattern.dim())
            for (first, last), size in zip(extents, sizes, strict=True)
        ]
        for shift in itertools.product(*shifts):
            block, own = _shifted(source, shift, missing)
            if int(own.sum()) >= max(least, 1) and int(block.sum()) <= most:
                moves = zip(shift, extents, corner, sizes, strict=True)
                position = [(step + first - old) / n for step, (first, _), old, n in moves]
                moved = _Moved(
                    block, own, missing.new_tensor([*position, *mirrored], dtype=torch.float64)
                )
                found.setdefault(block.numpy().tobytes(), moved)
    return list(found.values())


def _grown(pattern: Tensor, missing: Tensor, most: float) -> list[Tensor]:
    """Return the pattern moved in each direction as far as enough observed cells remain."""
    found: dict[bytes, Tensor] = {}
    for (_, source), dim, sign in itertools.product(
        _mirrored(pattern), range(pattern.dim()), (1, -1)
    ):
        best, largest = pattern, 0
        for step in range(1, pattern.size(dim)):
            shift = [sign * step if d == dim else 0 for d in range(pattern.dim())]
            block, own = _shifted(source, shift, missing)
            if largest < int(own.sum()) and int(block.sum()) <= most:
                best, largest = block, int(own.sum())
        if largest:
            found.setdefault(best.numpy().tobytes(), best)
    return list(found.values())


def _mirrored(pattern: Tensor) -> list[tuple[tuple[bool, ...], Tensor]]:
    """Return the pattern and its reflections in dimensions where it touches one edge."""
    one_sided = [
        (first == 0) != (last == size - 1)
        for (first, last), size in zip(_extents(pattern), pattern.shape, strict=True)
    ]
    flips = itertools.product(*([False, True] if one else [False] for one in one_sided))
    return [(flip, pattern.flip([dim for dim, one in enumerate(flip) if one])) for flip in flips]


def _shifted(pattern: Tensor, shift: Sequence[int], missing: Tensor) -> tuple[Tensor, Tensor]:
    """Return the observed cells of a moved pattern, with and without repetition of its edges."""
    block, own = pattern, torch.zeros_like(pattern)
    inner = []
    for dim, (step, size) in enumerate(zip(shift, pattern.shape, strict=True)):
        block = block.index_select(
            dim, (torch.arange(size, device=block.device) - step).clamp(0, size - 1)
        )
        inner.append(slice(max(step, 0), size + min(step, 0)))
    block = block & ~missing
    own[tuple(inner)] = block[tuple(inner)]
    return block, own


def _extents(pattern: Tensor) -> list[tuple[int, int]]:
    extents = []
    for dim in range(pattern.dim()):
        others = [d for d in range(pattern.dim()) if d != dim]
        rows = (pattern.any(dim=others) if others else pattern).nonzero()[:, 0]
        extents.append((int(rows[0]), int(rows[-1])))
    return extents


def _nearest(blocks: list[_Moved], count: int) -> list[Tensor]:
    """Return the blocks nearest to the hole whose moved patterns differ."""
    chosen: list[_Moved] = []
    for new in sorted(blocks, key=lambda block: float(block.position.square().sum())):
        if len(chosen) < count and all(
            int((new.own & old.own).sum()) <= _SHARED * min(int(new.own.sum()), int(old.own.sum()))
            for old in chosen
        ):
            chosen.append(new)
    return [block.block for block in chosen]


def _farthest(blocks: list[_Moved], count: int) -> list[Tensor]:
    """Return blocks by farthest-point sampling of their positions, from the first one on."""
    if not blocks:
        return []
    positions, chosen = torch.stack([block.position for block in blocks]), [0]
    while len(chosen) < min(count, len(blocks)):
        distances = torch.cdist(positions, positions[chosen]).amin(-1)
        if float(distances.max()) == 0:
            break
        chosen.append(int(distances.argmax()))
    return [blocks[i].block for i in chosen]


def _balls(
    pattern: Tensor, missing: Tensor, num_blocks: int, generator: torch.Generator
) -> list[Tensor]:
    """Return unions of balls around observed cells, with radii of the missing cells' distances."""
    observed = (~missing).nonzero().double()
    reach = torch.from_numpy(distance_transform_edt(missing.numpy()))[pattern]
    most = int(_BALLS_SHARE * len(observed))
    found = []
    for _ in range(num_blocks if most else 0):
        held = missing.new_zeros(len(observed))
        centers = torch.randint(len(observed), (_BALLS,), generator=generator, device="cpu")
        radii = reach[torch.randint(len(reach), (_BALLS,), generator=generator, device="cpu")]
        for center, radius in zip(centers.tolist(), radii.tolist(), strict=True):
            away = (observed - observed[center]).square().sum(-1)
            near = away < away[away <= radius**2].max()  # an observed cell remains at the radius
            near[center] = True
            if int((held | near).sum()) <= most:
                held |= near
        if bool(held.any()):
            block = torch.zeros_like(missing)
            block[tuple(observed[held].long().T)] = True
            found.append(block)
    return found


def _box(missing: Tensor) -> Tensor:
    box = torch.zeros_like(missing)
    sides = [max(1, int(_SIDE * size)) for size in missing.shape]
    middle = [(size - side) // 2 for size, side in zip(missing.shape, sides, strict=True)]
    box[tuple(slice(m, m + side) for m, side in zip(middle, sides, strict=True))] = True
    return box


def _spread(low: int, high: int, num_dims: int) -> list[int]:
    """Return at most nine evenly spaced integers; five in more than two dimensions."""
    count = min(_POSITIONS.get(num_dims, 5), high - low + 1)
    if count <= 1:
        return [low]
    return sorted({low + round((high - low) * k / (count - 1)) for k in range(count)})
