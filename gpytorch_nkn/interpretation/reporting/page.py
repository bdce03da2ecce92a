"""Reports as text and as HTML: blocks of sentences, tables and figures."""

from __future__ import annotations

import base64
import io
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined

from gpytorch_nkn import __version__, plotting
from gpytorch_nkn._optional import needs
from gpytorch_nkn.interpretation.checks import LeaveOneOut
from gpytorch_nkn.interpretation.effects import Effects
from gpytorch_nkn.interpretation.units import listed, percent

__all__ = ["MATTERS", "PANEL", "Block", "Findings", "Sketch", "literal", "render", "render_all"]

MATTERS = 5e-3  # least total Sobol index of a column that is named
_SIZE = (5.2, 2.8)  # size of a figure in inches, with ten-point letters readable on a phone
_DPI = 160
PANEL, _LARGE = 18, 30  # characters per line of a label of a panel, and of a larger figure
_PANELS = 3  # panels in a row of a figure
_ROWS = 8  # least number of columns in the table of effects


@dataclass(frozen=True)
class Sketch:
    """Figure that is drawn on demand."""

    text: str  # alternative text
    paint: Callable[[Any], object]  # draws on one Axes, or on an array of several panels
    caption: str = ""
    panels: int = 0  # number of Axes if there are several

    def source(self) -> str:
        """Return the figure as a PNG in a data URI."""
        with needs("A report with figures"):
            from matplotlib import style
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure

        count = max(1, self.panels)
        rows, columns = -(-count // _PANELS), min(_PANELS, count)
        size = (max(_SIZE[0], 3.2 * columns), 2.6 * rows + 0.4) if self.panels else _SIZE
        figure = Figure(figsize=size, dpi=_DPI, layout="constrained")
        FigureCanvasAgg(figure)
        with style.context(plotting.STYLE):
            axes = [figure.add_subplot(rows, columns, k + 1) for k in range(count)]
            self.paint(axes if self.panels else axes[0])
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
        return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


@dataclass(frozen=True)
class Block:
    """Part of a report."""

    title: str
    sentences: Sequence[str] = ()
    note: str = ""  # explanation, on the page only
    table: Sequence[Sequence[str]] = ()  # rows of strings, the header first
    figures: Sequence[Sketch] = ()  # on the page only
    parts: Sequence[Block] = ()
    layout: str = ""  # CSS class of the figures

    @property
    def text(self) -> str:
        """Text without notes and figures."""
        widths = [max(map(len, column)) for column in zip(*self.table, strict=True)]
        rows = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in self.table
        ]
        lines = [self.title, "-" * len(self.title), *self.sentences, *rows, ""]
        return "\n".join([*lines, *(part.text for part in self.parts)])


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Findings:
    """Base class of reports, whose text and page consist of the blocks of a subclass."""

    title: str
    summary: tuple[str, ...]  #: sentences on what was found
    checks: tuple[str, ...]  #: sentences on the predictions of the model
    x: np.ndarray  #: inputs N x D, or sorted times N of a series
    effects: Effects | None  #: of the input columns; None for one column
    ahead: LeaveOneOut | None  #: predictions of each observation from the earlier ones
    held_out: Any  #: predictions of each observation from all others

    def blocks(self) -> list[Block]:
        """Return the parts of the report in their order."""
        raise NotImplementedError

    def effect_blocks(self, measure: str, sentences: Sequence[str] = ()) -> list[Block]:
        """Return a block of Sobol indices and important effects; none for a single column."""
        effects = self.effects
        if effects is None:
            return []
        total = effects.total_order
        order = np.argsort(-total, kind="stable")
        table = [("Column", "Alone (first order)", "With interactions (total)")] + [
            (
                effects.names[i],
                *(f"{round(v[i], 3) + 0.0:.3f}" for v in (effects.first_order, total)),
            )
            for number, i in enumerate(order)
            if number < _ROWS or total[i] >= MATTERS
        ]
        main = [e for e in effects.main if total[e.columns[0]] >= MATTERS] or effects.main[:1]
        shown = [
            replace(
                effect,
                label=effect.label.replace("$", r"\$"),
                names=tuple(literal(name, PANEL) for name in effect.names),
            )
            for effect in (*main, *(pair for pair in effects.pairs if pair.share >= MATTERS))
        ]
        y_label = literal(f"effect on {measure}")
        figure = Sketch(
            "Effects of the columns, and interactions of pairs",
            lambda axes: plotting.plot_effects(axes, shown, y_label=y_label),
            panels=len(shown),
        )
        note = render(
            "note_effects", uncertain=effects.uncertain, has_dots=main[0].data is not None
        )
        return [Block("Effects of the columns", sentences, note, table, (figure,), layout="wide")]

    def checking(self, *, num_initial: int = 0) -> Block:
        """Return the block on held-out predictions, and on one-step-ahead errors of a sequence."""
        levels, fractions = np.array([(c.level, c.fraction) for c in self.held_out.coverage]).T
        figures = []

        def add(text: str, plot: Callable[..., object], *arguments: Any, **options: Any) -> None:
            figures.append(Sketch(text, lambda ax: plot(ax, *arguments, **options), caption=text))

        if self.ahead is not None:
            text = "Errors of predictions from the earlier observations"
            add(text, plotting.plot_one_step_ahead, self.ahead.z_scores, num_initial=num_initial)
        text = "Held-out observations inside prediction intervals"
        number = self.held_out.z_scores.size
        add(text, plotting.plot_calibration, levels, fractions, num_points=number)
        note = render(
            "note_checks",
            has_order=self.ahead is not None,
            of_all=getattr(self.held_out, "of_all", False),
        )
        layout = "beside" if len(figures) > 1 else ""
        return Block("Model checking", self.checks, note, figures=figures, layout=layout)

    @property
    def text(self) -> str:
        """Report as text."""
        blocks = (
            block.text for block in self.blocks() if block.sentences or block.table or block.parts
        )
        return "\n".join([self.title, "=" * len(self.title), "", *blocks]).rstrip()

    def to_html(self) -> str:
        """Return a self-contained HTML page with figures. Requires matplotlib."""
        template = _environment(autoescape=True).get_template("page.html.jinja")
        return template.render(title=self.title, blocks=self.blocks(), version=__version__)

    def save(self, path: str | Path) -> Path:
        """Write the page of :meth:`to_html` to a file, and return its path."""
        path = Path(path)
        if path.suffix.lower() not in ("", ".html", ".htm"):
            raise ValueError(f"path must end in .html, got {path.name!r}.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_html(), encoding="utf-8")
        return path

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.title!r}, {len(self.x)} observations)"


def render_all(phrase: str, **facts: Any) -> list[str]:
    """Return the sentences of a macro in ``phrases.jinja``, separated by blank lines."""
    made = getattr(_environment(autoescape=False).get_template("phrases.jinja").module, phrase)
    parts = re.split(r"\n\s*\n", str(made(**facts)))
    return [" ".join(part.split()) for part in parts if part.strip()]


def render(phrase: str, **facts: Any) -> str:
    """Return the text of a macro in ``phrases.jinja``."""
    return " ".join(render_all(phrase, **facts))


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
    environment.filters |= {"percent": percent, "listed": listed}
    return environment


def literal(text: str, characters: int = _LARGE) -> str:
    """Return a label in at most two lines, with dollar signs escaped."""
    options: Any = {"max_lines": 2, "placeholder": " ...", "break_on_hyphens": False}
    text = textwrap.fill(text, characters, **options)
    return text.replace("$", r"\$")
