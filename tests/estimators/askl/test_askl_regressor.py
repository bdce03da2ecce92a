import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.linear_model import Ridge

from gpytorch_nkn.estimators import ASKLRegressor
from gpytorch_nkn.estimators.askl.askl_training import Trainer
from tests.estimators.askl.test_askl_classifier import OPTIONS, SHORT


def regressor(method="ASKL", **options):
    return ASKLRegressor(method, **{**SHORT, "random_state": 0, **options})


def table(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    return X, 50 + 20 * (np.sin(6 * X[:, 0]) + X[:, 1]) + rng.standard_normal(n)


def test_defaults_learn_a_function():
    model = ASKLRegressor(n_components=100, random_state=0).fit(*table())
    assert model.score(*table(300, seed=1)) > 0.97
    # minus the mean squared error of held-out rows, for targets of unit deviation
    assert max(model.validation_scores_) == pytest.approx(-0.0045, abs=0.002)


@pytest.mark.parametrize("method", ["SK", "NSK", "SKL", "NSKL", "ASKL"])
def test_every_method_learns(method):
    model = regressor(method, max_iter=40).fit(*table())
    assert model.score(*table(300, seed=1)) > 0.88


def test_assigned_frequencies_are_ridge_regression():
    X, y = table()
    penalty = 1e-4
    model = regressor(
        "SK",
        n_components=20,
        weight_penalty=penalty,
        learning_rate=0.3,
        max_iter=2000,
        batch_size=200,
    ).fit(X, y)
    features, scaled = model.features(X), (y - y.mean()) / y.std()
    exact = Ridge(alpha=200 * penalty).fit(features, scaled)

    def objective(weight, intercept):
        gaps = features @ weight.reshape(-1) + intercept - scaled
        return np.square(gaps).mean() + penalty * np.square(weight).sum()

    least = objective(exact.coef_, exact.intercept_)
    intercept = (model.intercept_ - y.mean()) / y.std()
    assert objective(model.coef_ / y.std(), intercept) == pytest.approx(least, rel=1e-4)
    assert least < 0.1
    expected = y.mean() + y.std() * exact.predict(features)
    np.testing.assert_allclose(model.predict(X), expected, atol=2e-3 * y.std())


def test_the_trace_norm_is_that_of_the_proximal_step():
    # for one output it is the Euclidean norm; at the minimum the gradient opposes its slope
    X, y = table()
    model = regressor(
        n_components=20,
        weight_penalty=0.05,
        feature_penalty=0.0,
        frequency_learning_rate=1e-12,
        solver="sgd",
        max_iter=1000,
        batch_size=200,
    ).fit(X, y)
    weight = model.coef_ / y.std()
    gaps = (model.predict(X) - y)[:, None] / y.std()
    gradient = 2 * model.features(X).T @ gaps / len(X)
    np.testing.assert_allclose(gradient, -0.05 * weight / np.linalg.norm(weight), atol=1e-5)
    assert np.linalg.norm(weight) > 1 and np.abs(gradient).max() > 0.01


def test_several_targets_are_learned_together():
    X, y = table()
    both = np.column_stack([y, -1e3 * y, np.full(len(y), 7.0)])
    model = regressor(max_iter=40).fit(X, both)
    new, truth = table(300, seed=1)
    found = model.predict(new)
    assert found.shape == (300, 3) and model.coef_.shape == (60, 3)
    np.testing.assert_allclose(found[:, 0], truth, atol=0.4 * truth.std())
    np.testing.assert_allclose(found[:, 1], -1e3 * found[:, 0], rtol=0.02)
    np.testing.assert_allclose(found[:, 2], 7.0, atol=0.1)  # a constant one is predicted as such
    outputs = model.features(new) @ model.coef_ + model.intercept_
    np.testing.assert_allclose(found, outputs, rtol=1e-6)
    assert model.rank_ < 3  # they are proportional
    one = regressor().fit(X, y[:, None])
    assert one.predict(X).shape == (200, 1) and regressor().fit(X, y).predict(X).shape == (200,)


def test_units_of_targets_and_columns_do_not_matter():
    X, y = table()
    plain = regressor().fit(X, y).predict(X)
    other = regressor().fit(1e6 * X - 3, 1e-3 * y + 5).predict(1e6 * X - 3)
    np.testing.assert_allclose((other - 5) * 1e3, plain, rtol=1e-4)


def test_depth_stacks_features():
    X, y = table()
    model = regressor(depth=3, max_iter=30, n_components=40).fit(X, y)
    assert [part.shape for part in model.frequencies_] == [(2, 40, 2), (2, 40, 40), (2, 40, 40)]
    assert len(model.gamma_) == len(model.phases_) == len(model.frequency_learning_rates_) == 3
    seen = model.input_map_(X)
    for (omega, other), phases in zip(model.frequencies_, model.phases_, strict=True):
        seen = (np.cos(seen @ omega.T + phases) + np.cos(seen @ other.T + phases)) / np.sqrt(80)
    np.testing.assert_allclose(model.features(X), seen, atol=1e-9)
    assert model.score(*table(300, seed=1)) > 0.9


def test_partial_fit_goes_on_where_it_was(monkeypatch):
    X, y = table()
    steps, epoch = [], Trainer.epoch

    def watched(self, *args):
        steps.append(self.optimizer.steps)
        return epoch(self, *args)

    monkeypatch.setattr(Trainer, "epoch", watched)
    model = regressor().partial_fit(X[:100], y[:100])
    offset = model.y_offset_.copy()
    model.partial_fit(X[100:], 2 * y[100:])
    assert steps == [0, 4] and np.array_equal(model.y_offset_, offset)
    for _ in range(40):
        model.partial_fit(X, y)
    assert model.score(*table(300, seed=1)) > 0.9
    with pytest.raises(ValueError, match="y must have 1 columns as in the first call, got 2"):
        model.partial_fit(X, np.column_stack([y, y]))
    assert model.partial_fit(X[:1], y[:1]).n_iter_ == 43


def test_wrong_data_are_refused():
    X, y = table(40)
    with pytest.raises(TypeError, match="[Ss]parse"):
        regressor().fit(sparse.csr_matrix(X), y)
    with pytest.raises(ValueError, match=r"targets are constant \(3.0\)"):
        regressor().fit(X, np.full(40, 3.0))
    with pytest.raises(ValueError, match=r"targets are constant \(3.0\)"):
        regressor().fit(X, np.full((40, 2), 3.0))
    wrong = y.copy()
    wrong[0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        regressor().fit(X, wrong)
    with pytest.raises(TypeError, match="y must hold numbers, got datetime64"):
        regressor().fit(X, np.arange(40).astype("datetime64[D]"))
    with pytest.raises(ValueError, match="'colour' .*encode them first"):
        regressor().fit(pd.DataFrame({"a": X[:, 0], "colour": ["red"] * 40}), y)
    with pytest.raises(ValueError, match="minimum of 2"):
        regressor().fit(X[:1], y[:1])


def test_two_rows_are_enough():
    X, y = table(2)
    found = ASKLRegressor(n_components=30, max_iter=5, random_state=0).fit(X, y).predict(X)
    assert np.isfinite(found).all()


def test_every_option_has_an_effect():
    X, y = table(100)
    plain, again = (regressor().fit(X, y).predict(X) for _ in range(2))
    np.testing.assert_array_equal(again, plain)
    for name, value in OPTIONS:
        if name != "loss":
            changed = regressor(**{name: value}).fit(X, y).predict(X)
            assert np.abs(changed - plain).max() > 1e-2, (name, value)


def test_ridge_regression_is_left_out_on_request():
    X, y = table(60)
    options = {"early_stopping": True, "max_iter": 1, "learning_rate": 1e-9}
    assert np.abs(regressor(**options).fit(X, y).coef_).max() > 1
    model = regressor(**options, ridge=False).fit(X, y)
    np.testing.assert_allclose(model.coef_, 0, atol=1e-3)


def test_the_loss_curve_is_the_mean_loss():
    X, y = table()
    model = regressor("SK", max_iter=20, learning_rate=1e-9).fit(X, y)
    np.testing.assert_allclose(model.loss_curve_, 1.0, rtol=1e-4)  # nothing is learned
    curve = regressor(max_iter=30).fit(X, y).loss_curve_
    assert len(curve) == 30 and curve[-1] < 0.1 < curve[0]


def test_float32_rows_far_from_zero_are_standardised_in_float64():
    X, y = table()
    plain = regressor().fit(X, y).predict(X)
    far = regressor().fit(X + 1e7, y).predict(X + 1e7)
    np.testing.assert_allclose(far, plain, rtol=1e-3)
    assert torch.get_default_dtype() == torch.float64
