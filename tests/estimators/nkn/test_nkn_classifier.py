import pickle
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import CosineKernel, RBFKernel, ScaleKernel
from scipy import stats

from gpytorch_nkn import fit
from gpytorch_nkn.estimators import NKNClassifier
from gpytorch_nkn.estimators.nkn import nkn_classifier as module
from gpytorch_nkn.estimators.nkn.class_processes import (
    ClassProcesses,
    LabelProcesses,
    class_model,
    class_rows,
)
from gpytorch_nkn.interpretation import report

SHORT = fit.Recipe(adam_steps=0, lbfgs_iterations=8)
OPTIONS = {"restarts": 1, "recipe": SHORT, "random_state": 0, "progress": False}


def drawn(n, seed=0):
    """Rows whose three classes have known probabilities, which are returned."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    scores = np.stack([np.zeros(n), 2 * X[:, 0], X[:, 1] - 1])
    truth = (np.exp(scores) / np.exp(scores).sum(0)).T
    labels = np.array(["a", "b", "c"])
    return X, labels[[rng.choice(3, p=row) for row in truth]], truth


def test_probabilities_are_near_the_true_ones():
    X, y, _ = drawn(200)
    new, _, truth = drawn(300, seed=1)
    model = NKNClassifier("tabular", **OPTIONS).fit(X, y)
    found = model.predict_proba(new)
    np.testing.assert_allclose(found.sum(1), 1)
    divergence = (truth * np.log(truth / found)).sum(1).mean()
    frequencies = np.array([(y == label).mean() for label in "abc"])
    assert divergence < 0.2 * (truth * np.log(truth / frequencies)).sum(1).mean()
    assert 0 < model.held_out_log_loss_ < 1.1
    assert set(model.predict(new)) <= set("abc")


def test_posterior_is_that_of_the_paper_written_out():
    X, y, _ = drawn(30)
    model = NKNClassifier("rbf", **OPTIONS).fit(X, y)
    trained = model.results_["rbf"].model
    predictor = ClassProcesses(trained, fit.Rows.of(trained), 16.0)
    gp = predictor.model
    x = gp.train_inputs[0]
    new = x[:4] + 0.1
    with torch.no_grad():
        covariance, cross = gp.covar_module(x).to_dense(), gp.covar_module(new, x).to_dense()
        torch.testing.assert_close(covariance, 16 * trained.covar_module(x).to_dense())
        prior, scores, variances = gp.covar_module(new, diag=True), [], []
        for place, label in enumerate("abc"):
            shape = np.where(y == label, 1.01, 0.01)
            noise = np.log(1 / shape + 1)
            target = torch.as_tensor(np.log(shape) - noise / 2)
            middle = (np.log(1.01 * 0.01) - np.log((1 / 1.01 + 1) * (1 / 0.01 + 1)) / 2) / 2
            level = gp.mean_module.constant[place] + middle
            gain = cross @ torch.linalg.inv(covariance + torch.as_tensor(noise).diag())
            mean = level + gain @ (target - level)
            variances.append(prior - (cross * gain).sum(-1))
            moderation = (1 + torch.pi / 8 * variances[-1]).sqrt()
            scores.append((mean - middle) / moderation)
    scores, weight = torch.stack(scores).numpy(), 1.2
    np.testing.assert_allclose(predictor.predict(new), scores, rtol=1e-6)
    torch.testing.assert_close(predictor.moments(new)[1], torch.stack(variances))
    model.weights_, model._predictors = np.array([weight]), [predictor]
    frequencies = np.array([[(y == label).sum() + 0.5] for label in "abc"]) / 31.5
    expected = frequencies ** (1 - weight) * np.exp(weight * scores)
    found = model.predict_proba(model.x_offset_ + model.x_scale_ * new.numpy())
    np.testing.assert_allclose(found, (expected / expected.sum(0)).T)
    copy = pickle.loads(pickle.dumps(model)).predict_proba(X[:5])
    np.testing.assert_allclose(copy, model.predict_proba(X[:5]))


@pytest.mark.parametrize("is_noisy", [False, True])
def test_kernels_of_well_separated_classes_are_scaled(is_noisy):
    rng = np.random.default_rng(0)
    x = torch.linspace(-1, 1, 200, dtype=torch.float64)[:, None]
    codes = (
        torch.tensor(rng.integers(2, size=200)) if is_noisy else ((12 * x[:, 0]).sin() > 0).long()
    )
    rows, kernel = class_rows(x, codes.numpy(), 2), RBFKernel().double()
    kernel.lengthscale = 0.5
    trained = class_model(rows, kernel)
    predictor = ClassProcesses(trained, rows)
    scores = predictor.calibrate()
    scale = predictor.model.covar_module(x, diag=True)
    assert (scale == 1).all() if is_noisy else (scale > 2).all()
    predictor = predictor.like(trained, rows[torch.arange(200) != 90])
    np.testing.assert_allclose(predictor.predict(x[[90]])[:, 0], scores[:, 90], rtol=1e-5)


def test_pooling_weights_are_the_maximum_a_posteriori():
    rng, rows = np.random.default_rng(0), np.arange(40)
    base, labels = np.log([[0.5], [0.3], [0.2]]), rng.integers(3, size=40)
    scores = rng.normal(size=(4, 3, 40))
    scores[:, labels, rows] += np.array([[2], [1], [0], [-1]])
    found = module._pooling_weights(scores, base, labels)

    def log_posterior(weights):
        logs = base + np.einsum("m,mkn->kn", weights, scores)
        own = logs[labels, rows] - np.log(np.exp(logs).sum(0))
        total = weights.sum()
        prior = stats.norm.logpdf(weights / total, 0.25, 0.5).sum() + stats.norm.logpdf(total, 1)
        return own.sum() + prior

    assert (found[:3] > 0.05).all() and found[3] < 1e-5
    for step in 0.01 * rng.normal(size=(50, 4)):
        assert log_posterior(np.maximum(found + step, 1e-6)) < log_posterior(found)


def test_held_out_probabilities_of_labels_match_models_without_the_row():
    X, y, _ = drawn(30)
    trained = NKNClassifier("rbf", **OPTIONS).fit(X, y).results_["rbf, labels"].model
    rows = class_rows(trained.train_inputs[0], np.unique(y, return_inverse=True)[1], 3)
    predictor = LabelProcesses(trained, rows)
    found, rest = predictor.calibrate()[:, 5], torch.arange(30) != 5
    again = predictor.like(trained, rows[rest]).predict(rows.x[5:6])[:, 0]
    # without a row, the Laplace approximation has another mode
    np.testing.assert_allclose(again, found, rtol=0.05)


@pytest.mark.parametrize("classes", ["abc", "ab"])
def test_processes_of_labels_have_the_posterior_of_laplace(classes):
    X, y, _ = drawn(40)
    model = NKNClassifier("rbf", **OPTIONS).fit(X, np.where(np.isin(y, [*classes]), y, "a"))
    laplace = model.results_["rbf, labels"].model
    codes = np.unique(np.where(np.isin(y, [*classes]), y, "a"), return_inverse=True)[1]
    predictor = LabelProcesses(laplace, class_rows(laplace.train_inputs[0], codes, len(classes)))
    new = predictor.model.train_inputs[0][:4] + 0.1
    with torch.no_grad():
        expected = laplace(new)
    for found, other in zip(
        predictor.moments(new), (expected.mean, expected.variance), strict=True
    ):
        np.testing.assert_allclose(found[-len(other) :], other, rtol=1e-5)
    labels = [model.classes_ == label for label in y[y != "c"]]
    first = laplace.train_targets.T[y != "c"]
    np.testing.assert_array_equal(first, np.array(labels)[:, -first.size(1) :])


def test_class_weights_change_the_frequencies_of_the_population(few_iterations):
    X, y, _ = drawn(40)
    plain = NKNClassifier("rbf", **OPTIONS).fit(X, y).predict_proba(X)
    even = 1 / np.array([(y == label).sum() for label in "abc"])
    for weights, factors in (({"a": 3, "c": 0}, [3, 1, 0]), ("balanced", even)):
        model = NKNClassifier("rbf", class_weight=weights, **OPTIONS).fit(X, y)
        expected = plain * factors
        expected /= expected.sum(1, keepdims=True)
        np.testing.assert_allclose(model.predict_proba(X), expected)


def test_tables_with_categories_dates_and_missing_cells():
    X, y, _ = drawn(60)
    kind = np.where(y == "b", "red", "blue").astype(object)
    frame = pd.DataFrame({"x": X[:, 0], "kind": kind})
    frame["when"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(10 * X[:, 1], unit="D")
    frame.loc[3, "x"], frame.loc[4, "kind"] = np.nan, None
    model = NKNClassifier("rbf", **OPTIONS).fit(frame, y)
    assert model.categories_ == {"kind": ("blue", "red")}
    found = model.predict_proba(frame)
    assert np.isfinite(found).all()
    assert (found[kind == "red"][:, 1] > 0.5).mean() > 0.9
    np.testing.assert_allclose(found[:6], model.predict_proba(frame[:6]), rtol=1e-6)


def test_many_rows_are_reduced_with_a_warning_and_every_class_stays(monkeypatch):
    X, y, _ = drawn(80)
    y[:] = "a"
    y[[5, 70]] = "rare"
    monkeypatch.setattr(module, "MAX_ROWS", 40)
    monkeypatch.setattr(module, "_TRAINING_WORK", 2 * 20**3 + 1)
    with pytest.warns(fit.SizeWarning, match="up to 40 rows, got 80"):
        model = NKNClassifier("rbf", **OPTIONS).fit(X, y)
    assert model.model_.train_targets.shape == (2, 40)
    assert (model.model_.train_targets[1] > 0).sum() >= 1
    assert model.predict_proba(X).shape == (80, 2)


def test_the_budget_and_ctrl_c_end_the_pooling_of_the_members(few_iterations, monkeypatch):
    """With N rows a member takes N ** 3 / 1e6 seconds of a clock that stands still otherwise."""
    clock, calls, calibrate = [0.0], [], ClassProcesses.calibrate

    def slow(self):
        calls.append(self.model.train_inputs[0].size(0))
        clock[0] += 1e-6 * calls[-1] ** 3
        if len(calls) == 7:
            raise KeyboardInterrupt
        return calibrate(self)

    monkeypatch.setattr(ClassProcesses, "calibrate", slow)
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr(module, "_LABELLED_WORK", 0)
    X, y, _ = drawn(300)
    with pytest.warns(UserWarning, match="budget of 80 seconds suffices for 271 of 300 rows"):
        model = NKNClassifier(["rbf"] * 4, budget=80, **OPTIONS).fit(X, y)
    assert calls == [250] * 2 + [271] * 3 and clock[0] < 100
    assert model.predict_proba(X).shape == (300, 3)
    model = NKNClassifier(["rbf", "matern"], **OPTIONS).fit(X[:40], y[:40])
    assert len(calls) == 7 and model.members_ == [("rbf", 0)]
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)


def test_labels_may_be_numbers_in_an_array_of_objects(few_iterations):
    X, y, _ = drawn(20)
    labels = (y == "a").astype(int)
    model = NKNClassifier("rbf", **OPTIONS).fit(X, labels.astype(object))
    assert set(model.predict(X)) <= {0, 1} and model.classes_.dtype == labels.dtype
    mixed = np.where(labels == 1, "a", labels.astype(object))
    assert NKNClassifier("rbf", **OPTIONS).fit(X, mixed.astype(str)).classes_.tolist() == ["0", "a"]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("even", "'balanced'} or None. Got 'even'"),
        ({"a": 0, "b": 0}, "at least 0 and positive for some class, got"),
        ({"z": 2}, r"must have labels of y, \['a', 'b'\], got \['z'\]"),
        ({"a": -1}, "at least 0 and positive"),
    ],
)
def test_wrong_weights_are_named(weights, message):
    with pytest.raises(ValueError, match=message):
        NKNClassifier("rbf", class_weight=weights, **OPTIONS).fit(np.eye(9), [*"abababaab"])


def test_without_a_useful_network_every_row_has_the_class_frequencies(few_iterations):
    X, y, _ = drawn(40)
    model = NKNClassifier("rbf", **OPTIONS).fit(X, y)
    model.weights_ = np.full_like(model.weights_, 1e-100)
    frequencies = [((y == label).sum() + 0.5) / 41.5 for label in "abc"]
    np.testing.assert_allclose(model.predict_proba(X), [frequencies] * 40, rtol=1e-6)
    assert "does not change with any column" in str(report(model, label="a"))


# The covariance is not positive definite with a factor of the kernel, or without.
@pytest.mark.parametrize("scale, warning", [(0.02, ""), (0.1, "'ScaleKernel' is omitted")])
def test_kernels_that_are_not_positive_definite_are_omitted(scale, warning):
    X = np.random.default_rng(0).uniform(-1, 1, size=(60, 2))
    bad = ScaleKernel(CosineKernel())
    bad.outputscale = scale
    with pytest.warns(RuntimeWarning, match=warning) if warning else nullcontext():
        model = NKNClassifier([bad.requires_grad_(False), "rbf"], **OPTIONS).fit(X, X[:, 0] > 0)
    assert ("rbf", 0) in model.members_
    assert (model.predict(X) == (X[:, 0] > 0)).mean() > 0.9
