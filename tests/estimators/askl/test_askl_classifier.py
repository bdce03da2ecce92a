import pickle
import warnings
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from gpytorch_nkn.estimators import ASKLClassifier
from gpytorch_nkn.estimators.askl import askl_base
from gpytorch_nkn.estimators.askl.askl_training import Trainer
from tests.estimators.askl.test_askl_selection import watch_runs
from tests.estimators.askl.test_askl_training import interrupt

SHORT = {
    "n_components": 60,
    "gamma": "median",
    "early_stopping": False,
    "max_iter": 5,
    "standardize": True,
    "batch_size": 32,
}


def classifier(method="ASKL", **options):
    return ASKLClassifier(method, **{**SHORT, "random_state": 0, **options})


def moons(n=150, seed=0):
    X, y = make_moons(n, noise=0.2, random_state=seed)
    return X, np.array(["left", "right"])[y]


def rings(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.digitize(np.hypot(*X.T), [0.7, 1.1, 1.6])


def test_defaults_learn_classes():
    X, y = rings()
    new, truth = rings(500, seed=1)
    model = ASKLClassifier(n_components=100, random_state=0).fit(X, y)
    assert model.score(new, truth) > 0.87
    probabilities = model.predict_proba(new)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    np.testing.assert_array_equal(model.classes_[probabilities.argmax(1)], model.predict(new))
    np.testing.assert_allclose(np.log(probabilities), model.predict_log_proba(new))
    sure = probabilities.max(1)
    assert np.mean(sure) == pytest.approx(model.score(new, truth), abs=0.06)  # they are honest
    assert len(model.validation_scores_) == 6 and model.n_iter_ >= 400  # five parts of 80 epochs


@pytest.mark.parametrize(
    ("method", "loss"),
    [
        *((method, "log_loss") for method in ("SK", "NSK", "SKL", "NSKL", "ASKL")),
        ("SK", "hinge"),
        ("ASKL", "hinge"),
    ],
)
def test_every_method_learns_and_is_what_it_is_called(method, loss):
    X, y = rings()
    model = classifier(method, loss=loss, max_iter=30).fit(X, y)
    start = classifier(method, loss=loss, max_iter=30)
    start._forget()
    start._read(X, y, first=True)
    with torch.no_grad():
        start._begin(X, y)
    before, after = start.frequencies_[0], model.frequencies_[0]
    assert model.score(*rings(500, seed=1)) > 0.65
    assert after.shape == (1 if method in ("SK", "SKL") else 2, 60, 2)
    same = np.allclose(before, after, rtol=1e-5, atol=1e-7)  # of single precision
    assert same == (method in ("SK", "NSK"))
    assert np.array_equal(start.phases_[0], model.phases_[0])
    if method == "ASKL":
        other = classifier("NSKL", loss=loss, max_iter=30).fit(X, y)
        assert not np.allclose(other.coef_, model.coef_)


def test_predictions_are_linear_in_the_features():
    X, y = rings()
    model = classifier().fit(X, y)
    outputs = model.features(X) @ model.coef_ + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), outputs)
    assert model.coef_.shape == (60, 4) and model.intercept_.shape == (4,)
    # the features as the paper writes them, of the inputs that the network sees
    (omega, other), phases = model.frequencies_[0], model.phases_[0]
    seen = model.input_map_(X)
    waves = np.cos(seen @ omega.T + phases) + np.cos(seen @ other.T + phases)
    np.testing.assert_allclose(model.features(X), waves / np.sqrt(2 * 60), atol=1e-9)
    X, y = moons()
    model = classifier().fit(X, y)
    outputs = model.features(X) @ model.coef_ + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), outputs[:, 1] - outputs[:, 0])
    assert set(model.predict(X)) == {"left", "right"}


