import math

import pytest
import torch

from gpytorch_nkn.kernels import BivariateSpectralMixtureKernel

WEIGHTS = torch.tensor([0.7, 1.4], dtype=torch.float64)
SCALES = torch.tensor([[0.5, 0.3], [1.0, 0.2]], dtype=torch.float64)
CORRELATIONS = torch.tensor([[0.8, 0.5], [0.95, 0.3]], dtype=torch.float64)
FREQUENCIES = torch.tensor(
    [[[1.5, -0.7], [1.1, 0.4]], [[-0.3, 2.0], [0.9, 1.2]]], dtype=torch.float64
)
CENTER = torch.tensor([[0.3, -0.2]], dtype=torch.float64)


def mixture(**options):
    kernel = BivariateSpectralMixtureKernel(2, ard_num_dims=2, **options)
    kernel.mixture_weights, kernel.mixture_scales = WEIGHTS, SCALES
    kernel.correlations = CORRELATIONS
    return kernel.initialize(frequencies=FREQUENCIES, center=CENTER)


def written_out(x, y):
    """The formula of the class for one pair, with numbers."""
    x, y = (x - CENTER[0]).tolist(), (y - CENTER[0]).tolist()
    total = 0.0
    for w, s, r, pair in zip(WEIGHTS, SCALES, CORRELATIONS, FREQUENCIES, strict=True):
        exponent = sum(
            s[d] ** 2 * (x[d] ** 2 + y[d] ** 2 - 2 * r[d] * x[d] * y[d]) for d in range(2)
        )
        psi = []
        for z in (x, y):
            angles = [f[0] * z[0] + f[1] * z[1] for f in pair]
            psi.append((sum(map(math.cos, angles)) / 2, sum(map(math.sin, angles)) / 2))
        inner = psi[0][0] * psi[1][0] + psi[0][1] * psi[1][1]
        total += float(w) * math.exp(-exponent / 2) * inner
    return total


def test_values_equal_the_formula_written_out():
    x, y = torch.randn(4, 2), torch.randn(3, 2)
    expected = torch.tensor([[written_out(a, b) for b in y] for a in x])
    assert expected.abs().min() > 1e-3 and expected.abs().max() > 0.3
    torch.testing.assert_close(mixture()(x, y).to_dense(), expected, atol=1e-12, rtol=1e-10)
    diagonal = torch.tensor([written_out(a, b) for a, b in zip(x, y, strict=False)])
    torch.testing.assert_close(mixture()(x[:3], y, diag=True), diagonal, atol=1e-12, rtol=1e-10)


def test_values_are_means_over_the_spectral_density():
    """Pairs (u, v) of the symmetrised bivariate Gaussians: E exp(i (u x - v x'))."""
    x, y = 0.8 * torch.randn(5, 2), 0.8 * torch.randn(4, 2)
    draws = 200_000
    sums = torch.zeros(5, 4, dtype=torch.complex128)
    for w, s, r, pair in zip(WEIGHTS, SCALES, CORRELATIONS, FREQUENCIES, strict=True):
        first, second = torch.randint(2, (2, draws))
        noise = torch.randn(2, draws, 2)
        u = pair[first] + s * noise[0]
        v = pair[second] + s * (r * noise[0] + (1 - r**2).sqrt() * noise[1])
        sign = torch.randint(2, (draws, 1)) * 2 - 1
        u, v = sign * u, sign * v
        left = torch.exp(1j * (u @ (x - CENTER).mT))  # draws x 5
        right = torch.exp(-1j * (v @ (y - CENTER).mT))
        sums += w * (left.mT @ right) / draws
    values = mixture()(x, y).to_dense()
    assert values.abs().max() > 0.5 and values.min() < -0.05
    torch.testing.assert_close(sums.real, values, rtol=0, atol=0.015)
    assert sums.imag.abs().max() < 0.015


def test_correlations_are_between_0_and_1_where_the_kernel_is_valid():
    kernel = BivariateSpectralMixtureKernel()
    kernel.raw_correlations.data.fill_(-50.0)
    assert 0 <= kernel.correlations.min() < 1e-9
    kernel.raw_correlations.data.fill_(50.0)
    assert 1 - 1e-9 < kernel.correlations.max() <= 1


def test_wrong_arguments_are_shown():
    with pytest.raises(ValueError, match="num_mixtures must be at least 1, got 0"):
        BivariateSpectralMixtureKernel(0)
