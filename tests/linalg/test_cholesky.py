"""Solves with Cholesky factors."""

import pytest
import torch

from gpytorch_nkn.linalg import psd_root, solve_lower


@pytest.mark.parametrize("batch", [(), (2,), (2, 1)])
@pytest.mark.parametrize("points", [(), (4,), (4, 3)])
def test_columns_with_more_batch_dimensions_than_the_factor(batch, points):
    factor = torch.randn(*batch, 5, 5, dtype=torch.float64).tril() + 5 * torch.eye(5)
    columns = torch.randn(*points, *batch, 5, 3, dtype=torch.float64)
    expected = torch.linalg.solve(factor, columns)
    torch.testing.assert_close(solve_lower(factor, columns), expected)


def test_the_root_of_a_matrix_without_its_negative_eigenvalues():
    vectors = torch.linalg.qr(torch.randn(4, 4))[0]
    values = torch.tensor([[3.0, 1.0, 0.5, 0.2], [3.0, 1.0, 0.0, -1e-3]])
    root = psd_root(vectors * values.unsqueeze(-2) @ vectors.mT)
    expected = vectors * values.clamp_min(0).unsqueeze(-2) @ vectors.mT
    torch.testing.assert_close(root @ root.mT, expected)
