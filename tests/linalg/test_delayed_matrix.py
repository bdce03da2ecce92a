"""Matrices that are computed when more than their diagonals is needed."""

import copy
import pickle
import unittest

import pytest
import torch
from linear_operator.settings import fast_computations
from linear_operator.test.linear_operator_test_case import LinearOperatorTestCase

from gpytorch_nkn.linalg import DelayedMatrix


def delayed(matrix):
    return DelayedMatrix(matrix.diagonal(dim1=-2, dim2=-1), lambda: matrix)


class TestAsLinearOperator(LinearOperatorTestCase, unittest.TestCase):
    """linear_operator's own checks."""

    seed = 0

    def setUp(self):
        super().setUp()
        self.enterContext(fast_computations())  # which BoTorch turns off when it is imported

    def create_linear_op(self):
        factor = torch.randn(2, 5, 5)
        return delayed(factor @ factor.mT + torch.eye(5))

    def evaluate_linear_op(self, linear_op):
        return linear_op.to_dense()


def refuse():
    raise AssertionError("The matrix was computed.")


def test_the_diagonal_needs_no_matrix():
    diagonal = torch.rand(3, 4)
    matrix = DelayedMatrix(diagonal, refuse)

    assert matrix.shape == (3, 4, 4)
    torch.testing.assert_close(matrix.unsqueeze(0).diagonal(dim1=-2, dim2=-1)[0], diagonal)
    for changed in (matrix, matrix.clone(), matrix.detach(), matrix.mT):
        torch.testing.assert_close(changed.diagonal(dim1=-2, dim2=-1), diagonal)
    assert matrix.double().diagonal(dim1=-2, dim2=-1).dtype == torch.float64
    torch.testing.assert_close(matrix.expand(2, 3, 4, 4).diagonal(dim1=-2, dim2=-1)[1], diagonal)
    with pytest.raises(AssertionError, match="was computed"):
        matrix @ torch.ones(4, 1)


def test_is_computed_once_and_has_the_gradient_of_the_matrix():
    calls = []
    x = torch.rand(6, 2, dtype=torch.float64, requires_grad=True)

    def compute():
        calls.append(1)
        return torch.exp(-torch.cdist(x, x).square()) + 0.1 * torch.eye(6)

    matrix = DelayedMatrix(torch.full((6,), 1.1, dtype=torch.float64), compute)
    right = torch.rand(6, 1, dtype=torch.float64)
    quad, logdet = matrix.inv_quad_logdet(right, logdet=True)
    assert calls == [1]
    (found,) = torch.autograd.grad(quad.sum() + logdet, x)
    dense = compute()
    expected = (right * torch.linalg.solve(dense, right)).sum() + torch.logdet(dense)
    (wanted,) = torch.autograd.grad(expected, x)
    torch.testing.assert_close(found, wanted)


def test_what_has_changed_is_not_read():
    x = torch.rand(4, requires_grad=True)
    matrix = DelayedMatrix(x.square(), lambda: x.square().diag(), [x])
    with torch.no_grad():
        assert matrix.to_dense().requires_grad  # as when it was made
        again = DelayedMatrix(x.square(), lambda: x.square().diag(), [x])
        x += 1
    with pytest.raises(RuntimeError, match="has changed since this posterior"):
        again.to_dense()
    with torch.no_grad():
        x -= 1
        late = DelayedMatrix(x.square(), lambda: x.square().diag(), [x])
    assert not late.to_dense().requires_grad


@pytest.mark.parametrize("again", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_are_the_matrix(again):
    matrix = torch.eye(3) + 1
    torch.testing.assert_close(again(delayed(matrix)).to_dense(), matrix)
