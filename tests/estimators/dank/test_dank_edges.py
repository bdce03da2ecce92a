"""Data-adaptive support vector machines at the edges of their options and of the data."""

import inspect
import pickle
import re

import gpytorch
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import estimator_checks_generator

from gpytorch_nkn.estimators import DANKClassifier, DANKRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
LABELS = (X[:, 0] * X[:, 1] > 0).astype(int)
Y = np.sin(2 * X[:, 0]) + X[:, 1]
BOTH = [DANKClassifier, DANKRegressor]


def fitted(estimator, inputs=X, targets=None, **options):
    if targets is None:
        targets = (LABELS if estimator is DANKClassifier else Y)[: len(inputs)]
    return estimator(**{"random_state": 0, "cv": 2, **options}).fit(inputs, targets)


@pytest.mark.usefixtures("few_paths")
@pytest.mark.parametrize(
    "check",
    [
        "check_fit2d_1feature",
        "check_fit2d_1sample",
        "check_methods_sample_order_invariance",
        "check_no_attributes_set_in_init",
        "check_parameters_default_constructible",
    ],
)
@pytest.mark.parametrize("estimator", BOTH)
def test_some_of_these_checks_of_the_defaults(estimator, check):
    """All of them, with fewer folds, are among those of tests/foreign."""
    checks = {c.func.__name__: (e, c) for e, c in estimator_checks_generator(estimator())}
    model, function = checks[check]
    assert model.get_params() == estimator().get_params()
    function(model)


@pytest.mark.parametrize("estimator", BOTH)
def test_documentation_is_complete(estimator):
    model = fitted(estimator, eta=0.1, relevance=None)
    names = [name for name in vars(model) if name.endswith("_") and name != "n_features_in_"]
    lines = inspect.getdoc(estimator).partition("Attributes:")[2]
    assert len(names) > 8
    for name in [*names, "factor_", "rank_"]:
        assert re.search(rf"\n    (\w+, )*{name}[,:]", lines), name


OPTIONS = [
    ({"C": 0.0}, ValueError, "C must be positive, got 0.0"),
    ({"C": np.inf}, ValueError, "C must be finite"),
    ({"C": "1"}, TypeError, "C must be a number, got '1'"),
    ({"C": True}, TypeError, "C must be a number"),
    ({"eta": 0.0}, ValueError, "eta must be positive"),
    ({"eta": -1}, ValueError, "eta must be positive"),
    ({"eta": np.nan}, ValueError, "eta must be finite"),
    ({"eta": "auto"}, ValueError, "eta must be 'cv', 'norm' or a number, got 'auto'"),
    ({"eta": None}, TypeError, "eta must be .* or a number, got None"),
    ({"tau": -0.1}, ValueError, "tau must be not negative"),
    ({"tau": np.inf}, ValueError, "tau must be finite"),
    ({"tau": 120.0, "relevance": None, "eta": 1.0}, ValueError, "tau must be below 2 n = 120"),
    ({"tol": 0}, ValueError, "tol must be positive"),
    ({"tol": np.nan}, ValueError, "tol must be finite"),
    ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
    ({"max_iter": 10.0}, TypeError, "max_iter must be an integer"),
    ({"cv": 1}, ValueError, "cv must be at least 2"),
    ({"cv": None}, TypeError, "cv must be an integer"),
    ({"solver": "smo"}, ValueError, r"solver must be one of \['fista', 'nesterov'\], got 'smo'"),
    ({"extension": "nearest"}, ValueError, "extension must be one of"),
    ({"decomposition": "local"}, ValueError, "decomposition must be one of"),
    ({"n_clusters": 0}, ValueError, "n_clusters must be at least 1"),
    ({"n_clusters": "many"}, TypeError, "n_clusters must be an integer"),
    ({"n_clusters": 61}, ValueError, "n_clusters must be at most the number of rows, 60"),
    ({"n_clusters": 2, "extension": "reciprocal"}, ValueError, "n_clusters > 1 needs"),
    ({"n_clusters": 2, "kernel": "precomputed"}, ValueError, "n_clusters > 1 needs"),
    ({"relevance": "yes"}, ValueError, "relevance must be 'auto', 'cv' or None"),
    ({"relevance": "cv", "kernel": "precomputed"}, ValueError, "precomputed kernel does not have"),
    ({"progress": 1}, TypeError, "progress must be True or False"),
    ({"kernel": "gaussian"}, ValueError, "kernel must be one of"),
    ({"kernel": 3}, TypeError, "kernel must be a name"),
    ({"gamma": 0.0}, ValueError, "gamma must be positive"),
    ({"gamma": "wide"}, ValueError, "gamma must be 'scale', 'auto' or a number"),
    ({"gamma": None}, TypeError, "gamma must be 'scale', 'auto' or a number"),
    ({"degree": -1}, ValueError, "degree must be not negative"),
    ({"coef0": "0"}, TypeError, "coef0 must be a number"),
    ({"coef0": -1.0}, ValueError, "coef0 must be not negative"),
    ({"random_state": "seed"}, ValueError, "cannot be used to seed"),
]


