from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.svm import SVC, SVR

from gpytorch_nkn.estimators.dank.support_vectors.sequential import solve_pairs, solve_quartic


def problem(n=30, seed=0):
    generator = np.random.default_rng(seed)
    inputs = generator.uniform(size=(n, 2))
    labels = np.where(np.sin(7 * inputs[:, 0]) + generator.normal(0, 0.4, n) > 0.2, 1.0, -1.0)
    squares = ((inputs[:, None] - inputs) ** 2).sum(-1)
    return np.exp(-8 * squares), labels, generator.uniform(0.5, 3.0, n)


def dual(signed, kernel, eta):
    """Linear, quadratic and quartic term written out, entry by entry of the factor."""
    factor = 1 + np.outer(signed, signed) * kernel / (4 * eta)
    value = np.abs(signed).sum() - signed @ (factor * kernel) @ signed / 2
    return value + eta * ((factor - 1) ** 2).sum()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("eta", [0.02, 1.0])
def test_the_quartic_is_as_large_as_a_general_optimizer_makes_it(bias, eta):
    kernel, labels, upper = problem()
    constraint = [{"type": "eq", "fun": lambda u: labels @ u}] if bias else []
    reference = minimize(
        lambda u: -dual(labels * u, kernel, eta),
        np.zeros(len(labels)),
        bounds=[(0, c) for c in upper],
        constraints=constraint,
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    signed = solve_quartic(kernel, labels, upper, eta, bias=bias, tol=1e-6, max_steps=20_000)
    assert (labels * signed >= 0).all() and (labels * signed <= upper).all()
    assert not bias or abs(signed.sum()) < 1e-9
    assert dual(signed, kernel, eta) == pytest.approx(-reference.fun, rel=1e-6)
    # The quartic term counts: a plain machine's solution is worse by far.
    plain = solve_quartic(kernel, labels, upper, np.inf, bias=bias, tol=1e-6)
    assert dual(plain, kernel, eta) < -reference.fun * (1 - 1e-3)


def test_without_a_factor_it_is_the_machine_of_libsvm():
    kernel, labels, upper = problem(80)
    machine = SVC(C=1.0, kernel="precomputed", tol=1e-8)
    machine.fit(kernel, labels, sample_weight=upper)
    expected = np.zeros(len(labels))
    expected[machine.support_] = machine.dual_coef_[0]
    signed = solve_quartic(kernel, labels, upper, np.inf, tol=1e-7)
    np.testing.assert_allclose(signed, expected, atol=1e-4)
    pairs, residual = np.zeros(len(labels)), labels.copy()
    low, high = np.minimum(labels * upper, 0), np.maximum(labels * upper, 0)
    assert solve_pairs(kernel, residual, pairs, low, high, 1e-7) > 0
    np.testing.assert_allclose(pairs, expected, atol=1e-4)
    np.testing.assert_allclose(residual, labels - kernel @ pairs, atol=1e-10)


def test_two_variables_per_row_make_a_regression():
    kernel, _, upper = problem(60)
    generator = np.random.default_rng(1)
    targets = kernel @ generator.normal(size=60) + generator.normal(0, 0.3, 60)
    machine = SVR(C=1.0, epsilon=0.2, kernel="precomputed", tol=1e-8)
    machine.fit(kernel, targets, sample_weight=upper)
    expected = np.zeros(60)
    expected[machine.support_] = machine.dual_coef_[0]
    options: dict[str, Any] = {
        "linear": np.concatenate([targets, -targets]) - 0.2,
        "rows": np.tile(np.arange(60), 2),
        "tol": 1e-7,
    }
    signs, bounds = np.repeat([1.0, -1.0], 60), np.tile(upper, 2)
    signed = solve_quartic(kernel, signs, bounds, np.inf, **options)
    np.testing.assert_allclose(signed[:60] + signed[60:], expected, atol=1e-4)
    eta = 0.05  # any other feasible direction only lowers the objective
    learned = solve_quartic(kernel, signs, bounds, eta, **options)
    learned = learned[:60] + learned[60:]

    def value(s):
        return dual(s, kernel, eta) - 1.2 * np.abs(s).sum() + targets @ s

    for other in (expected, np.zeros(60), *(expected * t for t in (0.3, 0.6, 0.9))):
        towards = learned + 1e-3 * (other - learned)
        assert value(towards) < value(learned)
    assert np.abs(learned - expected).max() > 0.1


def test_it_starts_from_where_it_is_told_and_leaves_that_as_it_is():
    kernel, labels, upper = problem(60)
    once = solve_quartic(kernel, labels, upper, 0.1, tol=1e-8)
    start = once.copy()
    again = solve_quartic(kernel, labels, upper, 0.1, start=start, tol=1e-6, max_steps=1)
    np.testing.assert_array_equal(again, once)
    np.testing.assert_array_equal(start, once)


def test_steps_are_limited():
    kernel, labels, upper = problem(60)
    low, high = np.minimum(labels * upper, 0), np.maximum(labels * upper, 0)
    signed, residual = np.zeros(60), labels.copy()
    assert solve_pairs(kernel, residual, signed, low, high, 1e-9, max_steps=5) == 5
    assert 0 < np.count_nonzero(signed) <= 10


def test_eta_of_zero_is_an_error():
    kernel, labels, upper = problem()
    with pytest.raises(ValueError, match=r"eta must be positive, got 0\.0"):
        solve_quartic(kernel, labels, upper, 0.0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_entry_of_a_regression_stops_at_zero(sign):
    # With s = (u - 1, 2 - u, -1) the derivative is 2.5 - 2 u up to u = 1, 2 - 2 u beyond.
    signed, targets = sign * np.array([-1.0, 2.0, -1.0]), sign * np.array([-0.5, 0.5, 0.0])
    residual, free = targets - signed, np.array([4.0, 4.0, 0.0])
    low, high = signed - free, signed + free
    assert solve_pairs(np.eye(3), residual, signed, low, high, 1e-9, epsilon=0.25) == 1
    np.testing.assert_array_equal(signed, sign * np.array([0.0, 1.0, -1.0]))
    np.testing.assert_allclose(residual, targets - signed, atol=1e-15)
