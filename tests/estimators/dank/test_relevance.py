import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

from gpytorch_nkn.estimators.dank.dual import (
    classification_blocks,
    regression_blocks,
)
from gpytorch_nkn.estimators.dank.relevance import relevance_factor, relevance_path


def rows(count=60, columns=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(count, columns))
    return X, X[:, 0] * X[:, 1]


@pytest.mark.parametrize("power", [1, 2])
def test_factor_written_out(power):
    rng = np.random.default_rng(0)
    a, b, w = rng.normal(size=(4, 3)) + 1e3, rng.normal(size=(5, 3)) + 1e3, np.array([0.5, 0, 2.0])
    expected = [[np.exp(-0.5 * np.sum(w * np.abs(x - z) ** power)) for z in b] for x in a]
    np.testing.assert_allclose(relevance_factor(a, b, w, power), expected, rtol=1e-9)


@pytest.mark.parametrize("power", [1, 2])
def test_factor_is_positive_semi_definite(power):
    X, _ = rows(100)
    factor = relevance_factor(X, X, np.array([3.0, 0.2, 0.0, 10.0]), power)
    assert np.linalg.eigvalsh(factor)[0] > -1e-12


def objective(gram, X, y, C, w, power, penalty, scale):
    """J(w) / J(0) + penalty, by scikit-learn alone."""

    def optimum(matrix):
        machine = SVC(C=C, kernel="precomputed", tol=1e-8).fit(matrix, y)
        dual = machine.dual_coef_[0]
        return np.abs(dual).sum() - 0.5 * dual @ matrix[np.ix_(*[machine.support_] * 2)] @ dual

    learned = gram * relevance_factor(X, X, w, power)
    return optimum(learned) / optimum(gram) + penalty * np.sum(w) * scale


@pytest.mark.parametrize("power", [1, 2])
def test_path_ends_at_minima_of_the_objective(power):
    X, y = rows()
    codes = (y > 0).astype(int)
    gram = rbf_kernel(X, gamma=0.5)
    blocks = classification_blocks(codes, 2, np.full(60, 4.0))
    path = relevance_path(
        gram, X, blocks, [0.1, 0.01], scale=1.3, power=power, tol=1e-7, max_iter=100
    )
    for penalty, w in zip([0.1, 0.01], path, strict=True):
        arguments = (power, penalty, 1.3)
        best = objective(gram, X, codes, 4.0, w, *arguments)
        assert best < objective(gram, X, codes, 4.0, np.zeros(4), *arguments) - 0.01
        for column in range(4):
            for step in (-0.1, 0.1):
                moved = w.copy()
                moved[column] = max(moved[column] + step, 0.0)
                assert objective(gram, X, codes, 4.0, moved, *arguments) > best - 1e-5
    assert path[1].sum() > path[0].sum()


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("kind", ["two", "three", "regression"])
def test_inputs_that_matter_are_found(power, kind):
    X, y = rows(120)
    upper = np.full(120, 4.0)
    if kind == "regression":
        blocks = regression_blocks(y, 0.01, upper)
    else:
        codes = np.digitize(y, [0.0] if kind == "two" else [-0.1, 0.1])
        blocks = classification_blocks(codes, codes.max() + 1, upper)
    gram = rbf_kernel(X, gamma=0.5)
    (w,) = relevance_path(gram, X, blocks, [0.03], scale=1.0, power=power, tol=1e-5, max_iter=50)
    assert min(w[:2]) > 5 * max(w[2:])


def test_targets_within_the_tube_have_nothing_to_learn():
    X, _ = rows()
    blocks = regression_blocks(np.zeros(60), 0.1, np.ones(60))
    gram = rbf_kernel(X, gamma=0.5)
    path = relevance_path(gram, X, blocks, [0.1, 0.01], scale=1.0, power=2, tol=1e-5, max_iter=9)
    np.testing.assert_array_equal(path, 0.0)
