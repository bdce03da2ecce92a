import warnings
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.estimators.series.candidates import QUALITIES
from gpytorch_nkn.fit import Recipe

_MONTHS = np.arange(96.0)


def months():
    noise = np.random.default_rng(0).standard_normal(96)
    return 50 + 0.2 * _MONTHS + 8 * np.sin(2 * np.pi * _MONTHS / 12) + noise


def found(values, transform="identity"):
    options = {"transform": transform, "quality": "fast", "seasons": 12, "random_state": 0}
    options["recipe"] = Recipe(adam_steps=0, lbfgs_iterations=10)
    with warnings.catch_warnings(), patch.dict(QUALITIES, fast=("steady",)):  # the scout alone
        warnings.simplefilter("ignore")
        return NKNForecaster(**options).fit(_MONTHS[: len(values)], values).outliers_.tolist()


@pytest.mark.parametrize(
    "wild", [{}, {95: 5e7}, {0: -1e6}, {30: 1e6, 31: 1e6}, {10: 1e6, 50: 2e3}], ids=str
)
def test_values_that_all_others_rule_out_are_found_wherever_they_are(wild):
    values = months()
    values[list(wild)] = list(wild.values())
    assert found(values) == list(wild)


def test_repeated_and_permanent_changes_are_not_outliers():
    sparse = np.zeros(96)
    sparse[::24] = 5.0
    assert found(sparse) == []
    assert found(np.where(_MONTHS == 7, 5.0, 0.0)) == []  # the rest would be constant
    assert found(months() + 100 * (_MONTHS >= 60)) == []
    assert found(np.r_[np.arange(10.0), 1e6]) == []  # too few to tell
    for exact in (3 + 2 * _MONTHS[:60], _MONTHS[:60] ** 2):
        assert found(exact, "auto") == []


def test_outliers_of_positive_series_are_outliers_in_logarithms_too():
    values = months()
    values[40] = 5e7
    assert found(values, "auto") == found(values, "log") == [40]
    skewed = np.exp(6 * np.random.default_rng(1).standard_normal(96))
    assert found(skewed)  # spikes to those who do not know
    assert found(skewed, "auto") == []


def test_one_outlier_does_not_ruin_a_forecast(one_structure):
    index = pd.period_range("2012-01", periods=96, freq="M")
    series = pd.Series(months(), index)
    options = {"quality": "fast", "random_state": 0, "progress": False}
    clean = NKNForecaster(**options).fit(series)
    spoilt = series.mask(index == "2015-05", -5e7)
    with pytest.warns(UserWarning, match=r"1 of 96 observations are outliers .* 2015-05"):
        robust = NKNForecaster(**options).fit(spoilt)
    assert clean.outliers_.empty and robust.outliers_.tolist() == [pd.Period("2015-05", "M")]
    assert robust.members_[0].scales.transform.lower == 0 and len(robust.observed_) == 96
    ax = robust.plot(6, history=96, ax=Figure().add_subplot())  # its axis suits the other values
    assert ax.get_ylim()[0] > 0
    wanted, got = clean.forecast(12), robust.forecast(12)
    width = (wanted["hi-95"] - wanted["lo-95"]).to_numpy()[:, None]
    assert (np.abs(got - wanted).to_numpy() < 0.1 * width).all()
    more = pd.Series(months()[-3:], pd.period_range("2020-01", periods=3, freq="M"))
    robust.update(more)  # still without it
    assert robust.outliers_.size == 1 and robust.forecast(1).iloc[0].between(0, 200).all()
    robust.update(series["2015-05":"2015-05"])  # now it is as it should be
    assert robust.outliers_.empty
    clean.update(more)
    np.testing.assert_allclose(robust.forecast(12), clean.forecast(12), rtol=0.05)


def test_outliers_are_kept_on_request(one_structure):
    values = months()
    values[40] = 0.0
    options = {"quality": "fast", "random_state": 0, "progress": False, "transform": "identity"}
    kept = NKNForecaster(outliers="keep", **options).fit(_MONTHS, values)
    assert kept.outliers_.size == 0 and kept.model_.train_targets.numel() == 96


def _week(time):
    return 100 + np.array([0.0, 5, 8, 9, 12, -10, -15])[time.astype(int) % 7]


@pytest.mark.parametrize(
    ("pattern", "season", "count", "noise", "wild", "size"),
    [
        (_week, 7, 98, 2.0, [91 - 7, 91 - 6], -60.0),  # two days of a holiday
        (_week, 7, 56, 0.0, [23], 300.0),
        (lambda time: np.where(time < 40, 5.0, 8.0), 12, 72, 0.0, [], 0.0),
    ],
    ids=["holiday", "exact weeks", "exact step"],
)
def test_what_came_once_is_not_forecast(pattern, season, count, noise, wild, size, one_structure):
    time = np.arange(float(count + season))
    true = pattern(time)
    values = (true + noise * np.random.default_rng(1).standard_normal(time.size))[:count]
    values[wild] += size
    model = NKNForecaster(quality="fast", seasons=season, random_state=0, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(time[:count], values)
    assert np.abs(model.predict(time[count:]) - true[count:]).max() < 0.1 + noise
