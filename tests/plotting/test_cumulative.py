import numpy as np
from matplotlib.colors import to_rgba

from gpytorch_nkn.plotting import plot_cumulative
from gpytorch_nkn.plotting.style import BLUE


def bars(ax, chosen):
    """Left and right ends by row of the bars that a condition on the colour chooses."""
    found = {}
    for patch in ax.patches:
        if chosen(patch.get_facecolor()):
            row = round(patch.get_y() + patch.get_height() / 2)
            found[row] = (patch.get_x(), patch.get_x() + patch.get_width())
    return [found[row] for row in sorted(found)]


def test_blue_is_what_a_part_adds_and_pale_what_came_before(ax):
    drawn = plot_cumulative(ax, ["a", "b", "c"], [0.5, 0.9, 0.85])
    assert drawn is ax
    added = bars(ax, lambda color: color == to_rgba(BLUE))
    np.testing.assert_allclose(added, [(0, 0.5), (0.5, 0.9), (0.9, 0.9)])
    lost = bars(ax, lambda color: color[3] == 0)
    np.testing.assert_allclose(lost, [(0.85, 0.9)])
    pale = bars(ax, lambda color: color[3] == 1 and color != to_rgba(BLUE))
    np.testing.assert_allclose(pale, [(0, 0), (0, 0.5), (0, 0.85)])
    assert [text.get_text() for text in ax.texts] == ["50.0 %", "90.0 %", "85.0 %"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b", "c"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # read from top to bottom
