"""The dual problem with a factor, against general solvers."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.metrics.pairwise import rbf_kernel

from gpytorch_nkn.estimators.dank.dual import (
    DualProblem,
    classification_blocks,
    hadamard_factor,
    maximize,
    regression_blocks,
)
from gpytorch_nkn.estimators.dank.svm import solve_svms


def make_problem(kind, eta=0.5, count=40):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(count, 2))
    y = X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=count)
    gram = rbf_kernel(X, gamma=0.5)
    upper = np.linspace(1.0, 3.0, count)
    if kind == "regression":
        blocks = regression_blocks(y, 0.1, upper)
    else:
        quantiles = [0.5] if kind == "two" else [0.3, 0.7]
        codes = np.digitize(y, np.quantile(y, quantiles))
        blocks = classification_blocks(codes, codes.max() + 1, upper)
    return DualProblem(gram, blocks, eta)


def objective(factor, gram, signed, eta):
    """The part of (4) that depends on F, written out."""
    quadratic = sum(s @ ((factor * gram) @ s) for s in signed.T)
    return -0.5 * quadratic + eta * np.sum((factor - 1.0) ** 2)


def test_factor_is_the_minimiser_among_positive_semi_definite_matrices():
    rng = np.random.default_rng(0)
    gram, signed = rbf_kernel(rng.normal(size=(6, 2))), rng.normal(size=(6, 1))
    factor = hadamard_factor(gram, signed, 0.2)
    best = objective(factor, gram, signed, 0.2)

    def of_root(root):
        root = root.reshape(6, 6)
        return objective(root @ root.T, gram, signed, 0.2)

    general = minimize(of_root, rng.normal(size=36), method="L-BFGS-B", options={"maxiter": 2000})
    assert best <= general.fun + 1e-9
    np.testing.assert_allclose(general.fun, best, rtol=2e-3)


@pytest.mark.parametrize("kind", ["two", "three", "regression"])
def test_value_and_gradient(kind):
    problem = make_problem(kind)
    rng = np.random.default_rng(1)
    point = rng.uniform(0, 1, len(problem.linear))
    found = problem.evaluate(point)
    factor = hadamard_factor(problem.gram, found.signed, 0.5)
    value = problem.linear @ point + objective(factor, problem.gram, found.signed, 0.5)
    np.testing.assert_allclose(found.value, value, rtol=1e-9)
    for _ in range(5):
        direction = rng.normal(size=len(point))
        ahead, behind = (problem.evaluate(point + h * direction).value for h in (1e-5, -1e-5))
        np.testing.assert_allclose(found.gradient @ direction, (ahead - behind) / 2e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "eta"),
    [("two", 10.0), ("two", 0.02), ("three", 0.02), ("three", 0.5), ("regression", 0.02)],
)
def test_maximum_is_that_of_a_general_solver(kind, eta):
    problem = make_problem(kind, eta, count=16)
    start, _ = solve_svms(problem.gram, problem.blocks)
    point = maximize(problem, start, tol=1e-8, max_iter=500)
    np.testing.assert_allclose(problem.project(point.variables), point.variables, atol=1e-9)
    assert point.value == problem.evaluate(point.variables).value
    upper = np.concatenate([block.upper for block in problem.blocks])

    def balance(u):
        parts = zip(problem.blocks, problem.parts, strict=True)
        return [block.signs @ u[part] for block, part in parts]

    general = minimize(
        lambda u: -problem.evaluate(u).value,
        point.variables + 0.1,
        jac=lambda u: -problem.evaluate(u).gradient,
        method="SLSQP",
        bounds=[(0, c) for c in upper],
        constraints={"type": "eq", "fun": balance},
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    np.testing.assert_allclose(point.value, -general.fun, rtol=2e-5)
