import numpy as np
import pytest
from scipy.optimize import minimize

from gpytorch_nkn.estimators.dank.support_vectors.dual import project_box_hyperplane


def problem(seed, size, scale):
    rng = np.random.default_rng(seed)
    signs = np.where(rng.random(size) < 0.4, 1.0, -1.0)
    return scale * rng.normal(size=size), signs, rng.uniform(0.1, 2.0, size)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size, scale", [(2, 1.0), (7, 1.0), (30, 0.2), (30, 20.0)])
def test_is_the_nearest_feasible_point_that_a_general_solver_finds(seed, size, scale):
    point, signs, upper = problem(seed, size, scale)
    projected = project_box_hyperplane(point, signs, upper)
    assert projected.min() >= 0 and (projected <= upper).all()
    assert abs(signs @ projected) < 1e-12 * size * max(1.0, scale)
    general = minimize(
        lambda u: 0.5 * np.sum((u - point) ** 2),
        np.zeros(size),
        jac=lambda u: u - point,
        method="SLSQP",
        bounds=[(0, c) for c in upper],
        constraints={"type": "eq", "fun": lambda u: signs @ u, "jac": lambda u: signs},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(projected, general.x, atol=1e-5)


def test_feasible_points_stay():
    point, signs, upper = problem(0, 20, 1.0)
    inside = project_box_hyperplane(point, signs, upper)
    np.testing.assert_allclose(project_box_hyperplane(inside, signs, upper), inside, atol=1e-14)


def test_clipping_and_the_hyperplane_in_turn_end_elsewhere():
    """The paper's scheme is no projection: what it ends in is further away."""
    point, signs, upper = problem(3, 30, 2.0)
    turns = point.copy()
    for _ in range(200):
        turns = np.clip(turns, 0, upper)
        turns -= signs @ turns / len(turns) * signs
    projected = project_box_hyperplane(point, signs, upper)
    assert np.linalg.norm(turns - point) > np.linalg.norm(projected - point) + 1e-3


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_variables_of_one_sign_must_be_zero(sign):
    signs, upper = np.full(4, sign), np.ones(4)
    np.testing.assert_allclose(
        project_box_hyperplane(np.array([3.0, -1.0, 0.5, 0.2]), signs, upper), 0, atol=1e-15
    )


def test_ties_and_bounds_of_all_sizes():
    point = np.array([1.0, 1.0, 1.0, -1e8, 1e8, 0.0])
    signs = np.array([1.0, 1.0, -1.0, -1.0, 1.0, -1.0])
    upper = np.array([1.0, 1.0, 1.0, 1e6, 1e6, 1e-6])
    projected = project_box_hyperplane(point, signs, upper)
    assert abs(signs @ projected) < 1e-8
    assert (projected >= 0).all() and (projected <= upper).all()
