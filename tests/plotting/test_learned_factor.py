import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.contour import QuadContourSet

from gpytorch_nkn.plotting import plot_decision_boundary, plot_hadamard_factor


class Disc:
    """Second class within a radius."""

    def __init__(self, radius, classes=("out", "in"), with_values=True):
        self.radius, self.classes_ = radius, np.array(classes)
        if with_values:
            self.decision_function = self._values

    def _values(self, X):
        return self.radius - np.linalg.norm(X, axis=1)

    def predict(self, X):
        return self.classes_[(self._values(X) > 0).astype(int)]


class Thirds:
    classes_ = np.array([0, 1, 2])

    def predict(self, X):
        return np.digitize(X[:, 0], [-0.5, 0.5])


@pytest.fixture
def square():
    X = np.random.default_rng(0).uniform(-1, 1, (80, 2))
    X[:2] = [[-1, -1], [1, 1]]
    return X


def contours(ax):
    return [item for item in ax.collections if isinstance(item, QuadContourSet)]


def vertices(contour):
    return np.concatenate([path.vertices for path in contour.get_paths()])


@pytest.mark.parametrize(("with_values", "accuracy"), [(True, 1e-3), (False, 0.03)])
def test_boundaries_are_where_the_class_changes(ax, square, no_overlap, with_values, accuracy):
    machines = {
        "base machine": Disc(0.5, with_values=with_values),
        "learned": Disc(0.8, with_values=with_values),
    }
    y = machines["learned"].predict(square)
    assert plot_decision_boundary(ax, machines, square, y, x_label="u", y_label="v") is ax
    base, learned = contours(ax)
    for contour, radius in ((base, 0.5), (learned, 0.8)):
        found = np.linalg.norm(vertices(contour), axis=1)
        np.testing.assert_allclose(found, radius, atol=accuracy)
        assert len(found) > 100
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert [lines[name].get_linestyle() for name in machines] == ["--", "-"]
    assert lines["learned"].get_color() != lines["base machine"].get_color()
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["in", "out", "base machine", "learned"]
    dots = [item for item in ax.collections if isinstance(item, PathCollection)]
    for points, name in zip(dots, ("in", "out"), strict=True):
        np.testing.assert_array_equal(points.get_offsets(), square[y == name])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("u", "v")
    np.testing.assert_allclose([*ax.get_xlim(), *ax.get_ylim()], [-1.1, 1.1, -1.1, 1.1])
    no_overlap(ax.figure)


def test_more_classes_have_a_boundary_each(ax, square):
    plot_decision_boundary(ax, {"thirds": Thirds()}, square, Thirds().predict(square))
    first, second, third = (np.unique(np.sign(vertices(c)[:, 0])) for c in contours(ax))
    assert (list(first), list(second), list(third)) == ([-1], [-1, 1], [1])
    for contour in contours(ax):
        np.testing.assert_allclose(np.abs(vertices(contour)[:, 0]), 0.5, atol=0.02)


def test_a_classifier_of_one_mind_has_no_boundary(ax, square):
    y = np.where(square[:, 0] > 0, "in", "out")
    plot_decision_boundary(ax, {"all": Disc(9.0)}, square, y)
    assert not contours(ax)


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


@pytest.mark.parametrize(
    ("limit", "extend"), [(0.8, "neither"), (0.75, "min"), (0.1, "both"), (None, "neither")]
)
def test_a_colour_bar_tells_of_what_is_beyond(ax, factor, limit, extend):
    plot_hadamard_factor(ax, factor, limit=limit)
    (image,) = ax.images
    assert image.colorbar.extend == extend
    np.testing.assert_array_equal(image.get_array(), factor)


def test_numbers_sort_without_groups_and_ones_are_white(ax):
    factor = np.ones((20, 20))
    factor[3, 3] = 1.00001
    keys = np.arange(20.0)[::-1]
    plot_hadamard_factor(ax, factor, sort_by=keys)
    (image,) = ax.images
    assert image.get_array()[16, 16] == 1.00001 and not ax.get_lines()
    ax.figure.canvas.draw()
    labels = [float(t.get_text()) for t in image.colorbar.ax.get_yticklabels()]
    assert 1.0 in labels and min(labels) == pytest.approx(0.99999, abs=1e-9)  # without an offset
    ax.clear()
    plot_hadamard_factor(ax, np.ones((2, 2)))
    assert ax.images[0].get_clim()[0] < 1 < ax.images[0].get_clim()[1]
