"""SVMs with a fixed kernel, against general solvers and scikit-learn."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.metrics.pairwise import rbf_kernel

from gpytorch_nkn.estimators.dank.support_vectors.dual import (
    DualProblem,
    classification_blocks,
    regression_blocks,
)
from gpytorch_nkn.estimators.dank.support_vectors.solvers import solve
from gpytorch_nkn.estimators.dank.support_vectors.svm import solve_quadratic, solve_svms


def problem(kind, bias=True, count=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(count, 2))
    wave = np.sin(7 * X[:, 0]) + rng.normal(0, 0.3, count)
    upper = rng.uniform(0.5, 3.0, count)
    if kind == "regression":
        (block,) = regression_blocks(wave, 0.1, upper)
    else:
        (block,) = classification_blocks((wave > 0.4).astype(int), 2, upper)
    return rbf_kernel(X, gamma=4.0), block.restricted(np.arange(count), bias=bias)


def maximum(block, matrix, slope):
    """What a general solver finds for ``c'u + slope's - s'Bs / 2``."""

    def signed(u):
        return np.bincount(block.rows, block.signs * u, minlength=len(matrix))

    def value(u):
        s = signed(u)
        gradient = block.linear + block.signs * (slope - matrix @ s)[block.rows]
        return -(block.linear @ u + slope @ s - 0.5 * s @ matrix @ s), -gradient

    constraint = {"type": "eq", "fun": lambda u: block.signs @ u, "jac": lambda u: block.signs}
    found = minimize(
        value,
        np.zeros(len(block.rows)),
        jac=True,
        method="SLSQP",
        bounds=[(0, c) for c in block.upper],
        constraints=[constraint],
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    return -found.fun, lambda u: -value(u)[0]


@pytest.mark.parametrize("kind", ["classes", "regression"])
@pytest.mark.parametrize("steep", [0.0, 0.5])
def test_a_quadratic_is_as_large_as_a_general_solver_makes_it(kind, steep):
    gram, block = problem(kind)
    slope = steep * np.random.default_rng(1).normal(size=40)
    best, value = maximum(block, gram, slope)
    variables = solve_quadratic(block, gram, slope, 1e-6, 10**6)
    assert (variables >= 0).all() and (variables <= block.upper).all()
    assert value(variables) == pytest.approx(best, rel=1e-5)
    assert abs(block.signs @ variables) < 1e-4


@pytest.mark.parametrize("kind", ["classes", "regression"])
def test_an_svm_without_a_bias_is_optimal_row_by_row(kind):
    gram, block = problem(kind, bias=False)
    variables, intercepts = solve_svms(gram, [block], 1e-7)
    signed = np.bincount(block.rows, block.signs * variables, minlength=40)
    gradient = block.linear - block.signs * (gram @ signed)[block.rows]
    np.testing.assert_array_equal(intercepts, [0.0])
    assert (gradient[variables == 0] <= 1e-5).all()
    assert (gradient[variables == block.upper] >= -1e-5).all()
    assert np.abs(gradient[(variables > 0) & (variables < block.upper)]).max() <= 1e-5


@pytest.mark.parametrize("kind", ["classes", "regression"])
@pytest.mark.parametrize("eta", [0.5, 0.02])
def test_a_factor_without_a_bias_is_certified(kind, eta):
    gram, block = problem(kind, bias=False, count=16)
    dual = DualProblem(gram, [block], eta, 0.0)
    start, _ = solve_svms(gram, [block], 1e-6)
    solution = solve(dual, dual.project(start), solver="fista", tol=1e-6, max_iter=1000)
    assert solution.converged
    general = minimize(
        lambda u: -dual.evaluate(u).value,
        np.zeros(len(block.rows)),
        jac=lambda u: -dual.evaluate(u).gradient,
        method="L-BFGS-B",
        bounds=[(0, c) for c in block.upper],
        options={"ftol": 1e-14, "gtol": 1e-9, "maxiter": 5000},
    )
    assert solution.point.value == pytest.approx(-general.fun, rel=2e-6)
    assert abs(block.signs @ solution.point.variables) > 1e-3


def test_one_class_alone_has_no_support_vectors():
    gram, block = problem("classes")
    alone = block.restricted(np.flatnonzero(block.signs < 0))
    inside = np.ix_(block.signs < 0, block.signs < 0)
    variables, intercepts = solve_svms(gram[inside], [alone], 1e-3)
    assert not variables.any()
    np.testing.assert_array_equal(intercepts, [-1.0])
