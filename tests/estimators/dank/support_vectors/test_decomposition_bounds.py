import numpy as np
import pytest

from gpytorch_nkn.estimators.dank.support_vectors import decomposition_bounds
from gpytorch_nkn.estimators.dank.support_vectors.decomposition_bounds import certify_blocks
from gpytorch_nkn.estimators.dank.support_vectors.sequential import solve_quartic

ETAS = [np.inf, 5.0, 0.1]


def problem(eta, spread=1.5, n=120, seed=0):
    """Kernel, labels, bounds and clusters; solutions of the whole problem and of the blocks."""
    generator = np.random.default_rng(seed)
    clusters = generator.integers(0, 3, n)
    inputs = generator.normal(0, 0.5, (n, 2)) + spread * np.stack([clusters, clusters % 2], 1)
    labels = np.where(np.sin(4 * inputs[:, 0]) + generator.normal(0, 0.1, n) > 0, 1.0, -1.0)
    kernel = np.exp(-2 * ((inputs[:, None] - inputs) ** 2).sum(-1))
    upper = generator.uniform(1.0, 2.0, n)
    whole = solve_quartic(kernel, labels, upper, eta, bias=False, tol=1e-9)
    blocks = np.zeros(n)
    for rows in (np.flatnonzero(clusters == c) for c in range(3)):
        inner = kernel[np.ix_(rows, rows)]
        blocks[rows] = solve_quartic(inner, labels[rows], upper[rows], eta, bias=False, tol=1e-9)
    return kernel, labels, upper, clusters, whole, blocks


def value(signed, kernel, eta):
    """Objective with its minimizing factor, entry by entry."""
    learned = 1 + np.outer(signed, signed) * kernel / (4 * eta)
    distance = 0.0 if np.isinf(eta) else eta * ((learned - 1) ** 2).sum()
    return np.abs(signed).sum() - signed @ (learned * kernel) @ signed / 2 + distance


def certify(kernel, labels, upper, clusters, signed, eta):
    return certify_blocks(lambda i, j: kernel[np.ix_(i, j)], labels, upper, clusters, signed, eta)


@pytest.mark.parametrize("eta", ETAS)
def test_bounds_hold_for_the_solved_problem(eta, monkeypatch):
    monkeypatch.setattr(decomposition_bounds, "_TILE", 1000)
    kernel, labels, upper, clusters, whole, blocks = problem(eta)
    found = certify(kernel, labels, upper, clusters, blocks, eta)
    same = clusters[:, None] == clusters
    assert found.value == pytest.approx(value(blocks, kernel, eta))
    assert found.block_value == pytest.approx(value(blocks, kernel * same, eta))
    assert found.between == pytest.approx(np.abs(kernel[~same]).sum())
    difference = value(whole, kernel, eta) - found.value
    assert 0.01 < difference <= found.gap
    assert difference <= found.prior_bound
    opposed = np.maximum(-np.outer(labels * upper, labels * upper) * kernel, 0)[~same].sum() / 2
    expected = found.block_value - found.value + opposed
    assert found.prior_bound == pytest.approx(expected)
    at_solution = certify(kernel, labels, upper, clusters, whole, eta)
    assert 0 <= at_solution.gap < 1e-5


def test_the_gradient_behind_the_gap_is_that_of_the_objective():
    kernel, labels, upper, clusters, _, _ = problem(0.1)
    alpha = np.random.default_rng(0).uniform(0.1, 0.9, 120) * upper
    found = certify(kernel, labels, upper, clusters, labels * alpha, 0.1)
    block = kernel * (clusters[:, None] == clusters)
    full_gradient, block_gradient = np.zeros((2, 120))
    for i in range(120):
        step = 1e-5 * np.eye(120)[i]
        for gradient, gram in ((full_gradient, kernel), (block_gradient, block)):
            up, down = (
                value(labels * (alpha + step), gram, 0.1),
                value(labels * (alpha - step), gram, 0.1),
            )
            gradient[i] = (up - down) / 2e-5
    gap = upper @ np.maximum(full_gradient, 0) - full_gradient @ alpha
    assert found.gap == pytest.approx(gap, rel=1e-6)
    np.testing.assert_allclose(found.block_gradient, block_gradient, rtol=1e-5, atol=1e-5)
    low, high = found.factor_range
    factor = 1 + np.outer(labels * alpha, labels * alpha) * kernel / 0.4
    assert (low, high) == pytest.approx((factor.min(), factor.max()))
    norm = np.abs(block).sum(1)
    expected = -(2 * high - low) * upper.max() * (norm + 1.0)
    np.testing.assert_allclose(found.printed_threshold, expected)


def test_the_bound_as_printed_is_exceeded():
    kernel, labels, upper, clusters, whole, blocks = problem(np.inf)
    found = certify(kernel, labels, upper, clusters, blocks, np.inf)
    assert found.factor_range == (1.0, 1.0) and found.printed_bound == 0.0
    assert value(whole, kernel, np.inf) - found.value > 0.01
    finite = certify(kernel, labels, upper, clusters, blocks, 5.0)
    low, high = finite.factor_range
    expected = (high - low) * upper.max() ** 2 * finite.between / 2
    assert finite.printed_bound == pytest.approx(expected)


@pytest.mark.parametrize("eta", ETAS[:2])
def test_screened_rows_are_no_support_vectors(eta):
    # Nearly separate clusters: solutions of the clusters tell nearly everything.
    kernel, labels, upper, clusters, whole, blocks = problem(eta, spread=5.0)
    found = certify(kernel, labels, upper, clusters, blocks, eta)
    screened = found.screened()
    assert screened.sum() > 0.5 * (whole == 0).sum() > 0
    assert not whole[screened].any()
    assert not found.screened_as_printed().any()
    # Clusters close to each other: rows that are inactive in theirs become support vectors.
    kernel, labels, upper, clusters, whole, blocks = problem(eta)
    found = certify(kernel, labels, upper, clusters, blocks, eta)
    assert whole[found.inactive].any()
    assert not whole[found.screened()].any()
    at_solution = certify(kernel, labels, upper, clusters, whole, eta).screened()
    assert at_solution.sum() > 0.5 * (whole == 0).sum()
    assert not whole[at_solution].any()
    # A smaller bound screens more, and no row wrongly as long as it is one.
    difference = value(whole, kernel, eta) - found.value
    assert found.screened(difference).sum() >= found.screened().sum()
    assert not whole[found.screened(difference)].any()


def test_what_is_wrong_with_an_argument_is_told():
    kernel, labels, upper, clusters, _, blocks = problem(1.0)
    with pytest.raises(ValueError, match=r"vectors of one length, got \[\(120,\), \(3,\)"):
        certify(kernel, labels, upper[:3], clusters, blocks, 1.0)
    with pytest.raises(ValueError, match="labels times signed must be between 0 and upper"):
        certify(kernel, labels, upper, clusters, -blocks, 1.0)