@pytest.mark.parametrize(("options", "error", "match"), OPTIONS)
@pytest.mark.parametrize("estimator", BOTH)
def test_options_without_a_meaning_are_refused(estimator, options, error, match):
    gram = options.get("kernel") == "precomputed"
    with pytest.raises(error, match=match):
        fitted(estimator, rbf_kernel(X) if gram else X, **options)


@pytest.mark.parametrize(("value", "error"), [(-0.1, ValueError), ("x", TypeError)])
def test_width_of_the_tube_is_checked(value, error):
    with pytest.raises(error, match="epsilon must be"):
        fitted(DANKRegressor, epsilon=value)


@pytest.mark.parametrize(
    ("weight", "match"),
    [
        ({0: 0.0}, "class_weight must be positive"),
        ({5: 1.0}, "not in class_weight"),
        ("even", "class_weight"),
    ],
)
def test_class_weights_are_checked(weight, match):
    with pytest.raises(ValueError, match=match):
        fitted(DANKClassifier, class_weight=weight)


@pytest.mark.parametrize("estimator", BOTH)
@pytest.mark.parametrize(
    ("kernel", "error", "match"),
    [
        (lambda a, b: rbf_kernel(a, b)[:, :-1], ValueError, "kernel must return shape"),
        (lambda a, b: rbf_kernel(a, b)[0, 0], ValueError, "kernel must return shape"),
        (lambda a, b: rbf_kernel(a, b) * np.nan, ValueError, "NaN or infinite"),
        (lambda a, b: a[:, :1] - b[:, 0], ValueError, "must be symmetric"),
        (lambda a, b: -rbf_kernel(a, b), ValueError, "positive semi-definite"),
        ("sigmoid", ValueError, "positive semi-definite"),
        (
            gpytorch.kernels.RBFKernel(batch_shape=torch.Size([2])),
            ValueError,
            "no batch dimensions",
        ),
    ],
)
def test_kernels_that_are_none_are_refused(estimator, kernel, error, match):
    options = {"gamma": 5.0} if isinstance(kernel, str) else {}
    with pytest.raises(error, match=match):
        fitted(estimator, kernel=kernel, relevance=None, eta=1.0, **options)
    with pytest.raises(error):
        fitted(estimator, kernel=kernel, **options)


@pytest.mark.parametrize("estimator", BOTH)
def test_gram_matrices_that_are_none_are_refused(estimator):
    gram = rbf_kernel(X)
    options = {"kernel": "precomputed", "eta": 1.0}
    with pytest.raises(ValueError, match=r"square Gram matrix .* got shape \(60, 3\)"):
        fitted(estimator, X, **options)
    wrong = gram.copy()
    wrong[3, 8] += 0.1
    with pytest.raises(ValueError, match=r"symmetric, but entries \((3, 8|8, 3)\)"):
        fitted(estimator, wrong, **options)
    with pytest.raises(ValueError, match="positive semi-definite"):
        fitted(estimator, gram - 0.9, **options)
    model = fitted(estimator, gram, **options)
    with pytest.raises(ValueError, match="60 features"):
        model.predict(gram[:, :30])
    with pytest.raises(ValueError, match="precomputed kernel between new rows are not known"):
        model.learned_kernel(gram)
    assert model.predict(gram[:4]).shape == (4,)


