import numpy as np
import pytest

from gpytorch_nkn.plotting import plot_hadamard_factor


@pytest.fixture
def factor():
    return 1 + 0.1 * np.arange(-8, 8.0).reshape(4, 4)


def test_rows_are_sorted_and_one_is_in_the_middle_of_the_colours(ax, factor, no_overlap):
    assert plot_hadamard_factor(ax, factor, sort_by=["b", "a", "b", "a"], label="class") is ax
    (image,) = ax.images
    order = [1, 3, 0, 2]
    np.testing.assert_allclose(image.get_array(), factor[np.ix_(order, order)])
    np.testing.assert_allclose(image.get_clim(), [0.2, 1.8])
    white = np.array(image.cmap(image.norm(1.0)))
    assert white.min() > 0.95
    assert [t.get_text() for t in ax.get_xticklabels()] == ["a", "b"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b"]
    np.testing.assert_allclose(ax.get_xticks(), [0.5, 2.5])
    assert [line.get_xdata()[0] for line in ax.get_lines()][1] == 1.5
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("class", "class")
    no_overlap(ax.figure)
