import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, RBFKernel, ScaleKernel
from scipy.stats import norm

from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.plotting import plot_local_spectrum

TAU = 2 * math.pi


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def picture(ax):
    """Cell centres and values ``Y x X``."""
    (mesh,) = ax.collections
    corners = mesh.get_coordinates()
    centers = (corners[:-1, :-1] + corners[1:, 1:]) / 2
    return centers[0, :, 0], centers[:, 0, 1], np.asarray(mesh.get_array())


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
