import gpytorch
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.metrics.pairwise import pairwise_kernels, rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from gpytorch_nkn.estimators import DANKRegressor
from tests.estimators.dank.test_dank_classifier import ridge_of


def rows(count=60, seed=0, columns=3):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(count, columns))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] ** 2 + 0.05 * rng.normal(size=count)


def regressor(**options):
    """Neither factor, unless asked for."""
    return DANKRegressor(**{"eta": np.inf, "relevance": None, "random_state": 0, **options})


@pytest.mark.parametrize(
    "kernel",
    ["rbf", "linear", "poly", "laplacian", "cosine", "precomputed", "function", "GPyTorch"],
)
def test_without_factors_it_is_support_vector_regression(kernel):
    X, y = rows()
    new, _ = rows(40, seed=1)
    metric = {"precomputed": "rbf", "function": "rbf", "GPyTorch": "rbf"}.get(kernel, kernel)
    options = {"gamma": 0.5} if metric in ("rbf", "laplacian", "poly") else {}
    if metric == "poly":
        options = {**options, "degree": 2, "coef0": 1.0}
    gram = pairwise_kernels(X, metric=metric, **options)
    cross = pairwise_kernels(new, X, metric=metric, **options)
    given, inputs, new_inputs = kernel, X, new
    if kernel == "precomputed":
        inputs, new_inputs, options = gram, cross, {}
    if kernel == "function":
        given, options = lambda a, b: rbf_kernel(a, b, gamma=0.5), {}
    if kernel == "GPyTorch":
        given, options = gpytorch.kernels.RBFKernel(), {}
        given.lengthscale = 1.0
    model = regressor(C=3.0, epsilon=0.05, kernel=given, **options).fit(inputs, y)
    exact = SVR(C=3.0, epsilon=0.05, kernel="precomputed", tol=1e-3 * y.std()).fit(gram, y)
    np.testing.assert_allclose(model.predict(new_inputs), exact.predict(cross), atol=2e-3)
    np.testing.assert_allclose(model.score(inputs, y), exact.score(gram, y), rtol=1e-3)
    outputs = cross[:, model.support_] @ model.dual_coef_[0] + model.intercept_
    np.testing.assert_allclose(outputs, model.predict(new_inputs), atol=1e-9)
    assert np.abs(model.dual_coef_).max() <= 3.0
    assert model.eta_ == np.inf and np.isnan(model.gap_) and model.rank_ == 1


def test_learned_kernel_written_out_and_machine_of_it():
    X, y = rows(40)
    new, _ = rows(9, seed=1)
    eta, gram = 0.02, rbf_kernel(X, gamma=1.0)
    model = regressor(gamma=1.0, eta=eta, C=3.0, epsilon=0.02).fit(X, y)
    signed = model._learned_signed
    diagonal = np.sum(model.factor_**2, axis=1)
    np.testing.assert_allclose(signed[:, 0] ** 2, 4 * eta * (diagonal - 1), atol=1e-6)
    weights = ridge_of(signed, gram)
    cross = rbf_kernel(new, X, gamma=1.0)
    factor = 1 + cross * ((cross @ weights) @ (gram @ weights).T) / (4 * eta)
    assert np.ptp(factor) > 0.3
    np.testing.assert_allclose(model.learned_kernel(new, X), cross * factor, rtol=1e-7)
    options = {"C": 3.0, "epsilon": 0.02, "kernel": "precomputed", "tol": 1e-3 * y.std()}
    exact = SVR(**options).fit(model.learned_kernel(X), y)
    expected = exact.predict(model.learned_kernel(new, X))
    np.testing.assert_allclose(model.predict(new), expected, atol=2e-3)
    plain = regressor(gamma=1.0, C=3.0, epsilon=0.02).fit(X, y)
    assert np.abs(plain.predict(new) - expected).max() > 0.05