def test_assigned_frequencies_and_little_penalty_are_logistic_regression():
    X, y = rings(200)
    penalty = 1e-4
    model = classifier(
        "SK",
        n_components=20,
        weight_penalty=penalty,
        learning_rate=0.3,
        max_iter=1500,
        batch_size=200,
    ).fit(X, y)
    features = model.features(X)
    exact = LogisticRegression(C=1 / (2 * 200 * penalty), tol=1e-8, max_iter=10_000).fit(
        features, y
    )

    def objective(weight, intercept):
        outputs = features @ weight + intercept
        logs = outputs - np.log(np.exp(outputs).sum(1, keepdims=True))
        return -logs[np.arange(200), y].mean() + penalty * np.square(weight).sum()

    least = objective(exact.coef_.T, exact.intercept_)
    assert objective(model.coef_, model.intercept_) == pytest.approx(least, rel=1e-4)
    assert least < 0.8 * objective(0 * model.coef_, 0.0)
    np.testing.assert_allclose(model.predict_proba(X), exact.predict_proba(features), atol=1e-3)


@pytest.mark.parametrize(
    ("solver", "penalties"), [("adam", (1e-5, 3.0, 6.0, 50.0)), ("sgd", (1e-5, 0.02, 0.05, 0.2))]
)
def test_rank_falls_as_the_penalty_grows(solver, penalties):
    X, y = load_digits(return_X_y=True)
    ranks = [
        classifier(weight_penalty=penalty, max_iter=4, solver=solver).fit(X[:600], y[:600]).rank_
        for penalty in penalties
    ]
    assert ranks == sorted(ranks, reverse=True) and len(set(ranks)) == 4
    assert ranks[0] >= 9 and ranks[-1] == 0


def test_singular_values_are_those_of_the_weights():
    model = classifier().fit(*rings())
    np.testing.assert_allclose(
        model.singular_values_, np.linalg.svd(model.coef_, compute_uv=False), rtol=1e-6
    )
    assert model.rank_ == np.linalg.matrix_rank(model.coef_, tol=1e-4)


OPTIONS = [
    ("gamma", 3.0),
    ("weight_penalty", 0.1),
    ("feature_penalty", 10.0),
    ("depth", 2),
    ("fit_intercept", False),
    ("solver", "sgd"),
    ("learning_rate", 0.01),
    ("frequency_learning_rate", 0.2),
    ("batch_size", 7),
    ("max_iter", 6),
    ("early_stopping", True),
    ("standardize", False),
    ("standardize", "auto"),
    ("random_state", 1),
    ("n_components", 61),
    ("loss", "hinge"),
]


def test_every_option_has_an_effect():
    X, y = rings(100)
    X = 2 * X + 1
    plain, again = (classifier().fit(X, y).decision_function(X) for _ in range(2))
    np.testing.assert_array_equal(plain, again)
    for name, value in OPTIONS:
        changed = classifier(**{name: value}).fit(X, y).decision_function(X)
        assert np.abs(changed - plain).max() > 1e-3, (name, value)


@pytest.mark.parametrize("loss", ["log_loss", "hinge"])
def test_gradient_descent_learns_by_its_own_rates(loss):
    X, y = rings()
    model = classifier(solver="sgd", loss=loss, max_iter=60).fit(X, y)
    assert model.score(*rings(500, seed=1)) > 0.85


def test_training_starts_at_the_shares_of_the_classes():
    X, y = rings(200)
    model = classifier(learning_rate=1e-9, frequency_learning_rate=1e-9, max_iter=1).fit(X, y)
    shares = np.bincount(y) / 200
    np.testing.assert_allclose(model.predict_proba(X), np.tile(shares, (200, 1)), rtol=1e-4)
    hinge = classifier(loss="hinge", learning_rate=1e-9, max_iter=1).fit(X, y)
    np.testing.assert_allclose(hinge.decision_function(X), 0, atol=1e-5)


def test_gamma_is_found_by_left_out_rows():
    X, y = rings()
    model = classifier(gamma="auto").fit(X, y)
    median = classifier().fit(X, y)
    assert model.gamma_[0] != median.gamma_[0]
    assert classifier(gamma=0.7).fit(X, y).gamma_ == [0.7]


