import cmath
import math

import pytest
import torch

from gpytorch_nkn.kernels import ComplexExponentialKernel


def test_value_equals_the_formula_written_out_for_one_pair():
    kernel = ComplexExponentialKernel(ard_num_dims=2).initialize(
        frequency=torch.tensor([[1.3, -0.4]])
    )
    x, y = torch.tensor([0.2, 1.0]), torch.tensor([-0.5, 0.7])
    expected = cmath.exp(1j * (1.3 * 0.7 - 0.4 * 0.3))
    assert min(abs(expected.real), abs(expected.imag)) > 0.1
    value = kernel.complex_values(x[None], y[None])
    assert value.shape == (1, 1) and abs(value.item() - expected) < 1e-14
    assert abs(kernel(x[None], y[None]).to_dense().item() - expected.real) < 1e-14


def test_frequency_is_shared_among_columns_without_ard():
    kernel = ComplexExponentialKernel().initialize(frequency=2.0)
    x, y = torch.randn(4, 3), torch.randn(5, 3)
    expected = torch.cos(2 * (x.sum(-1)[:, None] - y.sum(-1)[None, :]))
    torch.testing.assert_close(kernel(x, y).to_dense(), expected)


def test_period_is_two_pi_over_the_frequency_also_far_from_the_origin():
    kernel = ComplexExponentialKernel().initialize(frequency=2 * math.pi)
    x = torch.tensor([[0.3]])
    assert kernel(x + 1000, x).to_dense().item() == pytest.approx(1, abs=1e-9)
    x = torch.tensor([[4096.0], [4096.25]], dtype=torch.float32)
    torch.testing.assert_close(kernel.float()(x).to_dense(), torch.eye(2).float())
