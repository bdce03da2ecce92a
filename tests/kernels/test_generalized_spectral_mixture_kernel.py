import math

import pytest
import torch
from gpytorch.kernels import CosineKernel, RBFKernel
from torch import nn
from torch.nn.functional import softplus

from gpytorch_nkn.kernels import GeneralizedSpectralMixtureKernel
from tests.kernels.contract import PROPERTIES, Subject

WITH_PARAMETERS_IN_BATCHES = {
    "check_batch_shapes",
    "check_batch_indexing",
    "check_expand_batch",
    "check_copies",
}


class Spectrum(nn.Module):
    """Maps ... x N x D to ... x N x Q x (D + 2)."""

    def __init__(self, dim, num_mixtures, scale=1.0):
        super().__init__()
        self.shape = (num_mixtures, dim + 2)
        self.layers = nn.Sequential(
            nn.Linear(dim, 9), nn.Tanh(), nn.Linear(9, num_mixtures * (dim + 2))
        )
        for parameter in self.parameters():
            parameter.data *= scale

    def forward(self, x):
        return self.layers(x).unflatten(-1, self.shape)


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
    spectrum = Spectrum(3, 2)
    x, y = 0.4 * torch.randn(3, 3), 0.4 * torch.randn(2, 3)
    raw_x, raw_y = spectrum(x), spectrum(y)
    expected = torch.stack(
        [
            sum(written_out(raw_x[i, q], raw_y[j, q], x[i], y[j]) for q in range(2))
            for i in range(3)
            for j in range(2)
        ]
    ).view(3, 2)
    assert expected.abs().min() > 1e-3
    kernel = GeneralizedSpectralMixtureKernel(spectrum=spectrum)
    torch.testing.assert_close(kernel(x, y).to_dense(), expected)


def test_own_network_is_a_perceptron_of_tanh_units():
    kernel = GeneralizedSpectralMixtureKernel(2, 3, hidden=[7, 5], seed=3)
    sizes = [3, 7, 5, 10]
    layers = [nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:], strict=True)]
    for i, layer in enumerate(layers):
        layer.load_state_dict(
            {"weight": getattr(kernel, f"weight_{i}"), "bias": getattr(kernel, f"bias_{i}")}
        )
    network = nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])
    x, y = torch.randn(5, 3), torch.randn(4, 3)
    spectrum = nn.Sequential(network, nn.Unflatten(-1, (2, 5)))
    expected = GeneralizedSpectralMixtureKernel(spectrum=spectrum)(x, y).to_dense()
    assert expected.abs().max() > 0.2
    torch.testing.assert_close(kernel(x, y).to_dense(), expected)
    weight, lengthscale, frequency = kernel.components(x)
    raw = spectrum(x)
    torch.testing.assert_close(weight, softplus(raw[..., 0]))
    torch.testing.assert_close(lengthscale, softplus(raw[..., 1]))
    torch.testing.assert_close(frequency, raw[..., 2:])


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_contract_with_a_rough_spectrum(dim):
    """Lengthscales differ by orders of magnitude between inputs that are close."""
    spectrum = Spectrum(dim, 2, scale=6.0)
    kernel = GeneralizedSpectralMixtureKernel(spectrum=spectrum)
    x = 0.3 * torch.randn(30, dim)
    lengthscales = kernel.components(x)[1]
    assert lengthscales.max() > 20 * lengthscales.min()
    matrix = kernel(torch.cat([x, x + 1e-3])).to_dense().detach()
    assert torch.linalg.eigvalsh(matrix)[0] > -1e-7 * matrix.diagonal().max()
    subject = Subject(kernel, x, 0.3 * torch.randn(5, dim))
    for check in PROPERTIES:
        if check.__name__ not in WITH_PARAMETERS_IN_BATCHES:
            check(subject)


def test_constant_functions_give_a_stationary_spectral_mixture():
    class Constant(nn.Module):
        def forward(self, x):
            row = torch.tensor([0.5, 1.0, 0.3, -0.2])
            return row.expand(*x.shape[:-1], 1, 4)

    x, y = torch.randn(6, 2), torch.randn(5, 2)
    kernel = GeneralizedSpectralMixtureKernel(spectrum=Constant())
    along = [t @ torch.tensor([[0.3], [-0.2]]) for t in (x, y)]
    wave = CosineKernel().initialize(period_length=0.5)  # cos(pi t / period)
    rbf = RBFKernel().initialize(lengthscale=math.log1p(math.e))
    expected = math.log1p(math.exp(0.5)) ** 2 * rbf(x, y).to_dense() * wave(*along).to_dense()
    assert expected.min() < -0.05
    torch.testing.assert_close(kernel(x, y).to_dense(), expected)


def test_local_frequency_is_the_gradient_of_the_phase():
    """mu(x) = x has the phase x^2, a chirp: near x it oscillates at 2 x."""

    class Chirp(nn.Module):
        def forward(self, x):
            return torch.stack([torch.zeros_like(x), 20 + 0 * x, x], dim=-1)

    kernel = GeneralizedSpectralMixtureKernel(spectrum=Chirp())
    x = torch.full((1, 1), 3.0)
    shift = torch.linspace(-0.02, 0.02, 9).unsqueeze(-1)
    values = kernel(x, x + shift).to_dense()[0] / softplus(torch.zeros(())) ** 2
    torch.testing.assert_close(values, torch.cos(2 * math.pi * 6 * shift[:, 0]), atol=2e-3, rtol=0)
    assert (values - torch.cos(2 * math.pi * 3 * shift[:, 0])).abs().max() > 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lengthscales_that_vanish_stay_finite(dtype):
    kernel = GeneralizedSpectralMixtureKernel(1, 1).to(dtype)
    kernel.weight_1.data[1] = 5000.0
    x = torch.linspace(-3, 3, 20, dtype=dtype).unsqueeze(-1)
    assert softplus(kernel._network(x)[..., 1]).min() == 0
    matrix = kernel(x).to_dense()
    matrix.sum().backward()
    assert matrix.isfinite().all() and matrix.diagonal().min() > 0.5
    assert all(p.grad.isfinite().all() for p in kernel.parameters())


def test_wrong_arguments_are_shown():
    with pytest.raises(ValueError, match=r"sizes of a network, got num_mixtures=2, hidden=\[3\]"):
        GeneralizedSpectralMixtureKernel(2, hidden=[3], spectrum=nn.Identity())
    with pytest.raises(ValueError, match="num_mixtures=2, input_dim=None"):
        GeneralizedSpectralMixtureKernel(2)
    with pytest.raises(ValueError, match=r"num_mixtures=2, input_dim=1, hidden=\(4, 0\)"):
        GeneralizedSpectralMixtureKernel(2, 1, hidden=(4, 0))
    with pytest.raises(TypeError, match="spectrum must be a torch module, got 4"):
        GeneralizedSpectralMixtureKernel(spectrum=4)
    with pytest.raises(RuntimeError, match=r"made for input_dim=2, got inputs of shape \(4, 3\)"):
        GeneralizedSpectralMixtureKernel(1, 2)(torch.randn(4, 3)).to_dense()
