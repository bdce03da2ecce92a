import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from scipy.stats import chi2

from gpytorch_nkn.plotting import plot_spectrum
from gpytorch_nkn.plotting.spectrum import prior_periodogram, quadratic_form_quantiles


def band(ax):
    """Frequencies, lower and upper ends of the band."""
    vertices = ax.collections[0].get_paths()[0].vertices
    x = np.unique(vertices[:, 0])
    ends = [np.unique(vertices[vertices[:, 0] == v, 1]) for v in x]
    return x, np.array([e[0] for e in ends]), np.array([e[-1] for e in ends])


def kernels():
    rbf = RBFKernel()
    rbf.lengthscale = 3.0
    return {"rbf": rbf, "matern": MaternKernel(0.5), "linear": LinearKernel() + RBFKernel()}


@pytest.mark.parametrize("name", kernels())
@pytest.mark.parametrize("n", [15, 40])
def test_expectation_is_the_diagonal_of_the_transformed_matrix(ax, line_data, name, n):
    x = np.linspace(2, 9, n)
    kernel = kernels()[name]
    assert plot_spectrum(ax, kernel, x, noise=0.3, x_label="year") is ax
    k = np.arange(n)
    fourier = np.exp(-2j * np.pi * np.outer(k, k) / n)
    covariance = kernel(torch.as_tensor(x)).to_dense().detach().numpy() + 0.3 * np.eye(n)
    expected = np.diag(fourier @ covariance @ fourier.conj().T).real[1 : n // 2 + 1] / n
    frequencies, power = line_data(ax, "expected")
    np.testing.assert_allclose(power, expected, rtol=1e-9)
    step = 7 / (n - 1)
    np.testing.assert_allclose(frequencies, np.fft.rfftfreq(n, step)[1:])
    assert ax.get_xlabel() == "frequency (cycles per year)"
    assert ax.get_xscale() == ("log" if n == 40 else "linear") and ax.get_yscale() == "log"


@pytest.mark.parametrize("n", [15, 16])
@pytest.mark.parametrize("name", kernels())
def test_the_range_is_that_of_periodograms_of_drawn_functions(name, n):
    covariance = kernels()[name](torch.linspace(0, 4, n)).to_dense().detach().numpy()
    covariance = covariance + 0.05 * np.eye(n)
    power, lower, upper = prior_periodogram(covariance, level=0.8)
    draws = np.linalg.cholesky(covariance) @ np.random.default_rng(0).normal(size=(n, 20_000))
    periodograms = np.abs(np.fft.rfft(draws, axis=0)[1:]) ** 2 / n
    np.testing.assert_allclose(periodograms.mean(1), power, rtol=0.05)
    np.testing.assert_allclose((periodograms < lower[:, None]).mean(1), 0.1, atol=0.01)
    np.testing.assert_allclose((periodograms > upper[:, None]).mean(1), 0.1, atol=0.01)


@pytest.mark.parametrize("probability", [0.025, 0.5, 0.95])
def test_quantiles_of_quadratic_forms_against_known_distributions(probability):
    first, second = np.array([2.0, 2.0, 0.0]), np.array([0.0, 2.0, 0.0])
    got = quadratic_form_quantiles(first, second, probability)
    expected = [2 * chi2.ppf(probability, 1), 2 * chi2.ppf(probability, 2), 0.0]
    np.testing.assert_allclose(got, expected, rtol=5e-5)


def test_evenly_spaced_data_have_their_own_periodogram(ax, line_data):
    x = np.linspace(0, 3, 50)
    y = np.random.default_rng(0).normal(size=50)
    order = np.random.default_rng(1).permutation(50)
    plot_spectrum(ax, RBFKernel(), x[order], y=y[order] + 100)
    got = line_data(ax, "data")[1]
    np.testing.assert_allclose(got, np.abs(np.fft.rfft(y)[1:]) ** 2 / 50, rtol=1e-9)


@pytest.mark.parametrize("even", [True, False])
def test_frequencies_and_data_are_in_units_of_ones_own(make_axes, line_data, even):
    """The same ordinates as over standardised time, at frequencies divided by the scale."""
    rng = np.random.default_rng(0)
    years = 1958 + (np.arange(120) / 12 if even else np.sort(rng.uniform(0, 10, 120)))
    years = rng.permutation(years)
    y = np.sin(2 * np.pi * years) + 0.1 * rng.normal(size=120)
    kernel = ScaleKernel(PeriodicKernel())
    kernel.base_kernel.period_length = 1 / 2.9
    kernel.base_kernel.lengthscale = 5.0
    own, standard = make_axes(1, 2)
    plot_spectrum(own, kernel, years, y=y, noise=0.01, x_offset=1963.0, x_scale=2.9)
    plot_spectrum(standard, kernel, (years - 1963) / 2.9, y=y, noise=0.01)
    for label in ("expected", "data"):
        frequencies, power = line_data(own, label)
        assert frequencies[power.argmax()] == pytest.approx(1, abs=0.06)
        others, expected = line_data(standard, label)
        np.testing.assert_allclose(frequencies, others / 2.9)
        np.testing.assert_allclose(power, expected, rtol=1e-6)
    np.testing.assert_allclose(band(own)[1], band(standard)[1], rtol=1e-6)
