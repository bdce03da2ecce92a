from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import lognorm, norm, truncnorm

from gpytorch_nkn.estimators.series.mixture import Mixture

WEIGHTS = np.array([0.2, 0.5, 0.3])
MEANS = np.array([[1.0, 3.0], [0.0, 1.0], [2.0, -1.0]])
STDS = np.array([[1.0, 0.5], [0.3, 0.2], [2.0, 1.5]])
LOGS = np.array([False, True, False])


def parts(column, floor):
    """The same by SciPy's distributions."""
    for mean, std, log in zip(MEANS[:, column], STDS[:, column], LOGS, strict=True):
        if log:
            yield lognorm(std, scale=np.exp(mean))
        else:
            yield truncnorm((floor - mean) / std, np.inf, mean, std)


@pytest.mark.parametrize("floor", [-np.inf, 0.0, 0.5])
@pytest.mark.parametrize("column", [0, 1])
def test_densities_probabilities_and_moments_are_those_of_scipy(column, floor):
    mixture = Mixture(WEIGHTS, MEANS, STDS, LOGS, floor)
    own = list(parts(column, floor))
    for value in (0.7, 1.0, 4.0):
        density = mixture.log_density(np.full(2, value))[column]
        assert density == pytest.approx(
            np.log(sum(w * p.pdf(value) for w, p in zip(WEIGHTS, own, strict=True)))
        )
        above = mixture.above(np.full(2, value))[column]
        assert above == pytest.approx(
            sum(w * p.sf(value) for w, p in zip(WEIGHTS, own, strict=True))
        )
    mean = sum(w * p.mean() for w, p in zip(WEIGHTS, own, strict=True))
    variance = sum(
        w * (p.var() + (p.mean() - mean) ** 2) for w, p in zip(WEIGHTS, own, strict=True)
    )
    assert mixture.std()[column] == pytest.approx(np.sqrt(variance))


@pytest.mark.parametrize("floor", [-np.inf, 0.0])
@pytest.mark.parametrize("probability", [1e-6, 0.025, 0.5, 0.975, 1 - 1e-6])
def test_quantiles_have_their_probability(floor, probability):
    mixture = Mixture(WEIGHTS, MEANS, STDS, LOGS, floor)
    above = mixture.above(mixture.quantile(probability))
    np.testing.assert_allclose(above, 1 - probability, rtol=1e-6, atol=1e-12)


def test_nothing_lies_below_the_floor():
    mixture = Mixture(WEIGHTS, MEANS - 50, STDS, LOGS, 0.0)  # where nearly all mass is cut
    assert (mixture.quantile(0.001) >= 0).all() and np.isfinite(mixture.quantile(0.999)).all()
    assert (mixture.log_density(np.array([-1.0, -1e-9])) == -np.inf).all()
    np.testing.assert_array_equal(mixture.above(np.array([-1.0, 0.0])), 1.0)


def test_one_part_is_normal():
    mixture = Mixture(np.ones(1), MEANS[:1], STDS[:1], np.array([False]))
    np.testing.assert_allclose(mixture.quantile(0.9), MEANS[0] + STDS[0] * norm.ppf(0.9))
    np.testing.assert_allclose(mixture.std(), STDS[0])


FAR = Mixture(
    np.array([0.5, 0.5]), np.array([[0.0], [1.0]]), np.array([[1.0], [50.0]]), np.array([0, 1]) > 0
)


@pytest.mark.parametrize("floor", [-np.inf, 0.0])
@pytest.mark.parametrize("probability", [1e-300, 1e-12, 0.3, 0.5, 0.8, 1 - 1e-12])
def test_quantiles_are_exact_where_parts_lie_many_decades_apart(floor, probability):
    mixture = replace(FAR, floor=floor)
    quantile = mixture.quantile(probability)
    assert quantile[0] >= floor
    tail = mixture.below if probability < 0.5 else mixture.above
    expected = min(probability, 1 - probability)
    if floor < quantile[0] < np.finfo(float).max:
        np.testing.assert_allclose(tail(quantile), expected, rtol=1e-6)


def test_quantiles_rise_with_their_probability_up_to_the_largest_float():
    mixture = replace(FAR, means=np.array([[0.0], [600.0]]), floor=0.0)
    probabilities = [1e-9, 0.025, 0.25, 0.5, 0.75, 0.975, 1 - 1e-9]
    quantiles = [mixture.quantile(probability)[0] for probability in probabilities]
    assert quantiles == sorted(quantiles) and quantiles[-1] == np.finfo(float).max


def test_densities_of_values_out_of_all_reach_are_zero():
    assert (
        Mixture(np.ones(1), MEANS[:1], STDS[:1], LOGS[:1]).log_density(np.array([1e300]))[0]
        == -np.inf
    )
