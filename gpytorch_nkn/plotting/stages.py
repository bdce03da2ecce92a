"""Layers of units side by side, each unit a thumbnail, with the connections between them."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gpytorch_nkn.plotting.style import BLUE, GRAY, ORANGE, PALETTE, size_in_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Stage", "choose_units", "draw_stages"]

# Layers stand one unit apart, and the units of the widest one stand one unit apart.
_WIDTH, _HEIGHT = 0.5, 0.76  # of a thumbnail
_SMALLEST = 0.02  # relative contributions below it are left out
_CONSTANT = 0.1  # relative constants below it are left out
_SIGN = 0.11  # distance of a multiplication sign from its unit
_PALE = 0.3  # opacity of what leads into pale units
_LANE, _NOTE = 3.2, 14.0  # points that a connection below the layers takes, and a line of text
_PAST = PALETTE[2]
_FRAME = "#9aa5b1"


@dataclass
class Stage:
    """The units of one layer.

    Attributes:
        head: What stands above.
        shares: Contributions ``U x C`` of the units that come in, as shares of them all and the
            constant; for a product, where its factors are.
        constants: Shares ``U`` of the constant.
        skipped: Contributions ``U x P`` of units of the first layer that come in past the layers
            between, likewise; ``U x 0`` where there are none.
        is_product: Whether the units are products.
        slices: Values ``U x N`` of ``k(x, x0)``.
        importance: Shares ``U`` of the output, set by :func:`choose_units`.
        shown: Numbers of the units that are drawn, likewise.
    """

    head: str
    shares: np.ndarray
    constants: np.ndarray
    skipped: np.ndarray = field(default_factory=lambda: np.empty((1, 0)))
    is_product: bool = False
    slices: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    importance: np.ndarray = field(default_factory=lambda: np.empty(0))
    shown: tuple[int, ...] = ()

    @property
    def is_pale(self) -> np.ndarray:
        """Whether units hardly count for the output, ``U``."""
        return self.importance < _SMALLEST


def choose_units(stages: list[Stage], max_units: int) -> None:
    """Rate units from the output backwards, and choose those that are drawn.

    A factor counts as much as its product, and what comes into a sum by its share of it. The
    factors of a product are drawn together or not at all, where ``max_units`` allows that.
    """
    importance = np.ones(len(stages[-1].shares))
    past_layers = np.zeros(len(stages[0].shares))
    group = 1  # units that belong together
    for stage in reversed(stages):
        if stage.skipped.size:
            past_layers = importance @ _uses(stage, stage.skipped)
        stage.importance = importance + (past_layers if stage is stages[0] else 0)
        of_groups = stage.importance.reshape(-1, group).max(1)
        chosen = np.argsort(-of_groups, kind="stable")[: max_units // group]
        members = np.arange(len(importance)).reshape(-1, group)[chosen].ravel()
        stage.shown = tuple(sorted(members.tolist()))
        importance = importance @ _uses(stage, stage.shares)
        group = stage.shares.shape[1] // len(stage.shares) if stage.is_product else 1
        group = group if group <= max_units else 1


def _uses(stage: Stage, shares: np.ndarray) -> np.ndarray:
    """How much of a unit's importance what comes in has."""
    return (shares > 0) if stage.is_product else shares


def draw_stages(ax: Axes, stages: list[Stage], labels: list[str]) -> None:
    """Draw layers from left to right.

    Args:
        ax: Axes to draw on; its frame and ticks are removed.
        stages: Layers whose units have been chosen.
        labels: Names of all units of the first layer.
    """
    rows = max(len(stage.shown) for stage in stages)
    ax.set_axis_off()
    ax.set_xlim(-0.5 * _WIDTH - 0.02, len(stages) - 1 + 0.6 * _WIDTH)
    passing = _passing(stages)
    above, below = _points_below(ax, stages, len(passing))
    height = size_in_points(ax)[1]
    ax.set_ylim(rows * height / (height - above - below), 0)
    boxes = [_boxes(ax, stage, place, rows) for place, stage in enumerate(stages)]
    for number in range(1, len(stages)):
        _draw_connections(ax, stages[number - 1], stages[number], *boxes[number - 1 : number + 1])
    if passing:
        per_row = _scales(ax)[1]
        low, high = rows + above / per_row, rows + (above + below - _NOTE) / per_row
        _draw_passing(ax, stages, boxes, passing, low, high)
    size = float(np.clip(0.27 * size_in_points(ax)[1] / rows, 5.5, 9.0))
    for number, (stage, box) in enumerate(zip(stages, boxes, strict=True)):
        last = number == len(stages) - 1
        _draw_units(ax, stage, box, ORANGE if last else BLUE)
        ax.annotate(
            stage.head,
            (number, 0),
            xytext=(0, 5),
            textcoords="offset points",
            annotation_clip=False,
            ha="center",
            va="bottom",
            fontsize=size + 1,
            color=GRAY,
        )
        hidden = len(stage.shares) - len(stage.shown)
        if hidden:
            ax.annotate(
                f"and {hidden} more",
                (number, rows),
                xytext=(0, -4),
                textcoords="offset points",
                annotation_clip=False,
                ha="center",
                va="top",
                fontsize=size,
                color=GRAY,
            )
    for unit, middle in zip(stages[0].shown, boxes[0].middles, strict=True):
        ax.annotate(
            textwrap.fill(labels[unit], 18, max_lines=2, placeholder=" ..."),
            (-0.5 * boxes[0].width, middle),
            xytext=(-5, 0),
            textcoords="offset points",
            annotation_clip=False,
            ha="right",
            va="center",
            fontsize=size,
        )