@pytest.mark.parametrize("estimator", BOTH)
@pytest.mark.parametrize(
    ("inputs", "error"),
    [
        (np.where(X > 2, np.nan, X), ValueError),
        (np.where(X > 2, np.inf, X), ValueError),
        (np.full((60, 3), "2020-01-01", dtype="datetime64[D]"), TypeError),
        (np.full((60, 3), "a"), ValueError),
        (pd.DataFrame({"a": X[:, 0], "b": ["x"] * 60}), ValueError),
        (X + 1j, ValueError),
        (X[:, 0], ValueError),
        (X[:59], ValueError),
        (X[:, :0], ValueError),
        (sparse.csr_array(X), (TypeError, ValueError)),
        (np.ma.masked_greater(X, 2), ValueError),
    ],
)
def test_inputs_that_are_no_numbers_are_refused(estimator, inputs, error):
    with pytest.raises(error):
        fitted(estimator, inputs, LABELS)
    model = fitted(estimator, eta=1.0, relevance=None)
    if inputs.shape[0] == 60:
        with pytest.raises(error):
            model.predict(inputs)


@pytest.mark.parametrize(
    ("estimator", "targets", "error"),
    [
        (DANKClassifier, np.zeros(60), ValueError),
        (DANKClassifier, np.where(LABELS, np.nan, 1.0), ValueError),
        (DANKClassifier, Y, ValueError),
        (DANKClassifier, np.c_[LABELS, LABELS], ValueError),
        (DANKRegressor, np.where(LABELS, np.nan, 1.0), ValueError),
        (DANKRegressor, np.where(LABELS, np.inf, 1.0), ValueError),
        (DANKRegressor, np.where(LABELS, "a", "b"), ValueError),
        (DANKRegressor, np.full(60, "2020-01-01", dtype="datetime64[D]"), TypeError),
        (DANKRegressor, np.c_[Y, Y], ValueError),
        (DANKRegressor, Y + 1j, ValueError),
        (DANKClassifier, None, ValueError),
    ],
)
def test_targets_that_are_none_are_refused(estimator, targets, error):
    with pytest.raises(error):
        estimator().fit(X, targets)


NO_SEARCH = {"eta": 0.1, "tau": 0.01, "relevance": None}


@pytest.mark.usefixtures("few_paths")
@pytest.mark.parametrize(("count", "options"), [(2, {}), (2, NO_SEARCH), (3, {}), (11, NO_SEARCH)])
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


@pytest.mark.usefixtures("few_paths")
@pytest.mark.parametrize("estimator", BOTH)
def test_rows_that_repeat_or_are_all_the_same(estimator):
    targets = LABELS if estimator is DANKClassifier else Y
    options = {"gamma": 0.3, "relevance": None, "tol": 1e-7}
    twice = fitted(estimator, np.vstack([X, X]), np.r_[targets, targets], eta=0.1, **options)
    once = fitted(estimator, eta=0.4, C=2.0, **options)  # coefficients are halves in the other
    factor = once.factor_ @ once.factor_.T
    np.testing.assert_allclose(
        twice.factor_ @ twice.factor_.T, np.tile(factor, (2, 2)), atol=5e-3 * np.ptp(factor)
    )
    model = fitted(estimator, np.ones((30, 2)), targets[:30])
    assert np.ptp(model.predict(X[:, :2])) < 1e-12 and not model.relevances_.any()
    conflict = fitted(estimator, np.vstack([X, X]), np.r_[targets, targets[::-1]])
    assert np.isfinite(conflict.predict(X)).all()


