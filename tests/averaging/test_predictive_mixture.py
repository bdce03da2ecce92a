from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate
from scipy.stats import lognorm, norm, truncnorm

from gpytorch_nkn.averaging import OrderedProbit, PredictiveMixture, Transform

WEIGHTS = np.array([0.2, 0.5, 0.3])
MEANS = np.array([[1.0, 3.0], [0.0, 1.0], [2.0, -1.0]])
STDS = np.array([[1.0, 0.5], [0.3, 0.2], [2.0, 1.5]])
LOG = Transform("log", 0.0, power=0.0)


def kinds(*logs, floor=-np.inf):
    return tuple(LOG if log else Transform(lower=floor) for log in logs)


LOGS = (False, True, False)


def parts(column, floor):
    """Compute the same by SciPy's distributions."""
    for mean, std, log in zip(MEANS[:, column], STDS[:, column], LOGS, strict=True):
        if log:
            yield lognorm(std, scale=np.exp(mean))
        else:
            yield truncnorm((floor - mean) / std, np.inf, mean, std)


@pytest.mark.parametrize("floor", [-np.inf, 0.0, 0.5])
@pytest.mark.parametrize("column", [0, 1])
def test_densities_probabilities_and_moments_match_scipy(column, floor):
    mixture = PredictiveMixture(WEIGHTS, MEANS, STDS, kinds(*LOGS, floor=floor))
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


def test_nothing_lies_below_the_floor_where_nearly_all_mass_is_cut():
    mixture = PredictiveMixture(WEIGHTS, MEANS - 50, STDS, kinds(*LOGS, floor=0.0))
    assert (mixture.quantile(0.001) >= 0).all() and np.isfinite(mixture.quantile(0.999)).all()
    assert (mixture.log_density(np.array([-1.0, -1e-9])) == -np.inf).all()
    np.testing.assert_array_equal(mixture.above(np.array([-1.0, 0.0])), 1.0)


FAR = PredictiveMixture(
    np.array([0.5, 0.5]), np.array([[0.0], [1.0]]), np.array([[1.0], [50.0]]), kinds(False, True)
)


@pytest.mark.parametrize("floor", [-np.inf, 0.0])
@pytest.mark.parametrize("probability", [1e-300, 1e-12, 0.3, 0.5, 0.8, 1 - 1e-12])
def test_quantiles_are_exact_where_parts_lie_many_decades_apart(floor, probability):
    mixture = replace(FAR, transforms=kinds(False, True, floor=floor))
    quantile = mixture.quantile(probability)
    assert quantile[0] >= floor
    tail = mixture.below if probability < 0.5 else mixture.above
    expected = min(probability, 1 - probability)
    limits = np.finfo(float)
    if limits.tiny < abs(quantile[0]) < limits.max:
        np.testing.assert_allclose(tail(quantile), expected, rtol=1e-6)


@pytest.mark.parametrize("upper", [1.0, np.inf])
def test_closed_bounds_hold_what_is_beyond_them(upper):
    transform = Transform("sqrt", 0.0, upper, power=0.5, origin=-0.375, closed=True)
    mixture = PredictiveMixture(np.ones(1), np.array([[0.5]]), np.array([[0.4]]), (transform,))
    scaled = 0.5 + 0.4 * norm.ppf(np.linspace(0, 1, 200_002)[1:-1])
    drawn = np.clip(np.maximum(scaled, 0) ** 2 - 0.375, 0, upper)
    for probability in (0.1, 0.5, 0.7, 0.99):
        expected = np.quantile(drawn, probability)
        assert mixture.quantile(probability)[0] == pytest.approx(expected, rel=1e-3)
    assert mixture.quantile(0.1)[0] == 0.0
    assert mixture.draws(0, np.array([[-2.0], [0.2]]))[0] == 0.0
    assert mixture.std()[0] == pytest.approx(drawn.std(), rel=1e-3)
    at_most = mixture.below(np.array([0.0]))[0]
    assert at_most == pytest.approx((drawn == 0).mean(), abs=1e-4)
    assert mixture.above(np.array([0.0]))[0] == pytest.approx(1 - at_most)
    assert mixture.log_density(np.array([0.0]))[0] == pytest.approx(np.log(at_most))
    assert mixture.below(np.array([-1e-9]))[0] == 0 and mixture.above(np.array([upper]))[0] == 0
    inside = np.linspace(1e-9, min(upper, 12) - 1e-9, 20_001)
    between = integrate.trapezoid(np.exp(mixture.log_density(inside)), inside)
    assert between == pytest.approx(((drawn > 0) & (drawn < upper)).mean(), rel=1e-3)


