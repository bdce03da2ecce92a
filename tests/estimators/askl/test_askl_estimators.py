import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge

from gpytorch_nkn.estimators import ASKLClassifier, ASKLRegressor

SHORT = {"n_components": 60, "gamma": 0.5, "early_stopping": False, "max_iter": 5}


def classifier(method="ASKL", **options):
    return ASKLClassifier(method, **{**SHORT, "random_state": 0, **options})


def regressor(method="ASKL", **options):
    return ASKLRegressor(method, **{**SHORT, "random_state": 0, **options})


def rings(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.digitize(np.hypot(*X.T), [0.7, 1.1, 1.6])


def table(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    return X, 50 + 20 * (np.sin(6 * X[:, 0]) + X[:, 1]) + rng.standard_normal(n)


def test_defaults_learn_classes_and_a_function(few_candidates):
    X, y = rings(300)
    new, truth = rings(500, seed=1)
    model = ASKLClassifier(n_components=60, random_state=0).fit(X, y)
    assert model.score(new, truth) > 0.86
    probabilities = model.predict_proba(new)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    np.testing.assert_array_equal(model.classes_[probabilities.argmax(1)], model.predict(new))
    np.testing.assert_allclose(np.log(probabilities), model.predict_log_proba(new))
    assert np.mean(probabilities.max(1)) == pytest.approx(model.score(new, truth), abs=0.1)
    assert len(model.validation_scores_) == 6 and model.n_iter_ >= 160  # two parts of 80 epochs
    model = ASKLRegressor(n_components=50, random_state=0).fit(*table())
    assert model.score(*table(300, seed=1)) > 0.97
    # minus the mean squared error of held-out rows, for targets of unit variance
    assert max(model.validation_scores_) == pytest.approx(-0.0045, abs=0.002)


@pytest.mark.parametrize(
    ("method", "loss"),
    [("SK", None), ("NSK", "log_loss"), ("SKL", "hinge"), ("NSKL", None), ("ASKL", "log_loss")],
)
def test_every_method_learns_and_is_what_it_is_called(method, loss):
    if loss:
        (X, y), options, make, test = rings(), {"loss": loss}, classifier, rings(500, seed=1)
    else:
        (X, y), options, make, test = table(), {}, regressor, table(300, seed=1)
    model = make(method, max_iter=20, **options).fit(X, y)
    assert model.score(*test) > (0.65 if loss else 0.88)
    first = make(method, max_iter=1, **options).fit(X, y)
    assert model.frequencies_.shape == (1 if method in ("SK", "SKL") else 2, 60, 2)
    same = np.array_equal(first.frequencies_, model.frequencies_)
    assert same == (method in ("SK", "NSK"))
    assert np.array_equal(first.phases_, model.phases_)


def test_predictions_are_linear_in_the_features():
    X, y = rings()
    model = classifier().fit(X, y)
    outputs = model.features(X) @ model.feature_coef_ + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), outputs)
    assert model.feature_coef_.shape == (60, 4) and model.intercept_.shape == (4,)
    # the features as the paper writes them, of the inputs that the network sees
    (omega, other), seen = model.frequencies_, model.input_map_(X)
    waves = np.cos(seen @ omega.T + model.phases_) + np.cos(seen @ other.T + model.phases_)
    np.testing.assert_allclose(model.features(X), waves / np.sqrt(2 * 60), atol=1e-9)
    model = classifier().fit(X, np.where(y > 1, "out", "in"))
    outputs = model.features(X) @ model.feature_coef_ + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), outputs[:, 1] - outputs[:, 0])
    assert set(model.predict(X)) == {"in", "out"}


def test_a_budget_ends_a_training():
    model = classifier(max_iter=10**6, budget=0.1).fit(*rings())
    assert 1 <= model.n_iter_ < 10**5


def test_assigned_frequencies_are_ridge_regression(few_candidates):
    X, y = table()
    model = ASKLRegressor("SK", n_components=20, random_state=0).fit(X, y)
    assert model.n_iter_ == 0 and len(model.validation_scores_) == 1
    X, y = rings(200)
    trained = regressor("SK", n_components=20, weight_penalty=1e-3, max_iter=350).fit(X, y)
    scaled = (y - y.mean()) / y.std()
    exact = Ridge(alpha=200 * 1e-3).fit(trained.features(X), scaled)
    expected = y.mean() + y.std() * exact.predict(trained.features(X))
    np.testing.assert_allclose(trained.predict(X), expected, atol=0.01 * y.std())


