"""Kalman filters by chunks, beside dense conditioning."""

import numpy as np
import pytest

from gpytorch_nkn.linalg import MarkovProcess, StateSpace, product, scaled, stationary

STEP, NOISE = 0.3, 0.2


def decay(rate):
    """Ornstein-Uhlenbeck process of variance one."""
    return stationary(np.array([[-rate]]), np.ones(1), np.ones((1, 1)))


def wave(frequency):
    """Cosine of random phase and amplitude."""
    turn = np.array([[0.0, -frequency], [frequency, 0.0]])
    return stationary(turn, np.array([1.0, 0.0]), np.eye(2))


def walk():
    """Wiener process from zero on."""
    return MarkovProcess(
        np.ones(1),
        np.zeros((1, 1)),
        lambda time: np.ones((len(time), 1, 1)),
        lambda time: time[:, None, None],
    )


CASES = {
    "decay": (lambda: decay(0.8), lambda s, t: np.exp(-0.8 * abs(s - t))),
    "walk": (walk, np.minimum),
    "wave": (lambda: wave(2.0), lambda s, t: np.cos(2 * (s - t))),
    "decaying wave": (
        lambda: product(wave(2.0), decay(0.3)),
        lambda s, t: np.cos(2 * (s - t)) * np.exp(-0.3 * abs(s - t)),
    ),
    "two decays": (lambda: product(decay(0.3), decay(0.5)), lambda s, t: np.exp(-0.8 * abs(s - t))),
    "wave that walks": (
        lambda: product(walk(), wave(2.0)),
        lambda s, t: np.cos(2 * (s - t)) * np.minimum(s, t),
    ),
    "sixfold": (lambda: scaled(walk(), 6.0), lambda s, t: 6 * np.minimum(s, t)),
}


@pytest.mark.parametrize("names", [*([name] for name in CASES), list(CASES)], ids="+".join)
@pytest.mark.parametrize("gaps", [False, True])
def test_forecasts_and_density_are_those_of_the_dense_gaussian(names, gaps):
    count, steps = 150, np.array([1, 2, 7, 30])
    times = STEP * np.concatenate([np.arange(1, count + 1), count + steps])
    covariance = sum(CASES[name][1](times[:, None], times[None]) for name in names)
    rng = np.random.default_rng(0)
    values = rng.standard_normal(count)
    if gaps:
        values[rng.random(count) < 0.3] = np.nan
        values[70:140] = np.nan  # a whole chunk
    seen = np.flatnonzero(~np.isnan(values))
    own = covariance[np.ix_(seen, seen)] + NOISE * np.eye(len(seen))
    across = covariance[count:, seen]
    space = StateSpace([CASES[name][0]() for name in names], NOISE, STEP)
    space.observe(values[:40])  # in two parts, the second in chunks
    space.observe(values[40:])
    mean, variance = space.forecast(steps)
    np.testing.assert_allclose(mean, across @ np.linalg.solve(own, values[seen]), atol=1e-8)
    expected = covariance[count:, count:] - across @ np.linalg.solve(own, across.T)
    np.testing.assert_allclose(variance, expected, atol=1e-8)
    quadratic = values[seen] @ np.linalg.solve(own, values[seen])
    density = -0.5 * (quadratic + np.linalg.slogdet(2 * np.pi * own)[1])
    np.testing.assert_allclose(space.log_density, density, rtol=1e-9)


def test_a_product_of_two_walks_has_no_constant_noise():
    assert product(walk(), walk()) is None and product(walk(), decay(1.0)) is None


def test_a_state_goes_on_in_another_filter():
    values = np.random.default_rng(0).standard_normal(90)
    whole, first, second = (StateSpace([walk(), wave(2.0)], NOISE, STEP) for _ in range(3))
    whole.observe(values)
    first.observe(values[:50])
    second.state = first.state
    second.observe(values[50:])
    np.testing.assert_allclose(second.forecast(np.array([3]))[0], whole.forecast(np.array([3]))[0])
