import numpy as np
import pytest
from sklearn.svm import SVC, SVR

from gpytorch_nkn.estimators.dank.support_vectors import smo
from gpytorch_nkn.estimators.dank.support_vectors.smo import apply_kernel, solve_dual, solve_pairs


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
    assert solution.violation <= 1e-6
    assert (solution.num_rounds > 1) == (working_size < 300)
    assert max(right for _, right in sizes) <= working_size


@pytest.mark.parametrize("working_size", [30, 1000])
def test_a_regression_equals_that_of_the_whole_gram_matrix(working_size):
    inputs, _, upper = problem(150)
    targets = np.sin(7 * inputs[:, 0]) + np.random.default_rng(1).normal(0, 0.2, 150)
    block, sizes = laplacian(inputs)
    machine = SVR(C=1.0, epsilon=0.1, kernel="precomputed", tol=1e-8)
    kernel = block(np.arange(150), np.arange(150))
    coefficients, intercept = libsvm(machine, kernel, targets, upper)
    sizes.clear()
    options = {"epsilon": 0.1, "tol": 1e-6, "working_size": working_size}
    solution = solve_dual(block, targets, upper, **options)
    np.testing.assert_allclose(solution.signed, coefficients, atol=1e-4)
    assert solution.intercept == pytest.approx(intercept, abs=1e-5)
    np.testing.assert_allclose(solution.residual, targets - kernel @ solution.signed, atol=1e-9)
    assert max(right for _, right in sizes) <= working_size
    assert solution.violation <= 1e-6


def test_a_working_set_has_room_for_a_free_entry_of_every_row(monkeypatch):
    inputs, _, upper = problem()
    targets = np.sin(7 * inputs[:, 0]) + np.random.default_rng(1).normal(0, 0.2, 300)
    block, _ = laplacian(inputs)
    kernel_of_all = block(np.arange(300), np.arange(300))
    monkeypatch.setattr(smo, "_WHOLE_SIZE", 100)
    monkeypatch.setattr(smo, "_TILE", 700)
    monkeypatch.setattr(smo, "_FIRST_SIZE", 50)
    solved = []
    solve = smo.solve_pairs

    def spy(kernel, *args, **options):
        solved.append(kernel.copy())
        return solve(kernel, *args, **options)

    sets = []
    choose = smo._working_set

    def note(*args):
        sets.append(choose(*args))
        return sets[-1]

    monkeypatch.setattr(smo, "solve_pairs", spy)
    monkeypatch.setattr(smo, "_working_set", note)
    solution = solve_dual(block, targets, upper, epsilon=0.1, tol=1e-4, working_size=280)
    free = (solution.signed != 0) & (np.abs(solution.signed) < upper)
    sizes = [len(kernel) for kernel in solved]
    assert sizes[0] == 50 and free.sum() < sizes[-1] <= 280
    assert solution.num_rounds == len(sizes) <= 12
    for kernel, chosen in zip(solved, sets, strict=True):
        np.testing.assert_allclose(kernel, kernel_of_all[np.ix_(chosen, chosen)], rtol=1e-12)


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
    monkeypatch.setattr(smo, "_TILE", 700)
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


def test_steps_are_limited():
    inputs, labels, upper = problem(60)
    block, _ = laplacian(inputs)
    kernel = block(np.arange(60), np.arange(60))
    low, high = np.minimum(labels * upper, 0), np.maximum(labels * upper, 0)
    signed, residual = np.zeros(60), labels.copy()
    assert solve_pairs(kernel, residual, signed, low, high, 1e-9, max_steps=5) == 5
    assert 0 < np.count_nonzero(signed) <= 10


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_entry_of_a_regression_stops_at_zero(sign):
    # With s = (u - 1, 2 - u, -1) the derivative is 2.5 - 2 u up to u = 1, 2 - 2 u beyond.
    signed, targets = sign * np.array([-1.0, 2.0, -1.0]), sign * np.array([-0.5, 0.5, 0.0])
    residual, free = targets - signed, np.array([4.0, 4.0, 0.0])
    low, high = signed - free, signed + free
    assert solve_pairs(np.eye(3), residual, signed, low, high, 1e-9, epsilon=0.25) == 1
    np.testing.assert_array_equal(signed, sign * np.array([0.0, 1.0, -1.0]))
    np.testing.assert_allclose(residual, targets - signed, atol=1e-15)
