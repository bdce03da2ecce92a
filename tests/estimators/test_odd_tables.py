"""Tables of unusual types: a sound answer, or an error that names the column and what to do."""

import datetime
import decimal
import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.dummy import DummyRegressor

from gpytorch_nkn.estimators import (
    ASKLClassifier,
    ASKLRegressor,
    DANKClassifier,
    DANKRegressor,
    NKNClassifier,
    NKNRegressor,
)
from gpytorch_nkn.fit import Recipe

try:
    import pyarrow as pa
except ImportError:
    pa = None

N = 40
RNG = np.random.default_rng(0)
X = pd.DataFrame({"a": RNG.normal(size=N), "b": RNG.normal(size=N)})
Y = np.sin(2 * X["a"]) + X["b"]
WORDS = np.where(X["a"] > 0, "x", "z")
DAYS = pd.date_range("2020-01-01", periods=N)
OPTIONS = {"restarts": 1, "recipe": Recipe(adam_steps=0, lbfgs_iterations=3), "random_state": 0}
ASKL = {"n_components": 20, "max_iter": 2, "gamma": 0.5, "random_state": 0}
MAKE = {
    "NKNRegressor": lambda: NKNRegressor("rbf", progress=False, **OPTIONS),
    "NKNClassifier": lambda: NKNClassifier("rbf", progress=False, **OPTIONS),
    "ASKLRegressor": lambda: ASKLRegressor(**ASKL),
    "ASKLClassifier": lambda: ASKLClassifier(**ASKL),
    "DANKRegressor": lambda: DANKRegressor(relevance=None, eta=np.inf),
    "DANKClassifier": lambda: DANKClassifier(relevance=None, eta=np.inf),
}
CLASSIFIERS = [name for name in MAKE if name.endswith("Classifier")]
each = pytest.mark.parametrize("name", MAKE)


def fitted(name, table, y=Y):
    return MAKE[name]().fit(table, y > 0 if name in CLASSIFIERS else y)


def arrow(values, kind):
    return pd.Series(values).astype(pd.ArrowDtype(kind))


# Columns of unusual types, and others with the same meaning.
SAME = {
    "Float64": (X["a"].where(X["a"] < 1).astype("Float64"), X["a"].where(X["a"] < 1)),
    "boolean": (pd.array([True, None, False, True] * 10, dtype="boolean"), [1, None, 0, 1] * 10),
    "objects of booleans": (pd.Series([True, None, False, True] * 10), [1, None, 0, 1] * 10),
    "string": (pd.array(["x", None, "z", "x"] * 10, dtype="string"), ["x", None, "z", "x"] * 10),
    "strings of numbers": (["1", "2.5"] * 20, [1, 2.5] * 20),
    "strings, none present": (pd.array([None] * N, dtype="string"), [np.nan] * N),
    "objects": (X["b"].astype(object), X["b"]),
    "decimals": ([decimal.Decimal(i) for i in range(N)], range(N)),
    "sparse": (pd.arrays.SparseArray([0.0, 1.0] * 20), [0.0, 1.0] * 20),
    "unused levels": (pd.Categorical(WORDS, categories=["x", "never", "z"]), WORDS),
    "object dates": ([day.date() for day in DAYS], DAYS),
    "time zone": (DAYS.tz_localize("UTC"), DAYS),
    "periods": (DAYS.to_period("D"), DAYS),
    "durations": (DAYS - DAYS[0], np.arange(N)),
    "tiny": (X["a"] * 2.0**-1000, X["a"]),
    "far from zero": (2.0**40 + np.arange(N), np.arange(N)),
    "huge integers": ([10**30 * i for i in range(N)], np.arange(N)),
}
if pa is not None:
    COINS = pd.Series([decimal.Decimal("1.5"), None] * 20)
    SAME |= {
        "pyarrow durations": (arrow(DAYS - DAYS[0], pa.duration("us")), np.arange(N)),
        "pyarrow dates": (arrow(DAYS, pa.timestamp("us")), DAYS),
        "pyarrow dictionary": (arrow(WORDS, pa.dictionary(pa.int32(), pa.string())), WORDS),
        "pyarrow decimals": (
            arrow(COINS + np.arange(N), pa.decimal128(5, 2)),
            COINS + np.arange(N),
        ),
    }


def test_columns_of_the_same_meaning_are_the_same_inputs(few_iterations):
    found = []
    for number in range(2):
        table = pd.DataFrame({kind: pair[number] for kind, pair in SAME.items()})
        model = fitted("NKNRegressor", table)
        found.append(pd.DataFrame(model.standardised_inputs(table), columns=model.columns_))
        assert model.predict(table.head(2)).shape == (2,)
    assert SAME.keys() - set(found[0]) == {"strings, none present"}
    pd.testing.assert_frame_equal(*found, rtol=1e-6, atol=1e-6)


@each
def test_sparse_and_nullable_columns_give_what_an_array_gives(name):
    odd, array = X.astype({"a": "Float64", "b": pd.SparseDtype(float)}), X.to_numpy()
    found = fitted(name, odd).predict(odd)
    np.testing.assert_allclose(found, fitted(name, array).predict(array), rtol=1e-6)


LEVELS = pd.MultiIndex.from_tuples([("u", "a"), ("u", "b")])


