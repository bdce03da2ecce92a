import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVR

from gpytorch_nkn.estimators import DANKRegressor


def rows(count=60, seed=0, columns=3):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(count, columns))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] ** 2 + 0.05 * rng.normal(size=count)


def regressor(**options):
    """Create a regressor without factors, unless requested."""
    return DANKRegressor(**{"eta": np.inf, "relevance": None, "random_state": 0, **options})


def test_without_factors_it_is_the_support_vector_regression():
    X, y = rows()
    new, _ = rows(40, seed=1)
    model = regressor(C=3.0, epsilon=0.05, gamma=1.0).fit(X, y)
    exact = SVR(C=3.0, epsilon=0.05, gamma=1.0, tol=1e-3 * y.std()).fit(X, y)
    np.testing.assert_allclose(model.predict(new), exact.predict(new), atol=2e-3)
    assert np.abs(model.dual_coef_).max() <= 3.0 and abs(model.dual_coef_.sum()) < 1e-6


def test_columns_that_matter_are_found(few_paths):
    X, y = rows(80, columns=5)
    new, truth = rows(1000, seed=1, columns=5)
    model = DANKRegressor(C=10.0, epsilon=0.02, random_state=0).fit(X, y)
    plain = SVR(C=10.0, epsilon=0.02).fit(X, y)
    assert 1 - model.score(new, truth) < 0.6 * (1 - plain.score(new, truth))
    assert min(model.relevances_[:2]) > 3 * max(model.relevances_[2:])
    # the best candidate, written out
    (params,) = model.cv_results_.query("weight == 1").dropna(subset="relevance_penalty").iloc
    kernel, gamma = model.relevance_kernel_, 1 / (5 * X.var())
    distances = np.sum(
        model.relevances_ * np.abs(X[:, None] - new[:30]) ** params["power"], axis=-1
    )
    wide = rbf_kernel(X, new[:30], gamma=gamma / params["widening"] ** 2)
    share, base = params["relevance_share"], rbf_kernel(X, new[:30], gamma=gamma)
    expected = share * wide * np.exp(-0.5 * distances) + (1 - share) * base
    np.testing.assert_allclose(kernel(X, new[:30]), expected, rtol=1e-8)
    values = np.linalg.eigvalsh(model.learned_kernel(np.vstack([X, 3 * new[:100]])))
    assert values[0] > -1e-8 * values[-1]


def test_units_are_of_no_matter(few_paths, few_candidates):
    X, y = rows(40)
    model = DANKRegressor(C=3.0, epsilon=0.05, random_state=0).fit(X, y)
    for of_inputs, of_targets in ((1e-6, 1e8), (1e6, 1e-8)):
        tube = {"C": 3.0 * of_targets, "epsilon": 0.05 * of_targets}
        other = clone(model).set_params(**tube).fit(X * of_inputs, y * of_targets)
        found = other.predict(X * of_inputs) / of_targets
        np.testing.assert_allclose(found, model.predict(X), atol=5e-3)


@pytest.mark.parametrize(
    ("eta", "relevance", "width"),
    [(0.5, None, 0.05), ("norm", None, 0.0), ("cv", None, 0.05), ("cv", "cv", 0.05)],
)
def test_targets_within_the_tube_are_a_constant(eta, relevance, width):
    X, targets = rows(30)[0], np.linspace(3.0 - width, 3.0 + width, 30)
    model = regressor(eta=eta, relevance=relevance, epsilon=0.1).fit(X, targets)
    predictions = model.predict(X)
    assert np.ptp(predictions) == 0 and abs(predictions[0] - 3.0) < 0.06
    assert model.support_.size == 0 and model.dual_coef_.shape == (1, 0)