def test_selection_follows_the_options(monkeypatch):
    seen = watch_runs(monkeypatch)
    X, y = rings(200)

    def runs(**options):
        seen.clear()
        classifier(early_stopping=True, **options).fit(X, y)
        return list(seen)

    found = runs(max_iter=10)
    assert len(found) in (5, 6) and all(cycles == [5, 5] for _, cycles in found[:5])
    assert sum(200 - count for count, _ in found[:5]) == 196  # but for one row of each class
    found = runs(max_iter=10, validation_fraction=0.3, refit=False)
    assert found == [(140, [5, 5])]
    found = runs(max_iter=10, validation_fraction=0.3, refit=True)
    assert found[0] == (140, [5, 5]) and all(part == 200 for part, _ in found[1:])
    monkeypatch.setattr(askl_base, "_MAX_REFIT", 100)
    assert len(runs(max_iter=10, validation_fraction=0.3)) == 1
    seen.clear()
    classifier(max_iter=7).fit(X, y)
    assert seen == [(200, [7])]


def test_rules_by_the_size_of_the_table():
    folds = {n: askl_base._folds(n) for n in (599, 600, 1000, 4000, 8000, 50_000)}
    assert folds == {
        599: (5, 0.2),
        600: (3, 0.2),
        1000: (1, 0.2),
        4000: (1, 0.2),
        8000: (1, 0.125),
        50_000: (1, 0.1),
    }
    sizes = {n: askl_base._batch_size(n, 20) for n in (10, 6300, 6400, 12_800, 10**6)}
    assert sizes == {10: 32, 6300: 32, 6400: 64, 12_800: 128, 10**6: 256}
    assert [askl_base._batch_size(n, 200) for n in (4999, 5000)] == [32, 128]


def test_ridge_regression_is_left_out_on_request():
    X, y = rings(60)
    options = {"early_stopping": True, "max_iter": 1, "learning_rate": 1e-9}
    assert classifier(**options).fit(X, y).best_iteration_ == 0
    model = classifier(**options, ridge=False).fit(X, y)
    np.testing.assert_allclose(model.coef_, 0, atol=1e-6)


def test_the_batch_size_is_used(monkeypatch):
    counts, step = [], Trainer.step

    def watched(self, x, targets, factor=1.0):
        counts.append(len(x))
        return step(self, x, targets, factor)

    monkeypatch.setattr(Trainer, "step", watched)
    X, y = rings(200)
    classifier(batch_size=50, max_iter=1).fit(X, y)
    assert counts == [50] * 4
    counts.clear()
    classifier(batch_size="auto", max_iter=1).fit(X, y)
    assert max(counts) == 29 and sum(counts) == 200


def test_training_stops_when_scores_no_longer_rise(monkeypatch):
    X, y = rings(200)
    monkeypatch.setattr(
        ASKLClassifier, "_scores", lambda self, f, y: torch.full((len(f),), next(scores))
    )
    options = {"early_stopping": True, "validation_fraction": 0.2, "refit": False, "max_iter": 40}
    scores = iter([0.0, 3.0, 2.0, 1.0, 4.0])
    model = classifier(**options, n_iter_no_change=2).fit(X, y)
    assert model.validation_scores_ == [0.0, 3.0, 2.0, 1.0]
    assert model.best_iteration_ == 5 and model.n_iter_ == 20 == len(model.loss_curve_)
    scores = iter([0.0, 3.0, 2.0, 1.0, 4.0])
    model = classifier(**options, n_iter_no_change=3).fit(X, y)
    assert model.best_iteration_ == 40 == model.n_iter_


def test_partial_fit_goes_on_where_it_was(monkeypatch):
    X, y = rings(120)
    optimizers, epoch = [], Trainer.epoch

    def watched(self, *args):
        before = self.optimizer.steps
        loss = epoch(self, *args)
        optimizers.append((before, self.optimizer.steps, self.rates))
        return loss

    monkeypatch.setattr(Trainer, "epoch", watched)
    model = classifier().partial_fit(X[:40], y[:40], classes=[0, 1, 2, 3, 9])
    gamma, maps = model.gamma_, model.input_map_
    first = model.coef_.copy()
    model.partial_fit(X[40:80], y[40:80]).partial_fit(X[80:], y[80:])
    assert model.gamma_ is gamma and model.input_map_ is maps
    assert [(a, b) for a, b, _ in optimizers] == [(0, 2), (2, 4), (4, 6)]
    assert not np.allclose(first, model.coef_) and model.n_iter_ == len(model.loss_curve_) == 3
    assert model.classes_.tolist() == [0, 1, 2, 3, 9] and model.predict_proba(X).shape == (120, 5)
    for _ in range(30):
        model.partial_fit(X, y)
    assert model.score(*rings(500, seed=1)) > 0.75
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        model.partial_fit(X, y).coef_, copy.partial_fit(X, y).coef_
    )  # what the optimiser remembers is in the pickle