def _passing(stages: list[Stage]) -> list[int]:
    """Units of the first layer whose connections past the others are drawn, from above."""
    skipped = stages[-1].skipped
    if not skipped.size:
        return []
    strongest = max(skipped.max(), stages[-1].shares.max())
    return [unit for unit in stages[0].shown if skipped[:, unit].max() >= _SMALLEST * strongest]


def _points_below(ax: Axes, stages: list[Stage], lanes: int) -> tuple[float, float]:
    """Points that notes on hidden units take below the layers, and lanes with their name."""
    if not lanes:
        return 0.0, 0.0
    hides = any(len(stage.shares) > len(stage.shown) for stage in stages)
    room = 0.3 * size_in_points(ax)[1]
    return (1.5 * _NOTE if hides else 0.0), min(room, lanes * _LANE + 1.5 * _NOTE)


@dataclass
class _Boxes:
    """Where the thumbnails of a layer stand."""

    place: float
    middles: np.ndarray
    width: float
    height: float

    @property
    def left(self) -> float:
        return self.place - self.width / 2

    @property
    def right(self) -> float:
        return self.place + self.width / 2


def _boxes(ax: Axes, stage: Stage, place: float, rows: int) -> _Boxes:
    """Units spread evenly; thumbnails grow a little where there are few of them."""
    count = len(stage.shown)
    room = rows / count
    growth = min(room, 1.7) ** 0.5
    width = _WIDTH * min(growth, 1.15)
    per_column, per_row = _scales(ax)
    # not taller than wide, whatever the shape of the axes
    height = min(_HEIGHT * growth, 0.9 * width * per_column / per_row)
    return _Boxes(place, (np.arange(count) + 0.5) * room, width, height)


def _scales(ax: Axes) -> tuple[float, float]:
    """Points per unit in both directions."""
    width, height = size_in_points(ax)
    left, right = ax.get_xlim()
    bottom, top = ax.get_ylim()
    return width / abs(right - left), height / abs(top - bottom)


def _draw_connections(
    ax: Axes, before: Stage, stage: Stage, sources: _Boxes, targets: _Boxes
) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    segments, widths, colors = [], [], []
    for unit, y in zip(stage.shown, targets.middles, strict=True):
        contributions = stage.shares[unit]
        opacity = _PALE if stage.is_pale[unit] else 1.0
        strongest = max([*contributions, *(stage.skipped[unit] if stage.skipped.size else ())])
        strongest = strongest or 1.0
        end = targets.left - (_SIGN if stage.is_product else 0)
        weakest_first = sorted(
            zip(before.shown, sources.middles, strict=True), key=lambda pair: contributions[pair[0]]
        )
        for source, start in weakest_first:
            strength = contributions[source] / strongest
            if strength < _SMALLEST:
                continue
            segments.append([(sources.right, start), (end, y)])
            widths.append(0.8 if stage.is_product else 0.3 + 2.5 * strength)
            color = GRAY if stage.is_product else BLUE
            own = 0.8 if stage.is_product else 0.06 + 0.74 * strength**1.5
            colors.append(to_rgba(color, opacity * own))
        if stage.is_product and any(contributions[source] for source in before.shown):
            segments.append([(end, y), (targets.left, y)])
            widths.append(0.8)
            colors.append(to_rgba(GRAY, opacity * 0.8))
            _draw_sign(ax, end, y, opacity)
        constant = min(stage.constants[unit] / strongest, 1.0)
        if constant >= _CONSTANT:
            low = y + 0.5 * targets.height
            segments.append([(targets.left - 0.07, low), (targets.left, low - 0.12)])
            widths.append(0.3 + 2.5 * constant)
            colors.append(to_rgba(GRAY, opacity * (0.5 + 0.4 * constant)))
            ax.annotate(
                "c",
                (targets.left - 0.07, low),
                xytext=(-1, 0),
                textcoords="offset points",
                annotation_clip=False,
                ha="right",
                va="center",
                fontsize=7,
                color=to_rgba(GRAY, 0.5 + 0.5 * opacity),
                bbox={"boxstyle": "circle,pad=0.1", "facecolor": "white", "linewidth": 0},
            )
    ax.add_collection(
        LineCollection(segments, linewidths=widths, colors=colors, zorder=1), autolim=False
    )


