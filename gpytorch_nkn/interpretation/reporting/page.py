"""A report as text and as a page: blocks of sentences, tables and figures."""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined

from gpytorch_nkn import __version__, plotting
from gpytorch_nkn.interpretation.checks import LeaveOneOut
from gpytorch_nkn.interpretation.effects import Effects
from gpytorch_nkn.interpretation.units import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "MATTERS",
    "SIZE",
    "Block",
    "Findings",
    "Sketch",
    "calibration_sketch",
    "effects_block",
    "literal",
    "panels",
    "say",
    "sketch",
]

MATTERS = 5e-3  # total index from which on a column is named
SIZE = (5.2, 2.8)  # inches; with ten-point letters, readable on a phone too
_DPI = 160
_HIGH, _PANEL = 30, 18  # characters of a label along the axes, and in a panel
_PANELS = 3  # in a row of a figure
_ROWS = 8  # columns in the table of effects, even where they hardly matter


@dataclass(frozen=True)
class Sketch:
    """A figure that is drawn when a page needs it."""

    text: str  # for those who cannot see it
    paint: Callable[[Figure], object]
    size: tuple[float, float] = SIZE
    caption: str = ""

    def source(self) -> str:
        """The figure as a PNG in a data URI."""
        from matplotlib import style
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=self.size, dpi=_DPI, layout="constrained")
        FigureCanvasAgg(figure)
        with style.context(plotting.STYLE):
            self.paint(figure)
        layout = figure.get_layout_engine()
        assert layout is not None
        layout.execute(figure)
        figure.set_layout_engine(None)  # savefig would run the layout again
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
        return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


@dataclass(frozen=True)
class Block:
    """A part of a report."""

    title: str
    sentences: Sequence[str] = ()
    note: str = ""  # explanation, on the page only
    table: Sequence[Sequence[str]] = ()  # rows of strings, the head first
    figures: Sequence[Sketch] = ()  # on the page only
    parts: Sequence[Block] = ()  # below this one
    layout: str = ""  # CSS class of the figures
    is_folded: bool = False  # closed until it is clicked

    @property
    def text(self) -> str:
        """Everything but notes and figures."""
        widths = [max(map(len, column)) for column in zip(*self.table, strict=True)]
        rows = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in self.table
        ]
        lines = [self.title, "-" * len(self.title), *self.sentences, *rows, ""]
        return "\n".join([*lines, *(part.text for part in self.parts)])


class Findings:
    """What a report holds; subclasses name their parts."""

    title: str

    def blocks(self) -> list[Block]:
        """Parts of the report in their order."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """All numbers and sentences as plain values for JSON; what is not finite becomes None."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        """The report as text."""
        blocks = (
            block.text for block in self.blocks() if block.sentences or block.table or block.parts
        )
        return "\n".join([self.title, "=" * len(self.title), "", *blocks]).rstrip()

    def to_html(self) -> str:
        """One self-contained page, figures included. Needs matplotlib."""
        template = _environment(autoescape=True).get_template("page.html.jinja")
        return template.render(title=self.title, blocks=self.blocks(), version=__version__)

    def save(self, path: str | Path) -> Path:
        """Write the page of :meth:`to_html` to a file, and return its path."""
        path = Path(path)
        if path.suffix.lower() not in ("", ".html", ".htm"):
            raise ValueError(f"A page is HTML, got {path.name!r}: to_dict() has values for JSON.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_html(), encoding="utf-8")
        return path

    def __str__(self) -> str:
        return self.text


def say(phrase: str, **facts: Any) -> str:
    """A phrase of ``phrases.jinja`` with its facts."""
    made = getattr(_environment(autoescape=False).get_template("phrases.jinja").module, phrase)
    return " ".join(str(made(**facts)).split())


@cache
def _environment(autoescape: bool) -> Environment:
    folder = files("gpytorch_nkn.interpretation.reporting")
    environment = Environment(
        loader=FunctionLoader(lambda template: folder.joinpath(template).read_text("utf-8")),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = percent
    return environment


def literal(text: str, characters: int = _HIGH) -> str:
    """A text that is no formula, in at most two lines."""
    text = textwrap.fill(text, characters, max_lines=2, placeholder=" ...")
    return text.replace("$", r"\$")


def sketch(
    text: str, paint: Callable[[Axes], object], size: tuple[float, float] = SIZE, caption: str = ""
) -> Sketch:
    """A figure with one Axes."""
    return Sketch(text, lambda figure: paint(figure.add_subplot()), size, caption)


def panels(text: str, paint: Callable[[Any], object], count: int) -> Sketch:
    """A figure with so many Axes, three in a row."""
    width = min(_PANELS, count)
    height = -(-count // width)

    def draw(figure: Figure) -> None:
        axes = figure.subplots(height, width, squeeze=False).flatten()
        for ax in axes[count:]:
            ax.set_axis_off()
        paint(axes[:count])

    return Sketch(text, draw, (max(SIZE[0], 3.2 * width), 2.6 * height + 0.4))


def effects_block(
    effects: Effects, y_label: str, *, sentences: Sequence[str] = (), note: str = ""
) -> Block:
    """Sobol indices by falling total index, and figures of what matters."""
    total = effects.total_order
    order = np.argsort(-total, kind="stable")
    table = [("Column", "Alone (first order)", "With others (total)")] + [
        (effects.names[i], f"{effects.first_order[i]:.3f}", f"{total[i]:.3f}")
        for number, i in enumerate(order)
        if number < _ROWS or total[i] >= MATTERS
    ]
    main = [e for e in effects.main if total[e.columns[0]] >= MATTERS] or effects.main[:1]
    shown = [
        replace(
            effect,
            label=effect.label.replace("$", r"\$"),
            names=tuple(literal(name, _PANEL) for name in effect.names),
        )
        for effect in (*main, *(pair for pair in effects.pairs if pair.share >= MATTERS))
    ]
    figure = panels(
        "Effects of the columns, and of pairs beyond these",
        lambda axes: plotting.plot_effects(axes, shown, y_label=y_label),
        len(shown),
    )
    return Block("Effects of the columns", sentences, note, table, (figure,), layout="wide")


def calibration_sketch(left_out: LeaveOneOut, size: tuple[float, float] = SIZE) -> Sketch:
    """Shares of held-out observations inside predictive intervals."""
    levels = np.array([c.level for c in left_out.coverage])
    fractions = np.array([c.fraction for c in left_out.coverage])
    text = "Share of held-out observations inside predictive intervals"
    number = left_out.z_scores.size
    return sketch(
        text,
        lambda ax: plotting.plot_calibration(ax, levels, fractions, num_points=number),
        size,
        text,
    )