@pytest.mark.parametrize("tau", [0.0, 0.3])
def test_gap_is_certified_and_the_trace_ends_at_the_objective(tau):
    X, y = rows(40)
    model = regressor(eta=0.1, tau=tau, gamma=1.0, C=2.0, tol=1e-6).fit(X, y)
    assert 0.0 <= model.gap_ <= 1e-6
    signed, gram = model._learned_signed[:, 0], rbf_kernel(X, gamma=1.0)
    assert abs(signed.sum()) < 1e-8 and np.abs(signed).max() <= 2.0 + 1e-12
    values, vectors = np.linalg.eigh(1 + np.outer(signed, signed) * gram / 0.4)
    factor = (vectors * np.maximum(values - tau / 2, 0)) @ vectors.T
    np.testing.assert_allclose(model.factor_ @ model.factor_.T, factor, atol=1e-8)
    value = (
        signed @ y
        - 0.1 * np.abs(signed).sum()
        - 0.5 * signed @ ((factor * gram) @ signed)
        + 0.1 * np.sum((factor - 1) ** 2)
        + 0.1 * tau * np.trace(factor)
    )
    # both variables of a row can be positive for a moment: what is gained is of the gap's size
    np.testing.assert_allclose(model.objective_trace_[-1], value, rtol=1e-6)


def test_eta_of_the_paper_is_the_squared_norm_of_the_machine():
    X, y = rows()
    options = {"C": 2.0, "epsilon": 0.05}
    exact = SVR(kernel="precomputed", tol=1e-3 * y.std(), **options).fit(rbf_kernel(X, gamma=1), y)
    model = regressor(eta="norm", gamma=1.0, **options).fit(X, y)
    np.testing.assert_allclose(model.eta_, np.sum(exact.dual_coef_**2), rtol=2e-3)


def test_defaults_find_columns_that_matter():
    X, y = rows(120, columns=6)
    new, truth = rows(1000, seed=1, columns=6)
    model = DANKRegressor(C=10.0, epsilon=0.02, cv=2, random_state=0).fit(X, y)
    plain = SVR(C=10.0, epsilon=0.02).fit(X, y)
    assert 1 - model.score(new, truth) < 0.6 * (1 - plain.score(new, truth))
    assert min(model.relevances_[:2]) > 3 * max(model.relevances_[2:])
    # the average of kernels, written out from what is reported of each
    chosen = [c for c in model.cv_results_ if c.weight and "relevance_penalty" in c.params]
    base = next(c for c in model.cv_results_ if not c.params)
    assert len(chosen) > 1
    np.testing.assert_allclose(base.weight + sum(c.weight for c in chosen), 1.0)
    kernel = model.relevance_kernel_
    shares = [c.weight * c.params["relevance_share"] for c in chosen]
    np.testing.assert_allclose(sorted(t.share for t in kernel.terms), sorted(shares))
    np.testing.assert_allclose(kernel.share, 1 - sum(shares))
    gamma = 1 / (6 * X.var())
    expected = kernel.share * rbf_kernel(X, new[:30], gamma=gamma)
    for term in kernel.terms:
        assert (term.weights >= 0).all() and term.power == 2
        distances = np.sum(term.weights * (X[:, None] - new[:30]) ** 2, axis=-1)
        wide = [gamma / c.params["widening"] ** 2 for c in chosen]
        assert any(np.isclose(term.wide.gamma, value) for value in wide)
        part = rbf_kernel(X, new[:30], gamma=term.wide.gamma) * np.exp(-0.5 * distances)
        expected = expected + term.share * part
    np.testing.assert_allclose(kernel(X, new[:30]), expected, rtol=1e-8)
    mean = sum(t.share * t.weights for t in kernel.terms)
    np.testing.assert_allclose(model.relevances_, mean)
    values = np.linalg.eigvalsh(model.learned_kernel(np.vstack([X, 3 * new[:100]])))
    assert values[0] > -1e-8 * values[-1]


@pytest.mark.usefixtures("few_paths")
def test_units_are_of_no_matter():
    X, y = rows(40)
    model = DANKRegressor(C=3.0, epsilon=0.05, cv=2, random_state=0).fit(X, y)
    for of_inputs, of_targets in ((1.0, 1e-8), (1.0, 1e8), (1e-6, 1.0), (1e6, 1.0)):
        tube = {"C": 3.0 * of_targets, "epsilon": 0.05 * of_targets}
        other = clone(model).set_params(**tube).fit(X * of_inputs, y * of_targets)
        found = other.predict(X * of_inputs) / of_targets
        np.testing.assert_allclose(found, model.predict(X), atol=5e-3)


