import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from gpytorch_nkn.estimators.dank.extension import SmoothExtension


def rows(count=50, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 2))
    signed = np.stack([np.sin(2 * X[:, 0]), X[:, 1]], axis=1) + 0.1 * rng.normal(size=(count, 2))
    return X, signed


def test_coefficients_without_a_pattern_leave_the_kernel_alone():
    X, _ = rows(200)
    noise = np.random.default_rng(4).normal(size=(200, 1))
    gram = rbf_kernel(X, gamma=2.0)
    extension = SmoothExtension(gram, noise - noise.mean(), 1e-3, 0.0)
    assert extension.is_trivial
    np.testing.assert_array_equal(
        extension.factor(gram, extension.features_, extension.features_), 1.0
    )


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