def test_rank_falls_as_the_penalty_grows():
    X, y = load_digits(return_X_y=True)
    ranks = []
    for penalty in (1e-5, 2.0, 9.0):
        model = classifier(weight_penalty=penalty).fit(X[:150, ::2], y[:150])
        ranks.append(model.rank_)
        values = np.linalg.svd(model.feature_coef_, compute_uv=False)
        np.testing.assert_allclose(model.singular_values_, values, rtol=1e-5, atol=1e-6)
    assert ranks == sorted(ranks, reverse=True) and len(set(ranks)) == 3
    assert ranks[0] >= 9 and ranks[-1] == 0


OPTIONS = {"gamma": 3.0, "weight_penalty": 0.1, "feature_penalty": 10.0, "random_state": 1}


def test_every_option_has_an_effect():
    X, y = rings(60)
    plain = classifier().fit(X, y).decision_function(X)
    np.testing.assert_array_equal(classifier().fit(X, y).decision_function(X), plain)
    for name, value in (OPTIONS | {"loss": "hinge"}).items():
        other = classifier(**{name: value}).fit(X, y).decision_function(X)
        assert np.abs(other - plain).max() > 1e-3, (name, value)


def test_probabilities_follow_the_fitted_loss():
    X, y = rings(80)
    model = classifier(loss="hinge").fit(X, y).set_params(loss="log_loss")
    assert not hasattr(model, "predict_proba") and hasattr(classifier(), "predict_proba")
    with pytest.raises(AttributeError, match="predict_log_proba"):
        model.predict_log_proba(X)
    model = classifier().fit(X, y).set_params(loss="hinge")
    assert model.predict_proba(X).shape == (80, 4)


@pytest.mark.parametrize(
    ("name", "error", "match"),
    [(3, TypeError, "device must be"), ("quantum", RuntimeError, "device string: quantum")],
)
def test_wrong_devices_are_named(name, error, match):
    with pytest.raises(error, match=match):
        classifier(device=name).fit(*rings(40))


def test_few_rows_copies_and_rare_classes_are_no_trouble():
    X, y = rings(40)
    model = ASKLClassifier(n_components=30, max_iter=5, random_state=0)
    assert model.fit(X[:2], [0, 1]).predict(X).shape == (40,)
    assert model.fit(np.tile(X[:2], (30, 1)), np.tile(["a", "b"], 30)).score(X[:2], ["a", "b"]) == 1
    labels = y.copy()
    labels[7] = 9
    assert 9 in model.fit(X, labels).classes_
    with warnings.catch_warnings():  # newer releases of scikit-learn warn of so many classes
        warnings.filterwarnings("ignore", "The number of unique classes")
        model.fit(X, np.arange(40))
    assert model.predict_proba(X).shape == (40, 40)
    X, y = table(2)
    assert np.isfinite(regressor().fit(X, y).predict(X)).all()


def test_several_targets_are_learned_together():
    X, y = table()
    both = np.column_stack([y, -1e3 * y, np.full(len(y), 7.0)])
    model = regressor(max_iter=40).fit(X, both)
    new, truth = table(300, seed=1)
    found = model.predict(new)
    assert found.shape == (300, 3) and model.feature_coef_.shape == (60, 3)
    np.testing.assert_allclose(found[:, 0], truth, atol=0.4 * truth.std())
    np.testing.assert_allclose(found[:, 1], -1e3 * found[:, 0], rtol=0.02)
    np.testing.assert_allclose(found[:, 2], 7.0, atol=0.1)  # a constant one is predicted as such
    assert regressor().fit(X, y[:, None]).predict(X).shape == (200, 1)


def test_units_of_targets_and_columns_do_not_matter():
    X, y = table(80)
    plain = regressor().fit(X, y).predict(X)
    for scale, shift, rtol in ((1e6, -3.0, 1e-4), (1.0, 1e7, 1e-3), (1e-300, 0.0, 1e-3)):
        other = regressor().fit(scale * X + shift, 1e-3 * y + 5).predict(scale * X + shift)
        np.testing.assert_allclose((other - 5) * 1e3, plain, rtol=rtol)
    assert np.isfinite(regressor().fit(X, y).predict(np.full((1, 2), 1e99))).all()