def test_offset_of_targets_is_the_intercepts():
    X, y = rows(40)
    model = regressor(eta=0.1, epsilon=0.05).fit(X, y)
    other = regressor(eta=0.1, epsilon=0.05).fit(X, y + 1e6)
    np.testing.assert_allclose(other.predict(X) - 1e6, model.predict(X), atol=5e-3)


@pytest.mark.parametrize("targets", [np.full(30, 3.0), np.linspace(2.95, 3.05, 30)])
@pytest.mark.parametrize(
    ("eta", "relevance"), [(0.5, None), ("norm", None), ("cv", None), ("cv", "cv")]
)
def test_targets_within_the_tube_are_a_constant(eta, relevance, targets):
    X, _ = rows(30)
    model = regressor(eta=eta, relevance=relevance, epsilon=0.1).fit(X, targets)
    predictions = model.predict(X)
    assert np.ptp(predictions) == 0 and abs(predictions[0] - 3.0) < 0.06
    assert model.support_.size == 0 and model.dual_coef_.shape == (1, 0)
    assert not model.gap_ > 0.0 and model.rank_ == 1


def test_tube_without_width_and_large_bounds():
    X, y = rows(30)
    model = regressor(eta=1.0, epsilon=0.0, C=1e4, gamma=5.0).fit(X, y)
    assert model.score(X, y) > 0.99 and model.gap_ <= 1e-5


def test_searches_pipelines_and_transformed_targets():
    X, y = rows()
    search = GridSearchCV(regressor(eta=1.0), {"epsilon": [0.01, 3.0]}, cv=2).fit(X, y)
    assert search.best_params_ == {"epsilon": 0.01}
    inner = make_pipeline(StandardScaler(), regressor(eta=1.0, gamma=0.3))
    model = TransformedTargetRegressor(inner, transformer=StandardScaler()).fit(X, 100 * y + 7)
    scaled = StandardScaler().fit_transform(X)
    alone = regressor(eta=1.0, gamma=0.3).fit(scaled, (y - y.mean()) / y.std())
    expected = 100 * (alone.predict(scaled) * y.std() + y.mean()) + 7
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-6, atol=0.2)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    assert regressor().fit(frame, y).feature_names_in_.tolist() == ["a", "b", "c"]


def test_reciprocal_extension_depends_on_the_batch():
    X, y = rows()
    new, _ = rows(30, seed=1)
    model = regressor(extension="reciprocal", eta=0.05).fit(X, y)
    alone = np.concatenate([model.predict(new[j : j + 1]) for j in range(30)])
    assert np.abs(alone - model.predict(new)).max() > 1e-3
    # of training rows themselves the columns of F are known
    gram = model._kernel.base(X, X) * (model.factor_ @ model.factor_.T)
    expected = gram[:, model.support_] @ model.dual_coef_[0] + model.intercept_
    np.testing.assert_allclose(model.predict(X), expected, atol=1e-7)


@pytest.mark.usefixtures("few_paths")
def test_another_fit_forgets_the_first_and_a_failed_one_all():
    X, y = rows(40)
    model = DANKRegressor(C=10.0, cv=2, random_state=0).fit(X, y)
    model.set_params(eta=np.inf, relevance=None).fit(X[:, :2], y)
    fresh = clone(model).fit(X[:, :2], y)
    assert model.cv_results_ == [] and sorted(vars(model)) == sorted(vars(fresh))
    np.testing.assert_array_equal(model.predict(X[:, :2]), fresh.predict(X[:, :2]))
    with pytest.raises(ValueError):
        model.fit(X, np.full(40, np.nan))
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_linear_kernel_is_linear_regression_in_the_limit():
    X, _ = rows(30)
    y = X @ np.array([1.0, -2.0, 0.5]) + 3.0
    model = regressor(kernel="linear", C=1e3, epsilon=0.0).fit(X, y)
    exact = LinearRegression().fit(X, y)
    np.testing.assert_allclose(model.predict(5 * X), exact.predict(5 * X), atol=0.02)