@pytest.mark.usefixtures("few_paths")
@pytest.mark.parametrize(
    ("estimator", "kernel", "tau"),
    [
        (BOTH[(number + shift) % 2], kernel, (0.0, 0.01)[shift])
        for number, kernel in enumerate(["rbf", "linear", "cosine", "laplacian", "poly"])
        for shift in range(2)
    ],
)
def test_inputs_of_zeros(estimator, kernel, tau):
    model = fitted(estimator, np.zeros((20, 2)), kernel=kernel, eta=1.0, tau=tau)
    assert np.isfinite(model.predict(X[:, :2])).all()
    if not tau:
        model = fitted(estimator, np.zeros((20, 2)), kernel=kernel, eta="cv", relevance=None)
        assert np.isfinite(model.predict(X[:, :2])).all()


@pytest.mark.usefixtures("few_paths")
@pytest.mark.parametrize("estimator", BOTH)
def test_columns_that_are_constant_and_a_shift_change_nothing(estimator):
    wide = np.c_[X, np.full(60, 1e3)]
    options = {"gamma": 0.3, "C": 3.0}
    model, plain = fitted(estimator, wide, **options), fitted(estimator, X, **options)
    np.testing.assert_allclose(model.predict(wide), plain.predict(X), atol=5e-3)
    assert model.relevances_[3] == 0.0
    model = fitted(estimator, X + 1e8, **options)
    np.testing.assert_allclose(model.predict(X + 1e8), plain.predict(X), atol=0.02)


@pytest.mark.usefixtures("few_paths")
@pytest.mark.parametrize("estimator", BOTH)
def test_more_columns_than_rows(estimator):
    inputs = np.random.default_rng(1).normal(size=(20, 60))
    model = fitted(estimator, inputs, C=10.0)
    targets = LABELS if estimator is DANKClassifier else Y
    assert model.score(inputs, targets[:20]) > 0.95 and model.relevances_.shape == (60,)


@pytest.mark.parametrize("C", [1e-6, 1e6])
@pytest.mark.parametrize("eta", ["norm", 1e-3, 1e3])
def test_bounds_small_and_large(C, eta):
    model = fitted(DANKClassifier, C=C, eta=eta, relevance=None)
    assert model.gap_ <= 1e-5 and np.isfinite(model.decision_function(X)).all()
    assert np.abs(model.dual_coef_).max() <= C
    if C == 1e6:
        assert model.score(X, LABELS) == 1.0


def test_large_bounds_without_a_tube_come_to_an_end(monkeypatch):
    """The widest kernels of the comparison are near singular: LIBSVM needs a limit there."""
    monkeypatch.setattr(DANKRegressor, "_paths", DANKRegressor._paths[-1:])
    model = fitted(DANKRegressor, X[:24], C=1e3, epsilon=0.0)
    assert model.score(X[:24], Y[:24]) > 0.99


@pytest.mark.parametrize("eta", [1e-8, 1e12, 1e300])
@pytest.mark.parametrize("tau", [0.0, 0.01])
def test_etas_small_and_large(eta, tau):
    model = fitted(DANKClassifier, eta=eta, tau=tau, relevance=None)
    assert model.gap_ <= 1e-5
    if eta > 1:
        expected = SVC().fit(X, LABELS).decision_function(X)
        np.testing.assert_allclose(model.decision_function(X), expected, atol=0.01)


@pytest.mark.parametrize("kind", ["float32", "int64", "bool", "Int64", "list", "Fortran"])
def test_types_of_inputs(kind):
    whole = np.round(3 * X)
    if kind == "bool":
        whole = whole > 0
    given = {
        "Int64": lambda: pd.DataFrame(whole).astype("Int64"),
        "list": lambda: whole.tolist(),
        "Fortran": lambda: np.asfortranarray(whole),
    }.get(kind, lambda: whole.astype(kind))()
    model = fitted(DANKClassifier, given, eta=0.1, relevance=None)
    expected = fitted(DANKClassifier, whole.astype(float), eta=0.1, relevance=None)
    values = model.decision_function(given)
    assert values.dtype == np.float64
    np.testing.assert_allclose(values, expected.decision_function(whole.astype(float)), atol=1e-9)