def test_partial_fit_names_what_is_wrong(monkeypatch):
    X, y = rings(60)
    model = classifier()
    with pytest.raises(ValueError, match="classes must be given in the first call"):
        model.partial_fit(X, y)
    model.partial_fit(X, y, classes=range(4))
    with pytest.raises(ValueError, match=r"those of the first call, \[0, 1, 2, 3\], got \[0, 1\]"):
        model.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match=r"y has classes \[7\]"):
        model.partial_fit(X, y + 4 * (y == 3))
    with pytest.raises(ValueError, match="has 1 features"):
        model.partial_fit(X[:, :1], y)
    before = model.coef_
    interrupt(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(X, y)
    np.testing.assert_array_equal(model.coef_, before)
    monkeypatch.undo()
    model.partial_fit(X, y)
    assert not np.array_equal(model.coef_, before)
    fitted = classifier().fit(X, y)
    before = fitted.coef_
    assert not np.array_equal(fitted.partial_fit(X, y).coef_, before)


def test_columns_that_are_constant_at_first_count_later():
    X, y = rings(80)
    X[:40, 1] = 0.0
    model = classifier().partial_fit(X[:40], y[:40], classes=range(4)).partial_fit(X[40:], y[40:])
    assert model.frequencies_[0].shape[-1] == 2
    moved = X + [0, 1.0]
    assert np.abs(model.decision_function(moved) - model.decision_function(X)).max() > 0.01


def test_constant_columns_are_left_out_of_a_fit():
    X, y = rings(80)
    plain = classifier().fit(X, y)
    more = np.column_stack([np.full(80, 5.0), X])
    model = classifier().fit(more, y)
    assert model.n_features_in_ == 3 and model.frequencies_[0].shape[-1] == 2
    more[:, 0] = 99.0
    np.testing.assert_allclose(model.decision_function(more), plain.decision_function(X))


def test_probabilities_come_with_the_log_loss_only():
    model = classifier(loss="hinge").fit(*moons())
    assert not hasattr(model, "predict_proba") and hasattr(classifier(), "predict_proba")
    with pytest.raises(AttributeError, match="predict_proba"):
        model.predict_proba(moons()[0])
    with pytest.raises(AttributeError, match="predict_log_proba"):
        model.predict_log_proba(moons()[0])


def test_wrong_data_are_refused():
    X, y = rings(40)
    with pytest.raises(TypeError, match="[Ss]parse"):
        classifier().fit(sparse.csr_matrix(X), y)
    for value in (np.nan, np.inf):
        wrong = X.copy()
        wrong[3, 1] = value
        with pytest.raises(ValueError, match="NaN|infinity"):
            classifier().fit(wrong, y)
    with pytest.raises(ValueError, match=r"two classes or more, got one class: \[1\]"):
        classifier().fit(X, np.ones(40, dtype=int))
    with pytest.raises(ValueError, match="All 2 columns of X are constant"):
        classifier().fit(np.ones((40, 2)), y)
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        classifier().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="'colour' .*encode them first"):
        classifier().fit(pd.DataFrame({"a": X[:, 0], "colour": ["red"] * 40}), y)
    with pytest.raises(ValueError, match="minimum of 2"):
        classifier().fit(X[:1], y[:1])
    with pytest.raises(ValueError, match="1e\\+35, which is too large"):
        classifier(standardize=False).fit(1e35 * np.sign(X), y)


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


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"method": "RBF"}, ValueError, "method must be one of .*'ASKL'.*, got 'RBF'"),
        ({"loss": "mse"}, ValueError, "loss must be one of .*, got 'mse'"),
        ({"solver": "lbfgs"}, ValueError, "solver must be one of .*, got 'lbfgs'"),
        ({"gamma": "scale"}, ValueError, "gamma must be .*, got 'scale'"),
        ({"gamma": 0.0}, ValueError, "gamma must be positive, got 0.0"),
        ({"gamma": None}, TypeError, "gamma must be .*, got None"),
        ({"n_components": 0}, ValueError, "n_components must be at least 1, got 0"),
        ({"depth": 1.5}, TypeError, "depth must be an integer, got 1.5"),
        ({"weight_penalty": -1.0}, ValueError, "weight_penalty must be .*, got -1.0"),
        ({"learning_rate": 0.0}, ValueError, "learning_rate must be positive, got 0.0"),
        ({"budget": "1"}, TypeError, "budget must be a number, got '1'"),
        ({"validation_fraction": 1.0}, ValueError, "validation_fraction must lie .*, got 1.0"),
        ({"ridge": "yes"}, TypeError, "ridge must be True or False, got 'yes'"),
        ({"refit": "yes"}, ValueError, "refit must be .*, got 'yes'"),
        ({"refit": 1}, ValueError, "refit must be"),
        ({"standardize": 1}, ValueError, "standardize must be"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1, got 0"),
        ({"device": 3}, TypeError, "device must be"),
        ({"device": "meta"}, ValueError, "device='meta' cannot be used"),
        ({"method": "NSKL", "feature_penalty": 0.1}, ValueError, "feature_penalty belongs to"),
        ({"method": "SK", "frequency_learning_rate": 0.1}, ValueError, "has no use with"),
    ],
)
def test_wrong_options_are_named(options, error, match):
    with pytest.raises(error, match=match):
        classifier(**options).fit(*moons())


