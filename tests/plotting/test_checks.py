import numpy as np
import pytest
from scipy.stats import binom

from gpytorch_nkn.plotting import (
    plot_autocorrelation,
    plot_calibration,
    plot_periodogram,
    plot_qq,
)

X = np.arange(1.0, 7.0)
LOW, HIGH = X - 0.5, X + 0.5
OBSERVED = X + np.array([0.0, 0.4, 0.6, -0.4, -0.6, 0.0])


@pytest.mark.parametrize("plot", [plot_qq, plot_autocorrelation, plot_periodogram])
def test_what_is_outside_the_band_is_told_apart(ax, line_data, no_overlap, plot):
    shuffled = np.array([3, 0, 5, 1, 4, 2])
    drawn = plot(ax, *(v[shuffled] for v in (X, OBSERVED, LOW, HIGH)))
    assert drawn is ax
    np.testing.assert_array_equal(line_data(ax, "outside")[0], [3, 5])
    np.testing.assert_array_equal(line_data(ax, "outside")[1], OBSERVED[[2, 4]])
    np.testing.assert_array_equal(line_data(ax, "observed")[1], OBSERVED[[0, 1, 3, 5]])
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "95 % interval" in texts
    band = ax.collections[0].get_datalim(ax.transData)
    assert (band.y0, band.y1) == (0.5, 6.5)
    no_overlap(ax.figure)


def test_a_periodogram_with_zeros_is_drawn_on_a_logarithmic_scale(ax, line_data):
    observed, lower = OBSERVED.copy(), LOW.copy()
    observed[0] = lower[0] = lower[1] = 0.0
    plot_periodogram(ax, X / 12, observed, lower, HIGH, x_label="month")
    assert ax.get_yscale() == "log"
    assert line_data(ax, "observed")[1][0] == HIGH.min()  # the smallest number above zero
    assert ax.get_xlabel() == "frequency (cycles per month)"


def test_the_calibration_band_is_binomial_for_all_levels_together(ax, line_data, no_overlap):
    levels = np.array([0.2, 0.5, 0.8])
    low, high = binom.interval(1 - 0.05 / 3, 50, 0.5)
    coverage = np.array([0.2, (low - 1) / 50, 0.8])
    plot_calibration(ax, levels, coverage, num_points=50)
    assert line_data(ax, "outside") == (0.5, coverage[1])
    band = ax.collections[0].get_paths()[0].vertices
    at_half = np.unique(band[np.isclose(band[:, 0], 0.5), 1])
    np.testing.assert_allclose(at_half, [low / 50, high / 50])
    no_overlap(ax.figure)
