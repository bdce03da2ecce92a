import math

import pytest
import torch

from gpytorch_nkn.linalg import singular_value_threshold


def by_svd(matrix, threshold):
    """The formula, in float64."""
    left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    return (left * (values - threshold).clamp_min(0).unsqueeze(-2)) @ right


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "shape", [(40, 5), (5, 40), (7, 7), (40, 1), (1, 40), (1, 1), (2, 3, 5, 4)]
)
def test_values_match_the_decomposition(shape, dtype):
    matrix = torch.randn(shape, dtype=dtype)
    before = matrix.clone()
    threshold = float(torch.linalg.svdvals(matrix).median()) * 0.9
    result = singular_value_threshold(matrix, threshold)
    assert result.dtype == dtype and result.shape == shape
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(result.double(), by_svd(matrix, threshold), rtol=0, atol=tolerance)
    assert result.abs().max() > 0.01 and (result - matrix).abs().max() > 0.01
    assert torch.equal(matrix, before)


def test_small_singular_values_survive_float32():
    # their squares lie below the rounding of the largest one's square in float32
    left, _ = torch.linalg.qr(torch.randn(200, 3))
    right, _ = torch.linalg.qr(torch.randn(3, 3))
    exact = (left * torch.tensor([1.0, 4e-5, 1e-5])) @ right.T
    shrunk = singular_value_threshold(exact.float(), 2e-5)
    values = torch.linalg.svdvals(shrunk.double())
    torch.testing.assert_close(values, torch.tensor([1 - 2e-5, 2e-5, 0.0]), rtol=0, atol=2e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(30, 3), (3, 30), (30, 1)])
def test_ends_of_the_range(shape, dtype):
    matrix = torch.randn(shape, dtype=dtype)
    torch.testing.assert_close(singular_value_threshold(matrix, 0.0), matrix)
    assert not singular_value_threshold(matrix, 1e3).any()  # exactly zero
    zeros = torch.zeros_like(matrix)
    for threshold in (0.0, 1.0):
        assert torch.equal(singular_value_threshold(zeros, threshold), zeros)
    empty = singular_value_threshold(matrix[:0], 1.0)
    assert empty.shape == (0, shape[1])


@pytest.mark.parametrize("threshold", [-1.0, math.nan])
def test_thresholds_without_a_meaning_are_rejected(threshold):
    with pytest.raises(ValueError, match="must not be negative"):
        singular_value_threshold(torch.rand(3, 2), threshold)
