import math

import pytest
import torch
from gpytorch.kernels import SpectralMixtureKernel

from gpytorch_nkn.kernels import SpectralComponentKernel

LENGTHSCALE = torch.tensor([[0.8, 2.0, 1.3]], dtype=torch.float64)
FREQUENCY = torch.tensor([[1.5, -0.7, 2.4]], dtype=torch.float64)


def component(columns=3, **options):
    kernel = SpectralComponentKernel(ard_num_dims=columns, **options)
    kernel.lengthscale = LENGTHSCALE[:, :columns]
    return kernel.initialize(frequency=FREQUENCY[:, :columns])


def test_value_equals_the_formula_written_out_for_one_pair():
    x, y = torch.tensor([[0.2, 1.0, -0.3]]), torch.tensor([[0.5, -0.4, 0.4]])
    squared = (0.3 / 0.8) ** 2 + (1.4 / 2.0) ** 2 + (0.7 / 1.3) ** 2
    expected = math.exp(-squared / 2) * math.cos(1.5 * -0.3 - 0.7 * 1.4 + 2.4 * -0.7)
    assert abs(expected) > 0.1
    assert component()(x, y).to_dense().item() == pytest.approx(expected, rel=1e-12)


def test_equals_gpytorchs_spectral_mixture_in_one_dimension():
    """There exp(-2 pi^2 s^2 t^2) cos(2 pi m t)."""
    mixture = SpectralMixtureKernel(num_mixtures=1, ard_num_dims=1)
    mixture.mixture_weights = 1.0
    mixture.mixture_scales = (1 / (2 * math.pi * LENGTHSCALE[:, :1])).unsqueeze(0)
    mixture.mixture_means = (FREQUENCY[:, :1] / (2 * math.pi)).unsqueeze(0)
    x, y = torch.randn(6, 1), torch.randn(5, 1)
    expected = mixture(x, y).to_dense()
    assert expected.min() < -0.05 and expected.max() > 0.5
    torch.testing.assert_close(component(1)(x, y).to_dense(), expected)
