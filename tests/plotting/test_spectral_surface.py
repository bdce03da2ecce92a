import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, RBFKernel, ScaleKernel
from scipy.stats import multivariate_normal, norm

from gpytorch_nkn.kernels import (
    BivariateSpectralMixtureKernel,
    NeuralKernelNetwork,
    NonStationarySpectralKernel,
)
from gpytorch_nkn.plotting import plot_local_spectrum, plot_spectral_surface
from gpytorch_nkn.plotting.spectral_surface import spectral_bumps

TAU = 2 * math.pi


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def pairs(*frequencies, lengthscale=2.0, **options):
    """Pairs of frequencies ``R x 2 x D`` in cycles per unit."""
    values = TAU * lengthscale * torch.tensor(frequencies)
    kernel = NonStationarySpectralKernel(len(values), values.size(-1), **options)
    kernel.initialize(lengthscale=lengthscale)
    kernel.frequencies = values.transpose(0, 1)
    return kernel


def mixture():
    kernel = BivariateSpectralMixtureKernel(2, ard_num_dims=2)
    kernel.frequencies.data = TAU * torch.tensor(
        [[[0.0, 3.0], [0.0, 3.5]], [[1.0, -5.0], [1.0, 6.0]]]
    )
    kernel.mixture_weights = torch.tensor([0.7, 1.9])
    kernel.mixture_scales = TAU * torch.tensor([[9.0, 0.4], [9.0, 0.2]])
    kernel.correlations = torch.tensor([[0.5, 0.8], [0.5, 0.1]])
    return kernel


def picture(ax):
    """Cell centres and values ``Y x X``."""
    (mesh,) = ax.collections
    corners = mesh.get_coordinates()
    centers = (corners[:-1, :-1] + corners[1:, 1:]) / 2
    return centers[0, :, 0], centers[:, 0, 1], np.asarray(mesh.get_array())


def total(x, y, values):
    return values.sum() * (x[1] - x[0]) * (y[1] - y[0])


def test_bumps_are_the_transform_of_the_kernel():
    """Yaglom's integral over the masses, summed, equals the kernel's values."""
    x = torch.tensor([-0.4, 0.1, 0.3])
    inputs = torch.stack([torch.zeros(3), x], -1)
    first = ScaleKernel(pairs([[0.0, 1.5], [2.0, 2.5]], [[0.3, 0.5], [0.0, -1.0]]))
    first.outputscale = 1.7
    first.base_kernel.outputscale = 0.6
    for kernel in (first, mixture()):
        centers, masses, widths, correlations = spectral_bumps(kernel, column=1)
        left, right = x.numpy()[:, None, None], x.numpy()[None, :, None]
        decay = left**2 + right**2 - 2 * correlations * left * right
        waves = np.exp(1j * TAU * (centers[:, 0] * left - centers[:, 1] * right))
        got = (masses * np.exp(-0.5 * (TAU * widths) ** 2 * decay) * waves).sum(-1)
        expected = kernel(inputs).to_dense().detach().numpy()
        assert np.abs(expected).min() > 1e-3
        np.testing.assert_allclose(got, expected, atol=1e-12)


def test_surface_of_pairs_is_a_sum_of_gaussians(ax, no_overlap):
    kernel = ScaleKernel(pairs([[1.5], [2.5]]))
    kernel.outputscale = 3.0
    assert plot_spectral_surface(ax, kernel, x_label="year", max_frequency=4.0) is ax
    u, v, values = picture(ax)
    np.testing.assert_allclose([u[0], u[-1], v[0], v[-1]], [-4, 4, -4, 4])
    grid = np.stack(np.meshgrid(u, v), -1)
    expected = sum(
        3 / 8 * multivariate_normal([sign * a, sign * b], (4 / 60) ** 2).pdf(grid)
        for sign in (1, -1)
        for a in (1.5, 2.5)
        for b in (1.5, 2.5)
    )
    np.testing.assert_allclose(values, expected, atol=1e-9)
    assert total(u, v, values) == pytest.approx(3, rel=1e-3)
    assert ax.get_xlabel() == "frequency $u$ (cycles per year)"
    assert ax.get_ylabel() == "frequency $v$ (cycles per year)"
    (bar,) = [other for other in ax.figure.axes if other is not ax]
    assert bar.get_ylabel() == "power per (cycles per year)²"
    no_overlap(ax.figure)


@pytest.mark.parametrize("make", [lambda: pairs(*(torch.randn(30, 2, 1).tolist())), mixture])
def test_default_limits_show_nearly_all_of_the_mass(ax, make):
    kernel = make()
    column = int(len(spectral_bumps(kernel)[0]) == 16)
    plot_spectral_surface(ax, kernel, column=column)
    u, v, values = picture(ax)
    mass = spectral_bumps(kernel, column)[1].sum()
    assert total(u, v, values) == pytest.approx(mass, rel=0.02)


def rbf(lengthscale):
    return RBFKernel().initialize(lengthscale=lengthscale)


def test_a_stationary_kernel_has_its_spectral_density_everywhere(ax, no_overlap):
    """That of an RBF kernel is normal, and so is the window: variances add."""
    kernel = ScaleKernel(rbf(0.3))
    kernel.outputscale = 2.5
    x = torch.linspace(-3, 3, 10)
    assert plot_local_spectrum(ax, kernel, x, window=0.2, x_label="t (s)", unit="s") is ax
    places, frequencies, power = picture(ax)
    np.testing.assert_allclose(places[[0, -1]], [-3, 3])
    deviation = math.hypot(1 / (TAU * 0.3), 1 / (2 * TAU * 0.2))
    expected = 2 * 2.5 * norm(0, deviation).pdf(frequencies)
    np.testing.assert_allclose(power, np.tile(expected[:, None], len(places)), rtol=1e-5, atol=1e-6)
    assert norm(0, deviation).cdf(frequencies[-1]) > 0.995
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("t (s)", "frequency (cycles per s)")
    (bar,) = [other for other in ax.figure.axes if other is not ax]
    assert bar.get_ylabel() == "power per (cycle per s)"
    no_overlap(ax.figure)


def test_power_is_that_of_windowed_transforms_of_drawn_functions(ax):
    kernel = NeuralKernelNetwork.time_series() + LinearKernel()
    plot_local_spectrum(ax, kernel, np.linspace(0, 1, 5), window=0.1, max_frequency=5.0)
    places, frequencies, power = picture(ax)
    grid = np.linspace(-0.7, 1.7, 600)
    covariance = kernel(torch.as_tensor(grid)[:, None]).to_dense().detach().numpy()
    for place, frequency in ((40, 0), (80, 30), (130, 90)):
        g = norm(places[place], 0.1).pdf(grid) ** 0.5 * (grid[1] - grid[0])
        wave = g * np.exp(-1j * TAU * frequencies[frequency] * grid)
        expected = 2 * (wave @ covariance @ wave.conj()).real
        assert expected > 1e-3 * power.max()
        np.testing.assert_allclose(power[frequency, place], expected, rtol=1e-3)
