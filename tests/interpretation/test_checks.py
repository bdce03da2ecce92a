import math

import numpy as np
import pytest
import torch
from scipy import stats
from statsmodels.stats.diagnostic import acorr_ljungbox
from statsmodels.tsa.stattools import acf

from gpytorch_nkn.interpretation.checks import autocorrelation, held_out
from gpytorch_nkn.interpretation.reporting.words import describe_checks
from gpytorch_nkn.interpretation.source import FittedGP
from gpytorch_nkn.interpretation.units import Units


def rbf(x, lengthscale):
    return np.exp(-0.5 * ((x[:, None] - x) / lengthscale) ** 2)


def predictions(covariance, residual, noise=0.1):
    """Predictions from the observations before, and from all others."""
    noise, residual = torch.full((len(residual),), noise), torch.from_numpy(residual)
    covariance = torch.from_numpy(covariance) - torch.diag(noise)
    y = (residual, residual, 0 * residual)
    gp = FittedGP(None, None, None, *y, covariance, noise, Units())
    return held_out([(1.0, gp)])[1:]


def leave_one_out(covariance, residual):
    return predictions(covariance, residual)[1]


@pytest.mark.parametrize("n", [3, 30, 200])
def test_the_test_of_autocorrelations_is_that_of_statsmodels(n):
    errors = np.random.default_rng(n).standard_normal(n)
    values, p_value = autocorrelation(errors)
    lags = {3: 1, 30: 7, 200: 20}[n]
    np.testing.assert_allclose(values, acf(errors, nlags=lags)[1:], atol=1e-12)
    expected = acorr_ljungbox(errors, lags=[lags])["lb_pvalue"].iloc[0]
    assert p_value == pytest.approx(expected, rel=1e-9)
    assert autocorrelation(np.ones(n)) == (pytest.approx(0), 1.0)


def test_ranks_of_counts_follow_their_distribution_only_if_it_is_right():
    counts = np.random.default_rng(1).poisson(3, 300)
    loo = leave_one_out(np.eye(9), np.ones(9))
    for rate, is_right in ((3.0, True), (4.0, False)):
        ranks = stats.poisson.cdf([counts - 1, counts], rate)
        found = loo.with_ranks(ranks)
        assert (found.p_value > 0.05) == is_right and np.isfinite(found.z_scores).all()


@pytest.mark.parametrize("missed", ["nothing", "cycle", "memory", "outliers"])
def test_misfits_are_found_and_a_right_model_has_none(missed):
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(0, 20, 120))
    covariance = rbf(x, 3.0) + 0.1 * np.eye(120)
    y = np.linalg.cholesky(covariance) @ rng.standard_normal(120)
    if missed == "cycle":
        y += 0.5 * np.sin(2 * np.pi * np.arange(120) / 7)
    elif missed == "memory":
        y += np.convolve(rng.standard_normal(125), [0.3] * 6, "valid")
    elif missed == "outliers":
        y[rng.choice(120, 8, replace=False)] += 2
    ahead, loo = predictions(covariance, y)
    *others, correlated = describe_checks(loo, ahead)
    assert ("are autocorrelated, most at lag" in correlated) == (missed in ("cycle", "memory"))
    wrong = [s for s in others if "significant" not in s]
    assert bool(wrong) == (missed != "nothing")


def gp_sample(n=40, noise=0.2, seed=22):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 8, n))
    covariance = rbf(x, 1.0) + noise * np.eye(n)
    return covariance, np.linalg.cholesky(covariance) @ rng.standard_normal(n)


def test_leave_one_out_equals_conditioning_on_the_rest():
    covariance, residual = gp_sample()
    result = leave_one_out(covariance, residual)
    for i in range(40):
        rest = np.delete(np.arange(40), i)
        gain = np.linalg.solve(covariance[np.ix_(rest, rest)], covariance[rest, i])
        mean, variance = gain @ residual[rest], covariance[i, i] - gain @ covariance[rest, i]
        assert result.mean[i] == pytest.approx(mean, rel=1e-8, abs=1e-10)
        assert result.std[i] == pytest.approx(math.sqrt(variance), rel=1e-8)
        error = residual[i] - mean
        assert result.z_scores[i] == pytest.approx(error / math.sqrt(variance), rel=1e-7)


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