@pytest.mark.parametrize("clusters", [1, 2])
def test_inputs_are_left_alone_and_looked_at_once(clusters):
    inputs, targets = X.copy(), Y.copy()
    inputs.flags.writeable = targets.flags.writeable = False
    fitted(DANKRegressor, inputs, targets, n_clusters=clusters).predict(inputs)
    inputs.flags.writeable = True
    model = fitted(DANKRegressor, inputs, Y, eta=0.1, relevance=None, n_clusters=clusters)
    before = model.predict(X)
    inputs[:] = 0.0
    np.testing.assert_array_equal(model.predict(X), before)


def test_smallest_eta_is_named():
    with pytest.raises(ValueError, match="eta is too small for F to be computed: .* got 1e-300"):
        fitted(DANKClassifier, eta=1e-300, relevance=None)


@pytest.mark.parametrize(
    "labels",
    [
        np.where(LABELS, "yes", "no"),
        np.where(LABELS, "yes", "no").astype(object),
        LABELS.astype(bool),
        np.where(LABELS, -3.0, 7.0),
        pd.Series(np.where(LABELS, "b", "a")).astype("category"),
    ],
)
def test_kinds_of_labels(labels):
    model = fitted(DANKClassifier, X, labels, eta=1.0, relevance=None, C=10.0)
    np.testing.assert_array_equal(model.classes_, np.unique(np.asarray(labels)))
    predictions = model.predict(X)
    assert predictions.dtype == model.classes_.dtype
    positive = model.decision_function(X) > 0
    np.testing.assert_array_equal(predictions == model.classes_[1], positive)
    assert model.score(X, labels) > 0.9


def test_predictions_in_parts_are_those_of_all_rows(monkeypatch):
    model = fitted(DANKClassifier, eta=0.05, relevance=None)
    reciprocal = fitted(DANKClassifier, eta=0.05, extension="reciprocal")
    whole = [m.decision_function(X) for m in (model, reciprocal)]
    monkeypatch.setattr("gpytorch_nkn.estimators.dank.dank_base._CHUNK", 60 * 7)
    parts = [m.decision_function(X) for m in (model, reciprocal)]
    np.testing.assert_allclose(parts, whole, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("estimator", BOTH)
def test_options_set_after_a_fit_wait_for_the_next(estimator):
    model = fitted(estimator, eta=0.05, tau=0.01, relevance=None)
    predictions, factor, gram = model.predict(X), model.factor_, model.learned_kernel(X)
    model.set_params(tau=3.0, kernel="precomputed", eta=9.0, extension="reciprocal", gamma=7.0)
    np.testing.assert_array_equal(model.predict(X), predictions)
    np.testing.assert_array_equal(model.factor_, factor)
    np.testing.assert_array_equal(model.learned_kernel(X), gram)


@pytest.mark.usefixtures("few_paths")
@pytest.mark.parametrize("estimator", BOTH)
def test_pickles_and_clones_of_what_was_selected(estimator):
    np.random.seed(3)
    before = np.random.get_state()[1].copy()
    model = fitted(estimator, X[:40], C=3.0)
    fitted(estimator, X[:20], random_state=None)
    np.testing.assert_array_equal(np.random.get_state()[1], before)
    other = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(other.predict(X), model.predict(X), rtol=1e-12)
    assert other.cv_results_ == model.cv_results_
    fresh = clone(model)
    assert fresh.get_params() == model.get_params() and not hasattr(fresh, "support_")
    targets = (LABELS if estimator is DANKClassifier else Y)[:40]
    np.testing.assert_allclose(fresh.fit(X[:40], targets).predict(X), model.predict(X), rtol=1e-12)
