"""How the restarts of a fit came down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpytorch_nkn.plotting.style import GRAY, ORANGE, finish, put_legend_above

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gpytorch_nkn.fit import FitResult, RestartRecord

__all__ = ["plot_convergence"]

_PALE = "#8fa9c6"
_LINEAR = 0.1  # nats: smaller differences mean nothing, and zero has no logarithm


def plot_convergence(ax: Axes, result: FitResult) -> Axes:
    """Draw the lowest loss so far of every restart above the lowest loss of all of them.

    The scale is logarithmic down to 0.1 nats and linear below, so that zero has its place. A dot
    shows where a restart ended, a cross where it failed. The chosen restart stands out; if the
    criterion is not the likelihood, it need not be the one with the lowest loss.

    Args:
        ax: Axes to draw on.
        result: The record of a fit.

    Returns:
        The same axes.

    Raises:
        ValueError: No restart has a finite loss in its trace.
    """
    traces = {record.number: np.asarray(record.trace, dtype=float) for record in result.restarts}
    finite = {number: np.isfinite(trace) for number, trace in traces.items()}
    lowest = min(
        (traces[number][kept].min() for number, kept in finite.items() if kept.any()), default=None
    )
    if lowest is None:
        lengths = [trace.size for trace in traces.values()]
        raise ValueError(
            f"At least one restart must have a finite loss, got traces of lengths {lengths} "
            "without any."
        )
    used: set[str] = set()
    for record in sorted(result.restarts, key=lambda record: record.number == result.best):
        kept = finite[record.number]
        if not kept.any():
            continue
        evaluations = 1 + np.flatnonzero(kept)
        gap = traces[record.number][kept] - lowest
        label, style = _look(record, result)
        (line,) = ax.plot(evaluations, gap, label="_" if label in used else label, **style)
        ax.plot(
            evaluations[-1:],
            gap[-1:],
            color=line.get_color(),
            marker="x" if record.failed else "o",
            markersize=5,
            label="_end",
            zorder=line.get_zorder(),
            clip_on=False,
        )
        used.add(label)
    _set_axes(ax)
    put_legend_above(ax)
    return ax


def _look(record: RestartRecord, result: FitResult) -> tuple[str, dict]:
    if record.number == result.best:
        return f"restart {record.number}, chosen", {"color": ORANGE, "linewidth": 2, "zorder": 3}
    if record.failed:
        return "failed restarts", {"color": GRAY, "linewidth": 1, "linestyle": (0, (2, 2))}
    return "other restarts", {"color": _PALE, "linewidth": 1.2}


def _set_axes(ax: Axes) -> None:
    finish(ax, "evaluations of the loss", "loss above the lowest (nats)")
    ax.set_yscale("symlog", linthresh=_LINEAR, linscale=0.5)
    top = max(ax.dataLim.y1, _LINEAR)
    decades = 10.0 ** np.arange(np.log10(_LINEAR), np.ceil(np.log10(top)) + 1)
    step = 1 + len(decades) // 7
    ticks = [0.0, *decades[::step]]
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.set_ylim(0, 1.6 * top)
    ax.set_xlim(0, 1.03 * max(ax.dataLim.x1, 5))
