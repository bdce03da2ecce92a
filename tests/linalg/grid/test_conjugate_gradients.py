import pytest
import torch

from gpytorch_nkn.linalg.grid.conjugate_gradients import conjugate_gradients


def systems(*batch, n=12):
    root = torch.randn(*batch, n, n)
    matrix = root @ root.mT / n + 0.5 * torch.eye(n)
    return matrix, torch.randn(*batch, 3, 4)


def product(matrix):
    return lambda x: (matrix @ x.flatten(-2).unsqueeze(-1)).squeeze(-1).view(x.shape)


def solve(matrix, target, **options):
    options = {"tolerance": 1e-12, "max_iterations": 200, **options}
    return conjugate_gradients(product(matrix), target, num_dims=2, **options)


def test_residual_is_relative_and_honest_when_there_are_too_few_iterations():
    matrix, target = systems(3)
    value, residual = solve(matrix, 1e5 * target, max_iterations=3)
    left = 1e5 * target - product(matrix)(value)
    expected = (left.flatten(-2).norm(dim=-1) / (1e5 * target).flatten(-2).norm(dim=-1)).max()
    assert residual == pytest.approx(expected.item()) and residual > 1e-3


def test_a_batch_is_solved_from_any_start():
    matrix, target = systems(2)
    target[0] = 0.0
    expected = torch.linalg.solve(matrix, target.flatten(-2).unsqueeze(-1)).view(target.shape)
    for start in (None, torch.randn_like(target)):
        value, residual = solve(matrix, target, start=start, tolerance=1e-11)
        assert residual <= 1e-11 or start is not None
        torch.testing.assert_close(value, expected)


def test_nan_leaves_the_start_and_a_residual_above_the_tolerance():
    matrix, target = systems()
    assert solve(matrix * torch.nan, target)[0].isfinite().all()
    assert not solve(matrix, target * torch.nan)[1] <= 1e-12
