import numpy as np
import pandas as pd
import pytest

from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.estimators.nkn import sparse_predictor
from gpytorch_nkn.estimators.nkn.ensemble import NoiseScale
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.interpretation import report


def table(n=300, seed=0, slope=2.0):
    """A sine whose noise grows from 0.1 to 0.1 exp(slope), with its deviations."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    std = 0.1 * np.exp(slope * X[:, 0])
    return X, np.sin(6 * X[:, 0]) + X[:, 1] + std * rng.standard_normal(n), std


def regressor(**options):
    return NKNRegressor(
        "rbf",
        restarts=1,
        random_state=0,
        progress=False,
        recipe=Recipe(adam_steps=0, lbfgs_iterations=15),
        **options,
    )


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(*table()[:2])


def test_a_log_linear_scale_is_found():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(2000, 2))
    factor = np.exp(0.4 + 0.7 * X[:, 0])
    mean = rng.standard_normal(2000)
    scale = NoiseScale(X, mean, factor * rng.chisquare(1, 2000), np.ones(2, dtype=bool))
    assert np.abs(np.log(scale(X, mean) / factor)).mean() < 0.15
    np.testing.assert_array_equal(  # beyond the data it goes on as at their end
        scale(np.array([[50.0, 0]]), mean[:1]), scale(X[:, 0].max() * np.eye(1, 2), mean[:1])
    )


def test_noise_that_grows_is_covered_in_every_part(fitted):
    assert fitted.heteroscedastic_
    X, y, std = table(1500, seed=1)
    lower, upper = fitted.predict_interval(X, 0.9)
    inside = (lower < y) & (y < upper)
    for part in np.array_split(X[:, 0].argsort(), 4):
        assert 0.78 < inside[part].mean() < 0.98
    found = fitted.predict(X, return_std=True)[1]
    assert 0.7 < np.median(found / std) < 1.4
    assert (fitted.predict(X, return_std=True, observation_noise=False)[1] < found).all()
    assert report(fitted, progress=False).held_out.p_value > 0.05


def test_one_noise_stays_one():
    X, y, _ = table(150, slope=0.0)
    assert not regressor().fit(X, y).heteroscedastic_


def test_categories_and_inducing_points(monkeypatch):
    for name, value in (("_ITERATIONS", 3), ("_BLOCKS", 4), ("_NEIGHBOURS", 40)):
        monkeypatch.setattr(sparse_predictor, name, value)
    X, y, _ = table(130, slope=3.0)
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame["kind"] = np.where(np.arange(len(y)) % 2, "u", "v")
    assert regressor().fit(frame, y).heteroscedastic_
    sparse = regressor(num_inducing=20).fit(X, y)
    assert sparse.heteroscedastic_
    std = sparse.predict(np.array([[0.05, 0.5], [0.95, 0.5]]), return_std=True)[1]
    assert std[1] > 2 * std[0]
