import numpy as np
import pytest

from gpytorch_nkn.initialization import change_points

N, PLACE = 160, 100
TIME = np.arange(N)
AFTER = TIME >= PLACE
SEASON = np.sin(2 * np.pi * TIME / 12)

# Series by kind of change, each with noise of deviation one.
CHANGES = {
    "level": lambda e: 4 * AFTER + e,
    "level-on-a-walk": lambda e: 9 * AFTER + e.cumsum(),
    "slope": lambda e: 0.25 * np.maximum(TIME - PLACE, 0) + e,
    "variance": lambda e: np.where(AFTER, 5, 1) * e,
    "variance-of-a-walk": lambda e: (np.where(AFTER, 5, 1) * e).cumsum(),
}
NONE = {
    "noise": lambda e: e,
    "walk": lambda e: e.cumsum(),
    "walk-with-noise": lambda e: e.cumsum() + 2 * np.roll(e, 7),
    "integrated-random-walk": lambda e: e.cumsum().cumsum(),
    "season": lambda e: 3 * SEASON + e,
    "line-with-an-outlier": lambda e: 0.1 * TIME + e + 12 * (TIME == 70),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_found_where_they_are(name):
    for seed in range(3):
        y = CHANGES[name](np.random.default_rng(seed).standard_normal(N))
        change = change_points(TIME, y)[0]
        assert change.gain > 0 and change.kind == name.split("-")[0]
        assert change.location == pytest.approx(PLACE - 0.5, abs=6)


@pytest.mark.parametrize("name", NONE)
def test_series_without_a_change_seldom_seem_to_have_one(name):
    draws = [np.random.default_rng(seed).standard_normal(N) for seed in range(12)]
    gains = [change_points(TIME, NONE[name](e))[0].gain for e in draws]
    assert np.mean(np.array(gains) > 0) <= 0.1


def test_units_and_order_do_not_matter_and_several_are_found():
    rng = np.random.default_rng(0)
    y = 6.0 * (TIME >= 50) - 9.0 * (TIME >= 110) + rng.standard_normal(N)
    found = change_points(TIME, y, num_candidates=3)
    assert sorted(change.location for change in found if change.gain > 0) == [49.5, 109.5]
    mixed = rng.permutation(N)
    other = change_points(7 + 30 * TIME[mixed], 5 - 2 * y[mixed], num_candidates=3)
    for one, two in zip(found, other, strict=True):
        assert two.kind == one.kind and two.location == pytest.approx(7 + 30 * one.location)
        assert two.gain == pytest.approx(one.gain, abs=1e-6)


def test_long_series_are_averaged():
    y = 3.0 * (np.arange(5000) >= 3200) + np.random.default_rng(0).standard_normal(5000)
    assert change_points(np.arange(5000), y)[0].location == pytest.approx(3200, abs=60)


def test_bursts_between_long_gaps_have_a_change():
    times = np.concatenate([start + 1e-6 * np.arange(100) for start in (0, 1)])
    y = np.repeat([0.0, 5.0], 100) + np.random.default_rng(0).normal(size=200)
    assert all(0 <= change.location <= 1 for change in change_points(times, y))


def test_few_or_constant_values_have_none_and_bad_ones_are_rejected():
    assert change_points(np.arange(8.0), np.arange(8.0) ** 2) == []
    assert change_points(np.repeat(np.arange(4.0), 9), np.arange(36.0)) == []
    assert change_points(np.arange(50.0), np.ones(50)) == []
    line = change_points(np.arange(50.0), 2 * np.arange(50.0) + 1)
    assert all(np.isfinite(change.gain) for change in line)
    with pytest.raises(ValueError, match=r"finite vectors of one length, got shapes \(3,\)"):
        change_points(np.arange(3.0), np.arange(4.0))
    with pytest.raises(ValueError, match="finite vectors"):
        change_points(np.arange(9.0), np.full(9, np.nan))