def _draw_passing(
    ax: Axes, stages: list[Stage], boxes: list[_Boxes], passing: list[int], low: float, high: float
) -> None:
    """Curves from the first layer to the last one, in lanes below those between."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    first, last = boxes[0], boxes[-1]
    target = stages[-1]
    (shares,), (end,) = target.skipped, last.middles
    strongest = max(shares.max(), target.shares.max())
    middles = dict(zip(stages[0].shown, first.middles, strict=True))
    curves, widths, colors = [], [], []
    for unit, lane in zip(passing, np.linspace(low, high, len(passing) + 2)[1:-1], strict=True):
        strength = 1.0 if target.is_product else shares[unit] / strongest
        down = _bend((first.right, middles[unit]), (boxes[1].left, lane))
        arrival = last.left - (_SIGN if target.is_product else 0)
        up = _bend((boxes[-2].right, lane), (arrival, end))
        curves.append(np.concatenate([down, up]))
        widths.append(0.8 if target.is_product else 0.3 + 2.5 * strength)
        colors.append(to_rgba(_PAST, 0.8 if target.is_product else 0.25 + 0.55 * strength))
    ax.add_collection(
        LineCollection(curves, linewidths=widths, colors=colors, zorder=1.5, gid="skip"),
        autolim=False,
    )
    ax.annotate(
        "skip connection",
        ((first.place + last.place) / 2, high),
        xytext=(0, -2),
        textcoords="offset points",
        annotation_clip=False,
        ha="center",
        va="top",
        fontsize=8,
        color=_PAST,
    )


def _bend(start: tuple[float, float], end: tuple[float, float]) -> np.ndarray:
    """A curve ``N x 2`` that is level at both ends."""
    t = np.linspace(0, 1, 41)[:, None]
    middle = (start[0] + end[0]) / 2
    points = np.array([start, (middle, start[1]), (middle, end[1]), end])
    weights = np.hstack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3])
    return weights @ points


def _draw_sign(ax: Axes, x: float, y: float, opacity: float) -> None:
    from matplotlib.colors import to_rgba

    color = to_rgba(GRAY, opacity)
    ax.plot(
        [x],
        [y],
        marker="o",
        markersize=8,
        markerfacecolor="white",
        markeredgecolor=color,
        markeredgewidth=0.7,
        zorder=2,
        clip_on=False,
    )
    ax.plot([x], [y], marker="x", markersize=3.6, color=color, markeredgewidth=1, zorder=2.1)


def _draw_units(ax: Axes, stage: Stage, boxes: _Boxes, color: str) -> None:
    from matplotlib.patches import Rectangle

    for unit, middle in zip(stage.shown, boxes.middles, strict=True):
        top = middle - boxes.height / 2
        ax.add_patch(
            Rectangle(
                (boxes.left, top),
                boxes.width,
                boxes.height,
                facecolor="white",
                edgecolor=_FRAME,
                linewidth=0.8,
                zorder=3,
                clip_on=False,
            )
        )
        values = stage.slices[unit]
        low, high = min(values.min(), 0.0), max(values.max(), 0.0)
        scale = 0.84 * boxes.height / ((high - low) or 1.0)
        zero = middle + 0.42 * boxes.height + scale * low
        x = np.linspace(boxes.left, boxes.right, len(values))
        curve = zero - scale * values
        alpha = 0.35 if stage.is_pale[unit] else 1.0
        ax.fill_between(
            x, zero, curve, color=color, alpha=0.15 * alpha, linewidth=0, zorder=3.1, clip_on=False
        )
        if low < 0:
            ax.plot(x[[0, -1]], [zero, zero], color=_FRAME, linewidth=0.5, zorder=3.2)
        ax.plot(x, curve, color=color, alpha=alpha, linewidth=1.2, zorder=3.3, clip_on=False)
