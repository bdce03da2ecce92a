from datetime import date, timedelta

import numpy as np
import pandas as pd
import pytest

from gpytorch_nkn.estimators.series.series_input import as_time


def test_dates_beyond_the_nanoseconds_of_pandas():
    days = [date(3000, 1, 1) + timedelta(days=number) for number in range(3)]
    np.testing.assert_array_equal(np.diff(as_time(days)), 1.0)


def test_lists_of_durations_are_days():
    np.testing.assert_array_equal(as_time([timedelta(hours=12), timedelta(2)]), [0.5, 2.0])


@pytest.mark.parametrize(
    "x", [[None, date(2020, 1, 1)], [date(2020, 1, 1), None], pd.to_timedelta([None, 1])]
)
def test_missing_times_are_named_wherever_they_are(x):
    with pytest.raises(ValueError, match="1 missing"):
        as_time(x)
