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
    solution = solve(matrix, 1e5 * target, max_iterations=3)
    left = 1e5 * target - product(matrix)(solution.value)
    expected = (left.flatten(-2).norm(dim=-1) / (1e5 * target).flatten(-2).norm(dim=-1)).max()
    assert solution.iterations == 3
    assert solution.residual == pytest.approx(expected.item())


def test_a_batch_is_solved_from_any_start():
    matrix, target = systems(2)
    target[0] = 0.0
    expected = torch.linalg.solve(matrix, target.flatten(-2).unsqueeze(-1)).view(target.shape)
    for start in (None, torch.randn_like(target)):
        solution = solve(matrix, target, start=start, tolerance=1e-11)
        assert solution.residual <= 1e-11 or start is not None
        torch.testing.assert_close(solution.value, expected)


def test_a_matrix_with_nan_ends_immediately_with_a_warning():
    matrix, target = systems()
    solution = solve(matrix * torch.nan, target)
    assert solution.iterations <= 2 and solution.value.isfinite().all()
    solution = solve(matrix, target * torch.nan)
    assert not solution.residual <= 1e-12
