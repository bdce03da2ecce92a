import re
import warnings

import numpy as np
import pandas as pd
import pytest

from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.estimators.nkn.table_columns import TableColumns
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.interpretation import effects, report

DAYS = np.random.default_rng(0).permutation(40) * 7.0
DATES = pd.Series(pd.Timestamp("2020-01-01 06:00") + pd.to_timedelta(DAYS, unit="D"))


def regressor():
    recipe = Recipe(adam_steps=0, lbfgs_iterations=10)
    return NKNRegressor("rbf", restarts=1, recipe=recipe, random_state=0, progress=False)


def test_effects_and_reports_show_dates(tmp_path, few_iterations):
    X = pd.DataFrame({"when": DATES, "a": np.cos(DAYS)})
    model = regressor().fit(X, np.sin(DAYS / 40) * X["a"])
    when = next(effect for effect in effects(model, samples=64).main if effect.label == "when")
    assert (np.sort(when.data[0]) == np.sort(DATES)).all()
    assert when.grid[0][0] == DATES.min() and when.grid[0][-1] == DATES.max()
    found = report(model)
    assert "As when goes from 2020-01-01 to 2020-09-30" in str(found)
    found.save(tmp_path / "report.html")  # the figures accept dates, also of the pair


@pytest.mark.parametrize("zone", [None, "Asia/Tokyo", "America/New_York"])
def test_dates_are_days_in_the_time_zone_of_their_column(zone):
    """The clock of New York changes on 8 March; local dates keep distances of whole days."""
    days = pd.Series(pd.date_range("2020-03-01", periods=20, tz=zone))
    for column in (days, days.astype(object), days.where(days.index > 20)):
        columns = TableColumns.of(pd.DataFrame({"when": column}))
        first = columns.first_dates["when"]
        assert np.isnat(first) or first == np.datetime64("2020-03-01")
    columns = TableColumns.of(pd.DataFrame({"when": days}))
    for same in (days, days.dt.tz_convert("UTC")) if zone else (days,):
        found = columns(pd.DataFrame({"when": same}))["when"]
        np.testing.assert_array_equal(found, np.arange(20.0))
        late = columns(pd.DataFrame({"when": same.where(same.index > 12)}))["when"]
        np.testing.assert_array_equal(late[12:], [np.nan, *range(13, 20)])
    other = days.dt.tz_localize(None if zone else "UTC")
    with pytest.raises(ValueError, match="'when' must hold dates with.* time zone as in fit"):
        columns(pd.DataFrame({"when": other}))


def test_times_that_changed_are_rejected():
    X = pd.DataFrame({"when": DATES, "a": DAYS})
    model = regressor().fit(X, np.sin(DAYS / 40))
    strings = X.assign(when=DATES.astype(str))
    with pytest.raises(ValueError, match="'when'"):
        model.predict(X.assign(when=DAYS))
    with pytest.raises(ValueError, match="convert it by pandas.to_datetime"):
        model.predict(strings)
    read = strings.assign(when=pd.to_datetime(strings["when"]))
    np.testing.assert_array_equal(model.predict(read), model.predict(X))
    with pytest.raises(TypeError, match="must be a data frame"):
        model.predict(np.ones((2, 2)))


@pytest.mark.parametrize(
    ("strings", "message"),
    [
        (["None", *map(str, DAYS[1:])], "most of its strings are numbers, and 'None' is not"),
        ([f"id{number}" for number in range(40)], "nearly all of its strings differ.*'id0'"),
        (DATES.dt.date.astype(str), "its strings are dates such as '2020-"),
        (["unknown", *DATES.dt.strftime("%d/%m/%Y")[1:]], "its strings are dates such as"),
        (["1 May 2020", *DATES.dt.strftime("%Y-%m-%d")[1:]], "its strings are dates such as"),
    ],
)
def test_strings_that_are_hardly_categories_are_named_and_the_advice_works(
    strings, message, few_iterations
):
    X = pd.DataFrame({"a": DAYS, "text": pd.Series(strings, dtype=object)})
    with pytest.warns(UserWarning, match=message) as caught:
        regressor().fit(X, np.sin(DAYS / 40))
    advice = re.search(r"pandas\.\w+\(X\['text'\][^)]*\)", str(caught[0].message))
    if advice:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            X["text"] = eval(advice[0], {"pandas": pd, "X": X})
        assert X["text"].notna().mean() > 0.9
    else:
        X = X.drop(columns="text")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not regressor().fit(X, np.sin(DAYS / 40)).categories_


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1.0] * 39 + ["2.91 EUR"], "y must hold numbers, got '2.91 EUR' in row 39"),
        (pd.Series([1.0, 2.0, np.nan, *DAYS[3:]]), "y contains NaN, first in row 2: drop such"),
    ],
)
def test_targets_that_are_no_numbers_are_named(y, message):
    with pytest.raises(ValueError, match=message):
        regressor().fit(DAYS[:, None], y)
    if "contains NaN" in message:
        regressor().fit(DAYS[~pd.isna(y), None], np.asarray(y)[~pd.isna(y)])
    X = np.array([[1.0, "x"]] * 40, dtype=object)
    with pytest.raises(ValueError, match="X must hold numbers, got 'x' in row 0 and column 1"):
        regressor().fit(X, DAYS)
    frame = pd.DataFrame(X).assign(a=DAYS)  # as the error advises
    frame.columns = frame.columns.astype(str)
    assert list(regressor().fit(frame, DAYS).categories_) == ["1"]


@pytest.mark.parametrize("y", [DATES, (DATES - DATES[0]).to_numpy()], ids=["dates", "durations"])
def test_targets_that_are_times_become_days_as_advised(y):
    with pytest.raises(TypeError, match="y must hold numbers") as error:
        regressor().fit(DAYS[:, None], y)
    advice = re.search(r"\(y - .*\)", str(error.value))[0]
    regressor().fit(DAYS[:, None], eval(advice, {"numpy": np, "y": y}))


def test_other_objects_and_repeated_names_are_rejected():
    table = {"a": DAYS, "b": np.sin(DAYS)}
    with pytest.raises(TypeError, match="X must be an array or a data frame, got dict"):
        regressor().fit(table, DAYS)
    fields = np.array(list(zip(DAYS, DAYS, strict=True)), dtype=[("a", float), ("b", float)])
    with pytest.raises(TypeError, match="X must be a table, got named fields"):
        regressor().fit(fields, DAYS)
    for one in (table, fields):
        regressor().fit(pd.DataFrame(one), DAYS)  # as both errors advise
    X = pd.DataFrame({"a": DAYS, "b": ["x", "y"] * 20})
    with pytest.raises(ValueError, match=r"got \['b'\] more than once: rename"):
        regressor().fit(pd.concat([X, X[["b"]]], axis=1), DAYS)


def test_a_column_that_held_numbers_in_fit_does_not_become_one_of_categories():
    X = pd.DataFrame({"a": DAYS, "b": np.sin(DAYS)})
    model = regressor().fit(X, DAYS)
    other = X.assign(b=["?", *X["b"][1:].astype(str)])
    with pytest.raises(ValueError, match=r"'b' \(.*, such as '\?'\): they held numbers in fit"):
        model.predict(other)
    read = model.predict(other.assign(b=pd.to_numeric(other["b"], errors="coerce")))
    np.testing.assert_allclose(read[1:], model.predict(X)[1:])
