import numpy as np
from sklearn.metrics.pairwise import rbf_kernel

from gpytorch_nkn.estimators.dank.extension import SmoothExtension


def test_coefficients_without_a_pattern_leave_the_kernel_alone():
    rng = np.random.default_rng(4)
    X, noise = rng.normal(size=(200, 2)), rng.normal(size=(200, 1))
    gram = rbf_kernel(X, gamma=2.0)
    extension = SmoothExtension(gram, noise - noise.mean(), 1e-3)
    assert np.isinf(extension.ridge_)
    np.testing.assert_array_equal(
        extension.factor(gram, extension.features_, extension.features_), 1.0
    )
