import warnings

import numpy as np
import pytest

from gpytorch_nkn.plotting.style import (
    label_dates,
    put_legend_above,
)


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


NARROW = [(3.5, days) for days in (0.1, 45, 600, 20_000)]


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
