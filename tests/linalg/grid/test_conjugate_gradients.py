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


@pytest.mark.parametrize(
    "size, dtype", [(0.0, torch.float64), (1e-150, torch.float64), (1e-25, torch.float32)]
)
def test_targets_so_small_that_their_squares_vanish(size, dtype):
    matrix, target = (t.to(dtype) for t in systems(2))
    target[0] *= size
    expected = torch.linalg.solve(matrix, target.flatten(-2).unsqueeze(-1)).view(target.shape)
    tolerance = 1e-11 if dtype == torch.float64 else 1e-5
    for start in (None, torch.randn_like(target)):  # much worse than zero is
        solution = solve(matrix, target, start=start, tolerance=tolerance)
        assert solution.residual <= tolerance
        close = {"rtol": 1e3 * tolerance, "atol": 1e2 * size * tolerance}
        torch.testing.assert_close(solution.value[0], expected[0], **close)
        torch.testing.assert_close(solution.value[1], expected[1], **close)


def test_a_matrix_with_nan_ends_immediately_with_a_warning():
    matrix, target = systems()
    solution = solve(matrix * torch.nan, target)
    assert solution.iterations <= 2 and solution.value.isfinite().all()
    solution = solve(matrix, target * torch.nan)
    assert not solution.residual <= 1e-12
