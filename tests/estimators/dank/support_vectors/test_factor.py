import numpy as np
import pytest
from scipy.optimize import minimize

from gpytorch_nkn.estimators.dank.support_vectors.factor import FactorStep, threshold_root


def gram_and_signed(seed=0, count=12, blocks=1, zeros=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 2))
    gram = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / 2)
    signed = rng.normal(size=(count, blocks))
    signed[rng.permutation(count)[:zeros]] = 0.0
    return gram, signed


def objective(factor, gram, signed, eta, tau):
    """The part of (4) that depends on F, written out."""
    quadratic = sum(s @ ((factor * gram) @ s) for s in signed.T)
    nuclear = np.linalg.svd(factor, compute_uv=False).sum()
    return -0.5 * quadratic + eta * np.sum((factor - 1.0) ** 2) + tau * eta * nuclear


def written_out(gram, signed, eta, tau):
    """J(11' + Gamma) by a full decomposition."""
    gamma = sum(np.diag(s) @ gram @ np.diag(s) for s in signed.T) / (4 * eta)
    values, vectors = np.linalg.eigh(1.0 + gamma)
    return (vectors * np.maximum(values - tau / 2, 0)) @ vectors.T


@pytest.mark.parametrize("tau", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("blocks", [1, 2, 4])
@pytest.mark.parametrize("zeros", [0, 4, 11, 12])
def test_equals_the_full_decomposition(tau, blocks, zeros):
    gram, signed = gram_and_signed(blocks=blocks, zeros=zeros)
    expected = written_out(gram, signed, 0.3, tau)
    factor, products = FactorStep(gram, 0.3, tau)(signed)
    np.testing.assert_allclose(factor.dense(), expected, atol=1e-10)
    np.testing.assert_allclose(products, (expected * gram) @ signed, atol=1e-10)
    roots = factor.roots()
    np.testing.assert_allclose(roots @ roots.T, expected, atol=1e-10)
    inner = objective(expected, gram, signed, 0.3, tau)
    quadratic = 0.5 * np.sum(signed * products)
    np.testing.assert_allclose(factor.penalty, inner + quadratic, atol=1e-8)


@pytest.mark.parametrize("tau", [0.0, 0.3])
def test_is_the_minimiser_among_positive_semi_definite_matrices(tau):
    gram, signed = gram_and_signed(count=6, zeros=1)
    factor = FactorStep(gram, 0.2, tau)(signed)[0].dense()
    best = objective(factor, gram, signed, 0.2, tau)

    def of_root(root):
        root = root.reshape(6, 6)
        return objective(root @ root.T, gram, signed, 0.2, tau)

    start = np.random.default_rng(1).normal(size=36)
    general = minimize(of_root, start, method="L-BFGS-B", options={"maxiter": 2000})
    assert best <= general.fun + 1e-9
    np.testing.assert_allclose(general.fun, best, rtol=2e-3)


@pytest.mark.parametrize("eta", [0.05, 5.0])
def test_lanczos_agrees_with_the_full_decomposition(eta):
    gram, signed = gram_and_signed(count=320, zeros=60)
    step = FactorStep(gram, eta * float(np.sum(signed**2)), 0.05)
    factor, products = step(signed)
    assert step._rank is not None and step._rank < 30
    expected = written_out(gram, signed, step.eta, 0.05)
    np.testing.assert_allclose(factor.dense(), expected, atol=1e-9)
    np.testing.assert_allclose(products, (expected * gram) @ signed, atol=1e-8)


def test_support_that_changes_between_calls():
    gram, signed = gram_and_signed(count=30, zeros=10)
    step = FactorStep(gram, 0.3, 0.01)
    rng = np.random.default_rng(2)
    for zeros in (0, 20, 5, 28, 30, 1):
        other = signed.copy()
        other[rng.permutation(30)[:zeros]] = 0.0
        factor, products = step(other)
        expected = written_out(gram, other, 0.3, 0.01)
        np.testing.assert_allclose(factor.dense(), expected, atol=1e-10)
        np.testing.assert_allclose(products, (expected * gram) @ other, atol=1e-10)


def test_trace_of_gamma_is_a_quarter_at_the_etas_of_the_paper():
    gram, signed = gram_and_signed()
    eta = float(np.sum(signed**2))
    factor = FactorStep(gram, eta, 0.0)(signed)[0].dense()
    np.testing.assert_allclose(np.trace(factor - 1.0), 0.25)


def test_too_large_a_threshold_is_refused():
    gram, _ = gram_and_signed()
    with pytest.raises(ValueError, match="below 2 n = 24"):
        FactorStep(gram, 1.0, 24.0)


def test_threshold_root_of_a_diagonal_matrix():
    root = threshold_root(np.diag([3.0, 1.0, 0.5]), 0.75)
    np.testing.assert_allclose(root @ root.T, np.diag([2.25, 0.25, 0.0]), atol=1e-12)
    assert root.shape == (3, 2)
