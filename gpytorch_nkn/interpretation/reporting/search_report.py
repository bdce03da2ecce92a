"""What a report on a search holds, and how it is written as text, as values and as a page."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpytorch_nkn import plotting
from gpytorch_nkn.interpretation.checks import LeaveOneOut, plain
from gpytorch_nkn.interpretation.effects import Effects
from gpytorch_nkn.interpretation.reporting.picture import (
    SIZE,
    Picture,
    draw,
    draw_figure,
    finite,
    literal,
    render,
)
from gpytorch_nkn.interpretation.reporting.words import MATTERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["SearchReport", "SearchSlice"]

_PANELS, _PANEL = 3, 18  # slices in a row of the figure, and characters of their labels


@dataclass(frozen=True, eq=False)
class SearchSlice:
    """What is believed along a line through a point, in units of inputs and values.

    Attributes:
        name: Of the column that varies.
        column: Its number.
        grid: Its positions ``A``; of categories their codes, of at most 8 different whole numbers
            these.
        levels: Names ``A`` of the codes; None for a column of numbers.
        mean: Posterior mean ``A`` of the function.
        lower: Lower end ``A`` of its central 95 %, as if it were normal.
        upper: Upper end ``A``.
        acquisition: Values ``A`` of the acquisition function; None without one. Of one in
            logarithms what it is the logarithm of, in parts of the highest value on any slice.
        best: Position of the best point so far.
        best_mean: Posterior mean there; off the line where other columns differ.
        candidates: Positions ``Q`` of the next points.
        candidate_means: Posterior means ``Q`` there.
    """

    name: str
    column: int
    grid: np.ndarray
    levels: tuple[str, ...] | None
    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    acquisition: np.ndarray | None
    best: float
    best_mean: float
    candidates: np.ndarray
    candidate_means: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class SearchReport:
    """How a search went and goes on, see :func:`gpytorch_nkn.interpretation.report_search`.

    Attributes:
        title: Of the report.
        outcome: What the values are called.
        summary: Sentences: what was reached, what matters, what comes next.
        checks: Sentences on the predictions of the model.
        x: Inputs ``N x D`` in the order of evaluation.
        values: Evaluations ``N``.
        maximize: Large values are good.
        optimum: The best value there is, if it is known.
        num_initial: Evaluations that the model did not choose.
        best: Number of the best evaluation, from 0: of those that keep the constraints, if any do.
        feasible: Which of the evaluations ``N`` keep the constraints.
        candidates: Next points ``Q x D``.
        structures: Weights of the structures that the model averages, by name.
        ahead: Predictions of each evaluation from those before it.
        left_out: Predictions of each evaluation from all others.
        effects: Of the input columns; None for one.
        slices: What is believed along the columns that matter, through the first candidate (the
            best point without one).
    """

    title: str
    outcome: str
    summary: tuple[str, ...]
    checks: tuple[str, ...]
    x: np.ndarray
    values: np.ndarray
    maximize: bool
    optimum: float | None
    num_initial: int
    best: int
    feasible: np.ndarray
    candidates: np.ndarray
    structures: dict[str, float]
    ahead: LeaveOneOut
    left_out: LeaveOneOut
    effects: Effects | None
    slices: tuple[SearchSlice, ...]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.title!r}, {len(self.values)} evaluations)"

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """The report as text, which ``print`` shows."""
        lines = [self.title, "=" * len(self.title), "", *self.summary, ""]
        if self.effects is not None:
            lines += ["Effects of the columns", "-" * 22, str(self.effects), ""]
        return "\n".join([*lines, "Model checking", "-" * 14, *self.checks])

    def to_dict(self) -> dict[str, Any]:
        """All attributes as plain values for JSON; what is no finite number becomes None."""
        return finite(plain(self))

    def to_html(self) -> str:
        """One self-contained page, figures included. Needs matplotlib."""
        total = {} if self.effects is None else dict(enumerate(self.effects.total_order))
        return render(
            "search.html.jinja",
            report=self,
            progress=self._draw_progress(),
            slices=draw_figure(
                "What the model believes, and the acquisition function, along single columns",
                self._paint_slices,
                self._size(len(self.slices)),
            ),
            effects=self._draw_effects(),
            order=sorted(total.items(), key=lambda item: -item[1]),
            ahead=draw(
                "How far evaluations lay from what was predicted from those before them",
                lambda ax: plotting.plot_one_step_ahead(
                    ax, self.ahead.z_scores, num_initial=self.num_initial
                ),
            ),
            calibration=draw(
                "Share of evaluations inside predictive intervals",
                lambda ax: plotting.plot_calibration(
                    ax,
                    np.array([c.level for c in self.left_out.coverage]),
                    np.array([c.fraction for c in self.left_out.coverage]),
                    num_points=self.values.size,
                ),
            ),
        )

    def save(self, path: str | Path) -> Path:
        """Write the page of :meth:`to_html` to a file, and return its path.

        Raises:
            ValueError: The name of the file is of another format.
        """
        path = Path(path)
        if path.suffix.lower() not in ("", ".html", ".htm"):
            raise ValueError(
                f"A page is HTML, got {path.name!r}: plot().savefig(...) makes pictures, "
                "to_dict() values for JSON."
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_html(), encoding="utf-8")
        return path

    def plot(self, figure: Figure | None = None) -> Figure:
        """Draw progress, one-step-ahead errors, and what is believed where it looks next.

        Args:
            figure: An empty figure of matplotlib, which gets a constrained layout if it has none;
                by default a new one of 10 by 6 inches, unknown to pyplot.

        Returns:
            The figure.

        Raises:
            TypeError: It is no figure.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 6)) if figure is None else figure
        if not isinstance(figure, Figure):
            raise TypeError(f"figure must be a matplotlib Figure, got {type(figure).__name__}.")
        if figure.get_layout_engine() is None:
            figure.set_layout_engine("constrained")
        halves: Any = figure.subfigures(2, 1)
        above, below = halves
        left, right = above.subplots(1, 2)
        self._paint_progress(left)
        plotting.plot_one_step_ahead(right, self.ahead.z_scores, num_initial=self.num_initial)
        shown = self.slices[:_PANELS]
        self._paint_acquisition(below.subplots(1, len(shown)), shown)
        return figure

    def _paint_progress(self, ax: Any) -> None:
        plotting.plot_progress(
            ax,
            self.values,
            maximize=self.maximize,
            optimum=self.optimum,
            num_initial=self.num_initial,
            feasible=self.feasible,
            y_label=literal(self.outcome, _PANEL),
        )

    def _draw_progress(self) -> Picture:
        return draw("Values in the order of evaluation, and the best so far", self._paint_progress)

    def _paint_slices(self, figure: Figure) -> None:
        width = min(_PANELS, len(self.slices))
        height = -(-len(self.slices) // width)
        axes = figure.subplots(height, width, squeeze=False).flatten()
        for ax in axes[len(self.slices) :]:
            ax.set_axis_off()
        self._paint_acquisition(axes[: len(self.slices)], self.slices)

    def _paint_acquisition(self, axes: Any, slices: tuple[SearchSlice, ...]) -> None:
        literals = [replace(one, name=literal(one.name, _PANEL)) for one in slices]
        plotting.plot_acquisition(axes, literals, y_label=literal(self.outcome, _PANEL))

    def _draw_effects(self) -> Picture | None:
        if self.effects is None:
            return None
        total = self.effects.total_order
        main = [e for e in self.effects.main if total[e.columns[0]] >= MATTERS]
        shown = [
            replace(
                effect,
                label=literal(effect.label),
                names=tuple(literal(name, _PANEL) for name in effect.names),
            )
            for effect in (
                *(main or self.effects.main[:1]),
                *(pair for pair in self.effects.pairs if pair.share >= MATTERS),
            )
        ]

        def paint(figure: Figure) -> None:
            width = min(_PANELS, len(shown))
            axes = figure.subplots(-(-len(shown) // width), width, squeeze=False).flatten()
            for ax in axes[len(shown) :]:
                ax.set_axis_off()
            label = f"effect on {literal(self.outcome, _PANEL)}"
            plotting.plot_effects(axes[: len(shown)], shown, y_label=label)

        text = "Effects of the columns, and of pairs beyond these"
        return draw_figure(text, paint, self._size(len(shown)))

    @staticmethod
    def _size(panels: int) -> tuple[float, float]:
        width = min(_PANELS, panels)
        return max(SIZE[0], 3.2 * width), 2.6 * -(-panels // width) + 0.4
