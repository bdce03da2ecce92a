"""Data-adaptive SVMs in clusters, against dense computations."""

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC, SVR

from gpytorch_nkn.estimators import DANKClassifier, DANKRegressor
from gpytorch_nkn.estimators.dank import clusters

OPTIONS = {"n_clusters": 3, "eta": 0.05, "gamma": 1.0, "C": 3.0, "random_state": 0}


def rows(count=90, seed=0):
    """Three groups, a pattern in each."""
    rng = np.random.default_rng(seed)
    within = rng.uniform(-1, 1, size=(count, 2))
    X = within + 2.5 * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])[np.arange(count) % 3]
    return X, within[:, 0] * within[:, 1]


def groups(X):
    means = np.stack([X[np.arange(len(X)) % 3 == group].mean(axis=0) for group in range(3)])
    return lambda new: np.argmin(np.linalg.norm(new[:, None] - means, axis=-1), axis=1)


@pytest.mark.parametrize(("classes", "n_clusters"), [(2, 1), (3, 3), (0, 1), (0, 3)])
def test_svm_is_that_of_the_learned_kernel(classes, n_clusters):
    X, y = rows()
    new, _ = rows(60, seed=1)
    options = {**OPTIONS, "n_clusters": n_clusters, "relevance": None}
    if classes:
        y = np.digitize(y, [0.0] if classes == 2 else [-0.15, 0.15])
        model, method = DANKClassifier(**options), "decision_function"
        exact = SVC(C=3.0, kernel="precomputed", break_ties=True)
        plain = SVC(C=3.0, gamma=1.0)
    else:
        model, method = DANKRegressor(epsilon=0.02, **options), "predict"
        exact = SVR(C=3.0, epsilon=0.02, tol=1e-4, kernel="precomputed")
        plain = SVR(C=3.0, epsilon=0.02, gamma=1.0)
    exact.fit(model.fit(X, y).learned_kernel(X), y)
    cross, found = model.learned_kernel(new, X), getattr(model, method)(new)
    np.testing.assert_allclose(found, getattr(exact, method)(cross), atol=5e-3)
    assert np.mean(model.predict(new) == exact.predict(cross)) > 0.98 or not classes
    assert np.abs(getattr(plain.fit(X, y), method)(new) - found).max() > 0.01
    assert model.eta_ == 0.05 and hasattr(model, "factor_") == (n_clusters == 1)


@pytest.mark.parametrize("n_clusters", [2, 3])
def test_clusters_may_lack_classes(n_clusters):
    X, _ = rows(60)
    labels = np.arange(60) % 3  # one in each group
    options = {**OPTIONS, "n_clusters": n_clusters, "eta": "cv", "relevance": None}
    model, exact = DANKClassifier(**options).fit(X, labels), SVC(C=3.0, gamma=1.0).fit(X, labels)
    assert len(model.cv_results_) == 6 and model.score(X, labels) == 1.0
    if n_clusters == 3:  # without two classes F is one
        values = model.decision_function(X), exact.decision_function(X)
        np.testing.assert_allclose(*values, atol=5e-3)


@pytest.mark.parametrize("eta", [0.02, "norm"])
def test_factors_are_inside_clusters_only_and_the_kernel_is_semi_definite(eta):
    X, y = rows(90 if eta == 0.02 else 300)
    new, _ = rows(60, seed=1)
    options = {**OPTIONS, "eta": eta, "epsilon": 0.02, "relevance": None}
    model = DANKRegressor(**options).fit(X, y)
    own, other = groups(X)(X), groups(X)(new)
    gram, base = model.learned_kernel(new, X), rbf_kernel(new, X, gamma=1.0)
    different = other[:, None] != own
    np.testing.assert_allclose(gram[different], base[different], rtol=1e-12)
    for group in range(3):
        alone = DANKRegressor(**{**options, "n_clusters": 1})
        alone.fit(X[own == group], y[own == group])
        part = np.ix_(other == group, own == group)
        expected = alone.learned_kernel(new[other == group], X[own == group])
        np.testing.assert_allclose(gram[part], expected, rtol=1e-9)
        assert np.ptp(expected / base[part]) > (0.1 if eta == 0.02 else 1e-3)
    together = model.learned_kernel(np.vstack([X, new]))
    values = np.linalg.eigvalsh(together)
    assert values[0] > -1e-8 * values[-1]
    alone = [model.predict(new[i : i + 1])[0] for i in (0, 7, 59)]
    np.testing.assert_allclose(alone, model.predict(new)[[0, 7, 59]], atol=1e-10)


def test_support_vectors_of_clusters_stand_for_all_rows(monkeypatch):
    X, y = rows(450)
    labels = np.digitize(y, [-0.6, 0.0])  # the first class is rare
    monkeypatch.setattr(clusters, "_DENSE", 400)
    options = {**OPTIONS, "eta": np.inf, "relevance": None}
    with parallel_config("threading", n_jobs=2):
        model = DANKClassifier(**options).fit(X, labels)
    again = DANKClassifier(**options).fit(X, labels)
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert len(model._kernel.rows) == 450 and set(model.classes_) == {0, 1, 2}
    exact = SVC(C=3.0, gamma=1.0).fit(X, labels)
    assert np.mean(model.predict(X) == exact.predict(X)) > 0.95


def test_equal_rows_make_fewer_clusters():
    X = np.repeat([[0.0], [1.0]], 6, axis=0)
    model = DANKClassifier(**{**OPTIONS, "n_clusters": 5}).fit(X, np.arange(12) // 6)
    assert model.score(X, np.arange(12) // 6) == 1.0
