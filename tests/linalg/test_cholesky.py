"""Solves with Cholesky factors."""

import pytest
import torch

from gpytorch_nkn.linalg import solve_lower


@pytest.mark.parametrize("batch", [(), (2,), (2, 1)])
@pytest.mark.parametrize("points", [(), (4,), (4, 3)])
def test_columns_with_more_batch_dimensions_than_the_factor(batch, points):
    factor = torch.randn(*batch, 5, 5, dtype=torch.float64).tril() + 5 * torch.eye(5)
    columns = torch.randn(*points, *batch, 5, 3, dtype=torch.float64)
    expected = torch.linalg.solve(factor, columns)
    torch.testing.assert_close(solve_lower(factor, columns), expected)
