import numpy as np
import pytest

from gpytorch_nkn.datasets import load_co2


def test_co2_is_monthly_and_holds_out_its_last_ten_years():
    series = load_co2()
    assert series.y.size == 521 and not np.isnan(series.y).any()
    assert series.test.sum() == 120 and series.x[series.test][0] == np.datetime64("1992-01-01")
    assert series.y[0] == pytest.approx(316.1)  # the only weekly value of March 1958
    steps = np.diff(series.x.astype("datetime64[M]").astype(int))
    assert set(steps) == {1, 2, 4}  # five months have no data
