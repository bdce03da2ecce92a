"""Data-adaptive support vector machines with extreme options and data."""

import gpytorch
import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

from gpytorch_nkn.estimators import DANKClassifier, DANKRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
LABELS = (X[:, 0] * X[:, 1] > 0).astype(int)
Y = np.sin(2 * X[:, 0]) + X[:, 1]
BOTH = [DANKClassifier, DANKRegressor]


def fitted(estimator, inputs=X, targets=None, **options):
    if targets is None:
        targets = (LABELS if estimator is DANKClassifier else Y)[: len(inputs)]
    return estimator(**{"random_state": 0, **options}).fit(inputs, targets)


@pytest.mark.parametrize(
    ("estimator", "options", "match"),
    [
        *((one, {"n_clusters": 61}, "n_clusters must be at most 60") for one in BOTH),
        *((one, {"eta": 1e-300, "relevance": None}, "eta must be .* got 1e-300") for one in BOTH),
        *((one, {"random_state": "seed"}, "cannot be used to seed") for one in BOTH),
        (DANKClassifier, {"class_weight": {0: 0.0}}, "class_weight must be positive"),
        (DANKClassifier, {"class_weight": {5: 1.0}}, "not in class_weight"),
        (
            DANKRegressor,
            {"targets": np.full(60, -1.1e100)},
            r"y must lie within \+-1e.100, got -1.1",
        ),
    ],
)
def test_options_and_targets_that_do_not_suit_the_data_are_rejected(estimator, options, match):
    with pytest.raises(ValueError, match=match):
        fitted(estimator, **options)


@pytest.mark.parametrize("estimator", BOTH)
@pytest.mark.parametrize(
    ("kernel", "error", "match"),
    [
        (lambda a, b: rbf_kernel(a, b)[:, :-1], ValueError, "kernel must return shape"),
        (lambda a, b: rbf_kernel(a, b)[0, 0], ValueError, "kernel must return shape"),
        (lambda a, b: rbf_kernel(a, b) * np.nan, ValueError, "NaN or infinite"),
        (lambda a, b: a[:, :1] - b[:, 0], ValueError, "must be symmetric"),
        (lambda a, b: -rbf_kernel(a, b), ValueError, "positive semi-definite"),
        (gpytorch.kernels.RBFKernel(batch_shape=torch.Size([2])), ValueError, "no batch dim"),
    ],
)
def test_kernels_that_are_none_are_rejected(estimator, kernel, error, match):
    with pytest.raises(error, match=match):
        fitted(estimator, kernel=kernel)


@pytest.mark.parametrize("estimator", BOTH)
def test_a_gram_matrix_is_a_function_of_its_indices(estimator):
    gram, rows = rbf_kernel(X, gamma=0.5), np.arange(60.0)[:, None]

    def entries(a, b):
        return gram[np.ix_(a[:, 0].astype(int), b[:, 0].astype(int))]

    model = fitted(estimator, rows, kernel=entries, eta=0.1)
    plain = fitted(estimator, X, gamma=0.5, relevance=None, eta=0.1)
    np.testing.assert_allclose(model.predict(rows), plain.predict(X), atol=5e-3)
    gram[3, 8] += 0.1
    with pytest.raises(ValueError, match=r"symmetric, but entries \((3, 8|8, 3)\)"):
        fitted(estimator, rows, kernel=entries, eta=0.1)


NO_SEARCH = {"eta": 0.1, "relevance": None}


@pytest.mark.usefixtures("few_paths")
@pytest.mark.parametrize(("count", "options"), [(2, {}), (3, NO_SEARCH), (11, NO_SEARCH)])
def test_few_rows(count, options):
    inputs = X[:count]
    for labels in (np.arange(count) % 2, np.arange(count), np.r_[0, np.ones(count - 1)]):
        model = fitted(DANKClassifier, inputs, labels, C=100.0, **options)
        assert model.score(inputs, labels) == 1.0
        shape = (count,) if len(np.unique(labels)) == 2 else (count, len(np.unique(labels)))
        assert model.decision_function(inputs).shape == shape
    model = fitted(DANKRegressor, inputs, C=100.0, **options)
    assert np.abs(model.predict(inputs) - Y[:count]).max() < 0.11
    with pytest.raises(ValueError, match="minimum of 2"):
        fitted(DANKRegressor, X[:1])


@pytest.mark.usefixtures("few_paths", "few_candidates")
@pytest.mark.parametrize("estimator", BOTH)
def test_columns_that_are_constant_and_a_shift_change_nothing(estimator):
    wide = np.c_[X + 1e8, np.full(60, 1e3)]
    options = {"gamma": 0.3, "C": 3.0, "eta": "norm"}
    model, plain = fitted(estimator, wide, **options), fitted(estimator, X, **options)
    np.testing.assert_allclose(model.predict(wide), plain.predict(X), atol=0.02)
    assert model.relevances_[3] == 0.0


@pytest.mark.parametrize(("C", "eta"), [(1e-6, 1e-3), (1e6, "norm"), (1.0, 1e-8), (1.0, 1e300)])
def test_bounds_and_weights_small_and_large(C, eta):
    model = fitted(DANKClassifier, C=C, eta=eta, relevance=None)
    assert np.isfinite(model.decision_function(X)).all() and np.abs(model.dual_coef_).max() <= C
    if C == 1e6:
        assert model.score(X, LABELS) == 1.0
    if eta == 1e300:
        expected = SVC().fit(X, LABELS).decision_function(X)
        np.testing.assert_allclose(model.decision_function(X), expected, atol=0.01)


def test_large_bounds_without_a_tube_come_to_an_end(monkeypatch, few_candidates):
    """The widest kernels of the comparison are near singular: LIBSVM needs a limit there."""
    monkeypatch.setattr(DANKRegressor, "_paths", DANKRegressor._paths[-1:])
    model = fitted(DANKRegressor, X[:24], C=1e3, epsilon=0.0)
    assert model.score(X[:24], Y[:24]) > 0.99
