import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.estimators.nkn.table_monotone import Monotone
from gpytorch_nkn.fit import Recipe

SHORT = Recipe(adam_steps=0, lbfgs_iterations=10)


def regressor(**options):
    return NKNRegressor("rbf", restarts=1, recipe=SHORT, random_state=0, progress=False, **options)


def truth(X):
    return np.floor(2 * X[:, 0]) - np.abs(X[:, 1]) + np.exp(X[:, 2])


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 3))
    return X, truth(X) + 0.4 * rng.standard_normal(60)


def moved(X, column, steps=80):
    """Rows ``len(X) x steps`` in which a column goes from end to end and beyond."""
    many = np.repeat(X[:, None], steps, 1)
    many[..., column] = np.linspace(-1.5, 1.5, steps)
    return many.reshape(-1, X.shape[1])


def test_predictions_rise_and_fall_as_asked(data):
    X, y = data
    new = np.random.default_rng(1).uniform(-1, 1, (6, 3))
    plain = regressor().fit(X, y)
    found = regressor(monotonic_cst=[1, 0, 0]).fit(X, y)
    steps = np.diff(found.predict(moved(new, 0)).reshape(6, -1), axis=1)
    assert steps.min() > -1e-9
    assert np.diff(plain.predict(moved(new, 0)).reshape(6, -1), axis=1).min() < -1e-3
    both = regressor(monotonic_cst=[1, 0, 1]).fit(X, y)
    for column in (0, 2):
        steps = np.diff(both.predict(moved(new, column)).reshape(6, -1), axis=1)
        assert steps.min() > -1e-9
    down = regressor(monotonic_cst=[-1, 0, 0]).fit(X, -y)
    np.testing.assert_allclose(down.predict(new), -found.predict(new), atol=0.05)


def test_errors_of_a_monotone_function_fall():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (500, 3))
    monotone = Monotone.of([1, 0, 1], "abc", np.zeros(0, bool), np.ones(3, bool), rows)

    def guess(x):
        return (truth(x) + 0.5 * np.sin(9 * x[:, 0] + 5 * x[:, 1] + 7 * x[:, 2]))[None]

    new = rng.uniform(-1, 1, (400, 3))
    errors = [
        np.mean((values[0] - truth(new)) ** 2) for values in (guess(new), monotone(new, guess))
    ]
    assert errors[1] < 0.9 * errors[0]


def test_everything_is_of_the_same_distribution(data):
    X, y = data
    model = regressor(monotonic_cst=[1, 0, 0]).fit(X, y)
    new = np.random.default_rng(3).uniform(-1, 1, (20, 3))
    mean, std = model.predict(new, return_std=True)
    _, covariance = model.predict(new, return_cov=True)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std, rtol=1e-6)
    assert np.abs(model.sample_y(new, 3000).mean(1) - mean).max() < 0.1
    lower, upper = model.predict_interval(new, 0.5)
    assert ((lower < mean) & (mean < upper)).all()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(new), mean)
    np.testing.assert_allclose(model.predict(new[3:5]), mean[3:5], rtol=1e-9)
    assert clone(model).monotonic_cst == [1, 0, 0]


def test_functions_that_are_monotone_change_by_the_interpolation_only():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((500, 2))
    monotone = Monotone.of([1, -1], "ab", np.zeros(0, bool), np.ones(2, bool), rows)

    def function(x):
        return np.stack([np.tanh(x[:, 0]) - x[:, 1], x[:, 0] ** 3])

    new = rng.uniform(-1.5, 1.5, (40, 2))
    np.testing.assert_allclose(monotone(new, function), function(new), atol=0.05)
    alone = Monotone.of({"b": 1}, "ab", np.zeros(0, bool), np.ones(2, bool), rows)
    wave = alone(new, lambda x: np.sin(3 * x[:, 1])[None])[0]
    assert (np.diff(wave[new[:, 1].argsort()]) >= 0).all()


def test_names_of_data_frames_and_columns_that_are_left_out(data):
    X, y = data
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(same=1.0)
    frame = frame[["same", "a", "b", "c"]]
    found = regressor(monotonic_cst={"a": 1, "same": 1}).fit(frame, y)
    expected = regressor(monotonic_cst=[1, 0, 0]).fit(X, y)
    np.testing.assert_allclose(found.predict(frame), expected.predict(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ([1, 0], "one of -1, 0 and 1 for each of 4 columns"),
        ([1, 2, 0, 0], "one of -1, 0 and 1"),
        ({"d": 1}, r"names \['d'\], and the columns are"),
        ({"town": 1}, r"no order to be monotone in: \['town'\]"),
        ("rising", "one of -1, 0 and 1"),
    ],
)
def test_what_cannot_be_is_refused(data, wanted, message):
    frame = pd.DataFrame(data[0], columns=["a", "b", "c"]).assign(town=["Ulm", "Bonn"] * 30)
    with pytest.raises(ValueError, match=message):
        regressor(monotonic_cst=wanted).fit(frame, data[1])


def test_many_columns_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="3 columns at most, got 4"):
        regressor(monotonic_cst=[1] * 4).fit(rng.standard_normal((20, 4)), np.arange(20.0))
