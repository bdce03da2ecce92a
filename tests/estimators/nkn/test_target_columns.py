import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score
from sklearn.model_selection import cross_val_score

from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.estimators.nkn import nkn_regressor
from gpytorch_nkn.estimators.nkn.ensemble import Ensemble
from gpytorch_nkn.fit import Recipe

rng = np.random.default_rng(0)
X = rng.uniform(size=(40, 2))
Y = np.column_stack([np.sin(6 * X[:, 0]) + X[:, 1], np.exp(X[:, 1])])
Y += 0.1 * rng.standard_normal(Y.shape)
GAPS = np.where(np.arange(40)[:, None] < [0, 10], np.nan, Y)


def regressor(**options):
    recipe = Recipe(adam_steps=0, lbfgs_iterations=5)
    return NKNRegressor("rbf", restarts=1, recipe=recipe, **{"random_state": 0} | options)


@pytest.fixture(scope="module")
def fitted():
    frame = pd.DataFrame(GAPS, columns=["angle", "torque"])
    noise = pd.DataFrame(0.002 + 0.01 * X[:, ::-1], columns=["torque", "angle"])  # by name
    table = pd.DataFrame(X, columns=["a", "b"])
    return regressor(budget=100.0).fit(table, frame, noise_variance=noise)


def test_columns_are_predicted_as_by_regressors_of_their_observed_rows(fitted):
    new = pd.DataFrame(X[:6], columns=["a", "b"])
    assert fitted.target_names_ == ("angle", "torque") and fitted.n_features_in_ == 2
    alone = [
        regressor(random_state=own.random_state).fit(
            X[rows], Y[rows, k], noise_variance=0.002 + 0.01 * X[rows, k]
        )
        for k, (own, rows) in enumerate(zip(fitted.estimators_, ~np.isnan(GAPS.T), strict=True))
    ]
    methods = {"predict": (), "predict_quantiles": ([0.1, 0.5, 0.9],), "predict_interval": ()}
    for name, argument in methods.items():
        found = getattr(pickle.loads(pickle.dumps(fitted)), name)(new, *argument)
        expected = [getattr(own, name)(X[:6], *argument) for own in alone]
        np.testing.assert_allclose(found, np.stack(expected, -2 if argument else -1), rtol=1e-5)
    mean, std = fitted.predict(new, return_std=True)
    draws = fitted.sample_y(new, 4000, random_state=1)
    assert draws.shape == (6, 2, 4000)
    np.testing.assert_allclose(draws.mean(-1), mean, atol=0.02)
    np.testing.assert_allclose(draws.std(-1), std, rtol=0.1)
    assert abs(np.corrcoef(draws[0])[0, 1]) < 0.06  # independent columns
    for k, mixture in enumerate(fitted.predict_distribution(new)):
        np.testing.assert_allclose(mixture.std(), std[:, k])
    first, second = (own.budget for own in fitted.estimators_)
    assert 40 < first <= 50 and 90 < second <= 100  # half of the time, and the rest


@pytest.mark.parametrize(
    ("owner", "name", "call"), [(nkn_regressor, "choose_transform", 2), (Ensemble, "mixture", 1)]
)
def test_ctrl_c_keeps_fitted_columns_and_ends_the_fit(owner, name, call, monkeypatch):
    """It comes before the training of the second column, or after that of the first one."""
    function, calls = getattr(owner, name), []

    def interrupted(*args, **options):
        calls.append(name)
        if len(calls) == call:
            raise KeyboardInterrupt
        return function(*args, **options)

    monkeypatch.setattr(owner, name, interrupted)
    model = regressor().fit(X, Y)
    assert [own.budget for own in model.estimators_] == [None, 1e-3]
    assert model.estimators_[0].score(X, Y[:, 0]) > 0.8 and model.predict(X).shape == Y.shape


def test_scores_omit_missing_targets(fitted):
    frame = pd.DataFrame(X, columns=["a", "b"])
    logs = fitted.log_predictive_density(frame, GAPS)
    expected = fitted.estimators_[1].log_predictive_density(frame[10:], Y[10:, 1])
    assert np.isnan(logs[:10, 1]).all()
    np.testing.assert_allclose(logs[10:, 1], expected)
    predicted = fitted.predict(frame)
    assert fitted.score(frame, Y) == pytest.approx(r2_score(Y, predicted))
    scores = [r2_score(Y[10:, 1], predicted[10:, 1]), r2_score(Y[:, 0], predicted[:, 0])]
    for targets in (GAPS, pd.DataFrame(GAPS[:, ::-1], columns=["torque", "angle"])):
        assert fitted.score(frame, targets) == pytest.approx(np.mean(scores))
    assert np.isfinite(cross_val_score(regressor(), X, GAPS, cv=2)).all()
    no_torque = fitted.score(frame[:9], GAPS[:9])
    assert no_torque == pytest.approx(r2_score(Y[:9, 0], predicted[:9, 0]))


