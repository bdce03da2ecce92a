import pickle

import numpy as np
import pandas as pd
import pytest

from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.estimators.nkn.table_gaps import Gaps
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.interpretation import report

SHORT = Recipe(adam_steps=0, lbfgs_iterations=10)
CORRELATION, NOISE = 0.8, 0.1


def table(n=150, seed=0, share=0.15):
    """Two correlated columns with gaps, and their sum with noise."""
    rng = np.random.default_rng(seed)
    full = rng.multivariate_normal(np.zeros(2), [[1, CORRELATION], [CORRELATION, 1]], n)
    X = np.where(rng.uniform(size=full.shape) < share, np.nan, full)
    return X, full.sum(1) + NOISE * rng.standard_normal(n)


def regressor(structure="rbf", **options):
    options = {"recipe": SHORT, **options}
    return NKNRegressor(structure, restarts=1, random_state=0, progress=False, **options)


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(*table())


def test_draws_have_the_conditional_moments_of_a_gaussian():
    rng = np.random.default_rng(0)
    covariance = np.array([[1.0, 0.6, 0.3], [0.6, 1.0, -0.2], [0.3, -0.2, 1.0]])
    full = rng.multivariate_normal(np.zeros(3), covariance, 400)
    X = np.where(rng.uniform(size=full.shape) < 0.2, np.nan, full)
    gaps = [Gaps(X, (), seed) for seed in range(6)]
    for seen in ([0, 2], [1]):
        lacks = np.setdiff1d(np.arange(3), seen)
        row = np.array([0.8, 0.3, -0.5])
        weights = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[np.ix_(seen, lacks)])
        own = covariance[np.ix_(lacks, lacks)] - covariance[np.ix_(lacks, seen)] @ weights
        rows = row[None].copy()
        rows[:, lacks] = np.nan
        drawn = np.concatenate([one.draw(rows)[:, 0] for one in gaps])
        assert (drawn[:, seen] == row[seen]).all()
        np.testing.assert_allclose(drawn[:, lacks].mean(0), row[seen] @ weights, atol=0.2)
        np.testing.assert_allclose(drawn[:, lacks].var(0), own.diagonal(), rtol=0.3)


def test_a_row_does_not_depend_on_its_neighbours_and_draws_of_rows_are_independent():
    rng = np.random.default_rng(0)
    X = rng.lognormal(size=(200, 2))
    X[rng.uniform(size=X.shape) < 0.3] = np.nan
    gaps = Gaps(X, (), 0)
    drawn = gaps.draw(X)
    assert (drawn >= np.nanmin(X, 0)).all() and (drawn <= np.nanmax(X, 0)).all()
    np.testing.assert_allclose(np.sort(gaps.draw(X[5:9]), 0), np.sort(drawn[:, 5:9], 0), rtol=1e-9)
    empty = gaps.draw(np.full((50, 2), np.nan))[..., 0]
    assert abs(np.corrcoef(empty[:, ::2].ravel(), empty[:, 1::2].ravel())[0, 1]) < 0.2
    alone = Gaps(X[:, :1], (), 0).draw(np.full((1, 1), np.nan))
    assert alone.std() == pytest.approx(np.nanstd(X[:, 0]), rel=0.5)


def test_a_row_with_a_gap_is_as_uncertain_as_its_value(fitted):
    np.testing.assert_array_equal(fitted.missing_fractions_, np.isnan(table()[0]).mean(0))
    new = np.column_stack([np.linspace(-1.5, 1.5, 7), np.full(7, np.nan)])
    mean, std = fitted.predict(new, return_std=True)
    np.testing.assert_allclose(mean, (1 + CORRELATION) * new[:, 0], atol=0.5)
    spread = np.sqrt(1 - CORRELATION**2 + NOISE**2)
    assert 0.75 < np.mean(std) / spread < 1.4
    there = np.column_stack([new[:, 0], CORRELATION * new[:, 0]])
    assert (std > 1.3 * fitted.predict(there, return_std=True)[1]).all()


def test_all_predictions_agree(fitted):
    X, y = table(40, seed=1, share=0.4)
    mean = fitted.predict(X)
    np.testing.assert_allclose(fitted.predict(X[7:9]), mean[7:9], rtol=1e-9)
    samples = fitted.sample_y(X, 3000)
    assert np.abs(samples.mean(1) - mean).max() < 0.15
    lower, upper = fitted.predict_interval(X, 0.9)
    inside = (lower[:, None] < samples) & (samples < upper[:, None])  # moments have heavy tails
    np.testing.assert_allclose(inside.mean(1), 0.9, atol=0.04)
    assert ((lower < y) & (y < upper)).mean() > 0.75
    steps = np.linspace(-15, 15, 3001)
    density = np.exp(fitted.log_predictive_density(np.repeat(X[:1], len(steps), 0), steps))
    assert density.sum() * 0.01 == pytest.approx(1, abs=1e-3)


def test_gaps_that_training_has_not_seen():
    X, y = table(share=0.0)
    model = regressor().fit(X, y)
    saved = pickle.dumps(model)
    new = [[0.5, 0.4], [0.5, np.nan], [np.nan, np.nan]]
    mean, std = model.predict(new, return_std=True)
    assert std[0] < std[1] < std[2]
    np.testing.assert_allclose(pickle.loads(saved).predict(new), mean)


