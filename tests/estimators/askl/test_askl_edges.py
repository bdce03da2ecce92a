"""ASKL at the edges of its options and of float64."""

import time

import numpy as np
import pytest

from gpytorch_nkn.estimators import ASKLClassifier, ASKLRegressor
from gpytorch_nkn.estimators.askl import askl_inputs, askl_selection, askl_start, leave_one_out

RNG = np.random.RandomState(0)
X = RNG.randn(120, 4)
Y = np.sin(2 * X[:, 0]) + X[:, 1]
LABELS = (Y > 0).astype(int)


def regressor(method="ASKL", **options):
    return ASKLRegressor(
        method, **{"n_components": 60, "max_iter": 5, "random_state": 0, **options}
    )


def classifier(method="ASKL", **options):
    options = {"n_components": 60, "max_iter": 5, "random_state": 0, **options}
    return ASKLClassifier(method, **options)


@pytest.mark.parametrize(  # operations a second
    ("make", "speed"),
    [(classifier, 3e6), (regressor, 3e7), (regressor, 1e9)],
)
def test_closed_forms_take_as_many_rows_as_the_budget_has_time_for(make, speed, monkeypatch):
    """On a clock that only they move, from machines where nothing fits to such where all does."""
    x = np.random.default_rng(0).normal(size=(2000, 3))
    y = np.sin(2 * x[:, 0]) + x[:, 1]
    y = y > 0 if make is classifier else y
    now, rows = [0.0], []
    solve, kernel_ridge = askl_selection.ridge_by_left_out_rows, leave_one_out.kernel_ridge

    def slow_ridge(blocks, targets, rng):
        blocks = list(blocks)
        count, width = len(targets), blocks[0].size(1)
        now[0] += leave_one_out.ridge_operations(count, width, targets.size(1)) / speed
        rows.append(count)
        return solve(blocks, targets, rng)

    def slow_kernel_ridge(x, targets, gammas=leave_one_out.GAMMAS):
        now[0] += 25 * len(x) ** 3 * len(gammas) / speed
        return kernel_ridge(x, targets, gammas)

    monkeypatch.setattr(askl_selection, "ridge_by_left_out_rows", slow_ridge)
    for module in (leave_one_out, askl_inputs, askl_start):
        monkeypatch.setattr(module, "kernel_ridge", slow_kernel_ridge)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    model = make(budget=60.0, max_iter=5).fit(x, y)
    assert now[0] <= 66 and model.score(x, y) > 0.6
    assert max(rows) >= (250 if speed < 1e9 else 1600)


def test_a_budget_that_the_start_uses_up_is_no_error():
    model = regressor(budget=1e-6).fit(X, Y)
    assert np.isfinite(model.predict(X)).all() and model.n_iter_ <= 1


@pytest.mark.parametrize("method", ["SK", "NSK"])
def test_ridge_regression_on_features_that_stay_is_not_trained(method):
    model = regressor(method).fit(X, Y)
    assert model.n_iter_ == 0 and len(model.validation_scores_) == 1 and model.score(X, Y) > 0.9
    assert regressor(method, ridge=False).fit(X, Y).n_iter_ > 0


def test_partial_fit_goes_on_counting_and_takes_new_rates():
    model = regressor().fit(X, Y)
    epochs = model.n_iter_
    assert model.partial_fit(X, Y).n_iter_ == epochs + 1
    one, two = regressor().partial_fit(X, Y), regressor().partial_fit(X, Y)
    rule = one.frequency_learning_rates_
    one.set_params(frequency_learning_rate=1e-4, n_components=7).partial_fit(X, Y)
    assert one.frequency_learning_rates_ == [1e-4] and one.phases_[0].shape == (60,)
    assert not np.array_equal(one.predict(X), two.partial_fit(X, Y).predict(X))
    one.set_params(frequency_learning_rate=None).partial_fit(X, Y)
    assert one.frequency_learning_rates_ == rule
    with pytest.raises(ValueError, match="solver must stay"):
        one.set_params(solver="sgd").partial_fit(X, Y)


def test_the_largest_numbers_are_predicted():
    assert np.isfinite(regressor().fit(X, Y).predict(np.full((1, 4), 1e308))).all()


@pytest.mark.parametrize("change", [lambda x: x + 1e12, lambda x: x * 1e-300])
def test_columns_that_vary_are_used(change):
    model = regressor().fit(change(X), Y)
    assert model.input_map_.used.all() and model.score(change(X), Y) > 0.9


def test_columns_that_are_constant_but_for_rounding_are_not_used():
    assert not regressor().fit(np.c_[X, np.full(120, 0.1)], Y).input_map_.used[4]
    assert regressor().fit(X, Y + 1e15).y_scale_[0] > 0.5


def test_divergence_is_blamed_on_the_penalty():
    model = regressor("NSKL", solver="sgd", weight_penalty=100, max_iter=40, early_stopping=False)
    with pytest.raises(FloatingPointError, match="weight_penalty=100 is too large"):
        model.fit(X, Y)


def test_probabilities_follow_the_fitted_loss():
    brief = {"early_stopping": False}
    model = classifier(loss="hinge", **brief).fit(X, LABELS).set_params(loss="log_loss")
    assert not hasattr(model, "predict_proba")
    model = classifier(**brief).fit(X, LABELS).set_params(loss="hinge")
    assert model.predict_proba(X).shape == (120, 2)


def test_wrong_targets_are_named():
    for labels in (np.where(LABELS, "a", None), np.array(["a", 1] * 60, dtype=object)):
        with pytest.raises(ValueError, match="labels of one kind"):
            classifier().fit(X, labels)
    with pytest.raises(ValueError, match="y must hold numbers, got '[ab]' in row 0"):
        regressor().fit(X, np.where(LABELS, "a", "b"))


def test_units_that_float32_cannot_hold():
    model = regressor(standardize=False)
    with pytest.warns(UserWarning, match="lose most of their distinct values"):
        model.fit(X + 1e9, Y)
    with pytest.raises(ValueError, match="too large without standardize=True"):
        model.fit(X * 1e200, Y)
    with pytest.raises(ValueError, match="too small without standardize=True"):
        model.fit(X * 1e-40, Y)
    model = regressor(standardize=False).partial_fit(X, Y)
    with pytest.raises(ValueError, match="too large for float32"):
        model.partial_fit(X * 1e40, Y)
