import gpytorch
import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import pairwise_kernels, rbf_kernel
from sklearn.svm import SVC

from gpytorch_nkn.estimators import DANKClassifier

NAMES = np.array(["ash", "birch", "cedar", "oak"])


def rows(count=60, classes=2, seed=0, columns=3):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(count, columns))
    edges = {2: [0.0], 3: [-0.15, 0.15], 4: [-0.2, 0.0, 0.2]}[classes]
    return X, np.digitize(X[:, 0] * X[:, 1], edges)


def classifier(**options):
    """Create a classifier without factors, unless requested."""
    return DANKClassifier(**{"eta": np.inf, "relevance": None, "random_state": 0, **options})


@pytest.mark.parametrize(
    ("kernel", "classes"),
    [("rbf", 2), ("linear", 3), ("poly", 4), ("laplacian", 2), ("cosine", 3), ("rbf", 4)],
)
def test_without_factors_it_is_the_support_vector_classifier(kernel, classes):
    X, y = rows(classes=classes)
    new, _ = rows(40, seed=1)
    y = NAMES[y]
    options = {"gamma": 2.0} if kernel in ("rbf", "laplacian", "poly") else {}
    fixed = {"degree": 3, "coef0": 0.0} if kernel == "poly" else {}
    gram, cross = (pairwise_kernels(a, X, metric=kernel, **options, **fixed) for a in (X, new))
    weights = {"ash": 5.0, "birch": 0.5}
    model = classifier(C=3.0, kernel=kernel, class_weight=weights, **options).fit(X, y)
    settings = {"C": 3.0, "kernel": "precomputed", "class_weight": weights}
    exact = SVC(break_ties=classes > 2, **settings).fit(gram, y)
    values = model.decision_function(new)
    assert values.shape == ((40,) if classes == 2 else (40, classes))
    # the order of the rows may end LIBSVM elsewhere within its tolerance
    np.testing.assert_allclose(values, exact.decision_function(cross), atol=5e-3)
    assert np.mean(model.predict(new) == exact.predict(cross)) > 0.97
    pairs = SVC(decision_function_shape="ovo", **settings).fit(gram, y)
    outputs = cross[:, model.support_] @ model.dual_coef_.T + model.intercept_
    expected = pairs.decision_function(cross).reshape(40, -1)
    np.testing.assert_allclose(outputs, expected, atol=0.01 * np.abs(expected).max())
    assert model.eta_ == np.inf and model.factor_.shape == (60, 1)
    assert model.relevance_kernel_ is None and not model.relevances_.any()
    assert model.cv_results_.empty


def ridge_of(coefficients, gram):
    """Smoothed coefficients and their weights, the ridge by leave-one-out predictions."""
    count, scale = len(gram), np.trace(gram) / len(gram)
    errors = []
    grid = scale * 10.0 ** np.arange(-3.0, 3.5, 0.5)
    for penalty in grid:
        error = 0.0
        for i in range(count):
            others = np.arange(count) != i
            matrix = gram[np.ix_(others, others)] + penalty * np.eye(count - 1)
            guess = gram[i, others] @ np.linalg.solve(matrix, coefficients[others])
            error += np.sum((guess - coefficients[i]) ** 2)
        errors.append(error)
    assert min(errors) < np.sum(coefficients**2)
    return np.linalg.solve(gram + grid[np.argmin(errors)] * np.eye(count), coefficients)


