"""Learned kernels are kept if they predict held-out rows better."""

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import KFold

from gpytorch_nkn.estimators import DANKClassifier, DANKRegressor
from gpytorch_nkn.estimators.dank import dank_selection
from gpytorch_nkn.estimators.dank.dank_selection import Task, choose, confirm
from gpytorch_nkn.estimators.dank.dual import regression_blocks
from tests.estimators.dank import test_dank_classifier, test_dank_regressor


def test_choice_is_the_least_loss_if_it_is_less_for_sure():
    start = np.ones(10)
    assert choose(np.stack([start, 0.5 * start, 0.4 * start])) == 2
    assert choose(np.stack([start, 1.1 * start])) == choose(np.stack([start, start])) == 0
    # three rows better and one worse by 1: a gain of 2 over a standard error of 2
    mixed = start.copy()
    mixed[:3], mixed[3] = 0.0, 2.0
    assert choose(np.stack([start, mixed])) == 0
    assert choose(np.stack([start, mixed]), least=0.99) == 1
    mixed[4] = 0.0  # 3 over sqrt(5)
    assert choose(np.stack([start, mixed])) == 1
    assert choose(np.stack([start, mixed]), least=2.0) == 0


def test_relevances_are_learned_from_some_rows_of_every_class():
    X, y = test_dank_classifier.rows(90, 3)
    y[5], y[[30, 60]] = 7, 8
    model = DANKClassifier(random_state=0, relevance=None, eta=np.inf).fit(X, y)
    codes = _codes(model, y)
    for size in (4, 30, 60):
        rows = model._sample(codes, size)
        assert len(rows) >= size - 9 and len(rows) == len(np.unique(rows))
        counts = np.bincount(codes[rows], minlength=5)
        assert counts[3] == 1 and min(counts[[0, 1, 2, 4]]) >= 2
    regressor = DANKRegressor(random_state=0)
    rows = regressor._sample(np.arange(90.0), 30)
    assert len(np.unique(rows)) == 30 and (np.diff(rows) > 0).all()


def _codes(model, y):
    return np.searchsorted(model.classes_, y)


@pytest.mark.parametrize("estimator", [DANKClassifier, DANKRegressor])
def test_few_rows_and_one_column_are_compared_as_said(estimator):
    X, y = test_dank_classifier.rows(40)
    few = estimator(random_state=0).fit(X[:9], y[:9])
    assert few.cv_results_.empty and few.eta_ == np.inf and few.relevance_kernel_ is None
    model = estimator(random_state=0).fit(X[:, :1], y)
    assert "relevance_penalty" not in model.cv_results_
    assert len(model.cv_results_) == 6


@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_widened_kernels_match_inputs_drawn_together(name):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 3)), rng.normal(size=(6, 3))
    kernel = dank_selection.BaseKernel(name, 0.6)
    np.testing.assert_allclose(kernel.widened(4.0)(a, b), kernel(a / 4, b / 4), rtol=1e-12)
    np.testing.assert_allclose(kernel.widened(4.0).lengthscale, 4 * kernel.lengthscale)
    unit = np.full((1, 1), kernel.lengthscale)
    np.testing.assert_allclose(kernel(np.zeros((1, 1)), unit), np.exp(
        -0.5 if name == "rbf" else -1.0))  # fmt: skip


def test_kernels_of_some_rows_must_be_better_with_more():
    X, y = test_dank_regressor.rows(60)
    folds = list(KFold(5, shuffle=True, random_state=0).split(X))
    flat, good = (lambda a, b: np.ones((60, 60))), (lambda a, b: rbf_kernel(a, b, gamma=1.0))

    def blocks(target, cost):
        return regression_blocks(target, 0.02, np.full(len(target), 3.0 * cost))

    def losses(outputs, target):
        return (outputs[:, 0] - target) ** 2

    for base, other in ((flat, good), (good, flat)):
        task = Task(X, base(X, X), y, blocks, losses, folds)
        assert confirm(task, other, 1.0) == (other is good)
