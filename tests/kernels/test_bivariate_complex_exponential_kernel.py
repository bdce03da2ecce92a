import cmath

import torch

from gpytorch_nkn.kernels import BivariateComplexExponentialKernel, ComplexExponentialKernel


def kernel_with(first, second):
    kernel = BivariateComplexExponentialKernel(ard_num_dims=len(first))
    return kernel.initialize(frequencies=torch.tensor([first, second]))


def test_complex_value_equals_the_formula_written_out_for_one_pair():
    kernel = kernel_with([1.3, -0.4], [0.5, 2.0])
    x, y = (0.2, 1.0), (-0.5, 0.7)

    def psi(point):
        first = cmath.exp(1j * (1.3 * point[0] - 0.4 * point[1]))
        return (first + cmath.exp(1j * (0.5 * point[0] + 2.0 * point[1]))) / 2

    expected = psi(x) * psi(y).conjugate()
    assert min(abs(expected.real), abs(expected.imag)) > 0.02
    value = kernel.complex_values(torch.tensor([x]), torch.tensor([y])).item()
    assert abs(value - expected) < 1e-14


def test_diagonal_is_the_squared_cosine_of_half_the_phase_difference():
    kernel, x = kernel_with([1.3, -0.4], [0.5, 2.0]), torch.randn(6, 2)
    expected = torch.cos(x @ torch.tensor([0.8, -2.4]) / 2).square()
    torch.testing.assert_close(kernel(x, diag=True), expected)
    torch.testing.assert_close(kernel(x).to_dense().diagonal(), expected)


def test_equal_frequencies_give_the_stationary_kernel():
    x, y = torch.randn(4, 2), torch.randn(5, 2)
    stationary = ComplexExponentialKernel(ard_num_dims=2)
    stationary.initialize(frequency=torch.tensor([[1.3, -0.4]]))
    values = kernel_with([1.3, -0.4], [1.3, -0.4]).complex_values(x, y)
    torch.testing.assert_close(values, stationary.complex_values(x, y))


def test_gradients_of_the_two_frequencies_differ_at_the_start():
    kernel, x = BivariateComplexExponentialKernel(), torch.randn(6, 1)
    (kernel(x).to_dense() * torch.randn(6, 6)).sum().backward()
    first, second = kernel.frequencies.grad.flatten()
    assert abs(first - second) > 1e-3
