import numpy as np
import pytest
import torch
from scipy.ndimage import distance_transform_edt
from scipy.spatial.distance import pdist

from gpytorch_nkn.models.grid.grid_blocks import hole_blocks, is_scattered

MASKS = {
    "square": ((24, 24), (slice(8, 14), slice(9, 15))),
    "corner": ((24, 24), (slice(0, 6), slice(18, 24))),
    "bar": ((24, 20), (slice(10, 13), slice(0, 20))),
    "forecast": ((24, 20), (slice(20, 24), slice(0, 20))),
    "large": ((24, 24), (slice(3, 19), slice(4, 20))),
    "line": ((40,), (slice(15, 20),)),
    "cube": ((10, 11, 9), (slice(3, 6), slice(4, 7), slice(5, 7))),
    "row": ((1, 20), (slice(0, 1), slice(8, 11))),
}
SIDES = [
    ((24, 20), (slice(18, 24), slice(None))),
    ((24, 20), (slice(0, 8), slice(None))),
    ((20, 24), (slice(None), slice(0, 12))),
    ((24, 24), (slice(0, 9), slice(15, 24))),
    ((40,), (slice(30, 40),)),
    ((12, 11, 10), (slice(0, 4), slice(None), slice(None))),
]


def mask(name):
    shape, hole = MASKS[name]
    missing = np.zeros(shape, dtype=bool)
    missing[hole] = True
    return missing


@pytest.mark.parametrize("name", MASKS)
def test_blocks_are_observed_cells_and_leave_most_of_them(name):
    missing = mask(name)
    before = missing.copy()
    state = torch.get_rng_state()
    blocks = hole_blocks(missing, 5, seed=1)
    assert torch.equal(torch.get_rng_state(), state) and (missing == before).all()
    assert blocks.dtype == bool and blocks.shape[1:] == missing.shape
    assert 1 <= len(blocks) <= 5
    assert not (blocks & missing).any()
    sizes = blocks.reshape(len(blocks), -1).sum(1)
    assert (sizes > 0).all() and (sizes <= 0.5 * (~missing).sum()).all()
    assert len({block.tobytes() for block in blocks}) == len(blocks)
    assert (blocks == hole_blocks(missing, 5, seed=1)).all()


@pytest.mark.parametrize("name", ["square", "cube", "line", "row"])
def test_each_block_is_the_hole_moved_within_the_grid(name):
    missing = mask(name)
    for block in hole_blocks(missing, 4):
        assert block.sum() >= 0.7 * missing.sum()
        assert (np.ptp(np.argwhere(block), 0) <= np.ptp(np.argwhere(missing), 0)).all()


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize(("shape", "hole"), SIDES)
def test_blocks_of_a_missing_side_are_extrapolated(shape, hole, near):
    """Known cells of a held-out block's dimension lie on one side only, as for the hole."""
    missing = np.zeros(shape, dtype=bool)
    missing[hole] = True
    blocks = hole_blocks(missing, 4, near=near)
    assert len(blocks) >= 2
    away = distance_transform_edt(missing)
    for block in blocks:
        held = distance_transform_edt(missing | block)[block]
        assert held.max() >= 0.4 * away.max()
        known = ~(missing | block)
        for dim, size in enumerate(shape):
            lines = np.moveaxis(known, dim, -1).reshape(-1, size)
            # along every line the known cells are one run
            assert ((lines[:, 1:] != lines[:, :-1]).sum(-1) <= 2).all()


def test_corners_move_separately_and_are_extrapolated():
    missing = np.zeros((40, 40), dtype=bool)
    missing[:10, :10] = missing[-8:, -12:] = True
    blocks = hole_blocks(missing, 4, near=True)
    assert len(blocks) >= 2
    for block in blocks:
        assert block.sum() >= 0.7 * missing.sum()
        known = ~(missing | block)
        for lines in (known, known.T):
            assert ((lines[:, 1:] != lines[:, :-1]).sum(-1) <= 2).all()


@pytest.mark.parametrize(
    ("shape", "share"), [((40, 40), 0.02), ((20, 20), 0.7), ((12, 12, 12), 0.03)]
)
def test_held_out_scattered_cells_are_as_far_from_known_ones_as_missing_cells(shape, share):
    missing = np.random.default_rng(3).random(shape) > share
    real = np.median(distance_transform_edt(missing)[missing])
    blocks = hole_blocks(missing, 12)
    assert is_scattered(missing) and not (blocks & missing).any()
    held = [distance_transform_edt(missing | b)[b] for b in blocks]
    assert 0.7 * real <= np.median(np.concatenate(held)) <= 1.5 * real


def centers(blocks):
    return np.stack([np.argwhere(block).mean(0) for block in blocks])


def test_blocks_are_far_from_each_other():
    blocks = hole_blocks(mask("square"), 4)
    assert (blocks.sum(0) <= 1).all()
    assert 10 < len(hole_blocks(mask("square"), 1000)) <= 81
    assert pdist(centers(blocks)).min() > 6


def test_missing_lines_are_held_out_as_lines():
    missing = np.zeros((24, 20), dtype=bool)
    missing[1::3] = True
    assert not is_scattered(missing) and not is_scattered(~missing)
    blocks = hole_blocks(missing, 3)
    assert len(blocks) and (blocks.any(2) == blocks.all(2)).all()


@pytest.mark.parametrize("shape", [(24, 20), (13, 12, 14), (8, 9, 8)])
@pytest.mark.parametrize("near", [False, True])
def test_rows_of_a_coarser_grid_are_held_out(shape, near):
    missing = (np.indices(shape) % 2 != 1).any(0)
    missing[tuple(slice(5, 8) for _ in shape)] = True
    known = ~missing
    for block in hole_blocks(missing, 4, near=near):
        assert not (block & missing).any() and block.sum() <= 0.75 * known.sum()
        for dim in range(len(shape)):
            axes = tuple(i for i in range(len(shape)) if i != dim)
            assert ((known & ~block).sum(axes) < known.sum(axes))[1::2].all()
            assert (block == known).all(axes)[1::2].any()  # an entire row


def test_no_room_at_all():
    almost = np.ones((6, 6), dtype=bool)
    almost[0, 0] = almost[5, 5] = False
    assert hole_blocks(almost, 3).shape == (0, 6, 6)
    for missing in (np.ones((4, 4), dtype=bool), np.zeros((4, 4), dtype=bool)):
        assert hole_blocks(missing, 3).shape == (0, 4, 4)


def test_near_blocks_are_next_to_the_hole_and_apart():
    missing = np.zeros((40, 40), dtype=bool)
    missing[4:10, 20:26] = True
    far, near = hole_blocks(missing, 5), hole_blocks(missing, 5, near=True)
    hole = centers(missing[None])
    away = [np.linalg.norm(centers(some) - hole, axis=-1).mean() for some in (far, near)]
    assert len(near) == 5 and away[1] < 0.7 * away[0]
    assert pdist(centers(near), "chebyshev").min() >= 2  # half a side, less what is cut off
    assert not (near & missing).any()
