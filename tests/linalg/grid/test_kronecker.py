import math

import pytest
import torch
from linear_operator.utils.errors import NotPSDError

from gpytorch_nkn.linalg import KroneckerEigen, kronecker_multiply
from gpytorch_nkn.linalg.grid.kronecker import symmetric_eigen
from tests.linalg.grid.dense_grid import kron


def toeplitz(n):
    x = torch.arange(n) / 7.0
    return torch.exp(-((x[:, None] - x) ** 2)) * torch.cos(3 * (x[:, None] - x))


def positive(n):
    root = torch.randn(n, n)
    return root @ root.mT


SHAPES = [
    ([(4, 3)], (3,)),
    ([(4, 3), (2, 5)], (3, 5)),
    ([(2, 4, 3), (2, 5)], (3, 5)),  # one factor with a batch
    ([(4, 3), (2, 5)], (2, 3, 5)),  # an array with one
    ([(3, 1, 4, 3), (2, 2, 5)], (2, 3, 5)),
    ([(4, 3), (1, 1), (2, 5)], (3, 1, 5)),
    ([(4, 3), (2, 4), (2, 6, 5)], (2, 3, 4, 5)),
    ([(2, 3), (3, 2), (4, 4), (1, 2)], (3, 2, 4, 2)),
]


@pytest.mark.parametrize("shapes, size", SHAPES)
def test_product_equals_that_of_the_dense_matrix(shapes, size):
    factors, array = [torch.randn(shape) for shape in shapes], torch.randn(size)
    num_dims = len(shapes)
    flat = array.flatten(array.dim() - num_dims).unsqueeze(-1)
    expected = (kron(factors) @ flat).squeeze(-1)
    rows = [shape[-2] for shape in shapes]
    expected = expected.view(*expected.shape[:-1], *rows)
    torch.testing.assert_close(kronecker_multiply(factors, array), expected)


def test_eigendecomposition_of_matrices_of_very_different_size():
    matrices = torch.stack([1e10 * toeplitz(40), 1e-10 * positive(40)])
    values, vectors = symmetric_eigen(matrices)
    for found, matrix in zip(vectors * values.unsqueeze(-2) @ vectors.mT, matrices, strict=True):
        torch.testing.assert_close(found / matrix.norm(), matrix / matrix.norm())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("n", [3, 50])
def test_entries_that_are_not_finite_are_rejected(n, bad):
    matrix = toeplitz(n)
    matrix[0, 0] = matrix[-1, -1] = bad
    with pytest.raises(NotPSDError, match="must be finite"):
        KroneckerEigen([matrix])


def test_rounding_is_no_reason_to_reject_a_singular_factor():
    smooth = torch.exp(-0.5 * ((torch.arange(30.0)[:, None] - torch.arange(30.0)) / 20) ** 2)
    assert torch.linalg.eigvalsh(smooth)[0] < 0
    assert (KroneckerEigen([smooth, torch.zeros(3, 3)]).values[0] >= 0).all()
    assert (KroneckerEigen([smooth.float()]).products >= 0).all()


def test_an_indefinite_factor_is_named_with_its_eigenvalues():
    with pytest.raises(NotPSDError, match=r"Factor 1 .* eigenvalues range from -1 to 2\."):
        KroneckerEigen([torch.eye(3), torch.diag(torch.tensor([2.0, -1.0]))])
    batch = torch.stack([torch.eye(2), -torch.eye(2)])
    with pytest.raises(NotPSDError, match="Factor 0 .* from -1 to 1"):
        KroneckerEigen([batch])
    with pytest.raises(NotPSDError, match="Factor 0 "):
        KroneckerEigen([-torch.eye(2)])
