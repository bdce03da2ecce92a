import numpy as np
import pytest
from scipy.stats import norm

from gpytorch_nkn.interpretation.checks import rolling_forecasts

TIME = np.arange(60.0)


def covariance(lengthscale, noise=0.1):
    return np.exp(-0.5 * ((TIME[:, None] - TIME) / lengthscale) ** 2) + noise * np.eye(60)


def drawn(matrix, seed=0):
    return np.linalg.cholesky(matrix) @ np.random.default_rng(seed).standard_normal(len(matrix))


def test_coverage_is_that_of_forecasts_from_every_origin():
    matrix = covariance(5.0)
    y = drawn(matrix)
    found = rolling_forecasts(np.linalg.cholesky(matrix), y, 7, seed=0)
    assert found.horizon == 7 and found.origins == 16
    inside = []
    for origin in np.unique(np.linspace(20, 53, 16).astype(int)):
        ahead = slice(origin, origin + 7)
        gain = np.linalg.solve(matrix[:origin, :origin], matrix[:origin, ahead]).T
        variance = np.diag(matrix[ahead, ahead] - gain @ matrix[:origin, ahead])
        inside.append(np.abs(y[ahead] - gain @ y[:origin]) <= norm.ppf(0.9) * np.sqrt(variance))
    assert found.coverage[1].level == 0.8
    assert found.coverage[1].fraction == pytest.approx(np.mean(inside))


def test_p_values_of_the_model_itself_are_uniform():
    matrix = covariance(5.0)
    factor = np.linalg.cholesky(matrix)
    p_values = [
        rolling_forecasts(factor, drawn(matrix, seed), 10, seed).coverage[1].p_value
        for seed in range(60)
    ]
    assert 0.3 < np.mean(p_values) < 0.75 and np.mean(np.array(p_values) < 0.05) < 0.15


@pytest.mark.parametrize(("scale", "word"), [(3.0, "too narrow"), (0.2, "too wide")])
def test_bands_that_are_wrong_are_told(scale, word):
    matrix = covariance(5.0)
    found = rolling_forecasts(np.linalg.cholesky(matrix), scale * drawn(matrix), 10, seed=0)
    assert word in found.sentences()[0] and "16 earlier points" in found.sentences()[0]
    right = rolling_forecasts(np.linalg.cholesky(matrix), drawn(matrix), 10, seed=0)
    assert "as many as they should" in right.sentences()[0]


def test_short_series_and_long_horizons():
    assert rolling_forecasts(np.eye(11), np.zeros(11), 3, seed=0) is None
    assert rolling_forecasts(np.eye(12), np.zeros(12), 50, seed=0).horizon == 4
