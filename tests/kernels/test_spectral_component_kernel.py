import math

import pytest
import torch

from gpytorch_nkn.kernels import SpectralComponentKernel


def test_value_equals_the_formula_written_out_for_one_pair():
    kernel = SpectralComponentKernel(ard_num_dims=3)
    kernel.lengthscale = torch.tensor([[0.8, 2.0, 1.3]])
    kernel.initialize(frequency=torch.tensor([[1.5, -0.7, 2.4]]))
    x, y = torch.tensor([[0.2, 1.0, -0.3]]), torch.tensor([[0.5, -0.4, 0.4]])
    squared = (0.3 / 0.8) ** 2 + (1.4 / 2.0) ** 2 + (0.7 / 1.3) ** 2
    expected = math.exp(-squared / 2) * math.cos(1.5 * -0.3 - 0.7 * 1.4 + 2.4 * -0.7)
    assert abs(expected) > 0.1
    assert kernel(x, y).to_dense().item() == pytest.approx(expected, rel=1e-12)
