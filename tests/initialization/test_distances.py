import pytest
import torch

from gpytorch_nkn.initialization import median_distances


def test_median_of_all_pairs_by_column():
    x = torch.tensor([[0.0, 0.0], [1.0, 10.0], [3.0, 10.0]])
    torch.testing.assert_close(median_distances(x), torch.tensor([2.0, 10.0]))


def test_many_points_give_the_median_of_the_uniform_distribution():
    x = torch.rand(20_000, 1)
    # distances of uniform points have the density 2 (1 - d), whose median is 1 - sqrt(1 / 2)
    torch.testing.assert_close(median_distances(x), torch.tensor([1 - 0.5**0.5]), atol=0.01, rtol=0)


def test_constant_column_gives_one():
    assert median_distances(torch.zeros(4, 1)).item() == 1


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"got shape \(3,\)"):
        median_distances(torch.zeros(3))
