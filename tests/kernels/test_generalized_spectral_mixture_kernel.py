import math

import pytest
import torch
from torch import nn
from torch.nn.functional import softplus

from gpytorch_nkn.kernels import GeneralizedSpectralMixtureKernel
from tests.kernels.contract import check_kernel, perturb


def raw_values(kernel, x, sizes):
    """What the kernel's network returns, by modules of PyTorch, ``... x N x Q x (D + 2)``."""
    layers = []
    for i, (a, b) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        layers += [nn.Linear(a, b), nn.Tanh()]
        parameters = {name: getattr(kernel, f"{name}_{i}") for name in ("weight", "bias")}
        layers[-2].load_state_dict(parameters)
    return nn.Sequential(*layers[:-1]).to(x)(x).unflatten(-1, (-1, sizes[0] + 2))


def written_out(raw_x, raw_y, x, y):
    """One component of one pair: the Gibbs kernel is a product over dimensions."""
    ell_x, ell_y = softplus(raw_x[1]), softplus(raw_y[1])
    value = softplus(raw_x[0]) * softplus(raw_y[0])
    value = value * torch.cos(2 * math.pi * (raw_x[2:] @ x - raw_y[2:] @ y))
    for d in range(len(x)):
        value = value * torch.sqrt(2 * ell_x * ell_y / (ell_x**2 + ell_y**2))
        value = value * torch.exp(-((x[d] - y[d]) ** 2) / (ell_x**2 + ell_y**2))
    return value


def test_values_equal_the_formula_written_out():
    kernel = perturb(GeneralizedSpectralMixtureKernel(2, 3, hidden=[7, 5], seed=3))
    x, y = 0.4 * torch.randn(3, 3), 0.4 * torch.randn(2, 3)
    raw_x, raw_y = (raw_values(kernel, z, [3, 7, 5, 10]) for z in (x, y))
    expected = torch.stack(
        [
            sum(written_out(raw_x[i, q], raw_y[j, q], x[i], y[j]) for q in range(2))
            for i in range(3)
            for j in range(2)
        ]
    ).view(3, 2)
    assert expected.abs().min() > 1e-3
    torch.testing.assert_close(kernel(x, y).to_dense(), expected)
    weight, lengthscale, frequency = kernel.components(x)
    torch.testing.assert_close(weight, softplus(raw_x[..., 0]))
    torch.testing.assert_close(lengthscale, softplus(raw_x[..., 1]))
    torch.testing.assert_close(frequency, raw_x[..., 2:])


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_contract_with_a_rough_spectrum(dim):
    """Lengthscales differ by orders of magnitude between inputs that are close."""
    kernel = GeneralizedSpectralMixtureKernel(2, dim, hidden=(9,)).double()
    kernel.weight_0.data *= 6
    kernel.weight_1.data *= 60
    x = 0.3 * torch.randn(30, dim)
    lengthscales = kernel.components(x)[1]
    assert lengthscales.max() > 20 * lengthscales.min()
    matrix = kernel(torch.cat([x, x + 1e-3])).to_dense().detach()
    assert torch.linalg.eigvalsh(matrix)[0] > -1e-7 * matrix.diagonal().max()
    check_kernel(kernel, x, 0.3 * torch.randn(5, dim))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lengthscales_that_vanish_stay_finite(dtype):
    kernel = GeneralizedSpectralMixtureKernel(1, 1).to(dtype)
    kernel.weight_1.data[1] = 5000.0
    x = torch.linspace(-3, 3, 20, dtype=dtype).unsqueeze(-1)
    assert softplus(raw_values(kernel, x, [1, 16, 3])[..., 1]).min() == 0
    matrix = kernel(x).to_dense()
    matrix.sum().backward()
    assert matrix.isfinite().all() and matrix.diagonal().min() > 0.5
    assert all(p.grad.isfinite().all() for p in kernel.parameters())


def test_wrong_arguments_are_shown():
    with pytest.raises(ValueError, match=r"hidden\[1\] must be at least 1, got 0"):
        GeneralizedSpectralMixtureKernel(2, 1, hidden=(4, 0))