@pytest.mark.parametrize(
    ("name", "names"), zip(MAKE, 2 * [[0, 1], LEVELS, ["a", "b"]], strict=True), ids=MAKE
)
def test_columns_in_another_order_are_rejected(name, names):
    table = X.set_axis(names, axis=1)
    model = fitted(name, table)
    with pytest.raises(ValueError, match="as in fit|same order"):
        model.predict(table.iloc[:, ::-1])
    for odd, match in (
        (table.iloc[:, [0, 0]], "unique name"),
        (table.iloc[:0], "0 sample"),
        (table.iloc[:, :1], "as in fit|now missing"),
        (
            table.set_axis(["z", "y"], axis=1).astype(object).replace(X.iloc[0, 0], "w"),
            "in fit|now",
        ),
    ):
        with pytest.raises(ValueError, match=match):
            model.predict(odd)


def test_columns_are_named_by_the_data_frame():
    if pa is not None:
        model = fitted("NKNRegressor", pa.Table.from_pandas(X))
        assert model.columns_ == tuple(model.feature_names_in_) == ("a", "b")
    model = fitted("NKNRegressor", X.assign(c=WORDS).set_axis([0, 1, 7], axis=1))
    assert model.columns_ == ("0", "1", "7") and model.categories_ == {"7": ("x", "z")}


BAD = {
    "lists": [[1]] * N,
    "bytes": [b"x", b"y"] * 20,
    "complex": [1j, 2.0] * 20,
    "mixed": [1, "two"] * 20,
    "intervals": pd.interval_range(0, N),
    "times of day": [datetime.time(i % 20) for i in range(N)],
    "dictionaries": [{"k": 1}] * N,
}


@pytest.mark.parametrize(
    ("name", "kind"), [*product(["NKNRegressor"], BAD), *zip(list(MAKE)[1:], BAD, strict=False)]
)
def test_columns_without_numbers_are_named_with_an_example(name, kind):
    table = X.assign(c=BAD[kind])
    with pytest.raises(ValueError, match=r"numbers, got 'c' \(.*, such as .*\): (make|encode)"):
        fitted(name, table)
    if name == "NKNRegressor":  # whose strings are categories
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of intervals that all differ
            model = fitted(name, table.assign(c=table["c"].astype(str)))
        assert "c" in model.categories_


@pytest.mark.parametrize("name", ["NKNRegressor", "DANKClassifier"])
@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (lambda: (X[[]], Y), ValueError, "at least one column"),
        (lambda: (sparse.csr_matrix(X), Y), TypeError, "[Ss]parse"),
        (lambda: (np.ma.masked_greater(X.to_numpy(), 1), Y), ValueError, "no masked values, got"),
        (lambda: (X, np.ma.masked_greater(Y.to_numpy(), 1)), ValueError, "NaN, first in row 1"),
        (lambda: (X, Y.to_numpy()[None]), ValueError, "inconsistent numbers|one column, got shape"),
    ],
)
def test_other_tables_are_rejected(name, change, error, match):
    table, y = change()
    with pytest.raises(error, match=match):
        MAKE[name]().fit(table, y.round() if name in CLASSIFIERS else y)


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize(
    ("labels", "match"),
    [
        (["a"] * N, "at least 2 classes, got 1 class"),
        (["a", None, *"ab" * 19], "contains NaN, first in row 1"),
        (Y, "(?i)unknown label type: continuous"),
        (np.array([1, "a"] * 20, dtype=object), "all numbers, got number and str"),
        (pd.cut(Y, 3), r"all numbers, got Interval: .*y\.astype\(str\)"),
        (pd.period_range("2020", periods=N, freq="D"), "all numbers, got Period"),
    ],
)
def test_other_labels_are_rejected(name, labels, match):
    with pytest.raises(ValueError, match=match):
        MAKE[name]().fit(X, labels)


@pytest.mark.parametrize("name", ["NKNRegressor", "DANKRegressor"])
def test_targets_of_unusual_types(name):
    expected = fitted(name, X).predict(X)
    index = Y.set_axis(np.arange(N) + 100)
    for y in (Y.astype("Float64"), Y.astype(str), Y.astype(object), index):
        np.testing.assert_allclose(fitted(name, X, y).predict(X), expected)
    other_rows = X.set_axis(np.arange(N) + 1), Y.set_axis(np.arange(N) + 2)
    for x, y in ((X, Y.iloc[::-1]), other_rows):
        with pytest.warns(UserWarning, match=r"different indices, but rows .*= X\.align\(y, join="):
            fitted(name, x, y)
    x, y = X.align(Y.iloc[::-1], join="inner", axis=0)  # as the warning advises
    np.testing.assert_allclose(fitted(name, x, y).predict(X), expected)
    for y in (DAYS, ["u", "v"] * 20, [datetime.date(2020, 1, 1)] * N):
        with pytest.raises((TypeError, ValueError), match="y must hold numbers"):
            fitted(name, X, y)
    with pytest.raises(ValueError, match="infinity"):
        fitted(name, X, Y.where(Y < 1, np.inf))


@pytest.mark.parametrize("name", ["NKNRegressor", "ASKLRegressor"])
def test_constant_targets_are_predicted_as_advised(name):
    with pytest.raises(ValueError, match="All columns of X are constant"):
        fitted(name, X * 0 + 3)
    with pytest.raises(ValueError, match=r"constant \(3\.0\).*DummyRegressor"):
        fitted(name, X, Y * 0 + 3)
    assert (DummyRegressor().fit(X, Y * 0 + 3).predict(X) == 3).all()
    with pytest.raises(ValueError, match="multiply them by a constant"):
        fitted(name, X, Y * 1e-200)
    fitted(name, X, Y * 1e-200 * 1e200)
    table = X * 1e200
    with pytest.raises(
        ValueError, match=r"X must lie within \+-1e\+100, got .* in row 0 and column 0: divide"
    ):
        fitted(name, table)
    fitted(name, table / 1e200)
