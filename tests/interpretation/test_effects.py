import math
import sys
from itertools import product

import numpy as np
import pytest
import torch
from botorch.models import MixedSingleTaskGP, SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.means import LinearMean
from scipy.stats import qmc

from gpytorch_nkn.estimators import NKNForecaster, NKNRegressor
from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.interpretation import effects
from gpytorch_nkn.models import NKNSingleTaskGP

PI = math.pi


def cube(n, dim, low=0.0, high=1.0):
    """Evenly spread inputs ``n x dim``; n is a power of two."""
    points = qmc.scale(qmc.Sobol(dim, rng=0).random(n), low, high)
    return torch.from_numpy(points)


def single(x, y, kernel=None, noise=1e-4, *, lengthscale=0.5, **transforms):
    """A SingleTaskGP with known hyperparameters, without transforms unless given."""
    if kernel is None:
        kernel = RBFKernel(ard_num_dims=x.size(-1)).initialize(lengthscale=lengthscale)
    transforms = {"outcome_transform": None, **transforms}
    model = SingleTaskGP(x, y.unsqueeze(-1), covar_module=kernel, **transforms)
    model.likelihood.noise = noise
    return model.eval()


def rbf(x, y, lengthscale):
    return np.exp(-0.5 * (((x[:, None] - y) / lengthscale) ** 2).sum(-1))


def test_ishigami_indices_equal_the_analytic_ones():
    a, b = 7.0, 0.1
    x = cube(256, 3, -PI, PI)[:200]
    y = torch.sin(x[:, 0]) * (1 + b * x[:, 2] ** 4) + a * torch.sin(x[:, 1]) ** 2
    model = SingleTaskGP(
        x,
        y.unsqueeze(-1),
        covar_module=ScaleKernel(RBFKernel(ard_num_dims=3)),
        input_transform=Normalize(3),
    )
    recipe = Recipe(adam_steps=50, lbfgs_iterations=50)
    fit_best_of(model, restarts=1, recipe=recipe, seed=0, progress=False)
    found = effects(model, columns=["a", "b", "c"])
    # Saltelli et al. (2008), Global Sensitivity Analysis, chapter 4
    parts = [0.5 * (1 + b * PI**4 / 5) ** 2, a**2 / 8, b**2 * PI**8 * (1 / 18 - 1 / 50)]
    whole = sum(parts)
    first = np.array([parts[0], parts[1], 0]) / whole
    total = np.array([parts[0] + parts[2], parts[1], parts[2]]) / whole
    np.testing.assert_allclose(found.first_order, first, atol=0.03)
    np.testing.assert_allclose(found.total_order, total, atol=0.03)
    assert [pair.names for pair in found.pairs] == [("a", "c")]
    assert found.pairs[0].share == pytest.approx(parts[2] / whole, abs=0.03)
    assert (found.first_order <= found.total_order).all()
    assert [effect.label for effect in found.main] == ["a", "b", "c"]
    assert found.main[1].share == found.first_order[1]
    curve = found.main[1]  # a sin^2, less its average
    assert np.abs(curve.mean - a * np.sin(curve.grid[0]) ** 2 + a / 2)[3:-3].max() < 0.4


def test_pure_product_is_all_interaction():
    x = cube(128, 2, -1.0, 1.0)
    found = effects(single(x, x[:, 0] * x[:, 1]))
    assert np.abs(found.first_order).max() < 0.02
    np.testing.assert_allclose(found.total_order, 1.0, atol=0.03)
    (pair,) = found.pairs
    assert 0.95 < pair.share <= found.total_order.min() <= 1  # the exact bounds
    a, b = pair.grid
    assert pair.columns == (0, 1) and pair.mean.shape == (19, 19) and pair.data is None
    np.testing.assert_allclose(pair.mean, a[:, None] * b, atol=0.07)
    assert all(np.abs(effect.mean).max() < 0.05 for effect in found.main)


def dense_posterior(x, y, lengthscale, noise, points):
    """Mean and covariance at points, with everything written out."""
    gram = rbf(x, x, lengthscale) + noise * np.eye(len(x))
    cross = rbf(points, x, lengthscale)
    covariance = rbf(points, points, lengthscale) - cross @ np.linalg.solve(gram, cross.T)
    return cross @ np.linalg.solve(gram, y), covariance


