import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

from gpytorch_nkn.estimators.dank.dual import classification_blocks
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