def _scores(model, X, y):
    error = model.predict(X) - y
    return np.sqrt((error**2).mean()), model.log_predictive_density(X, y).mean()


def test_complete_rows_are_predicted_as_well_as_without_the_rows_with_gaps():
    rng = np.random.default_rng(1)
    full = pd.DataFrame(rng.uniform(size=(400, 2)), columns=["a", "b"])
    full["town"] = rng.choice(["Rome", "Oslo", "Lima"], 400)
    y = np.sin(6 * full["a"]) + full["b"] + (full["town"] == "Rome")
    y = (y + 0.02 * rng.standard_normal(400)).to_numpy()
    X = full.mask(rng.uniform(size=full.shape) < 0.25)
    train, new = slice(150), slice(150, None)
    model = regressor(recipe=None).fit(X[train], y[train])
    kept = X[train].notna().all(axis=1)
    alone = regressor(recipe=None).fit(X[train][kept], y[train][kept])
    (error, density), (other, without) = (_scores(m, full[new], y[new]) for m in (model, alone))
    assert error < 1.05 * other + 1e-4
    assert density > without - 0.05
    gaps = X[new].isna().any(axis=1).to_numpy()
    error, density = _scores(model, X[new][gaps], y[new][gaps])
    assert density > -np.log(y.std() * np.sqrt(2 * np.pi)) - 0.5  # that of all targets together
    mean, std = model.predict(X[new][gaps], return_std=True)
    assert 0.6 < np.sqrt((((mean - y[new][gaps]) / std) ** 2).mean()) < 1.6


def test_a_missing_category_is_drawn_by_the_frequencies_of_the_others():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(size=80), "town": rng.choice(["Rome", "Oslo"], 80)})
    y = X["a"] + 3.0 * (X["town"] == "Rome") + 0.05 * rng.standard_normal(80)
    X.loc[rng.uniform(size=80) < 0.2, "town"] = None
    model = regressor(recipe=None).fit(X, y)
    new = pd.DataFrame({"a": [0.5] * 3, "town": ["Rome", "Oslo", None]})
    mean, std = model.predict(new, return_std=True)
    np.testing.assert_allclose(mean, [3.5, 0.5, 2.0], atol=0.4)
    assert std[2] == pytest.approx(1.5, abs=0.3) and (std[:2] < 0.4).all()


def test_rows_with_a_missing_category_and_other_gaps_do_not_depend_on_each_other():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(99, 2)), rng.integers(3, size=(99, 2))])
    gaps, rows = Gaps(X, (2, 3), 0), X[:6].copy()
    rows[0, [1, 2]] = rows[1, [2, 3]] = np.nan
    for row in (0, 1):
        one, all_rows = (draws[np.lexsort(draws.T)] for draws in (
            gaps.draw(rows[[row]])[:, 0], gaps.draw(rows)[:, row]))  # fmt: skip
        np.testing.assert_allclose(one, all_rows)


def test_draws_of_columns_with_few_or_no_observations_are_valid():
    X = np.random.default_rng(0).normal(size=(5000, 4))
    X[2:, 1:3] = X[:, 3] = np.nan
    X[:2, 2] = [0, 3]
    drawn = Gaps(X, (2,), 0).draw(X[:9])
    assert np.isfinite(drawn).all() and set(drawn[..., 2].ravel()) == {0, 3}
    assert set(Gaps(X, (3,), 0).draw(X[:9])[..., 3].ravel()) == {0}


def test_few_complete_rows_or_such_that_do_not_vary_leave_all_to_be_learned_from():
    X, y = table(60, share=0.8)
    assert len(regressor().fit(X, y).model_.train_targets) == 60
    X, y = table(60, share=0.0)
    X = np.column_stack([X, np.arange(60) < 20])  # varies among rows with gaps only
    X[:20, 0] = np.nan
    model = regressor().fit(X, y)
    assert model.columns_ == ("x0", "x1", "x2")
    assert len(model.model_.train_targets) == 60


def test_gaps_beside_categories_and_in_all_of_a_column():
    X, y = table()
    town = np.where(np.arange(len(y)) % 2, "Rome", "Oslo")
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(none=np.nan, town=town)
    model = regressor().fit(frame, y + 2 * (town == "Rome"))
    assert model.columns_ == ("a", "b", "town")
    mean = model.predict(frame.head(2).assign(a=np.nan, b=np.nan, none=[np.nan, 3.0]))
    assert mean[1] - mean[0] == pytest.approx(2, abs=0.7)
    with pytest.raises(ValueError, match="All columns"):
        regressor().fit(frame[["none"]], y)


@pytest.mark.parametrize(
    ("complete", "use", "sentence"),
    [
        (40, "noisy", "110 more rows have missing values, and pr"),
        (5, "imputed", "145 of these rows have missing values, re"),
    ],
)
def test_noise_is_of_complete_rows_and_the_report_names_the_others(complete, use, sentence):
    X, y = table(share=0.0)
    X[complete:, 0] = np.nan
    model = regressor().fit(X, y)
    assert {name: n for name, n in model.incomplete_rows_.items() if n} == {use: 150 - complete}
    noise = model.model_.likelihood.noise.item() ** 0.5 * model.y_scale_
    assert use == "imputed" or noise == pytest.approx(NOISE, rel=0.3)
    assert sentence in " ".join(str(report(model, progress=False)).split())