SHIFTED = Transform("sqrt", 0.0, power=0.5, origin=-0.375)
CASES = [
    (Transform("identity", 0.0, 1.0), 0.7, 0.4),
    (Transform("identity", 0.0, 1.0), 9.0, 0.4),  # all but nothing lies between the bounds
    (Transform("identity", 0.0, 1.0), -9.0, 0.4),
    (Transform("log1p", 0.0, power=0.0, origin=-1.0), 0.5, 0.8),
    (SHIFTED, 1.5, 0.7),
    (SHIFTED, -3.0, 0.7),
    (Transform("sqrt", 0.0, power=0.3), 2.0, 0.1),
    (Transform("logit", 0.0, 100.0, 0.0, 0.0, 100.0), 2.0, 1.5),
    (Transform("logit", 0.0, 100.0, 0.0, -0.1, 100.1), -4.0, 2.0),
]


@pytest.mark.parametrize(("transform", "mean", "std"), CASES)
def test_parts_are_cut_normal_distributions_of_what_the_transform_makes_of_values(
    transform, mean, std
):
    mixture = PredictiveMixture(np.ones(1), np.array([[mean]]), np.array([[std]]), (transform,))
    low, high = (np.array(transform.ends) - mean) / std
    own = truncnorm(low, high, mean, std)
    probabilities = np.array([1e-6, 1e-3, 0.3, 0.5, 0.9, 1 - 1e-6])
    quantiles = np.array([mixture.quantile(p)[0] for p in probabilities])
    np.testing.assert_allclose(quantiles, transform.inverse(own.ppf(probabilities)), 1e-6, 1e-14)
    drawn = mixture.draws(0, norm.ppf(probabilities)[:, None])[:, 0]
    np.testing.assert_allclose(drawn, quantiles, 1e-6, 1e-14)
    below, above = (
        np.array([tail(np.array([q]))[0] for q in quantiles])
        for tail in (mixture.below, mixture.above)
    )
    np.testing.assert_allclose(below, probabilities, rtol=1e-6)
    np.testing.assert_allclose(above, 1 - probabilities, rtol=1e-6)
    inside = (quantiles > transform.lower) & (quantiles < transform.upper)
    density = [np.exp(mixture.log_density(np.array([q]))[0]) for q in quantiles[inside][1:-1]]
    step = 1e-6 * quantiles[inside][1:-1]
    rise = own.cdf(transform.forward(quantiles[inside][1:-1] + step))
    rise -= own.cdf(transform.forward(quantiles[inside][1:-1] - step))
    np.testing.assert_allclose(density, rise / (2 * step), rtol=1e-3)
    scaled = np.linspace(own.ppf(1e-15), own.isf(1e-15), 20_001)
    first, second = (
        integrate.trapezoid(transform.inverse(scaled) ** k * own.pdf(scaled), scaled)
        for k in (1, 2)
    )
    assert mixture.std()[0] == pytest.approx(np.sqrt(second - first**2), rel=1e-3)


