"""The findings of a search: progress, beliefs along single columns, effects and checks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpytorch_nkn import plotting
from gpytorch_nkn.interpretation.checks import LeaveOneOut, plain
from gpytorch_nkn.interpretation.effects import Effects
from gpytorch_nkn.interpretation.reporting.page import (
    Block,
    Findings,
    calibration_sketch,
    effects_block,
    finite,
    literal,
    panels,
    sketch,
)
from gpytorch_nkn.interpretation.units import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["SearchReport", "SearchSlice"]

_PANELS, _PANEL = 3, 18  # slices of the short figure, and characters of their labels


@dataclass(frozen=True, eq=False)
class SearchSlice:
    """Posterior and acquisition function along a line through a point, in the user's units."""

    name: str  #: of the column that varies
    column: int
    grid: np.ndarray  #: its positions A; of categories and few whole numbers these
    levels: tuple[str, ...] | None  #: names A of the codes; None for numbers
    mean: np.ndarray  #: A, of the function
    lower: np.ndarray  #: ends A of its central 95 %, as if it were normal
    upper: np.ndarray
    acquisition: np.ndarray | None  #: A; of logarithms the exponentials, 1 at the highest
    best: float  #: position of the best point so far
    best_mean: float  #: posterior mean there; off the line where other columns differ
    candidates: np.ndarray  #: positions Q of the next points
    candidate_means: np.ndarray  #: Q


@dataclass(frozen=True, eq=False, repr=False)
class SearchReport(Findings):
    """How a search went and goes on, see :func:`gpytorch_nkn.interpretation.report_search`."""

    title: str
    outcome: str  #: name of the values
    summary: tuple[str, ...]  #: sentences on the best value, the next points and the columns
    checks: tuple[str, ...]  #: sentences on the predictions of the model
    x: np.ndarray  #: inputs N x D in the order of evaluation
    values: np.ndarray  #: evaluations N
    maximize: bool  #: large values are good
    optimum: float | None  #: the best value there is, if it is known
    num_initial: int  #: evaluations that the model did not choose
    best: int  #: number of the best evaluation, of those that keep the constraints if any do
    feasible: np.ndarray  #: which evaluations N keep the constraints
    candidates: np.ndarray  #: next points Q x D
    structures: dict[str, float]  #: weights of the structures that the model averages
    ahead: LeaveOneOut  #: predictions of each evaluation from those before it
    left_out: LeaveOneOut  #: predictions of each evaluation from all others
    effects: Effects | None  #: of the input columns; None for one
    slices: tuple[SearchSlice, ...]  #: through the first candidate, or else the best point

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.title!r}, {len(self.values)} evaluations)"

    def to_dict(self) -> dict[str, Any]:
        """All attributes as plain values for JSON; what is no finite number becomes None."""
        return finite(plain(self))

    def plot(self, figure: Figure | None = None) -> Figure:
        """Draw progress, one-step-ahead errors, and beliefs around the next point.

        Args:
            figure: An empty figure of matplotlib; by default a new one of 10 by 6 inches, unknown
                to pyplot.

        Returns:
            The figure.
        """
        from matplotlib import style
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 6)) if figure is None else figure
        if figure.get_layout_engine() is None:
            figure.set_layout_engine("constrained")
        halves: Any = figure.subfigures(2, 1)
        with style.context(plotting.STYLE):
            left, right = halves[0].subplots(1, 2)
            self._paint_progress(left)
            self._paint_ahead(right)
            shown = min(_PANELS, len(self.slices))
            self._paint_slices(np.ravel(halves[1].subplots(1, shown)))
        return figure

    def blocks(self) -> list[Block]:
        """Parts of the report in their order."""
        progress = sketch(
            "Values in the order of evaluation, and the best so far", self._paint_progress
        )
        text = "What the model believes, and the acquisition function, along single columns"
        blocks = [
            Block("Summary", self.summary, figures=(progress,)),
            Block(
                "Where it looks next",
                note=self._slices_note(),
                figures=(panels(text, self._paint_slices, len(self.slices)),),
                layout="wide",
            ),
        ]
        if self.effects is not None:
            label = f"effect on {literal(self.outcome, _PANEL)}"
            note = (
                "Averages over the other columns, as they are in the evaluations; shares are Sobol "
                "indices of the posterior mean, which has only what was seen: "
                f"{percent(self.effects.uncertain)} of the variance of the function is uncertain. "
                "Dots are evaluations: the effect and what the model leaves unexplained."
            )
            blocks.append(effects_block(self.effects, label, note=note))
        text = "How far evaluations lay from predictions by those before them"
        checks = sketch(text, self._paint_ahead, caption=text), calibration_sketch(self.left_out)
        note = (
            "Each evaluation is predicted from those before it, and from all others, with the "
            "parameters that the model has now."
        )
        return [*blocks, Block("Model checking", self.checks, note, (), checks, layout="beside")]

    def _slices_note(self) -> str:
        number = len(self.candidates)
        where = "the first of the next points" if number > 1 else "the next point"
        where = where if number else "the best point so far"
        note = (
            f"Along one column each, the others as at {where}: the mean of {self.outcome} and its "
            "95 % band"
        )
        if self.slices[0].acquisition is not None:
            note += "; below, on one scale for all columns, the acquisition function"
        if number:
            note += ". Points are at their expected means, off the line where other columns differ"
        return f"{note}."

    def _paint_progress(self, ax: Axes) -> None:
        plotting.plot_progress(
            ax,
            self.values,
            maximize=self.maximize,
            optimum=self.optimum,
            num_initial=self.num_initial,
            feasible=self.feasible,
            y_label=literal(self.outcome, _PANEL),
        )

    def _paint_ahead(self, ax: Axes) -> None:
        plotting.plot_one_step_ahead(ax, self.ahead.z_scores, num_initial=self.num_initial)

    def _paint_slices(self, axes: Any) -> None:
        slices = [replace(s, name=literal(s.name, _PANEL)) for s in self.slices[: len(axes)]]
        plotting.plot_acquisition(axes, slices, y_label=literal(self.outcome, _PANEL))
