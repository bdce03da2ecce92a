import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import gpytorch_nkn.plotting as plotting
from gpytorch_nkn.plotting.style import (
    add_periods_above,
    as_array,
    as_list_of_axes,
    as_vectors,
    label_dates,
    put_legend_above,
    wrap_to,
)


def test_every_function_of_the_room_is_exported():
    sources = "\n".join(
        p.read_text(encoding="utf-8") for p in Path(plotting.__file__).parent.glob("*.py")
    )
    defined = {line[4:].split("(")[0] for line in sources.splitlines() if line[:9] == "def plot_"}
    assert defined == {name for name in plotting.__all__ if name.startswith("plot_")}


def test_arrays_come_from_lists_tensors_and_dates():
    np.testing.assert_array_equal(as_array("x", [1, 2]), [1.0, 2.0])
    np.testing.assert_array_equal(as_array("x", torch.ones(2, requires_grad=True)), [1.0, 1.0])
    dates = np.array(["2001-01", "2001-02"], dtype="datetime64[M]")
    assert as_array("x", dates).dtype == dates.dtype
    assert as_array("x", 3, ndim=0).dtype == float


@pytest.mark.parametrize(
    ("values", "options", "match"),
    [
        ([[1.0]], {}, r"x must be a vector .* got shape \(1, 1\)"),
        ([], {}, r"at least one entry, got shape \(0,\)"),
        ([0.0, np.nan, np.inf], {}, r"got 2 values that are not, the first \(nan\) at index 1"),
        ([[1.0, 1.0], [np.inf, 1.0]], {"ndim": 2}, r"the first \(inf\) at index \(1, 0\)"),
        (np.array(["2001", "NaT"], dtype="datetime64[D]"), {}, r"the first \(NaT\) at index 1"),
        ([1.0, 2.0], {"shape": (3,)}, r"shape \(3,\), got \(2,\)"),
    ],
)
def test_bad_arrays_are_named(values, options, match):
    with pytest.raises(ValueError, match=match):
        as_array("x", values, **options)


def test_texts_are_no_numbers():
    with pytest.raises(TypeError, match=r"x must hold real numbers or dates, got dtype <U1"):
        as_array("x", ["a"])


def test_vectors_of_different_length_are_named():
    with pytest.raises(ValueError, match=r"got shapes first \(2,\), second \(1,\)"):
        as_vectors(first=[1, 2], second=[1])


def test_axes_are_counted_and_checked(make_axes):
    axes = make_axes(2, 2)
    assert as_list_of_axes(axes, 4, "part") == list(axes.ravel())
    assert as_list_of_axes(axes[0, 0], 1, "part") == [axes[0, 0]]
    with pytest.raises(ValueError, match="per part is needed, 3 in all, got 4"):
        as_list_of_axes(axes, 3, "part")
    with pytest.raises(TypeError, match="matplotlib Axes, got int, str"):
        as_list_of_axes([1, "a"], 2, "part")


@pytest.mark.parametrize(("width", "rows"), [(9, 1), (4, 2), (2, 4)])
def test_a_legend_takes_as_many_rows_as_the_axes_are_narrow(make_axes, width, rows):
    ax = make_axes(size=(width, 4))
    for label in ("training data", "held-out data", "the mean", "95 % band"):
        ax.plot([0, 1], [0, 1], label=label)
    put_legend_above(ax)
    ax.figure.canvas.draw()
    lines = {round(text.get_window_extent().y0) for text in ax.get_legend().get_texts()}
    assert len(lines) == rows
    assert ax.get_legend().get_window_extent().x1 <= ax.figure.bbox.x1 + 1


def test_long_titles_are_broken_and_cut(make_axes):
    ax = make_axes(size=(4, 3))
    assert wrap_to(ax, "short", 10) == "short"
    lines = wrap_to(ax, "many words " * 60, 10).splitlines()
    assert len(lines) == 3 and lines[-1].endswith("...")


NARROW = [(3.5, days) for days in (0.001, 0.1, 2.9, 45, 89, 600, 1080, 1200, 20_000)]


@pytest.mark.parametrize(("width", "days"), [*NARROW, (9, 89)])
def test_dates_of_any_range_stay_apart(make_axes, no_overlap, width, days):
    ax = make_axes(size=(width, 3))
    x = np.datetime64("1987-11-20T07:03:11") + np.array([0, int(86400 * days)])
    ax.plot(x, [0, 1])
    label_dates(ax, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        no_overlap(ax.figure)
    assert len(ax.get_xticks()) >= 2


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_periods_stand_above_their_frequencies(ax, scale, no_overlap):
    ax.plot([0.01, 0.5], [1, 2])
    ax.set_xscale(scale)
    ax.set_xlim(0.0 if scale == "linear" else 0.01, 0.5)
    ax.tick_params(axis="x", which="minor", labelbottom=False)
    add_periods_above(ax, "month")
    (top,) = ax.child_axes
    for place, text in zip(top.get_xticks(), top.get_xticklabels(), strict=True):
        assert float(text.get_text()) * place == pytest.approx(1)
    assert "2" in [text.get_text() for text in top.get_xticklabels()]
    assert top.get_xlabel() == "period (month)"
    no_overlap(ax.figure)
    ax.set_xlim(0.1, 0.3)  # the periods follow
    ax.figure.canvas.draw()
    assert top.get_xlim() == ax.get_xlim()
