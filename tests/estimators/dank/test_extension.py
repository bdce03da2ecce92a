import numpy as np
from sklearn.metrics.pairwise import rbf_kernel

from gpytorch_nkn.estimators.dank.extension import smooth_coefficients


def test_coefficients_without_a_pattern_leave_the_kernel_alone():
    rng = np.random.default_rng(4)
    X, noise = rng.normal(size=(200, 2)), rng.normal(size=(200, 1))
    assert smooth_coefficients(rbf_kernel(X, gamma=2.0), noise - noise.mean(), 1e-3) is None