COUNTS = np.random.default_rng(0).negative_binomial(1, 0.3, 60).astype(float)
PROBIT = OrderedProbit.of(COUNTS, 0.0, np.inf)
WHOLE = [  # transforms, where whole numbers end on their scales, moments
    ([Transform("identity", 0.0, closed=True, whole=True)], [lambda k: k + 0.5], [(1.2, 1.5)]),
    (
        [Transform("identity", -3.0, 4.0, closed=True, whole=True)],
        [lambda k: k + 0.5],
        [(3.5, 2.0)],
    ),
    (
        [
            Transform("log", 0.0, power=0.0, closed=True, whole=True),
            replace(SHIFTED, closed=True, whole=True),
            Transform("identity", 0.0, closed=True, whole=True),
        ],
        [lambda k: np.log(k + 0.5), lambda k: np.sqrt(k + 0.875), lambda k: k + 0.5],
        [(5.0, 0.3), (20.0, 2.0), (-1.0, 0.5)],
    ),
    (
        [Transform("logit", 0.0, 6.0, 0.0, -0.5, 6.5, closed=True, whole=True)],
        [lambda k: np.log(k + 1.0) - np.log(np.maximum(6.0 - k, 1e-300))],
        [(0.5, 1.0)],
    ),
    (
        [PROBIT, replace(SHIFTED, closed=True, whole=True)],
        [lambda k: np.array([*PROBIT.cuts, np.inf])[np.minimum(k, len(PROBIT.cuts))], None],
        [(0.3, 0.8), (-1.0, 1.0)],
    ),
]


@pytest.mark.parametrize(("transforms", "ends", "moments"), WHOLE)
def test_mixtures_of_whole_numbers_match_enumeration(transforms, ends, moments):
    weights = np.arange(1.0, len(transforms) + 1) / sum(range(1, len(transforms) + 1))
    means, stds = np.array(moments).T[..., None]
    mixture = PredictiveMixture(weights, means, stds, tuple(transforms))
    lower, upper = (
        int(end) for end in np.clip([transforms[0].lower, transforms[0].upper], -9, 4e4)
    )
    k = np.arange(lower, upper + 1)
    at_most = np.zeros(len(k))
    for kind, end, weight, (mean, std) in zip(transforms, ends, weights, moments, strict=True):
        std = np.hypot(std, np.sqrt(kind.lost_variance))
        end = end or (lambda k: np.sqrt(k + 0.875))
        at_most += weight * norm.cdf((end(k) - mean) / std)
    at_most[-1] = 1.0
    mass = np.diff(at_most, prepend=0.0)
    assert mass.max() < 0.9  # else all would agree
    seen = mass > 1e-9
    logs = np.array([mixture.log_density(np.array([float(value)]))[0] for value in k[seen][:300]])
    np.testing.assert_allclose(np.exp(logs), mass[seen][:300], rtol=1e-5)
    for probability in (0.01, 0.2, 0.5, 0.77, 0.999):
        expected = k[np.argmax(at_most >= probability)]
        assert mixture.quantile(probability)[0] == expected
    for value in (lower - 1, lower, lower + 2):
        below = at_most[value - lower] if value >= lower else 0.0
        for between in (value, value + 0.7):
            assert mixture.below(np.array([between]))[0] == pytest.approx(below)
            assert mixture.above(np.array([between]))[0] == pytest.approx(1 - below)
    assert (mixture.log_density(np.array([lower + 0.5])) == -np.inf).all()
    mean = mass @ k
    std = np.sqrt(mass @ (k - mean) ** 2)
    np.testing.assert_allclose(mixture.moments(), [[mean], [std]], rtol=1e-3)
    rng = np.random.default_rng(0)
    drawn = mixture.sample(4000, rng, lambda _, count: rng.standard_normal((count, 1)))[:, 0]
    assert (drawn == np.round(drawn)).all() and drawn.min() >= lower and drawn.max() <= upper
    expected, found = at_most, np.array([(drawn <= value).mean() for value in k[seen]])
    np.testing.assert_allclose(found, expected[seen], atol=0.03)


def test_an_ordered_probit_of_zero_mean_has_the_distribution_of_the_counts():
    spread = np.sqrt(1 - PROBIT.lost_variance)
    mixture = PredictiveMixture(np.ones(1), np.zeros((1, 1)), np.full((1, 1), spread), (PROBIT,))
    for value in range(8):
        said = mixture.below(np.array([float(value)]))[0]
        assert said == pytest.approx((value >= COUNTS).mean(), abs=0.05)
    scores = PROBIT.forward(np.arange(20.0))
    assert (np.diff(scores) > 0).all()
    np.testing.assert_array_equal(PROBIT.inverse(scores), np.arange(20.0))
    assert np.isfinite(PROBIT.forward(np.array([1e9]))).all()
