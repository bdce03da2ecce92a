import math

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from benchmarks import askl_references
from benchmarks.askl_references import (
    REFERENCES,
    climb,
    fit_reference,
    leave_one_out,
    median_gamma,
)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Two folds instead of three, and few random features."""
    monkeypatch.setattr(askl_references, "_FOLDS", 2)
    monkeypatch.setattr(askl_references, "_FEATURES", 100)


def waves(num_rows=180, seed=0):
    X = np.random.default_rng(seed).uniform(-1, 1, size=(num_rows, 2))
    return X, np.sin(4 * X[:, 0]) + X[:, 1]


@pytest.mark.parametrize("size", [(12, 5), (8, 20)])
def test_leave_one_out_equals_a_fit_without_each_row(size):
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=size), rng.normal(size=(size[0], 2)) + 3
    penalties = (0.1, 2.0)
    for penalty, found in zip(penalties, leave_one_out(features, targets, penalties), strict=True):
        for row in range(size[0]):
            others = np.arange(size[0]) != row
            ridge = Ridge(alpha=penalty).fit(features[others], targets[others])
            np.testing.assert_allclose(found[row], ridge.predict(features[[row]])[0], rtol=1e-8)


@pytest.mark.parametrize("peak", [-5, -1, 0, 1, 6])
def test_climbing_ends_at_the_first_maximum(peak):
    tried = []

    def score(value):
        tried.append(value)
        return -abs(math.log2(value / 3) - peak)

    assert climb(score, 3.0, 2.0) == 3.0 * 2.0**peak
    assert len(tried) == len(set(tried)) == abs(peak) + 3


def test_climbing_without_an_end_stops():
    tried = []
    assert climb(lambda v: tried.append(v) or v, 1.0, 2.0) == 2.0**8 and len(tried) == 10


def test_median_rule():
    X = np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 4.0]])  # distances 5, 5, 0
    assert median_gamma(X, 0) == pytest.approx(1 / 25)


@pytest.mark.parametrize("method", REFERENCES)
@pytest.mark.parametrize("labels", [None, ["a", "b"], ["a", "b", "c"]])
def test_references_learn_waves(method, labels):
    X, f = waves()
    y, classes = f + 50, labels is not None
    if labels is not None:
        y = np.array(labels)[np.digitize(f, [0.0] if len(labels) == 2 else [-0.5, 0.5])]
    train, test = slice(0, 130), slice(130, None)
    if method == "rff_logistic" and not classes:
        with pytest.raises(ValueError, match="needs classes, got targets for regression"):
            fit_reference(method, X[train], y[train], classes=classes, seed=0)
        return
    model, chosen = fit_reference(method, X[train], y[train], classes=classes, seed=0)
    prediction = model.predict(X[test])
    if classes:
        assert np.mean(prediction == y[test]) > 0.7
    else:
        assert np.sqrt(np.mean((prediction - y[test]) ** 2)) < 0.4 * f.std()
    assert all(type(value) in (int, float) for value in chosen.values())
    if labels is None or len(labels) == 3:
        return  # what depends on the seed is that of two classes
    again, same = fit_reference(method, X[train], y[train], classes=classes, seed=0)
    assert same == chosen and (again.predict(X[test]) == prediction).all()


def test_machines_are_tuned_and_trained_on_subsets(monkeypatch):
    monkeypatch.setattr(askl_references, "_TUNING_ROWS", 60)
    monkeypatch.setattr(askl_references, "_SVM_ROWS", 90)
    sizes = []
    original = askl_references.cross_val_score
    monkeypatch.setattr(
        askl_references,
        "cross_val_score",
        lambda model, X, y, cv: sizes.append(len(y)) or original(model, X, y, cv=cv),
    )
    X, f = waves()
    model, chosen = fit_reference("svm", X, f > 0, classes=True, seed=0)
    assert set(sizes) == {60} and chosen["rows"] == 90 and model[-1].shape_fit_[0] == 90


def test_tuning_sees_the_training_part_alone(monkeypatch):
    """Random targets: no setting predicts them, and the largest penalty is chosen."""
    monkeypatch.setattr(askl_references, "_FEATURES", 50)
    rng = np.random.default_rng(0)
    _, chosen = fit_reference(
        "rff_ridge", rng.normal(size=(120, 3)), rng.normal(size=120), classes=False, seed=0
    )
    assert chosen["penalty"] == max(askl_references._PENALTIES)


@pytest.mark.parametrize("method", ["rff_ridge", "svm"])
@pytest.mark.parametrize("noisy", ["small", "large"])
def test_scaling_of_columns_is_chosen(method, noisy):
    """A column of noise does harm in units in which it is as large as the others."""
    X, f = waves(150)
    noise = np.random.default_rng(1).normal(size=(150, 6))
    X = np.hstack([X, 1e-3 * noise]) if noisy == "small" else np.hstack([1e-3 * X, noise])
    _, chosen = fit_reference(method, X, f > 0, classes=True, seed=0)
    assert chosen["scaled"] == (noisy == "large")
