from types import SimpleNamespace

import numpy as np

from gpytorch_nkn.fit import RestartRecord
from gpytorch_nkn.plotting import plot_convergence


def record(number, trace, status="ok"):
    trace = np.asarray(trace, dtype=float)
    return RestartRecord(number, "data", 0.0, 0.0, len(trace), 1.0, status, trace)


def curves(ax):
    return [line for line in ax.get_lines() if line.get_label() != "_end"]


def test_curves_are_the_traces_above_the_lowest_loss(ax):
    restarts = [
        record(0, [np.inf, 7.0, 5.0]),
        record(1, [9.0, 2.0], "failed: on purpose"),
        record(2, [4.0, 3.5]),
        record(3, [], "failed: at once"),
        record(4, [6.0]),
    ]
    assert plot_convergence(ax, SimpleNamespace(restarts=restarts, best=2)) is ax
    lines = curves(ax)
    np.testing.assert_array_equal(lines[0].get_xydata(), [(2, 5), (3, 3)])
    np.testing.assert_array_equal(lines[1].get_xydata(), [(1, 7), (2, 0)])
    np.testing.assert_array_equal(lines[-1].get_xydata(), [(1, 2), (2, 1.5)])
    assert lines[-1].get_linewidth() > max(line.get_linewidth() for line in lines[:-1])
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["other restarts", "failed restarts", "restart 2, chosen"]
    markers = [line.get_marker() for line in ax.get_lines() if line.get_label() == "_end"]
    assert sorted(markers) == ["o", "o", "o", "x"]
