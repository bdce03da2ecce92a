import math
from functools import cache

import numpy as np
import pytest
import torch
from scipy import signal, stats

from gpytorch_nkn.interpretation.checks import check_residuals, held_out
from gpytorch_nkn.interpretation.checks.residual_checks import residual_draws
from gpytorch_nkn.interpretation.reporting.words import describe_checks
from gpytorch_nkn.interpretation.source import FittedGP
from gpytorch_nkn.interpretation.units import Units

NAMES = ("autocorrelation", "periodogram", "qq")


def rbf(x, lengthscale):
    return np.exp(-0.5 * ((x[:, None] - x) / lengthscale) ** 2)


def posterior(prior, noise, y):
    """Mean and covariance of the latent function at the training inputs."""
    gain = np.linalg.solve(prior + np.diag(noise), prior).T
    covariance = prior - gain @ prior
    return gain @ y, (covariance + covariance.T) / 2


def times(rng, n, uneven):
    return np.sort(rng.uniform(0, 10, n)) if uneven else np.linspace(0, 10, n)


def known(y, x=None, **options):
    """Checks of a function that is known to be zero, under noise of variance one."""
    n = len(y)
    return check_residuals(x, y, np.zeros(n), np.zeros((n, n)), np.ones(n), **options)


def leave_one_out(covariance, residual):
    noise, residual = torch.full((len(residual),), 0.1), torch.from_numpy(residual)
    covariance = torch.from_numpy(covariance) - torch.diag(noise)
    gp = FittedGP(None, None, None, residual, 0 * residual, covariance, noise, Units())
    _, _, found = held_out([(1.0, gp)])
    return found


SETS = 160  # of data that are checked


@cache
def p_values_of_right_models(lengthscale, uneven):
    """p-values of data sets from the model that they are checked with, ``SETS x 3``."""
    rng, result = np.random.default_rng(1), []
    for number in range(SETS):
        x = times(rng, 30, uneven)
        prior, noise = rbf(x, lengthscale), rng.uniform(0.05, 0.3, 30)
        covariance = prior + np.diag(noise)
        y = np.linalg.cholesky(covariance) @ rng.standard_normal(30)
        checks = check_residuals(x, y, *posterior(prior, noise, y), noise, draws=100, seed=number)
        result.append([getattr(checks, name).p_value for name in NAMES])
    return np.array(result)


@pytest.mark.parametrize(("lengthscale", "uneven"), [(1.0, False), (0.2, True)])
@pytest.mark.parametrize("check", range(3), ids=NAMES)
def test_false_alarms_are_rare_and_p_is_a_half_on_average(check, lengthscale, uneven):
    p_values = p_values_of_right_models(lengthscale, uneven)[:, check]
    assert (p_values < 0.05).mean() <= 0.05
    assert (p_values < 0.2).mean() <= 0.2 + 2 * math.sqrt(0.2 * 0.8 / SETS)
    # Of a mean of uniform numbers, or of less dispersed ones, three standard deviations.
    assert abs(p_values.mean() - 0.5) < 3 / math.sqrt(12 * SETS)


@pytest.mark.parametrize("uneven", [False, True])
def test_a_missed_cycle_is_found_with_its_frequency(uneven):
    rng = np.random.default_rng(3)
    x = times(rng, 120, uneven)
    y = np.sin(x) + 0.4 * np.sin(2 * np.pi * 1.5 * x) + 0.3 * rng.standard_normal(120)
    noise = np.full(120, 0.17)  # a good fit would call the cycle noise
    shuffled = rng.permutation(120)
    x, y = x[shuffled], y[shuffled]
    checks = check_residuals(x, y, *posterior(rbf(x, 3.0), noise, y), noise)
    assert checks.autocorrelation.p_value < 0.01 and checks.periodogram.p_value < 0.01
    peak = checks.periodogram.observed.argmax()
    assert checks.periodogram.x[peak] == pytest.approx(1.5, abs=0.06)
    assert checks.periodogram.observed[peak] > checks.periodogram.upper[peak]
    found = describe_checks(checks)
    assert "are autocorrelated, most at lag" in found[0] and "misses structure" in found[0]
    assert "The residuals contain a cycle of period 0.6" in found[1] and "p < 0.001" in found[1]
    assert checks.qq.p_value > 0.01


