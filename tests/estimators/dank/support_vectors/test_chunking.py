import numpy as np
import pytest
from sklearn.svm import SVC, SVR

from gpytorch_nkn.estimators.dank.support_vectors import chunking
from gpytorch_nkn.estimators.dank.support_vectors.chunking import apply_kernel, solve_dual


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
    quadratic = solution.signed @ kernel @ solution.signed / 2
    dual = targets @ solution.signed - 0.1 * np.abs(solution.signed).sum() - quadratic
    outputs = kernel @ solution.signed + solution.intercept
    primal = quadratic + upper @ np.maximum(0, np.abs(targets - outputs) - 0.1)
    assert solution.dual == pytest.approx(dual)
    assert solution.gap == pytest.approx((primal - dual) / (1 + dual), rel=1e-2)
    assert solution.violation <= 1e-6 and 0 <= solution.gap < 1e-4
    # Starts on wrong sides of the tube, of which each entry must pass through zero.
    wrong = solve_dual(block, targets, upper, start=-solution.signed, **options)
    np.testing.assert_allclose(wrong.signed, coefficients, atol=1e-4)


def test_a_working_set_has_room_for_a_free_entry_of_every_row(monkeypatch):
    inputs, _, upper = problem()
    targets = np.sin(7 * inputs[:, 0]) + np.random.default_rng(1).normal(0, 0.2, 300)
    block, _ = laplacian(inputs)
    kernel_of_all = block(np.arange(300), np.arange(300))
    monkeypatch.setattr(chunking, "_WHOLE_SIZE", 100)
    monkeypatch.setattr(chunking, "_TILE", 700)
    monkeypatch.setattr(chunking, "_FIRST_SIZE", 50)
    solved = []
    solve = chunking.solve_pairs

    def spy(kernel, *args, **options):
        solved.append(kernel.copy())
        return solve(kernel, *args, **options)

    sets = []
    choose = chunking._working_set

    def note(*args):
        sets.append(choose(*args))
        return sets[-1]

    monkeypatch.setattr(chunking, "solve_pairs", spy)
    monkeypatch.setattr(chunking, "_working_set", note)
    solution = solve_dual(block, targets, upper, epsilon=0.1, tol=1e-4, working_size=280)
    free = (solution.signed != 0) & (np.abs(solution.signed) < upper)
    sizes = [len(kernel) for kernel in solved]
    assert sizes[0] == 50 and free.sum() < sizes[-1] <= 280
    assert solution.num_rounds == len(sizes) <= 12
    for kernel, chosen in zip(solved, sets, strict=True):
        np.testing.assert_allclose(kernel, kernel_of_all[np.ix_(chosen, chosen)], rtol=1e-12)


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
    with pytest.raises(ValueError, match=r"one positive length, got shapes \(20,\) and \(3,\)"):
        solve_dual(block, labels, upper[:3])
    with pytest.raises(ValueError, match=r"labels must be 1 or -1, got \[-2\.  2\.\]"):
        solve_dual(block, 2 * labels, upper)
    with pytest.raises(ValueError, match=r"upper must not be below zero, got -"):
        solve_dual(block, labels, -upper)
    with pytest.raises(ValueError, match=r"epsilon must not be below zero, got -0.1"):
        solve_dual(block, labels, upper, epsilon=-0.1)
    with pytest.raises(ValueError, match=r"working_size must be at least 2, got 1"):
        solve_dual(block, labels, upper, working_size=1)
    with pytest.raises(ValueError, match=r"start must have shape \(20,\), got \(3,\)"):
        solve_dual(block, labels, upper, start=np.zeros(3))
