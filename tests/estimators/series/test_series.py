import numpy as np
import pytest

from gpytorch_nkn.estimators.series.series import Series

TIME = np.arange(200.0)


def series(values, seasons):
    return Series(TIME, values, seasons, 6)


@pytest.mark.parametrize("period", [5.0, 17.0, 30.0])
def test_a_cycle_beside_a_season_is_found(period):
    values = 3 * np.sin(2 * np.pi * TIME / 12) + np.sin(2 * np.pi * TIME / period)
    found, times = series(values, [12.0]).cycle()
    assert found == pytest.approx(period, rel=0.01) and times == pytest.approx(199 / found)


@pytest.mark.parametrize("values", [2 * TIME, 1 / 3 + TIME / 7 + np.cos(2 * np.pi * TIME / 12)])
def test_rounding_errors_are_no_cycle(values):
    assert series(values, [12.0]).cycle() is None


def test_windows_are_those_of_the_horizon_after_the_first_origin():
    short = Series(np.arange(60.0), np.zeros(60), [12.0], 6)
    assert short.num_windows == pytest.approx((60 - 24) / 6)  # after two seasons
    long = Series(np.arange(2000.0), np.zeros(2000), [], 50)
    assert long.num_windows == pytest.approx((1200 - 400) / 50)  # of 24 horizons
