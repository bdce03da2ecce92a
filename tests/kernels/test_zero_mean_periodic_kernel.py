import mpmath
import pytest
import torch

from gpytorch_nkn.kernels import ZeroMeanPeriodicKernel


def kernel_with(lengthscale, period):
    return ZeroMeanPeriodicKernel().initialize(lengthscale=lengthscale, period_length=period)


@pytest.mark.parametrize(
    "z", [1e-12, 1e-6, 3e-3, 9.9999e-3, 1.0001e-2, 0.095, 0.1, 1.0, 30.0, 5e2, 1e5]
)
@pytest.mark.parametrize("tau", [0.0, 1e-4, 0.11, 0.3, 0.5])
def test_accuracy_against_arbitrary_precision(z, tau):
    with mpmath.workdps(60):
        z_, cos = mpmath.mpf(z), mpmath.cos(2 * mpmath.pi * mpmath.mpf(tau))
        mean = mpmath.besseli(0, z_)
        expected = float((mpmath.exp(z_ * cos) - mean) / (mpmath.exp(z_) - mean))
    value = kernel_with(1 / z, 1.0)(torch.tensor([[tau]]), torch.zeros(1, 1)).to_dense().item()
    assert value == pytest.approx(expected, rel=1e-9, abs=1e-10)


def test_several_dimensions_multiply():
    kernel = ZeroMeanPeriodicKernel(ard_num_dims=2)
    kernel.initialize(lengthscale=torch.tensor([[0.5, 2.0]]))
    kernel.initialize(period_length=torch.tensor([[1.0, 0.7]]))
    x, y = torch.randn(4, 2), torch.randn(3, 2)
    first, second = kernel_with(0.5, 1.0), kernel_with(2.0, 0.7)
    expected = first(x[:, :1], y[:, :1]).to_dense() * second(x[:, 1:], y[:, 1:]).to_dense()
    torch.testing.assert_close(kernel(x, y).to_dense(), expected)


def test_float32_is_accurate_on_both_sides_of_the_switch():
    x = torch.linspace(0, 1, 9).unsqueeze(-1)
    for lengthscale in (0.2, 5.0, 99.0, 101.0, 1e6):
        kernel = kernel_with(lengthscale, 0.8)
        expected = kernel(x).to_dense()
        values = kernel.float()(x.float()).to_dense().double()
        torch.testing.assert_close(values, expected, atol=1e-4, rtol=0)
