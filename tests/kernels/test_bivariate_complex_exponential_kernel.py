import cmath

import torch

from gpytorch_nkn.kernels import BivariateComplexExponentialKernel


def test_complex_value_equals_the_formula_written_out_for_one_pair():
    kernel = BivariateComplexExponentialKernel(ard_num_dims=2)
    kernel.initialize(frequencies=torch.tensor([[1.3, -0.4], [0.5, 2.0]]))
    x, y = (0.2, 1.0), (-0.5, 0.7)

    def psi(point):
        first = cmath.exp(1j * (1.3 * point[0] - 0.4 * point[1]))
        return (first + cmath.exp(1j * (0.5 * point[0] + 2.0 * point[1]))) / 2

    expected = psi(x) * psi(y).conjugate()
    assert min(abs(expected.real), abs(expected.imag)) > 0.02
    value = kernel.complex_values(torch.tensor([x]), torch.tensor([y])).item()
    assert abs(value - expected) < 1e-14


def test_gradients_of_the_two_frequencies_differ_at_the_start():
    kernel, x = BivariateComplexExponentialKernel(), torch.randn(6, 1)
    (kernel(x).to_dense() * torch.randn(6, 6)).sum().backward()
    first, second = kernel.frequencies.grad.flatten()
    assert abs(first - second) > 1e-3