def test_gpytorch_kernels():
    X, y = rows()
    kernel = gpytorch.kernels.ScaleKernel(
        gpytorch.kernels.RBFKernel(ard_num_dims=2, active_dims=(2, 0))
    )
    kernel.outputscale, kernel.base_kernel.lengthscale = 1.7, torch.tensor([[0.4, 0.9]])
    before = {name: value.clone() for name, value in kernel.state_dict().items()}

    def written_out(a, b):
        scaled = [t[:, [2, 0]] / np.array([0.4, 0.9]) for t in (a, b)]
        return 1.7 * rbf_kernel(*scaled, gamma=0.5)

    model = classifier(kernel=kernel.train(), eta=0.1).fit(X, y)
    other = classifier(kernel=written_out, eta=0.1).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), other.decision_function(X), atol=1e-6)
    np.testing.assert_allclose(model.learned_kernel(X), other.learned_kernel(X), atol=1e-6)
    assert kernel.training and model.get_params()["kernel"] is kernel
    assert all(torch.equal(value, before[name]) for name, value in kernel.state_dict().items())
    kernel.outputscale = 50.0  # what is fitted has the hyperparameters of the fit
    np.testing.assert_allclose(model.learned_kernel(X), other.learned_kernel(X), atol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_learned_kernel_written_out(classes):
    X, y = rows(40, classes)
    new, _ = rows(9, seed=1)
    eta, gram = 0.02, rbf_kernel(X, gamma=1.0)
    model = classifier(gamma=1.0, eta=eta, C=3.0).fit(X, y)
    signed = model._svms.learned
    if classes == 2:  # the diagonal of F determines the coefficients
        diagonal = np.sum(model.factor_**2, axis=1)
        expected = np.where(y, 1, -1) * np.sqrt(4 * eta * np.maximum(diagonal - 1, 0))
        np.testing.assert_allclose(signed[:, 0], expected, atol=1e-6)
    weights = ridge_of(signed, gram)
    cross = rbf_kernel(new, X, gamma=1.0)
    factor = 1 + cross * ((cross @ weights) @ (gram @ weights).T) / (4 * eta)
    assert np.ptp(factor) > 0.3
    np.testing.assert_allclose(model.learned_kernel(new, X), cross * factor, rtol=1e-7)
    np.testing.assert_allclose(model.learned_kernel(X, new), (cross * factor).T, rtol=1e-7)
    np.testing.assert_allclose(model.learned_kernel(new), model.learned_kernel(new, new))
    own = gram * (1 + gram * ((gram @ weights) @ (gram @ weights).T) / (4 * eta))
    np.testing.assert_allclose(model.learned_kernel(X), own, rtol=1e-7)


def test_eta_of_the_paper_is_the_squared_norm_of_the_machine():
    X, y = rows()
    exact = SVC(C=2.0, kernel="precomputed").fit(rbf_kernel(X, gamma=1.0), y)
    model = classifier(eta="norm", gamma=1.0, C=2.0).fit(X, y)
    np.testing.assert_allclose(model.eta_, np.sum(exact.dual_coef_**2), rtol=2e-3)
    trace = np.sum(model.factor_**2) - 60
    np.testing.assert_allclose(trace, 0.25, rtol=0.05)  # of Gamma, with a unit diagonal of K


def test_a_product_of_two_columns_is_found(few_paths):
    X, y = rows(90, columns=5)
    new, truth = rows(1000, seed=1, columns=5)
    model = DANKClassifier(C=10.0, random_state=0).fit(X, y)
    plain = SVC(C=10.0).fit(X, y)
    assert model.score(new, truth) > plain.score(new, truth) + 0.02
    assert min(model.relevances_[:2]) > 5 * max(model.relevances_[2:])
    (chosen,) = model.cv_results_.query("weight == 1").dropna(subset="relevance_penalty").iloc
    assert chosen.gain > chosen.error > 0
    # the kernel of that candidate, written out
    widening, gamma = chosen.widening, 1 / (5 * X.var())
    distances = np.sum(model.relevances_ * np.abs(X[:, None] - new[:50]), axis=-1)
    expected = rbf_kernel(X, new[:50], gamma=gamma / widening**2) * np.exp(-0.5 * distances)
    np.testing.assert_allclose(model.relevance_kernel_(X, new[:50]), expected, rtol=1e-8)
    assert model.dual_coef_.max() <= 10.0 * chosen.cost
    if model.eta_ == np.inf:
        np.testing.assert_allclose(model.learned_kernel(X, new[:50]), expected, rtol=1e-8)
