from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.collections import QuadMesh

from gpytorch_nkn.plotting import plot_effects

A, B = np.linspace(-1, 1, 11), np.linspace(0, 4, 7)


def curve(**changes):
    mean = A**3
    fields = {
        "label": "alcohol",
        "names": ("alcohol (%)",),
        "grid": (A,),
        "mean": mean,
        "lower": mean - 1,
        "upper": mean + 2,
        "data": (np.array([0.0, 0.5]), np.array([1.0, -1.0])),
        "share": 0.423,
    }
    return SimpleNamespace(**(fields | changes))


def surface(**changes):
    mean = np.outer(A, B)
    fields = {
        "label": "alcohol and sulphates",
        "names": ("alcohol (%)", "sulphates (g/l)"),
        "grid": (A, B),
        "mean": mean,
        "lower": mean - 1,
        "upper": mean + 1,
        "data": (np.array([[0.0, 1.0], [0.5, 3.0]]), np.zeros(2)),
        "share": 0.05,
    }
    return SimpleNamespace(**(fields | changes))


def test_one_column_is_a_curve_with_interval_and_points(ax):
    assert plot_effects(ax, [curve()], y_label="quality") is ax
    line, points, zero = ax.get_lines()
    np.testing.assert_allclose(line.get_xydata(), np.column_stack([A, A**3]))
    assert zero.get_ydata() == [0, 0]
    np.testing.assert_array_equal(points.get_xydata(), [(0, 1), (0.5, -1)])
    assert ax.collections[0].get_datalim(ax.transData).intervaly == pytest.approx([-2, 3])
    assert ax.get_title(loc="left") == "alcohol (42.3 %)"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("alcohol (%)", "quality")


def test_two_columns_are_a_surface_around_zero_with_a_colour_bar(ax):
    plot_effects(ax, [surface(grid=(torch.as_tensor(A), B))], y_label="quality")
    (mesh,) = [c for c in ax.collections if isinstance(c, QuadMesh)]
    np.testing.assert_array_equal(mesh.get_array(), np.outer(A, B).T)
    corners = mesh.get_coordinates()  # the highest value lies at the right and above
    assert corners[-1, -1].tolist() == [1, 4] and mesh.get_clim() == (-4, 4)
    bar = mesh.colorbar.ax
    assert bar.get_ylabel() == "quality" and bar.figure is ax.figure
    bar.figure.canvas.draw()  # the bar is within the place of the axes
    assert bar.get_position().x1 < ax.get_position(original=True).x1
    np.testing.assert_allclose(mesh.cmap(0.5)[:3], [0.97] * 3, atol=0.03)  # zero is white
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("alcohol (%)", "sulphates (g/l)")


def test_categories_are_points_with_intervals(ax):
    mean, data = [-1.0, 0.0, 1.0], ([7.0, -2.0, 3.0], [1.0, 2.0, 3.0])
    effect = curve(
        grid=([-2, 3, 7],), levels=(("ash", "oak", "elm"),), mean=mean, data=data,
        lower=[-3.0, -1.0, 0.5], upper=[0.0, 1.0, 2.0],
    )  # fmt: skip
    plot_effects(ax, [effect])
    assert [text.get_text() for text in ax.get_xticklabels()] == ["ash", "oak", "elm"]
    means, points, _ = ax.get_lines()
    np.testing.assert_array_equal(means.get_xydata(), [(0, -1), (1, 0), (2, 1)])
    ends = [path.vertices[:, 1].tolist() for path in ax.collections[0].get_paths()]
    assert ends == [[-3, 0], [-1, 1], [0.5, 2]]
    x, y = points.get_data()
    assert np.floor(x).tolist() == [2, 0, 1] and y.tolist() == [1, 2, 3]  # beside their means
    assert ax.get_xlim() == (-0.5, 2.5)


@pytest.mark.parametrize("both", [True, False])
def test_pairs_with_categories_are_cells(ax, both):
    mean = np.array([[3.0, 1.0, 0.5], [-4.0, 2.0, 0.0]])
    first = [2.0, 5.0] if both else [0.5, 1.5]
    effect = surface(
        grid=(first, [0.0, 1.0, 2.0]), levels=(("a", "b") if both else None, ("x", "y", "z")),
        mean=mean, lower=mean - 1, upper=mean + 1,
        data=([[first[0], 1.0], [first[1], 2.0]], [0.0, 0.0]),
    )  # fmt: skip
    plot_effects(ax, [effect], y_label="quality")
    (mesh,) = [c for c in ax.collections if isinstance(c, QuadMesh)]
    np.testing.assert_array_equal(mesh.get_array(), mean.T)
    assert mesh.get_clim() == (-4, 4) and mesh.colorbar.ax.get_ylabel() == "quality"
    assert [text.get_text() for text in ax.get_yticklabels()] == ["x", "y", "z"]
    if both:
        assert [text.get_text() for text in ax.get_xticklabels()] == ["a", "b"]
