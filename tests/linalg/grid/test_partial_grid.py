import pytest
import torch

from gpytorch_nkn.linalg import PartialGrid


def test_the_smallest_sub_grid_that_holds_all_missing_cells():
    observed = torch.ones(5, 6, dtype=torch.bool)
    observed[1, 2] = observed[4, 3] = observed[1, 5] = False
    grid = PartialGrid(observed, 2)
    assert [rows.tolist() for rows in grid.rows] == [[1, 4], [2, 3, 5]]
    assert grid.missing.tolist() == [[True, False, True], [False, True, False]]
    assert (grid.shape, grid.batch_shape, grid.num_cells) == ((5, 6), (), 30)
    assert int(grid.num_observed) == 27
    assert not grid.is_complete and not grid.is_mostly_missing


@pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
@pytest.mark.parametrize("shape", [(6,), (4, 5), (3, 2, 4)])
def test_restrict_and_place_are_inverse_at_missing_cells(batch, shape):
    observed = torch.rand(*batch, *shape) > 0.4
    observed[..., 0] = True
    grid = PartialGrid(observed, len(shape))
    array = torch.randn(*batch, *shape)
    inside = grid.only_missing(grid.restrict(array))
    torch.testing.assert_close(grid.place(inside), array * ~observed)
    torch.testing.assert_close(grid.only_observed(array), array * observed)
    wide = torch.randn(7, *batch, *shape)  # dimensions in front
    torch.testing.assert_close(
        grid.place(grid.restrict(wide))[3], grid.place(grid.restrict(wide[3]))
    )


def test_a_batch_counts_the_missing_cells_of_each_entry():
    observed = torch.ones(2, 3, 4, dtype=torch.bool)
    observed[0, 0] = False
    observed[1, :, 1:] = False
    grid = PartialGrid(observed, 2)
    assert grid.num_observed.tolist() == [8, 3]
    assert grid.missing.shape == (2, 3, 4)
    assert grid.is_mostly_missing  # 13 of 24


def test_a_complete_grid():
    grid = PartialGrid(torch.ones(2, 3, 4, dtype=torch.bool), 2)
    assert grid.is_complete and not grid.is_mostly_missing
    array = torch.randn(2, 3, 4)
    assert grid.only_observed(array) is array
    assert grid.restrict(array).numel() == 0


@pytest.mark.parametrize(
    "observed, num_dims, match",
    [
        (
            torch.ones(3, 4, dtype=torch.float32),
            2,
            r"boolean with at least 2 dimensions, got torch.float32 of shape .3, 4.",
        ),
        (torch.ones(3, dtype=torch.bool), 2, r"at least 2 dimensions, got torch\.bool of .*\(3,\)"),
        (torch.tensor(True), 0, "at least 1 dimensions"),
        (torch.zeros(3, 4, dtype=torch.bool), 2, "no observed cell"),
        (torch.tensor([[True, True], [False, False]]), 1, "entry of its batch"),
    ],
)
def test_bad_masks_are_refused(observed, num_dims, match):
    with pytest.raises(ValueError, match=match):
        PartialGrid(observed, num_dims)
