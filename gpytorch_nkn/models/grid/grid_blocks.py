"""Held-out blocks of observed cells with the shape of the holes."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import torch
from scipy.ndimage import distance_transform_edt, generate_binary_structure, label

from gpytorch_nkn._devices import permutation

__all__ = ["hole_blocks", "is_scattered"]

_OVERLAP = 0.3  # largest fraction of a moved hole on missing cells
_MAX_SHARE, _SCATTERED_SHARE = 0.5, 0.25  # largest fractions of the observed cells in a block
_LINES_SHARE = 0.75  # the same for rows of a coarser grid, which may have few
_BALLS, _BALLS_SHARE = 300, 0.1  # balls in a block, and their largest fraction of observed cells
_SHARED = 0.5  # largest overlap of two moved holes, as a fraction of the smaller one
_LARGE = 0.9  # smallest moved part of a large hole, relative to the largest part
_FEW = 3  # sufficient number of blocks
_HOLES = 8  # largest number of holes that move separately


class _Moved(NamedTuple):
    """Held-out block of observed cells, and the position of its pattern."""

    block: np.ndarray
    in_pattern: np.ndarray  # cells of the block in the moved pattern
    position: np.ndarray  # shifts as fractions of the sides, then 1 for each mirrored dimension


def hole_blocks(
    missing: np.ndarray,
    num_blocks: int,
    *,
    pattern: np.ndarray | None = None,
    near: bool = False,
    seed: int = 0,
) -> np.ndarray:
    """Return held-out blocks ``B x n_1 x ... x n_P`` of observed cells, shaped like the holes.

    Each block is the pattern of missing cells at another position, with at most 30 % of the pattern
    on missing cells. Up to 8 holes, some of them at edges, move separately. A pattern at an edge of
    the grid is also mirrored to the opposite edge. Cells between the edge and the moved pattern are
    held out too, because a missing side requires extrapolation. At least half of the observed cells
    remain. If all observed cells lie on a coarser grid, the first blocks are every 2P-th row of it,
    because entire rows are missing, and a quarter remains. For scattered missing cells, blocks are
    balls around observed cells. Their radii are distances of missing cells to observed cells.

    Args:
        missing: Mask of missing cells, ``n_1 x ... x n_P``.
        num_blocks: Largest B; it is 0 if nothing is missing or all blocks are too large.
        pattern: Missing cells to move; ``None`` for all.
        near: Use positions near the hole, at distances of half its sides or more, instead of
            positions across the grid.
        seed: Determines the positions.
    """
    generator = torch.Generator().manual_seed(int(seed) + 0x5EED)  # another stream of draws
    pattern = missing if pattern is None else pattern
    if not num_blocks or not pattern.any() or missing.all():
        return np.zeros((0, *missing.shape), dtype=bool)
    holes = _holes(pattern) if near else []
    if len(holes) > 1:
        lists = [hole_blocks(missing, num_blocks, pattern=h, near=near, seed=seed) for h in holes]
        lists = [blocks for blocks in lists if len(blocks)]
        joined = [
            np.logical_or.reduce([blocks[number % len(blocks)] for blocks in lists])
            for number in range(max(map(len, lists), default=0))
        ]
        joined = [block for block in joined if block.sum() <= _MAX_SHARE * (~missing).sum()]
        if joined:
            return np.stack(joined)
    lattice = _lattice(missing)
    known, every = ~missing[lattice], 2 * missing.ndim
    dims = [dim for dim, n in enumerate(known.shape) if lattice[dim].step > 1 and n > 2]
    rows = np.indices(known.shape)[dims] % every
    lines = [known & (rows == start).any(0) for start in range(every)]
    lines = [block for block in lines if 0 < block.sum() <= _LINES_SHARE * known.sum()]
    if lines:
        inner = hole_blocks(~known, num_blocks, pattern=pattern[lattice], near=near, seed=seed)
        coarse = np.concatenate([lines, inner])[:num_blocks]
        blocks = np.zeros((len(coarse), *missing.shape), dtype=bool)
        blocks[(slice(None), *lattice)] = coarse
        return blocks
    result: list[np.ndarray] = []
    scattered = is_scattered(pattern)
    most = (_SCATTERED_SHARE if scattered else _MAX_SHARE) * (~missing).sum()
    least = (1 - _OVERLAP) * pattern.sum()
    steps = 9 if missing.ndim <= 2 else 5  # positions in each dimension
    for inside in (True, False):
        moved = _moved(pattern, missing, (least, most), inside, steps)
        order = permutation(len(moved), generator).tolist()
        chosen = (_nearest if near else _farthest)([moved[i] for i in order], num_blocks)
        result = max(result, chosen, key=len)
        if len(result) >= min(num_blocks, _FEW):
            break
    if not result and not scattered:
        moved = _moved(pattern, missing, (1, most), False, 2 * steps - 1)
        largest = max((b.in_pattern.sum() for b in moved), default=0)
        result = [b.block for b in moved if b.in_pattern.sum() >= _LARGE * largest][:num_blocks]
    result = result or _balls(pattern, missing, num_blocks, generator)
    return np.stack(result) if result else np.zeros((0, *missing.shape), dtype=bool)


def is_scattered(missing: np.ndarray) -> bool:
    """Return whether neighbours in every dimension are missing almost independently."""
    rare = missing if missing.mean() <= 0.5 else ~missing
    for dim in range(rare.ndim):
        first, second = np.moveaxis(rare, dim, 0)[:-1], np.moveaxis(rare, dim, 0)[1:]
        alike, num_seen = 2 * (first & second).sum(), first.sum() + second.sum()
        # rare neighbours of rare cells: their fraction of the grid if random, near 1 in lines
        if alike > 0.5 * (1 + rare.mean()) * num_seen:
            return False
    return True


def _lattice(missing: np.ndarray) -> tuple[slice, ...]:
    """Return the coarsest regular sub-grid that contains all known cells."""
    rows = [np.unique(index) for index in np.argwhere(~missing).T]
    steps = [max(int(np.gcd.reduce(np.diff(row))), 1) for row in rows]
    return tuple(slice(row[0] % step, None, step) for row, step in zip(rows, steps, strict=True))


def _moved(
    pattern: np.ndarray, missing: np.ndarray, sizes: tuple[float, float], inside: bool, steps: int
) -> list[_Moved]:
    """Return distinct blocks of at most ``sizes[1]`` cells, ``sizes[0]`` or more in the pattern.

    The pattern stays ``inside`` the grid, or moves by up to half of the grid's sides, to at most
    ``steps`` positions in each dimension. Where it touches one edge, its reflection moves too.
    """
    shape = np.array(pattern.shape)
    first, last = _corners(pattern)
    copies: dict[bytes, _Moved] = {}
    one_sided = (first == 0) != (last == shape - 1)
    for flips in itertools.product(*([False, True] if flag else [False] for flag in one_sided)):
        source = np.flip(pattern, tuple(dim for dim, flip in enumerate(flips) if flip))
        low, high = _corners(source)
        ends = (-low, shape - 1 - high) if inside else (-(shape // 2), (shape - 1) // 2)
        spreads = [_spread(a, b, steps) for a, b in zip(*ends, strict=True)]
        for shift in itertools.product(*spreads):
            block, in_pattern = source, np.zeros_like(pattern)
            inner = []
            for dim, (step, size) in enumerate(zip(shift, shape, strict=True)):
                index = np.clip(np.arange(size) - step, 0, size - 1)  # repeats cells at the edge
                block = np.take(block, index, axis=dim)
                inner.append(slice(max(step, 0), size + min(step, 0)))
            block = block & ~missing
            in_pattern[tuple(inner)] = block[tuple(inner)]
            if in_pattern.sum() >= max(sizes[0], 1) and block.sum() <= sizes[1]:
                position = np.concatenate([(np.array(shift) + low - first) / shape, flips])
                copies.setdefault(block.tobytes(), _Moved(block, in_pattern, position))
    return list(copies.values())


def _holes(pattern: np.ndarray) -> list[np.ndarray]:
    """Return the connected holes of a pattern if they are few and some are at edges of the grid."""
    labels, count = label(pattern, generate_binary_structure(pattern.ndim, pattern.ndim))
    edge = np.ones_like(pattern)
    edge[(slice(1, -1),) * pattern.ndim] = False
    if not 1 < count <= _HOLES or not (pattern & edge).any():
        return [pattern]
    return [labels == number for number in range(1, count + 1)]


def _corners(pattern: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    cells = np.argwhere(pattern)
    return cells.min(0), cells.max(0)


def _spread(low: int, high: int, count: int) -> list[int]:
    """Return at most ``count`` evenly spaced integers."""
    steps = np.linspace(0, high - low, min(count, high - low + 1))
    return sorted({int(low + round(step)) for step in steps})


def _nearest(blocks: list[_Moved], count: int) -> list[np.ndarray]:
    """Return the blocks nearest to the hole, without large overlaps of moved patterns."""
    chosen: list[_Moved] = []
    for new in sorted(blocks, key=lambda block: float(np.square(block.position).sum())):
        if len(chosen) < count and all(
            (new.in_pattern & old.in_pattern).sum()
            <= _SHARED * min(new.in_pattern.sum(), old.in_pattern.sum())
            for old in chosen
        ):
            chosen.append(new)
    return [block.block for block in chosen]


def _farthest(blocks: list[_Moved], count: int) -> list[np.ndarray]:
    """Return blocks by farthest-point sampling of their positions, starting at the first."""
    chosen, distances = blocks[:1], np.full(len(blocks), np.inf)
    while len(chosen) < min(count, len(blocks)):
        from_last = [np.linalg.norm(block.position - chosen[-1].position) for block in blocks]
        distances = np.minimum(distances, from_last)
        if distances.max() == 0:
            break
        chosen.append(blocks[distances.argmax()])
    return [block.block for block in chosen]


def _balls(
    pattern: np.ndarray, missing: np.ndarray, num_blocks: int, generator: torch.Generator
) -> list[np.ndarray]:
    """Return unions of balls around observed cells; radii are distances of missing cells."""

    def draw(bound: int) -> np.ndarray:
        return torch.randint(bound, (_BALLS,), generator=generator, device="cpu").numpy()

    observed = np.argwhere(~missing)
    reach = distance_transform_edt(missing)[pattern]
    most = int(_BALLS_SHARE * len(observed))
    balls = []
    for _ in range(num_blocks if most else 0):
        held = np.zeros(len(observed), dtype=bool)
        for center, radius in zip(draw(len(observed)), reach[draw(len(reach))], strict=True):
            dist = np.square(observed - observed[center]).sum(-1)
            near = dist < dist[dist <= radius**2].max()  # an observed cell remains at the radius
            near[center] = True
            if (held | near).sum() <= most:
                held |= near
        if held.any():
            block = np.zeros_like(missing)
            block[tuple(observed[held].T)] = True
            balls.append(block)
    return balls
