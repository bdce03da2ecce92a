import numpy as np
import pytest

from gpytorch_nkn.grids.fill import SmoothInterpolants
from gpytorch_nkn.grids.mixture import Mixture, _Case


def case(seed=0, channels=1):
    """A noisy hill with a hole, the hill itself, and four blocks."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:40, :40] / 4
    truth = np.sin(rows) + np.cos(columns) + np.zeros((channels, 1, 1))
    values = truth + 0.03 * rng.normal(size=truth.shape)
    missing = np.zeros(truth.shape, dtype=bool)
    missing[:, 16:24, 16:24] = True
    blocks = np.zeros((4, 40, 40), dtype=bool)
    for block, (i, j) in zip(blocks, [(4, 4), (4, 28), (28, 4), (28, 28)], strict=True):
        block[i : i + 8, j : j + 8] = True
    return np.where(missing, np.nan, values), truth, missing, blocks


def mixture_of(values, missing, blocks):
    maker = SmoothInterpolants(values.shape[1:])
    return Mixture(values, missing, blocks, maker, ["harmonic", "biharmonic"], cells=missing[0])


@pytest.mark.parametrize("channels", [1, 2])
def test_a_fill_that_is_right_in_the_blocks_is_taken_alone(channels):
    values, truth, missing, blocks = case(channels=channels)
    mixture = mixture_of(values, missing, blocks)
    mixture.add("true", truth, [truth] * 4)
    mean, variance, weights = mixture.fill()
    assert weights == {"true": 1.0, "harmonic": 0.0, "biharmonic": 0.0}
    np.testing.assert_array_equal(mean[missing], truth[missing])
    np.testing.assert_array_equal(mean[~missing], values[~missing])
    assert (variance[~missing] == 0).all()
    std = np.sqrt(variance[missing])  # the noise, and what four blocks do not exclude
    assert std.mean() == pytest.approx(0.03, rel=0.7) and std.max() < 0.09


def test_weights_are_positive_and_sum_to_one_and_wrong_fills_get_none():
    values, truth, missing, blocks = case()
    mixture = mixture_of(values, missing, blocks)
    noise = 5 * np.random.default_rng(3).normal(size=truth.shape)
    mixture.add("noise", noise, [noise] * 4)
    mean, variance, weights = mixture.fill()
    assert sum(weights.values()) == pytest.approx(1) and min(weights.values()) >= 0
    assert weights["noise"] < 0.05
    assert np.abs(mean - truth)[missing].mean() < 0.5 < np.abs(noise - truth)[missing].mean()
    assert (np.abs(mean - truth) < 3 * np.sqrt(variance))[missing].mean() > 0.9


def test_variance_grows_with_the_distance_to_known_cells():
    rng = np.random.default_rng(5)
    values = rng.normal(size=(1, 60, 60)).cumsum(1).cumsum(2)  # a rough sheet
    values = (values - values.mean()) / values.std()
    missing = np.zeros(values.shape, dtype=bool)
    missing[:, 24:36, 24:36] = True
    blocks = np.stack([np.roll(missing[0], shift, (0, 1)) for shift in [(15, 9), (-15, -8)]])
    _, variance, _ = mixture_of(values, missing, blocks).fill()
    assert variance[0, 30, 30] > 1.5 * variance[0, 24, 24:36].mean()


def test_variance_of_a_gp_given_few_known_cells_is_exact():
    missing = np.ones((2, 4, 5), dtype=bool)
    missing[:, [0, 1, 2, 3, 3, 1], [0, 2, 4, 1, 3, 3]] = False
    missing[1, 0, 4] = False
    factors = [np.exp(-(np.subtract.outer(range(n), range(n)) ** 2) / 8) for n in (4, 5)]
    case = _Case(np.zeros(missing.shape), missing, missing, SmoothInterpolants((4, 5)), [], 10.0)
    full, expected = np.kron(*factors), []
    for hole in missing.reshape(2, -1):
        own, cross = full[~hole][:, ~hole] + 0.3 * np.eye(sum(~hole)), full[hole][:, ~hole]
        expected += [*np.diag(full[hole][:, hole] - cross @ np.linalg.solve(own, cross.T))]
    np.testing.assert_allclose(case.gp_variance(factors, 0.3), expected, atol=1e-5)
