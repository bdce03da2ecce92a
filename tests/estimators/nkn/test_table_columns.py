import warnings

import numpy as np
import pandas as pd
import pytest

from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.estimators.nkn import sparse_predictor
from gpytorch_nkn.estimators.nkn.table_columns import TableColumns
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.interpretation import effects
from gpytorch_nkn.interpretation.reporting.words import describe_effects
from gpytorch_nkn.interpretation.source import fitted_gp
from gpytorch_nkn.kernels import CategoricalKernel

SHORT = Recipe(adam_steps=0, lbfgs_iterations=3)
LEVELS = {"Rome": 0.0, "Oslo": 2.0, "Lima": -1.0, "none": 4.0}


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    town = rng.choice(np.array(list(LEVELS), dtype=object), n)
    X = pd.DataFrame({"a": rng.uniform(size=n), "town": town, "only": "same"})
    X["kind"] = pd.Categorical(rng.choice([3, 7], n))
    y = np.array([LEVELS[one] for one in town]) + np.sin(6 * X["a"].to_numpy())
    return X, y + 0.1 * rng.standard_normal(n)


def regressor(structure="rbf", **options):
    return NKNRegressor(structure, restarts=1, random_state=0, progress=False, **options)


@pytest.fixture(scope="module")
def fitted():
    recipe = Recipe(adam_steps=0, lbfgs_iterations=25)
    return regressor(["rbf", "additive"], recipe=recipe).fit(*table())


def test_codes_follow_the_values_and_new_ones_are_like_no_other():
    X, _ = table()
    before = X.copy()
    categories = TableColumns.of(X)
    assert list(categories.categories) == ["town", "only", "kind"]
    assert list(categories.categories["town"]) == ["Lima", "Oslo", "Rome", "none"]
    some = X.head(5).assign(town=["Oslo", "Paris", np.nan, "Bonn", "Paris"])
    np.testing.assert_array_equal(categories(some)["town"], [1, 4, np.nan, 5, 4])
    pd.testing.assert_frame_equal(X, before)  # the table is left as it was
    numbers = pd.DataFrame({"a": ["1", "2"], "b": [True, False]})
    assert not TableColumns.of(numbers.assign(a=[1, 2])).categories


@pytest.mark.parametrize(("known", "new"), [([3, 7], "7"), (["7", "x"], 7.0), (["x", "y"], "x ")])
def test_new_categories_that_look_like_known_ones_give_a_warning(known, new):
    categories = TableColumns.of(pd.DataFrame({"kind": pd.Categorical(known)}))
    with pytest.warns(UserWarning, match=f"new category {new!r}.*only in type or spaces"):
        categories(pd.DataFrame({"kind": ["z", new]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as advised, and for categories that are really new
        categories(pd.DataFrame({"kind": [*known, "z"]}))


def test_levels_of_categories_are_learned(fitted):
    X, y = table(100, seed=1)
    mean = fitted.predict(X)
    assert np.sqrt(np.mean((mean - y) ** 2)) < 0.3  # y has a deviation of 2
    assert fitted.columns_ == ("a", "town", "kind")
    kernels = fitted.model_.covar_module.modules()
    assert any(isinstance(kernel, CategoricalKernel) for kernel in kernels)
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_allclose(fitted.predict(X.iloc[order]), mean[order])
    as_categories = X.astype({"town": "category"})
    np.testing.assert_allclose(fitted.predict(as_categories), mean)
    np.testing.assert_array_equal(fitted.predict(X.assign(only="other")), mean)


def test_an_unseen_category_is_as_uncertain_as_the_spread_between_them(fitted):
    X, _ = table()
    mean, known = fitted.predict(X, return_std=True)
    centre, std = fitted.predict(X.assign(town="Paris"), return_std=True)
    assert (std > 3 * known).all()
    assert (np.abs(centre - mean.mean()) < 2).all()
    pair = X.head(1).loc[[0, 0]].assign(town=["Paris", "Bonn"])
    paris, bonn = fitted.sample_y(pair, 2000, observation_noise=False)
    assert np.cov(paris, bonn)[0, 1] < 0.9 * paris.var()  # two of them differ
    paris, again = fitted.sample_y(pair.assign(town="Paris"), 20, observation_noise=False)
    np.testing.assert_allclose(paris, again, atol=1e-3)


def test_effects_of_a_column_of_categories_are_described_by_their_names(fitted):
    assert fitted.categories_["town"] == ("Lima", "Oslo", "Rome", "none")
    found = effects(fitted, samples=64)
    town = next(effect for effect in found.main if effect.names == ("town",))
    np.testing.assert_array_equal(town.grid[0], np.arange(4))
    units = fitted_gp(fitted).units
    (said,) = [one for one in describe_effects(found, units) if "town" in one]
    assert "Among the 4 categories of town" in said
    assert "highest for none; for Lima it is lower by" in said


def test_names_of_categories_do_not_matter():
    X, y = table()
    renamed = X.assign(town=X["town"].map({"Rome": "a", "Oslo": "z", "Lima": "k", "none": "q"}))
    other = regressor(recipe=SHORT).fit(renamed, y).predict(renamed)
    np.testing.assert_allclose(other, regressor(recipe=SHORT).fit(X, y).predict(X), rtol=1e-6)


def test_tables_of_categories_alone():
    X, y = table()
    model = regressor(["rbf", "tabular"], recipe=Recipe(adam_steps=0, lbfgs_iterations=15))
    mean = model.fit(X[["town"]], y).predict(X[["town"]])
    by_town = pd.Series(y).groupby(X["town"].fillna("?")).transform("mean")
    assert np.corrcoef(mean, by_town)[0, 1] > 0.99


def test_inducing_points_are_rows_with_their_categories(monkeypatch):
    """Few of them, so that neighbours predict what is left, and enough."""
    for name, value in (("_ITERATIONS", 3), ("_BLOCKS", 4), ("_NEIGHBOURS", 40)):
        monkeypatch.setattr(sparse_predictor, name, value)
    X, y = table(160)
    new, target = table(100, seed=1)
    errors = []
    for options in ({}, {"num_inducing": 6}, {"num_inducing": 32}):
        model = regressor("rbf", recipe=SHORT, **options).fit(X, y)
        mean, std = model.predict(new, return_std=True)
        assert np.mean(np.abs(mean - target) < 2 * std) > 0.8
        errors.append(np.sqrt(np.mean((mean - target) ** 2)))
        assert errors[-1] < 1.5 * errors[0] or not options  # the targets have a deviation of 2
        if options:
            predictor = model._ensemble.predictors[0]
            points = getattr(predictor, "_sparse", predictor).posterior.points
            rows = model.standardised_inputs(X)
            assert all((np.abs(rows - point).max(1) < 1e-12).any() for point in points.numpy())
