"""Changes of the level and the slope of a series."""

import numpy as np
import pandas as pd
import pytest

from gpytorch_nkn.estimators import NKNForecaster

_MONTHS = pd.period_range("2015-01", periods=72, freq="M")
_STEPS = np.arange(84)
_WAVE = 100 + 10 * np.sin(2 * np.pi * _STEPS / 12)


def noise(seed=0):
    return np.random.default_rng(seed).normal(size=84)


def fitted(values):
    model = NKNForecaster(quality="fast", horizon=12, random_state=0, progress=False)
    return model.fit(pd.Series(values[:72], _MONTHS))


@pytest.mark.parametrize("begin, end", [(69, 84), (40, 46)], ids=["three months ago", "shock"])
def test_after_a_shift_forecasts_are_as_without_one(begin, end, one_structure):
    values = _WAVE + noise() + 15 * ((_STEPS >= begin) & (_STEPS < end))
    model = fitted(values)
    ends = [begin] if end > 72 else [begin, end]
    assert model.shifts_.tolist() == _MONTHS[ends].tolist()
    found = model.forecast(12, level=95)
    assert np.abs(found["median"].to_numpy() - values[72:]).mean() < 1.5
    assert (found["hi-95"] - found["lo-95"]).mean() < 8  # 4 of the noise itself


def test_after_a_change_of_slope_the_band_is_that_of_a_line(one_structure):
    line = np.arange(132.0)
    bent = np.minimum(line, 80) - np.maximum(line - 80, 0)
    model = NKNForecaster(horizon=12, seasons=[], random_state=0, progress=False)
    y = bent[:120] + np.random.default_rng(0).normal(size=120)
    found = model.fit(line[:120], y).forecast(12, level=95)
    assert np.abs(model.shifts_ - 80).min() <= 2
    assert np.abs(found["median"].to_numpy() - bent[120:]).mean() < 2
    assert (found["hi-95"] - found["lo-95"]).mean() < 8  # 4.3 of a line with a known kink


def test_changes_of_slope_at_observations_are_exact(one_structure):
    line = np.arange(88.0)
    bent = sum(c * np.maximum(line - at, 0) for at, c in ((0, 1), (20, -2), (40, 3), (60, -1.7)))
    y = bent[:80] - 100 + 1e-3 * noise()[:80]
    model = NKNForecaster(horizon=8, seasons=[], random_state=0, progress=False).fit(line[:80], y)
    assert model.shifts_.tolist() == [20, 40, 60]
    tenths = NKNForecaster(horizon=8, seasons=[1.2], quality="fast", random_state=0)
    assert tenths.fit(line[:80] * 0.1, y).shifts_.tolist() == (line[20:80:20] * 0.1).tolist()
    assert np.abs(model.forecast(8)["median"].to_numpy() - bent[80:] + 100).max() < 0.1


def test_after_growth_a_series_may_fall_as_fast(one_structure):
    y = 5 * np.minimum(_STEPS, 64) - 5 * np.maximum(_STEPS - 64, 0) + 100 + noise()
    assert np.abs(fitted(y).forecast(12)["median"] - y[72:]).mean() < 10


@pytest.mark.parametrize(
    "values",
    [
        _WAVE + np.cumsum(noise()),
        _WAVE + 0.5 * _STEPS + noise(),
        np.cumsum(np.random.default_rng(1).standard_t(3, 84)),
    ],
    ids=["walk", "trend", "heavy tails"],
)
def test_other_series_have_no_shift(values):
    assert not len(fitted(values).shifts_)


def test_intervals_expect_further_shifts_after_several(one_structure):
    values = np.repeat(10 * noise()[:7], 12) + 0.2 * noise(1)
    table = fitted(values).forecast(12, level=95)
    width = (table["hi-95"] - table["lo-95"]).to_numpy()
    assert width[-1] > 2.5 * width[0] and width[-1] > 10


def test_few_different_times_have_no_shift(one_structure):
    x = np.repeat([1.0, 2.0, 3.0, 4.0], 8)
    model = NKNForecaster(quality="fast", random_state=0, progress=False)
    assert not len(model.fit(x, 9 * (x > 2) + noise()[:32]).shifts_)
