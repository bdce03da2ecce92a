"""Matrices that are evaluated only if more than their diagonals is needed."""

import copy
import pickle
import unittest

import pytest
import torch
from linear_operator import to_dense, to_linear_operator
from linear_operator.operators import (
    BlockDiagLinearOperator,
    BlockInterleavedLinearOperator,
    CatLinearOperator,
    DiagLinearOperator,
)
from linear_operator.settings import fast_computations
from linear_operator.test.linear_operator_test_case import LinearOperatorTestCase

from gpytorch_nkn.linalg import BlockDiagonal, DelayedMatrix


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


OPERATIONS = {
    "itself": lambda m: m,
    "transpose": lambda m: m.mT,
    "to": lambda m: m.to(torch.float64),
    "unsqueeze": lambda m: m.unsqueeze(0),
    "expand": lambda m: m.expand(5, 2, 3, 4, 4),
    "permute": lambda m: m.permute(1, 0, 2, 3),
    "sum": lambda m: m.sum(-3),
    "entry": lambda m: m[1],
    "second entry": lambda m: m[:, 2],
    "chosen entries": lambda m: m[:, torch.tensor([0, 0, 2])],
    "reversed batch": lambda m: m[0, 1:],
    "submatrix": lambda m: m[..., 1:3, 1:3],
    "jitter": lambda m: m.add_jitter(0.5),
    "diagonal": lambda m: m + DiagLinearOperator(torch.ones(2, 3, 4)),
    "constant": lambda m: 3.0 * m,
    "scaled": lambda m: DiagLinearOperator(torch.full((2, 3, 4), 2.0)) @ m,
    "blocks": lambda m: BlockDiagLinearOperator(m, block_dim=0),
    "interleaved": lambda m: BlockInterleavedLinearOperator(m, block_dim=1),
    "list": lambda m: BlockDiagonal(CatLinearOperator(m[0], 2 * m[1], dim=0)),
    "block of a list": lambda m: BlockDiagonal(m)[0, 4:8, 4:8],
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_the_diagonal_needs_no_matrix(operation):
    factor = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    dense = factor @ factor.mT
    diagonal = dense.diagonal(dim1=-2, dim2=-1)
    expected = operation(to_linear_operator(dense)).to_dense()
    found = operation(DelayedMatrix(diagonal, refuse)).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(found, expected.diagonal(dim1=-2, dim2=-1), check_dtype=False)
    found = operation(DelayedMatrix(diagonal, lambda: dense)).to_dense()
    torch.testing.assert_close(found, expected, check_dtype=False)
    with pytest.raises(AssertionError, match="was computed"):
        operation(DelayedMatrix(diagonal, refuse)).to_dense()


@pytest.mark.parametrize("part", [(0, 4), (4, 8), (8, 12), (2, 6), (0, 6), (0, 12), (1, 3)])
def test_slices_of_blocks_match_the_matrix(part):
    blocks = BlockDiagonal(torch.randn(2, 3, 4, 4))
    part = slice(*part)
    torch.testing.assert_close(
        to_dense(blocks[..., part, part]), blocks.to_dense()[..., part, part]
    )


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


@pytest.mark.parametrize("again", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_are_the_matrix(again):
    matrix = torch.eye(3) + 1
    torch.testing.assert_close(again(delayed(matrix)).to_dense(), matrix)
