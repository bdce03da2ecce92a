from types import SimpleNamespace

import numpy as np
import pytest

from gpytorch_nkn.plotting import plot_acquisition, plot_one_step_ahead, plot_progress

VALUES = [1.0, 3.0, 2.0, 4.0]


def slices(acquisition=True):
    grid = np.linspace(0, 1, 5)
    return [
        SimpleNamespace(
            name=name,
            grid=grid,
            mean=scale * grid,
            lower=scale * grid - 1,
            upper=scale * grid + 1,
            acquisition=np.array([-np.inf, 0.0, 1, 2, 1]) if acquisition else None,
            best=0.2,
            best_mean=scale * 0.2,
            candidates=np.array([0.6, 0.7]),
            candidate_means=np.array([scale * 0.6, 7.5]),
        )
        for name, scale in (("heat", 1), ("flow", 5))
    ]


def test_progress_is_the_best_value_so_far(ax, line_data):
    assert plot_progress(ax, VALUES, num_initial=2) is ax
    x, best = line_data(ax, "best so far")
    assert x.tolist() == [1, 2, 3, 4] and best.tolist() == [1, 3, 3, 4]
    assert line_data(ax, "evaluations")[1].tolist() == VALUES


def test_errors_beyond_five_deviations_are_drawn_at_the_edge(ax, line_data):
    plot_one_step_ahead(ax, [0.1, -3.0, np.inf, -1.0], num_initial=1)
    assert line_data(ax, "inside")[0].tolist() == [1, 4]
    assert line_data(ax, "outside")[1].tolist() == [-3, 5]
    with pytest.raises(ValueError, match="z_scores"):
        plot_one_step_ahead(ax, [np.nan])


def test_slices_share_limits_and_acquisition_its_scale(make_axes):
    axes = make_axes(1, 2, (8, 3))
    assert plot_acquisition(axes, slices()) is axes
    assert axes[0].get_ylim() == axes[1].get_ylim() and axes[0].get_ylim()[1] > 7.5
    (best,) = [
        line for line in axes[1].lines if line.get_marker() == "o" and line.get_markersize() > 5
    ]
    (ahead,) = [line for line in axes[1].lines if line.get_marker() == "D"]
    assert best.get_xydata().tolist() == [[0.2, 1.0]]
    assert ahead.get_xydata().tolist() == [[0.6, 3.0], [0.7, 7.5]]
    # bars, for nothing lies between a few positions
    heights = [max(bar.get_y() + bar.get_height() for bar in ax.patches) for ax in axes]
    assert heights[0] == pytest.approx(heights[1])
    assert heights[0] < -1  # below the intervals
    assert [ax.get_xlabel() for ax in axes] == ["heat", "flow"]
    without = make_axes(1, 2, (8, 3))
    plot_acquisition(without, slices(acquisition=False))
    assert len(without[0].collections) == 1
    with pytest.raises(ValueError, match="one Axes per slice"):
        plot_acquisition(make_axes(), slices())
    with pytest.raises(ValueError, match="At least one"):
        plot_acquisition(make_axes(), [])


def categories(**changes):
    fields = {
        "name": "kernel",
        "grid": np.array([-1.0, 2.0, 4.0]),
        "levels": ("none", "linear", "rbf"),
        "mean": np.array([2.0, 1.0, 3.0]),
        "lower": np.array([1.0, 0.0, 2.0]),
        "upper": np.array([3.0, 2.0, 5.0]),
        "acquisition": np.array([2.0, 1.0, 0.0]),
        "best": 4.0,
        "best_mean": 2.5,
        "candidates": np.array([2.0]),
        "candidate_means": np.array([1.0]),
    }
    return SimpleNamespace(**(fields | changes))


def test_categories_are_points_in_the_order_of_their_codes(make_axes, line_data):
    first, second = make_axes(1, 2, (8, 3))
    plot_acquisition([first, second], [categories(), slices()[0]])
    assert [text.get_text() for text in first.get_xticklabels()] == ["none", "linear", "rbf"]
    means = next(line for line in first.lines if line.get_marker() == "o")
    np.testing.assert_array_equal(means.get_xydata(), [(0, 2), (1, 1), (2, 3)])
    ends = [path.vertices[:, 1].tolist() for path in first.collections[0].get_paths()]
    assert ends == [[1, 3], [0, 2], [2, 5]]
    assert line_data(first, "best so far")[0].tolist() == [2]
    heights = [bar.get_height() for bar in first.patches]  # none lies lowest, at the 5 % quantile
    assert heights[0] > heights[1] > heights[2] >= 0


def test_the_best_so_far_keeps_the_constraints(ax, make_axes, line_data):
    kept = [False, True, True, False]
    plot_progress(ax, VALUES, feasible=kept)
    x, best = line_data(ax, "best so far")
    assert x.tolist() == [2, 3, 4] and best.tolist() == [3, 3, 3]
    assert line_data(ax, "evaluations")[1].tolist() == [3, 2]
    assert line_data(ax, "infeasible")[1].tolist() == [1, 4]
    nothing = plot_progress(make_axes(), VALUES, feasible=[False] * 4)
    assert not len(line_data(nothing, "best so far")[0])
    for wrong in (kept[:3], [0, 1, 1, 0]):
        with pytest.raises(ValueError, match="feasible must be 4 booleans, got"):
            plot_progress(ax, VALUES, feasible=wrong)
