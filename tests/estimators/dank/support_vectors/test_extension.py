import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel

from gpytorch_nkn.estimators.dank.support_vectors.extension import (
    LearnedKernel,
    SmoothExtension,
    reciprocal_neighbours,
)
from gpytorch_nkn.estimators.dank.support_vectors.relevance import RelevanceKernel, RelevanceTerm


def rows(count=50, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 2))
    signed = np.stack([np.sin(2 * X[:, 0]), X[:, 1]], axis=1) + 0.1 * rng.normal(size=(count, 2))
    return X, signed


def test_factor_is_the_formula_with_ridge_regression_of_the_coefficients():
    X, signed = rows()
    gram, eta = rbf_kernel(X, gamma=0.5), 0.4
    extension = SmoothExtension(gram, signed, eta, 0.0)
    new = np.random.default_rng(1).normal(size=(7, 2))
    cross = rbf_kernel(new, X, gamma=0.5)
    weights = np.linalg.solve(gram + extension.ridge_ * np.eye(50), signed)
    smooth_new, smooth = cross @ weights, gram @ weights
    expected = 1.0 + cross * (smooth_new @ smooth.T) / (4 * eta)
    factor = extension.factor(cross, extension.features(cross), extension.features_)
    np.testing.assert_allclose(factor, expected, rtol=1e-8)


def test_ridge_is_that_of_left_out_coefficients():
    X, signed = (part[:25] for part in rows())
    gram = rbf_kernel(X, gamma=0.5)
    values, vectors = np.linalg.eigh(gram)
    features = vectors * np.sqrt(np.maximum(values, 0))  # their inner products are the kernel

    def left_out_error(penalty):
        error = 0.0
        for i in range(len(X)):
            others = np.arange(len(X)) != i
            model = Ridge(alpha=penalty, fit_intercept=False).fit(features[others], signed[others])
            error += np.sum((model.predict(features[i : i + 1]) - signed[i]) ** 2)
        return error

    grid = 10.0 ** np.arange(-3.0, 3.5, 0.5)
    best = grid[np.argmin([left_out_error(penalty) for penalty in grid])]
    np.testing.assert_allclose(SmoothExtension(gram, signed, 1.0, 0.0).ridge_, best)


def test_coefficients_without_a_pattern_leave_the_kernel_alone():
    X, _ = rows(200)
    noise = np.random.default_rng(4).normal(size=(200, 1))
    gram = rbf_kernel(X, gamma=2.0)
    extension = SmoothExtension(gram, noise - noise.mean(), 1e-3, 0.0)
    assert extension.is_trivial
    np.testing.assert_array_equal(
        extension.factor(gram, extension.features_, extension.features_), 1.0
    )


@pytest.mark.parametrize("tau", [0.0, 0.01, 5.0])
def test_joint_matrix_of_old_and_new_rows_is_positive_semi_definite(tau):
    X, signed = rows()
    kernel = make_kernel(X, signed, tau)
    everything = np.vstack([X, np.random.default_rng(1).normal(size=(80, 2)) * 2])
    values = np.linalg.eigvalsh(kernel(everything, everything))
    assert values[0] > -1e-10 * values[-1]


def make_kernel(X, signed, tau, relevances=None):
    def base(left, right):
        return rbf_kernel(left, right, gamma=0.5)

    kernel = base
    if relevances is not None:
        kernel = RelevanceKernel(base, 0.3, (RelevanceTerm(0.7, base, relevances, 2),))
    return LearnedKernel(kernel, X, SmoothExtension(kernel(X, X), signed, 0.1, tau))


@pytest.mark.parametrize("tau", [0.0, 0.01])
def test_values_do_not_depend_on_what_is_predicted_together(tau):
    X, signed = rows()
    kernel = make_kernel(X, signed, tau, np.array([0.5, 0.0]))
    new = np.random.default_rng(2).normal(size=(9, 2))
    together = kernel(new, X)
    for i in range(9):
        np.testing.assert_allclose(kernel(new[i : i + 1], X)[0], together[i], atol=1e-12)


@pytest.mark.parametrize("tau", [0.01, 2.0])
def test_threshold_acts_on_the_matrix_of_the_training(tau):
    X, signed = rows()
    gram = rbf_kernel(X, gamma=0.5)
    unthresholded = SmoothExtension(gram, signed, 0.1, 0.0)
    full = unthresholded.factor(gram, unthresholded.features_, unthresholded.features_)
    values, vectors = np.linalg.eigh(full)
    expected = (vectors * np.maximum(values - tau / 2, 0)) @ vectors.T
    extension = SmoothExtension(gram, signed, 0.1, tau)
    factor = extension.factor(gram, extension.features_, extension.features_)
    np.testing.assert_allclose(factor, expected, atol=1e-9)
    np.testing.assert_allclose(extension.features(gram), extension.features_, atol=1e-9)


def test_small_ridges_come_back_to_the_learned_factor():
    X, _ = rows(20)
    gram = rbf_kernel(X, gamma=0.5)
    signed = gram @ np.random.default_rng(0).normal(size=(20, 1))  # in the span, without noise
    extension = SmoothExtension(gram, signed, 0.1, 0.0)
    factor = extension.factor(gram, extension.features_, extension.features_)
    np.testing.assert_allclose(factor, 1 + gram * (signed @ signed.T) / 0.4, rtol=0.05, atol=0.02)


def test_reciprocal_neighbours_written_out():
    rng = np.random.default_rng(0)
    distances = rng.random((8, 5))
    expected = []
    for j in range(5):
        scores = []
        for i in range(8):
            r = 1 + np.sum(distances[i] < distances[i, j])
            s = 1 + np.sum(distances[:, j] < distances[i, j])
            scores.append(1 / (r * s))
        expected.append(int(np.argmax(scores)))
    np.testing.assert_array_equal(reciprocal_neighbours(distances), expected)


def test_reciprocal_neighbours_depend_on_what_is_predicted_together():
    rng = np.random.default_rng(1)
    train, new = rng.normal(size=(30, 2)), rng.normal(size=(30, 2))
    distances = np.linalg.norm(train[:, None] - new[None], axis=-1)
    alone = [reciprocal_neighbours(distances[:, j : j + 1])[0] for j in range(30)]
    assert (reciprocal_neighbours(distances) != alone).any()