@pytest.mark.parametrize("noise", ["heavy", "underestimated", "overestimated"])
def test_wrong_noise_is_found_in_the_quantiles(noise):
    rng = np.random.default_rng(4)
    x = np.linspace(0, 10, 150)
    scale = {"underestimated": 1.4, "overestimated": 0.6}.get(noise)
    error = rng.standard_t(2, 150) / 2 if scale is None else scale * rng.standard_normal(150)
    y, variance = np.sin(x) + error, np.ones(150)
    checks = check_residuals(x, y, *posterior(rbf(x, 2.0), variance, y), variance)
    assert checks.qq.p_value < 0.01
    said = describe_checks(checks)[2]
    assert "residuals are not distributed like the noise" in said and "its noise is wrong" in said
    assert checks.autocorrelation.p_value > 0.05 and checks.periodogram.p_value > 0.05


def test_a_covariance_of_coarse_rounding_keeps_residuals_standard_normal():
    covariance = np.diag([0.5, 0.2, -0.05])  # repaired by a jitter of a tenth of the noise
    rng = np.random.default_rng(7)
    center = rng.standard_normal((100_000, 3)) * np.sqrt([0.5, 0.8, 1.05])  # of right models
    residuals = residual_draws(center, covariance, rng.standard_normal((100_000, 3)))
    np.testing.assert_allclose(residuals.var(0), 1, atol=0.02)


def test_autocorrelation_equals_its_formula():
    rng = np.random.default_rng(8)
    x, e = rng.permutation(25) ** 1.5, rng.standard_normal(25)
    check = known(e, x).autocorrelation
    centered = e[np.argsort(x)] - e.mean()
    expected = [centered[k:] @ centered[: 25 - k] / (centered @ centered) for k in range(1, 13)]
    np.testing.assert_array_equal(check.x, np.arange(1, 13))
    np.testing.assert_allclose(check.observed, expected, atol=1e-4)
    assert check.statistic == pytest.approx(np.abs(expected).max(), abs=1e-4)


