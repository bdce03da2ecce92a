import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC, SVR

from gpytorch_nkn.estimators.dank.support_vectors.dual import (
    DualProblem,
    classification_blocks,
    regression_blocks,
)
from gpytorch_nkn.estimators.dank.support_vectors.solvers import SOLVERS, lipschitz_constant, solve
from gpytorch_nkn.estimators.dank.support_vectors.svm import solve_svms


def rows(count=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 2))
    return X, X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=count)


def make_problem(kind, eta=0.5, tau=0.01, count=40):
    X, y = rows(count)
    gram = rbf_kernel(X, gamma=0.5)
    upper = np.linspace(1.0, 3.0, count)
    if kind == "regression":
        blocks = regression_blocks(y, 0.1, upper)
    elif kind == "two":
        blocks = classification_blocks((y > 0).astype(int), 2, upper)
    else:
        codes = np.digitize(y, np.quantile(y, [0.3, 0.7]))
        blocks = classification_blocks(codes, 3, upper)
    return DualProblem(gram, blocks, eta, tau)


KINDS = ["two", "three", "regression"]


def started(problem, **options):
    start, _ = solve_svms(problem.gram, problem.blocks, 1e-6)
    settings = {"solver": "fista", "tol": 1e-6, "max_iter": 1000, **options}
    return solve(problem, problem.project(start), **settings)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tau", [0.0, 0.1])
def test_gradient_is_that_of_finite_differences(kind, tau):
    problem = make_problem(kind, tau=tau)
    rng = np.random.default_rng(1)
    point = rng.uniform(0, 1, len(problem.linear)) * problem.upper
    gradient = problem.evaluate(point).gradient
    for _ in range(5):
        direction = rng.normal(size=len(point))
        ahead, behind = (problem.evaluate(point + h * direction).value for h in (1e-5, -1e-5))
        np.testing.assert_allclose(gradient @ direction, (ahead - behind) / 2e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("tau", "eta"), [(0.0, 10.0), (0.1, 0.5), (0.0, 0.02), (0.1, 0.02)])
def test_fista_reaches_the_maximum_of_a_general_solver(kind, tau, eta):
    problem = make_problem(kind, eta, tau, count=16)
    solution = started(problem)
    assert solution.converged and solution.relative_gap <= 1e-6
    constraint = np.zeros((len(problem.blocks), len(problem.linear)))
    for row, (block, part) in enumerate(zip(problem.blocks, problem.parts, strict=True)):
        constraint[row, part] = block.signs
    general = minimize(
        lambda u: -problem.evaluate(u).value,
        np.zeros(len(problem.linear)),
        jac=lambda u: -problem.evaluate(u).gradient,
        method="SLSQP",
        bounds=[(0, c) for c in problem.upper],
        constraints={"type": "eq", "fun": lambda u: constraint @ u, "jac": lambda u: constraint},
        options={"ftol": 1e-12, "maxiter": 500},
    )
    scale = abs(solution.point.value - solution.point.factor.penalty)
    assert abs(solution.point.value + general.fun) <= 2e-6 * scale
    feasible = problem.project(solution.point.variables)
    np.testing.assert_allclose(solution.point.variables, feasible, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_gap_bounds_what_the_objective_lacks(kind):
    problem = make_problem(kind)
    maximum = started(problem, tol=1e-9).point.value
    rng = np.random.default_rng(3)
    for _ in range(5):
        draw = problem.project(rng.uniform(0, 1, len(problem.linear)) * problem.upper)
        point = problem.evaluate(draw)
        assert problem.gap(point) >= maximum - point.value - 1e-9
    early = started(problem, tol=1e-12, max_iter=2)
    assert early.gap >= maximum - early.point.value - 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_nesterov_ascends_to_the_same_maximum(kind):
    problem = make_problem(kind, eta=20.0, count=12)
    reference = started(problem)
    solution = started(problem, solver="nesterov", tol=1e-4, max_iter=4000)
    scale = abs(reference.point.value - reference.point.factor.penalty)
    assert solution.converged
    assert abs(solution.point.value - reference.point.value) <= 2e-4 * scale


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_changes_no_faster_than_the_constant_says(kind):
    problem = make_problem(kind, tau=0.1)
    constant = lipschitz_constant(problem)
    rng = np.random.default_rng(5)
    for _ in range(10):
        a, b = (rng.uniform(0, 1, len(problem.linear)) * problem.upper for _ in range(2))
        change = problem.evaluate(a).gradient - problem.evaluate(b).gradient
        assert np.linalg.norm(change) <= constant * np.linalg.norm(a - b)


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_trace_ends_at_the_result_and_a_limit_is_kept(solver):
    problem = make_problem("two", eta=0.05)
    solution = started(problem, solver=solver, tol=1e-12, max_iter=7)
    assert solution.iterations == 7 and not solution.converged
    assert len(solution.trace) == 8
    assert max(solution.trace) <= solution.point.value + 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_large_eta_is_the_machine_with_the_base_kernel(kind):
    problem = make_problem(kind, eta=1e9, tau=0.0)
    solution = started(problem, tol=1e-8)
    plain, _ = solve_svms(problem.gram, problem.blocks, 1e-8)
    expected = problem.signed(plain)
    np.testing.assert_allclose(solution.point.signed, expected, atol=2e-3)
    np.testing.assert_allclose(solution.point.factor.dense(), 1.0, atol=1e-7)


def test_machines_are_those_of_scikit_learn():
    X, y = rows()
    gram = rbf_kernel(X, gamma=0.5)
    codes = np.digitize(y, np.quantile(y, [0.3, 0.7]))
    blocks = classification_blocks(codes, 3, np.full(40, 2.0))
    problem = DualProblem(gram, blocks, 1.0, 0.0)
    variables, intercepts = solve_svms(gram, tuple(blocks), 1e-8)
    outputs = gram @ problem.signed(variables) + intercepts
    machine = SVC(C=2.0, kernel="precomputed", tol=1e-8, decision_function_shape="ovo")
    np.testing.assert_allclose(outputs, machine.fit(gram, codes).decision_function(gram), atol=1e-6)
    blocks = regression_blocks(y, 0.1, np.full(40, 2.0))
    problem = DualProblem(gram, blocks, 1.0, 0.0)
    variables, intercepts = solve_svms(gram, tuple(blocks), 1e-8)
    outputs = (gram @ problem.signed(variables) + intercepts)[:, 0]
    expected = SVR(C=2.0, epsilon=0.1, kernel="precomputed", tol=1e-8).fit(gram, y).predict(gram)
    np.testing.assert_allclose(outputs, expected, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_best_intercepts_make_the_primal_objective_least(kind):
    problem = make_problem(kind)
    point = problem.evaluate(problem.project(0.3 * problem.upper))
    least = problem.primal(point.signed, point.products)
    best = problem.intercepts(point.products)

    def primal(intercepts):
        outputs = point.products + intercepts
        loss = sum(
            block.upper @ np.maximum(block.linear - block.signs * outputs[block.rows, p], 0)
            for p, block in enumerate(problem.blocks)
        )
        return 0.5 * np.sum(point.signed * point.products) + loss

    np.testing.assert_allclose(primal(best), least)
    for step in (-0.1, -1e-3, 1e-3, 0.1):
        for column in range(len(best)):
            moved = best.copy()
            moved[column] += step
            assert primal(moved) >= least - 1e-9
