"""The losses of the restarts of a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpytorch_nkn.plotting.style import GRAY, ORANGE, finish, put_legend_above

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gpytorch_nkn.fit import FitResult

__all__ = ["plot_convergence"]

_PALE = "#8fa9c6"
_LINEAR = 0.1  # nats: smaller differences mean nothing, and zero has no logarithm


def plot_convergence(ax: Axes, result: FitResult) -> Axes:
    """Draw the lowest loss so far of every restart above the lowest loss of all of them.

    The scale is logarithmic down to 0.1 nats and linear below. A dot shows where a restart ended,
    a cross where it failed. If the criterion is not the likelihood, the chosen restart, which
    stands out, need not be the one with the lowest loss.

    Args:
        ax: Axes to draw on.
        result: The record of a fit.
    """
    traces = {record.number: np.asarray(record.trace, dtype=float) for record in result.restarts}
    finite = np.concatenate([trace[np.isfinite(trace)] for trace in traces.values()])
    if not finite.size:
        lengths = [trace.size for trace in traces.values()]
        raise ValueError(
            f"At least one restart must have a finite loss, got traces of lengths {lengths} "
            "without any."
        )
    used: set[str] = set()
    for record in sorted(result.restarts, key=lambda record: record.number == result.best):
        kept = np.isfinite(traces[record.number])
        if not kept.any():
            continue
        evaluations, gap = 1 + np.flatnonzero(kept), traces[record.number][kept] - finite.min()
        label = "other restarts"
        style: dict[str, Any] = {"color": _PALE, "linewidth": 1.2}
        if record.number == result.best:
            label = f"restart {record.number}, chosen"
            style = {"color": ORANGE, "linewidth": 2, "zorder": 3}
        elif record.failed:
            label, style = "failed restarts", {"color": GRAY, "linewidth": 1, "linestyle": ":"}
        ax.plot(evaluations, gap, label="_" if label in used else label, **style)
        end: dict[str, Any] = {"marker": "x" if record.failed else "o", "markersize": 5}
        ax.plot(evaluations[-1:], gap[-1:], label="_end", clip_on=False, **(style | end))
        used.add(label)
    finish(ax, "evaluations of the loss", "loss above the lowest (nats)")
    ax.set_yscale("symlog", linthresh=_LINEAR, linscale=0.5)
    top = max(ax.dataLim.y1, _LINEAR)
    decades = 10.0 ** np.arange(np.log10(_LINEAR), np.ceil(np.log10(top)) + 1)
    ticks = [0.0, *decades[:: 1 + len(decades) // 7]]
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.set(ylim=(0, 1.6 * top), xlim=(0, 1.03 * max(ax.dataLim.x1, 5)))
    put_legend_above(ax)
    return ax