@pytest.mark.parametrize("n", [20, 21])
def test_periodogram_of_even_times_equals_that_of_scipy(n):
    e = np.random.default_rng(10).standard_normal(n)
    check = known(e, 5 + 0.25 * np.arange(n)).periodogram
    standard = (e - e.mean()) / e.std()
    frequencies, density = signal.periodogram(standard, fs=4.0, detrend=False)
    shown = slice(1, 1 + (n - 1) // 2)  # without the mean and the Nyquist frequency
    np.testing.assert_allclose(check.x[::2], frequencies[shown])  # and those halfway between
    expected = density[shown] * 4 / 2  # one-sided, per unit of frequency
    np.testing.assert_allclose(check.observed[::2], expected, atol=1e-3)
    assert check.statistic >= expected.max() - 1e-3


def test_periodogram_of_uneven_times_is_the_power_of_the_fourier_sum():
    rng = np.random.default_rng(11)
    x, e = rng.uniform(0, 7, 30), rng.standard_normal(30)
    check = known(e, x).periodogram
    standard = (e - e.mean()) / e.std()
    waves = np.exp(-2j * np.pi * np.outer(check.x, x))
    np.testing.assert_allclose(check.observed, abs(waves @ standard) ** 2 / 30, atol=2e-3)
    span = x.max() - x.min()
    np.testing.assert_allclose(np.diff(check.x), 29 / 30 / span / 2)
    assert check.x[0] == pytest.approx(29 / 30 / span)
    nyquist = 0.5 / np.median(np.diff(np.sort(x)))
    assert nyquist - 2 * np.diff(check.x)[0] < check.x[-1] <= nyquist


def test_quantiles_and_their_range_are_those_of_sorted_noise():
    e = np.random.default_rng(15).standard_normal(9)
    check = known(e).qq
    np.testing.assert_allclose(check.observed, np.sort(e), atol=1e-4)
    noise = np.sort(np.random.default_rng(16).standard_normal((200_000, 9)))
    expected = np.quantile(noise, [0.025, 0.5, 0.975, 0.001, 0.999], axis=0)
    np.testing.assert_allclose([check.lower, check.x, check.upper], expected[:3], atol=0.03)
    distance = np.sort(e) - expected[1]
    width = np.where(distance > 0, expected[4], expected[3]) - expected[1]
    assert check.statistic == pytest.approx((distance / width).max(), rel=0.03)


def test_a_covariance_of_negative_eigenvalues_is_refused():
    with pytest.raises(ValueError, match="positive semi-definite, got one with"):
        check_residuals(None, np.ones(4), np.zeros(4), -np.eye(4), np.ones(4))


@pytest.mark.parametrize("y", [np.zeros(3), np.array([0.0, 1.0, 5.0]), np.ones(4)])
@pytest.mark.parametrize("step", [1, 2])
def test_smallest_and_constant_data(y, step):
    checks = known(y, np.arange(len(y)) ** step, draws=1)
    for name in NAMES:
        check = getattr(checks, name)
        curves = check.observed, check.lower, check.upper, check.p_value, check.statistic
        assert np.isfinite(np.hstack(curves)).all()


def gp_sample(n=40, noise=0.2, seed=22):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 8, n))
    covariance = rbf(x, 1.0) + noise * np.eye(n)
    return covariance, np.linalg.cholesky(covariance) @ rng.standard_normal(n)


def test_leave_one_out_equals_conditioning_on_the_rest():
    covariance, residual = gp_sample()
    result = leave_one_out(covariance, residual)
    densities = []
    for i in range(40):
        rest = np.delete(np.arange(40), i)
        gain = np.linalg.solve(covariance[np.ix_(rest, rest)], covariance[rest, i])
        mean, variance = gain @ residual[rest], covariance[i, i] - gain @ covariance[rest, i]
        assert result.mean[i] == pytest.approx(mean, rel=1e-8, abs=1e-10)
        assert result.std[i] == pytest.approx(math.sqrt(variance), rel=1e-8)
        error = residual[i] - mean
        assert result.z_scores[i] == pytest.approx(error / math.sqrt(variance), rel=1e-7)
        densities.append(-0.5 * (math.log(2 * math.pi * variance) + error**2 / variance))
    assert result.log_density == pytest.approx(np.mean(densities), rel=1e-9)


def test_coverage_its_range_and_the_test_of_the_transform_by_their_formulas():
    covariance, residual = gp_sample()
    result = leave_one_out(covariance, residual)
    transform = np.sort([0.5 * math.erfc(-z / math.sqrt(2)) for z in result.z_scores])
    for coverage in result.coverage:
        level = coverage.level
        inside = np.sum((transform > (1 - level) / 2) & (transform < (1 + level) / 2))
        assert coverage.fraction == inside / 40
        pmf = np.array([math.comb(40, k) * level**k * (1 - level) ** (40 - k) for k in range(41)])
        assert coverage.lower == np.argmax(pmf.cumsum() >= 0.025) / 40
        assert coverage.upper == np.argmax(pmf.cumsum() >= 0.975) / 40
        expected = pmf[pmf <= pmf[inside] * (1 + 1e-7)].sum()
        assert coverage.p_value == pytest.approx(expected, rel=1e-6)
    steps = np.arange(41) / 40
    distance = max((steps[1:] - transform).max(), (transform - steps[:-1]).max())
    assert result.p_value == pytest.approx(stats.kstwo.sf(distance, 40), rel=1e-6)