def test_mean_and_standard_deviation_equal_a_dense_computation(monkeypatch):
    module = sys.modules["gpytorch_nkn.interpretation.effects"]
    monkeypatch.setattr(module, "_POINTS", 4)
    monkeypatch.setattr(module, "_PAIR_POINTS", 4)
    # five rows, three of them with a first value of their own; no averages cancel
    x = np.array([[0.1, 0.9], [0.3, 0.2], [0.35, 0.5], [0.8, 0.7], [1.0, 0.1]])
    y = np.array([0.5, -1.0, 0.3, 2.0, -0.7])
    model = single(torch.tensor(x), torch.tensor(y), noise=0.01, lengthscale=0.4)
    found = effects(model)
    grids = [np.linspace(values.min(), values.max(), 4) for values in x.T]
    # the two-dimensional table of f holds all that averages are of
    axes = [np.concatenate([grid, values]) for grid, values in zip(grids, x.T, strict=True)]
    points = np.array(list(product(*axes)))
    mean, covariance = dense_posterior(x, y, 0.4, 0.01, points)

    def table(first, second):
        """Weights ``9 x 9`` of the average of f over pairs of locations."""
        weights = np.zeros((9, 9))
        np.add.at(weights, (first, second), 1 / np.size(np.broadcast(first, second)))
        return weights

    rows = np.arange(4, 9)  # indices of the data
    average = table(rows[:, None], rows)  # first and second column independent

    def check(effect, weights):
        weights = np.stack(weights).reshape(-1, 81)
        deviation = np.sqrt(np.einsum("ij,jk,ik->i", weights, covariance, weights))
        shape = effect.mean.shape
        np.testing.assert_allclose(effect.mean, (weights @ mean).reshape(shape), atol=1e-8)
        if effect.lower is None:
            return
        band = 1.959963984540054 * deviation
        np.testing.assert_allclose(effect.upper - effect.mean, band, atol=1e-6)
        np.testing.assert_allclose(effect.mean - effect.lower, band, atol=1e-6)
        assert band.min() > 1e-3

    main = {effect.columns[0]: effect for effect in found.main}
    check(main[0], [table(a, rows) - average for a in range(4)])
    check(main[1], [table(rows, b) - average for b in range(4)])
    (pair,) = found.pairs
    of_rows = table(rows, rows)  # both as they come together
    # the average of p_01 - p_0 - p_1 over independent values
    level = average - average - average
    check(
        pair,
        [
            table(np.array([a]), np.array([b])) - table(a, rows) - table(rows, b) - level
            for a, b in product(range(4), range(4))
        ],
    )
    assert np.abs(of_rows - average).max() > 0.1  # else the two could not be distinguished
    # all locations of both columns; the share is estimated from a uniform sample of them
    weights = np.stack([table(i, j) - average for i, j in product(rows, rows)]).reshape(-1, 81)
    variance = np.einsum("ij,jk,ik->i", weights, covariance, weights).mean()
    expected = variance / (variance + (weights @ mean).var())
    assert found.uncertain == pytest.approx(expected, rel=0.1) and expected > 0.05


def test_what_was_not_seen_of_a_column_is_uncertain():
    x = torch.rand(40, 6, dtype=torch.float64)
    x[:, 1:] = 0.5 + 0.01 * x[:, 1:]  # only the first column was moved
    y = torch.sin(6 * x[:, 0])
    moved = single(x, y, lengthscale=0.5)
    assert effects(moved).uncertain < 0.01  # over the values that there were
    few = cube(16, 6)
    y = (5 * few).sin().sum(-1)
    assert effects(single(few, y, lengthscale=0.5)).uncertain > 0.2
    assert effects(single(few, y, lengthscale=5.0)).uncertain < 0.05


