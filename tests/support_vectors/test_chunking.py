import numpy as np
import pytest
from sklearn.svm import SVC, SVR

from gpytorch_nkn.support_vectors import chunking
from gpytorch_nkn.support_vectors.chunking import apply_kernel, solve_dual


def problem(n=300, seed=0):
    generator = np.random.default_rng(seed)
    inputs = generator.uniform(size=(n, 3))
    labels = np.where(np.sin(7 * inputs[:, 0]) + generator.normal(0, 0.5, n) > 0.4, 1.0, -1.0)
    return inputs, labels, generator.uniform(0.5, 4.0, n)


def laplacian(inputs):
    """Blocks of a kernel that LIBSVM does not have, and the sizes asked for."""
    sizes = []

    def block(left, right):
        sizes.append((len(left), len(right)))
        return np.exp(-2 * np.abs(inputs[left][:, None] - inputs[right]).sum(-1))

    return block, sizes


def libsvm(machine, kernel, targets, upper):
    machine.fit(kernel, targets, sample_weight=upper)
    coefficients = np.zeros(len(kernel))
    coefficients[machine.support_] = machine.dual_coef_[0]
    return coefficients, machine.intercept_[0]


@pytest.mark.parametrize("working_size", [20, 100, 1000])
def test_a_machine_equals_that_of_the_whole_gram_matrix(working_size):
    inputs, labels, upper = problem()
    block, sizes = laplacian(inputs)
    kernel = block(np.arange(300), np.arange(300))
    sizes.clear()
    machine = SVC(C=1.0, kernel="precomputed", tol=1e-8)
    coefficients, intercept = libsvm(machine, kernel, labels, upper)
    state = np.random.get_state(legacy=False)["state"]["key"].copy()
    solution = solve_dual(block, labels, upper, tol=1e-6, working_size=working_size)
    np.testing.assert_array_equal(np.random.get_state(legacy=False)["state"]["key"], state)
    np.testing.assert_allclose(solution.signed, coefficients, atol=1e-4)
    assert solution.intercept == pytest.approx(intercept, abs=1e-5)
    np.testing.assert_allclose(solution.residual, labels - kernel @ solution.signed, atol=1e-9)
    assert solution.violation <= 1e-6 and 0 <= solution.gap < 1e-4
    assert (solution.num_rounds > 1) == (working_size < 300)
    assert max(right for _, right in sizes) <= working_size
    outputs = kernel @ solution.signed + solution.intercept
    hinge = upper @ np.maximum(0, 1 - labels * outputs)
    primal = solution.signed @ kernel @ solution.signed / 2 + hinge
    dual = labels @ solution.signed - solution.signed @ kernel @ solution.signed / 2
    assert solution.dual == pytest.approx(dual)
    assert solution.gap == pytest.approx((primal - dual) / (1 + dual), rel=1e-3)


@pytest.mark.parametrize("working_size", [30, 1000])
def test_two_variables_per_row_make_a_regression(working_size):
    inputs, _, upper = problem(150)
    targets = np.sin(7 * inputs[:, 0]) + np.random.default_rng(1).normal(0, 0.2, 150)
    block, _ = laplacian(inputs)
    machine = SVR(C=1.0, epsilon=0.1, kernel="precomputed", tol=1e-8)
    kernel = block(np.arange(150), np.arange(150))
    coefficients, intercept = libsvm(machine, kernel, targets, upper)
    solution = solve_dual(
        block,
        np.repeat([1.0, -1.0], 150),
        np.tile(upper, 2),
        linear=np.concatenate([targets, -targets]) - 0.1,
        rows=np.tile(np.arange(150), 2),
        tol=1e-6,
        working_size=working_size,
    )
    np.testing.assert_allclose(
        solution.signed[:150] + solution.signed[150:], coefficients, atol=1e-4
    )
    assert solution.intercept == pytest.approx(intercept, abs=1e-5)


@pytest.mark.parametrize("heavier", [1.0, -1.0])
def test_a_start_outside_the_set_is_brought_to_it_and_saves_steps(heavier):
    inputs, labels, upper = problem()
    block, _ = laplacian(inputs)
    cold = solve_dual(block, labels, upper, tol=1e-5, working_size=60)
    start = cold.signed * np.where(labels == heavier, 1.1, 0.9)
    before = start.copy()
    warm = solve_dual(block, labels, upper, start=start, tol=1e-5, working_size=60)
    np.testing.assert_array_equal(start, before)
    np.testing.assert_allclose(warm.signed, cold.signed, atol=1e-3)
    assert abs(warm.signed.sum()) < 1e-9
    assert warm.num_steps < cold.num_steps


def test_one_class_has_no_support_vectors():
    inputs, labels, upper = problem(50)
    block, _ = laplacian(inputs)
    solution = solve_dual(block, np.ones(50), upper)
    assert not solution.signed.any() and solution.num_rounds == 0
    assert solution.intercept == pytest.approx(1.0)


def test_few_rounds_leave_a_violation_that_is_told():
    inputs, labels, upper = problem()
    block, _ = laplacian(inputs)
    solution = solve_dual(block, labels, upper, working_size=20, max_rounds=2)
    assert solution.num_rounds == 2 and solution.violation > 1e-3
    residual = labels - block(np.arange(300), np.arange(300)) @ solution.signed
    alpha = labels * solution.signed
    rise = np.where(labels > 0, alpha < upper, alpha > 0)
    fall = np.where(labels > 0, alpha > 0, alpha < upper)
    expected = residual[rise].max() - residual[fall].min()
    assert solution.violation == pytest.approx(expected)


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_products_are_made_of_small_blocks(n_jobs, monkeypatch):
    monkeypatch.setattr(chunking, "_TILE", 700)
    inputs, _, _ = problem(90)
    block, sizes = laplacian(inputs)
    weights = np.random.default_rng(0).normal(size=(40, 2))
    left, right = np.arange(90), np.arange(20, 60)
    expected = block(left, right) @ weights
    sizes.clear()
    product = apply_kernel(block, left, right, weights, n_jobs=n_jobs)
    np.testing.assert_allclose(product, expected, atol=1e-12)
    assert len(sizes) > 4 and max(a * b for a, b in sizes) <= 700
    assert apply_kernel(block, left, right[:0], weights[:0]).shape == (90, 2)


def test_what_is_wrong_with_an_argument_is_told():
    inputs, labels, upper = problem(20)
    block, _ = laplacian(inputs)
    with pytest.raises(ValueError, match=r"one positive length, got shapes \[\(20,\), \(3,\)"):
        solve_dual(block, labels, upper[:3])
    with pytest.raises(ValueError, match=r"signs must be 1 or -1, got \[-2\.  2\.\]"):
        solve_dual(block, 2 * labels, upper)
    with pytest.raises(ValueError, match=r"upper must not be below zero, got -"):
        solve_dual(block, labels, -upper)
    with pytest.raises(ValueError, match=r"working_size must be at least 2, got 1"):
        solve_dual(block, labels, upper, working_size=1)
    with pytest.raises(ValueError, match=r"start must have shape \(20,\), got \(3,\)"):
        solve_dual(block, labels, upper, start=np.zeros(3))
