import numpy as np
from scipy.stats import binom

from gpytorch_nkn.plotting import plot_calibration


def test_the_calibration_interval_is_binomial_for_all_levels_together(ax, line_data, no_overlap):
    levels = np.array([0.2, 0.5, 0.8])
    low, high = binom.interval(1 - 0.05 / 3, 50, 0.5)
    coverage = np.array([0.2, (low - 1) / 50, 0.8])
    plot_calibration(ax, levels, coverage, num_points=50)
    assert line_data(ax, "outside") == (0.5, coverage[1])
    band = ax.collections[0].get_paths()[0].vertices
    at_half = np.unique(band[np.isclose(band[:, 0], 0.5), 1])
    np.testing.assert_allclose(at_half, [low / 50, high / 50])
    no_overlap(ax.figure)
