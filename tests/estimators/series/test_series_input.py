import warnings
from datetime import date, timedelta

import numpy as np
import pandas as pd
import pytest

from gpytorch_nkn.estimators.series.covariates import covariate_frame
from gpytorch_nkn.estimators.series.many_series import _times
from gpytorch_nkn.estimators.series.series_input import as_time, as_times, times_and_targets

try:
    import pyarrow as pa
except ImportError:
    pa = None


def test_dates_beyond_the_nanoseconds_of_pandas():
    days = [date(3000, 1, 1) + timedelta(days=number) for number in range(3)]
    np.testing.assert_array_equal(np.diff(as_time(days)), 1.0)


def test_lists_of_durations_are_days():
    np.testing.assert_array_equal(as_time([timedelta(hours=12), timedelta(2)]), [0.5, 2.0])


@pytest.mark.parametrize(
    "x", [[None, date(2020, 1, 1)], [date(2020, 1, 1), None], pd.to_timedelta([None, 1]), [pd.NaT]]
)
def test_missing_times_are_named_wherever_they_are(x):
    with pytest.raises(ValueError, match=r"missing \w+ \(NaT\): 1"), warnings.catch_warnings():
        warnings.simplefilter("error")
        as_time(x)


def test_times_with_a_change_of_the_clock_are_local():
    index = pd.date_range("2024-03-30 09:00", periods=4, tz="Europe/Berlin")
    texts = pd.Series([time.isoformat() for time in index])
    for times in (texts.map(pd.Timestamp), texts.map(pd.Timestamp).tolist()):
        with pytest.warns(UserWarning, match="If the zone is known, set it"):
            pd.testing.assert_index_equal(as_times(times), index.tz_localize(None), exact=False)
    with pytest.warns(UserWarning, match="offsets from UTC are dropped"):
        assert as_times(_times(texts, "ds")).tz is None  # a column of strings
    known = pd.to_datetime(texts.tolist(), utc=True).tz_convert("Europe/Berlin")
    pd.testing.assert_index_equal(as_times(known), index, exact=False)
    far = [pd.Timestamp("2024-01-01 09:00-05:00"), pd.Timestamp("2024-01-01 09:00+01:00")]
    assert str(as_times(far).tz) == "UTC"


def test_rows_are_found_by_the_moments_of_their_dates():
    hours = pd.date_range("2024-03-30", periods=48, freq="h", tz="Europe/Berlin")  # to summer time
    values = pd.Series(np.arange(48.0), [hour.isoformat() for hour in hours])[::-1]
    np.testing.assert_array_equal(times_and_targets(hours, values)[1], np.arange(48.0))
    for one, other in ((hours, hours.tz_localize(None)), (hours.tz_localize(None), hours)):
        with pytest.raises(TypeError, match="y has dates with.* and x has dates with"):
            times_and_targets(one, pd.Series(np.arange(48.0), other))
        alike = other.tz_localize(None if other.tz else "Europe/Berlin")
        assert times_and_targets(one, pd.Series(np.arange(48.0), alike))[1][5] == 5
    for wrong in (hours.tz_localize(None), hours - hours[0]):
        with pytest.raises(TypeError, match="y must hold numbers, got"):
            times_and_targets(np.arange(48.0), wrong.to_numpy())


DAYS = pd.date_range("2024-01-01", periods=5, name="day")
ZONED = DAYS.tz_localize("Europe/Berlin")
INDICES = {
    "dates as objects": (pd.Index(DAYS.date, name="day"), DAYS),
    "timestamps as objects": (ZONED.astype(object), ZONED),
}
if pa is not None:
    INDICES |= {
        "timestamps": (DAYS.astype(pd.ArrowDtype(pa.timestamp("us"))), DAYS),
        "time zone": (ZONED.astype(pd.ArrowDtype(pa.timestamp("ns", "Europe/Berlin"))), ZONED),
        "days": (pd.Index(DAYS.date, dtype=pd.ArrowDtype(pa.date32()), name="day"), DAYS),
        "durations": ((DAYS - DAYS[0]).astype(pd.ArrowDtype(pa.duration("us"))), DAYS - DAYS[0]),
    }


@pytest.mark.parametrize("kind", INDICES)
def test_times_of_every_type_are_the_same_times(kind):
    index, plain = INDICES[kind]
    for times in (index, pd.Series(index), pd.DataFrame({"day": index})):
        pd.testing.assert_index_equal(as_times(times).as_unit("ns"), plain.as_unit("ns"))
    values = pd.Series(np.arange(5.0), index)
    if plain.dtype.kind == "M":  # rows of covariates and known noise are selected by date
        found = covariate_frame(values.iloc[[3, 1, 4, 0, 2]], plain)
        np.testing.assert_array_equal(found.to_numpy()[:, 0], values)
        texts = values.set_axis(plain.map(str)).iloc[[3, 1, 4, 0, 2]]
        np.testing.assert_array_equal(covariate_frame(texts, plain).to_numpy()[:, 0], values)
        panel = values.set_axis(pd.MultiIndex.from_product([["a"], index[::-1]]))  # no dates
        for targets in (values.iloc[::-1], texts.to_frame(), panel):  # and targets
            np.testing.assert_array_equal(times_and_targets(index, targets)[1], values)
        with pytest.raises(ValueError, match="y must have a row for every date"):
            times_and_targets(index, values.iloc[1:])
