import pytest
import torch
from linear_operator import to_dense

from gpytorch_nkn.linalg import BlockDiagonal


@pytest.mark.parametrize("part", [(0, 4), (4, 8), (8, 12), (2, 6), (0, 6), (0, 12), (1, 3)])
def test_slices_of_blocks_are_those_of_the_matrix(part):
    blocks = BlockDiagonal(torch.randn(2, 3, 4, 4))
    part = slice(*part)
    torch.testing.assert_close(
        to_dense(blocks[..., part, part]), blocks.to_dense()[..., part, part]
    )