def test_a_fit_that_fails_leaves_nothing_that_predicts(monkeypatch):
    X, y = moons()
    model = classifier().fit(X, y)
    interrupt(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)
    monkeypatch.undo()
    with pytest.raises(FloatingPointError, match="not finite"):
        model.set_params(learning_rate=1e38).fit(X, y)
    with pytest.raises(NotFittedError):
        model.features(X)


def test_ctrl_c_keeps_what_there_is(monkeypatch):
    X, y = moons()
    interrupt(monkeypatch, 12)
    with pytest.warns(UserWarning, match="Interrupted after 2 epochs"):
        model = classifier(max_iter=50).fit(X, y)
    assert model.score(X, y) > 0.7 and model.n_iter_ == 2


def test_the_budget_ends_a_training():
    X, y = moons(2000)
    model = classifier(max_iter=10**6, budget=0.3).fit(X, y)
    assert model.score(X, y) > 0.85 and 1 <= model.n_iter_ < 1000


@pytest.mark.parametrize("copied", [deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_predict_the_same(copied):
    X, y = rings(80)
    model = classifier(depth=2).fit(X, y)
    other = copied(model)
    expected = model.predict_proba(X)
    np.testing.assert_array_equal(other.predict_proba(X), expected)
    other.partial_fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), expected)
    fresh = clone(model)
    assert fresh.get_params() == model.get_params() and not hasattr(fresh, "classes_")


def test_it_can_be_searched():
    search = GridSearchCV(classifier(), {"gamma": [0.05, 1.0]}, cv=2).fit(*rings(150))
    assert search.best_params_["gamma"] == 1.0


def test_global_state_is_left_as_it_was():
    X, y = rings(60)
    expected = classifier().fit(X, y).predict_proba(X)
    torch.manual_seed(5)
    np.random.seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), torch.get_num_threads()
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        for dtype in (torch.float32, torch.float64):
            torch.set_default_dtype(dtype)
            with mode():
                inside = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
                model = classifier().fit(X, y)
                found = model.predict_proba(X)
                assert inside == (torch.is_grad_enabled(), torch.is_inference_mode_enabled())
            assert torch.get_default_dtype() == dtype
            np.testing.assert_array_equal(found, expected)
            model.partial_fit(X, y)
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])
    assert before[2] == torch.get_num_threads()


def test_the_device_is_used():
    model = classifier(device="cpu").fit(*moons())
    assert model._network.values.device == torch.device("cpu")
    with pytest.raises(ValueError, match="nonsense"):
        classifier(device="nonsense").fit(*moons())