def test_mean_functions_count():
    x = cube(32, 2)
    model = single(x, 2 * x[:, 0] - x[:, 1], noise=0.1, mean_module=LinearMean(2))
    model.mean_module.initialize(weights=torch.tensor([[2.0], [-1.0]]), bias=5.0)
    found = effects(model)
    slopes = {e.columns[0]: np.ptp(e.mean) / np.ptp(e.grid[0]) for e in found.main}
    # the data lie 5 below the mean function, which the kernel makes up for near them
    assert slopes[0] > 1.5 and slopes[1] > 0.5
    fitted_values = model.posterior(x).mean.detach().squeeze(-1)
    for effect in found.main:
        curve = np.interp(effect.data[0], effect.grid[0], effect.mean)
        misfit = 2 * x[:, 0] - x[:, 1] - fitted_values
        np.testing.assert_allclose(effect.data[1] - curve, misfit, atol=1e-6)


def test_constant_columns_have_no_effect():
    x = cube(64, 3)
    x[:, 1] = 4.0
    y = torch.sin(5 * x[:, 0]) * x[:, 2]
    found = effects(single(x, y, input_transform=Normalize(3), outcome_transform=Standardize(1)))
    assert found.first_order[1] == 0 and found.total_order[1] == 0
    (constant,) = [effect for effect in found.main if effect.columns == (1,)]
    np.testing.assert_array_equal(constant.grid[0], [4.0])
    np.testing.assert_allclose([constant.mean, constant.lower, constant.upper], 0, atol=1e-5)
    assert [pair.columns for pair in found.pairs] == [(0, 2)]
    regressor = NKNRegressor("rbf", restarts=1).fit(x[:, 1:].numpy(), y.numpy())
    assert effects(regressor).names == ("x1",)


def test_seeds_decide():
    x = cube(32, 2)
    model = single(x, torch.sin(5 * x[:, 0]) * x[:, 1])
    one, other = (effects(model, samples=64, seed=seed).first_order for seed in (3, 4))
    assert not np.array_equal(one, other)


def test_forecasters_and_other_objects_are_rejected():
    with pytest.raises(TypeError, match="got NKNForecaster without covariates: use decompose"):
        effects(NKNForecaster())
    with pytest.raises(TypeError, match="expected an ExactGP.*RBFKernel"):
        effects(RBFKernel())


def coded(codes):
    """A model of a number and of a column of codes, the last, which its transform changes."""
    x = torch.rand(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[:, 1] = torch.tensor(codes, dtype=torch.float64).repeat(4)
    y = torch.sin(3 * x[:, :1]) + (x[:, 1:] == codes[1]) * (1 + 4 * x[:, :1])
    return NKNSingleTaskGP(x, y, cat_dims=[-1], input_transform=Normalize(2))


def test_categories_are_looked_at_by_their_codes():
    model = coded([-1.0, 2.0, 1234567.0])
    found = effects(model, samples=64, columns=["a", "kind"])
    kind = next(effect for effect in found.main if effect.names == ("kind",))
    assert kind.levels == (("-1", "2", "1234567"),)
    assert kind.grid[0].tolist() == [-1, 2, 1234567]
    (pair,) = found.pairs
    assert pair.levels == (None, kind.levels[0])
    a = next(effect for effect in found.main if effect.names == ("a",))
    assert a.levels == (None,) and len(a.grid[0]) > 3
    rows, mean = model.train_inputs[0].clone(), []
    for code in kind.grid[0]:  # of all rows with this code
        x = rows.clone()
        x[:, 1] = code
        mean.append(model.posterior(x).mean.mean().item())
        model.train()
    np.testing.assert_allclose(kind.mean, np.array(mean) - np.mean(mean), atol=1e-6)


def test_categories_have_the_names_that_are_given():
    model = coded([0.0, 1.0, 2.0])
    names = {"kind": ["oak", "elm", "ash"]}
    found = effects(model, samples=64, columns=["a", "kind"], categories=names)
    kind = next(effect for effect in found.main if effect.names == ("kind",))
    assert kind.levels == (("oak", "elm", "ash"),)
    assert found.main[0].levels is not None
    mixed = MixedSingleTaskGP(model.train_inputs[0], model.train_targets[:, None], cat_dims=[1])
    with pytest.raises(ValueError, match=r"2 names and the code 2\."):
        effects(mixed, categories={"x1": ["oak", "elm"]})