def test_counts_with_an_exposure_for_each_column():
    exposure = rng.uniform(1, 5, size=(40, 2))
    counts = np.where(np.isnan(GAPS), np.nan, rng.poisson(exposure * np.exp(X)))
    model = regressor(likelihood="poisson").fit(X, counts.tolist(), exposure=exposure)
    mean = model.predict(X, exposure=exposure)
    np.testing.assert_allclose(mean, exposure * model.predict(X))
    for own in (model, model.estimators_[1]):
        with pytest.warns(UserWarning, match="The fit had exposures"):
            own.score(X, counts if own is model else np.nan_to_num(counts[:, 1]))
    alone = regressor(likelihood="poisson", random_state=model.estimators_[1].random_state)
    alone.fit(X[10:], counts[10:, 1], exposure=exposure[10:, 1])
    np.testing.assert_allclose(alone.predict(X), model.predict(X)[:, 1])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (np.where(X[:, 0] < np.sort(X[:, 0])[2], 1.0, np.nan), "column 'b'.* 3 are needed, got 2"),
        (np.where(X[:, 0] < 0.5, 1.0, np.nan), "column 'b'.* constant"),
        (np.where(X[:, 0] < 0.5, np.inf, 1.0), "y contains infinity"),
        (-X[:, 1], "column 'b'.* y_bounds"),
    ],
)
def test_a_column_that_cannot_be_learned_is_named(column, message):
    frame = pd.DataFrame({"a": X[:, 0], "b": column})
    with pytest.raises(ValueError, match=message):
        regressor(y_bounds=(0, None)).fit(X, frame)


def test_errors_state_row_numbers_of_the_whole_table():
    counts = np.floor(4 + GAPS)
    model = regressor(likelihood="poisson").fit(X, counts)
    wrong, text = np.where(np.arange(40)[:, None] == [-1, 25], -1.5, 1.0), X.astype(object)
    text[25, 1] = "x"
    for call in (
        lambda: regressor().fit(X, GAPS, noise_variance=wrong),
        lambda: regressor(likelihood="poisson").fit(X, counts, exposure=wrong[:, 1]),
        lambda: regressor(likelihood="poisson").fit(X, counts * wrong),
        lambda: regressor().fit(text, GAPS[:, ::-1]),
        lambda: model.log_predictive_density(X, counts, exposure=wrong),
    ):
        with pytest.raises(ValueError, match="in row 25"):
            call()


def test_wrong_shapes_are_rejected(fitted):
    with pytest.raises(ValueError, match=r"2 columns, got shape \(40, 1\)"):
        fitted.score(X, Y[:, :1])
    with pytest.raises(ValueError, match=r"names of the targets, \['angle', 'torque'\], got \['to"):
        fitted.score(X, pd.DataFrame(Y, columns=["torque", "speed"]))
    with pytest.warns(UserWarning, match="X and noise_variance have different indices"):
        regressor().fit(pd.DataFrame(X), GAPS, noise_variance=pd.Series(X[:, 0])[::-1])
    with pytest.raises(ValueError, match=r"\[30, 40\]"):
        regressor().fit(X[:30], GAPS)
    with pytest.raises(ValueError, match=r"40 rows, got shape \(30,\)"):
        regressor(likelihood="poisson").fit(X, np.abs(GAPS.round()), exposure=np.ones(30))


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_columns_of_other_data_frames_have_names(library):
    module = pytest.importorskip(library)
    make = module.DataFrame if library == "polars" else module.table
    own = regressor().fit(X, make({"angle": Y[:, 0], "torque": Y[:, 1]}))
    assert own.target_names_ == ("angle", "torque")
    expected = own.score(X, Y)
    assert own.score(X, make({"torque": Y[:, 1], "angle": Y[:, 0]})) == pytest.approx(expected)
    with pytest.raises(ValueError, match="must have the names of the targets"):
        own.score(X, make({"angle": Y[:, 0], "other": Y[:, 1]}))
