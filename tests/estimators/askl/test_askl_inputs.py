"""Scalings and weights of columns."""

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from gpytorch_nkn.estimators.askl.askl_inputs import InputMap, choose_input_map
from gpytorch_nkn.estimators.askl.leave_one_out import kernel_ridge, relevance


def test_standard_scaling_draws_tails_in():
    X = np.random.default_rng(0).standard_t(2, size=(500, 3)) * [1, 100, 0] + [5, 0, 7]
    seen = InputMap.of(X, "standard")
    Z = seen(X)
    assert Z.shape == (500, 2)
    np.testing.assert_allclose(Z.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(Z.std(0), 1)
    z = (X[:, 0] - X[:, 0].mean()) / X[:, 0].std()
    z = np.where(np.abs(z) > 3, np.sign(z) * (3 + np.log1p(np.maximum(np.abs(z) - 3, 0))), z)
    np.testing.assert_allclose(Z[:, 0], (z - z.mean()) / z.std())
    assert np.abs(z).max() > 4


def test_common_scaling_by_its_formula():
    X = np.random.default_rng(0).standard_t(2, size=(500, 2)) * [1, 100] + [5, 0]
    Z = InputMap.of(X, "common")(X)
    np.testing.assert_allclose(Z, (X - X.mean(0)) / np.sqrt(X.var(0).mean()))


def test_ranks_are_columns_of_their_own():
    X = np.random.default_rng(0).standard_t(2, size=(300, 2)).round(1)
    seen = InputMap.of(X, "ranks")
    Z = seen(X)
    assert Z.shape == (300, 4)
    z = (X - X.mean(0)) / X.std(0)
    z = z / np.sqrt(1 + (z / 3) ** 2)
    np.testing.assert_allclose(Z[:, :2], (z - z.mean(0)) / z.std(0))
    ranks = rankdata(X[:, 1])
    assert np.corrcoef(Z[:, 3], ranks)[0, 1] > 1 - 1e-5  # ties at the ends apart
    far = seen(np.array([[1e9, -1e9]]))
    assert far[0, 2] == Z[:, 2].max() and far[0, 3] == Z[:, 3].min()


def test_slopes_match_the_regression():
    x, y = torch.randn(30, 3), torch.randn(30, 2)
    settings = kernel_ridge(x, y)._replace(penalty=0.01)
    points = x.clone().requires_grad_()
    kernel = torch.exp(-settings.gamma * (points[:, None] - x).square().sum(-1))
    weights = torch.linalg.solve(kernel.detach() + 0.3 * torch.eye(30), y - y.mean(0))
    expected = sum(
        torch.autograd.grad((kernel @ weights)[:, k].sum(), points, retain_graph=True)[0]
        .square()
        .mean(0)
        for k in range(2)
    )
    torch.testing.assert_close(relevance(x, y, settings), expected)


def test_columns_count_by_their_relevance():
    X = np.random.default_rng(0).normal(size=(300, 6))
    y = np.sin(3 * X[:, :1]) + 0.3 * X[:, 1:2]
    chosen = choose_input_map(X, y / y.std(), np.random.RandomState(0))
    assert chosen.weight[0] > chosen.weight[1] > 2 * chosen.weight[2:].max()
    assert np.square(chosen.weight).mean() == pytest.approx(1)
    seen = chosen(X)
    np.testing.assert_allclose(seen.std(0), chosen.weight, rtol=1e-6)
    alike = np.sin(2 * X).sum(1, keepdims=True)
    chosen = choose_input_map(X, alike / alike.std(), np.random.RandomState(0))
    np.testing.assert_allclose(chosen.weight, 1, atol=0.3)
    few = choose_input_map(X[:30], y[:30], np.random.RandomState(0))
    assert few.scaling == "standard" and (few.weight == 1).all()


def test_the_scaling_is_chosen(few_candidates):
    rng = np.random.default_rng(0)
    pixels = rng.normal(size=(300, 30)) * np.repeat([1.0, 0.01], [3, 27])
    y = np.sin(2 * pixels[:, :1]) * pixels[:, 1:2]
    assert choose_input_map(pixels, y / y.std(), np.random.RandomState(0)).scaling == "common"
    heavy = rng.standard_cauchy(size=(300, 1)) ** 3
    y = np.sin(4 * rankdata(heavy, axis=0) / 300)
    assert choose_input_map(heavy, y / y.std(), np.random.RandomState(0)).scaling == "ranks"
    plain = rng.normal(size=(300, 2))
    y = np.sin(3 * plain[:, :1])
    assert choose_input_map(plain, y / y.std(), np.random.RandomState(0)).scaling == "standard"
