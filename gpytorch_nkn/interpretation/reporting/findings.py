"""The findings of a model: components, forecast, effects and checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpytorch_nkn import plotting
from gpytorch_nkn.interpretation.checks import LeaveOneOut, ResidualChecks
from gpytorch_nkn.interpretation.components import ComponentCurve, Decomposition
from gpytorch_nkn.interpretation.effects import Effects
from gpytorch_nkn.interpretation.expansion import Expansion
from gpytorch_nkn.interpretation.reporting.page import (
    SIZE,
    Block,
    Findings,
    Sketch,
    calibration_sketch,
    effects_block,
    literal,
    say,
    sketch,
)
from gpytorch_nkn.interpretation.reporting.words import (
    describe_checks,
    describe_effects,
    describe_left_out,
)
from gpytorch_nkn.interpretation.units import Units, percent, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Forecast", "Report", "Section"]

_NO_NOISE = 1e-5  # of the variance of the targets
_HISTORY = 4  # lengths of the continuation that are shown before it
_SHOWN_POINTS = 30  # of the data before the continuation, at least
_WIDE = 60  # characters of a label along the horizontal axis
_LONG = 24  # characters of a component's name beside its bar


@dataclass(frozen=True, eq=False)
class Section:
    """One component of a report."""

    name: str
    title: str  #: in a few words
    sentences: tuple[str, ...]
    terms: str  #: the leading ones
    share: float  #: gain of explained; negative where it moves against those before it
    explained: float  #: share of the targets' variance, of the components up to this one
    error: float  #: cross-validated mean absolute error, likewise
    negligible: bool  #: held-out data are predicted as well without it
    curve: ComponentCurve | None  #: over time; None for several input columns


@dataclass(frozen=True, eq=False)
class Forecast:
    """The continuation of a series, in units of the targets (logarithms undone)."""

    x: np.ndarray  #: times M past the data
    mean: np.ndarray  #: M; the median under a link
    lower: np.ndarray  #: ends M of the 95 % band of new observations
    upper: np.ndarray
    samples: np.ndarray  #: draws 5 x M of the function without noise


@dataclass(frozen=True, eq=False)
class Report(Findings):
    """What a model has found, see :func:`gpytorch_nkn.interpretation.report`."""

    title: str
    summary: tuple[str, ...]  #: sentences
    sections: tuple[Section, ...]  #: one per component, in order of importance
    expansion: Expansion  #: the kernel as a sum of products
    x: np.ndarray  #: training times N (inputs N x D), sorted in time
    y: np.ndarray  #: training targets N
    fit: ComponentCurve | None  #: sum of all components; None for several input columns
    forecast: Forecast | None  #: None for several input columns
    effects: Effects | None  #: of the input columns; None for one
    residual_checks: ResidualChecks
    left_out: LeaveOneOut  #: leave-one-out calibration
    decomposition: Decomposition

    @property
    def units(self) -> Units:
        """Units of the data."""
        return self.decomposition.gp.units

    @property
    def checks(self) -> list[str]:
        """Sentences on residuals and held-out points."""
        gp = self.decomposition.gp
        if float(gp.noise.mean()) < _NO_NOISE * float(gp.targets.var(correction=0)):
            return [say("no_noise")]
        return [*describe_checks(self.residual_checks), *describe_left_out(self.left_out)]

    def to_dict(self) -> dict[str, Any]:
        """Everything but curves and samples, as plain values for JSON.

        What is no finite number becomes None.
        """
        components = self.decomposition.components
        return plain(
            {
                "title": self.title,
                "summary": self.summary,
                "components": [
                    {
                        "name": section.name,
                        "title": section.title,
                        "sentences": section.sentences,
                        "share": section.share,
                        "explained": section.explained,
                        "cross_validated_error": section.error,
                        "negligible": section.negligible,
                        "terms": [
                            {"weight": term.weight, "share": term.share, "label": term.label}
                            for term in component.terms
                        ],
                    }
                    for section, component in zip(self.sections, components, strict=True)
                ],
                "dropped": self.expansion.dropped,
                "effects": self.effects,
                "residual_checks": self.residual_checks,
                "leave_one_out": self.left_out,
            }
        )

    def blocks(self) -> list[Block]:
        """Parts of the report in their order."""
        is_series, blocks = self.fit is not None, [self._overview()]
        if self.effects is not None:
            blocks.append(
                effects_block(
                    self.effects,
                    self._scale_label(),
                    # the summary of a table has them
                    sentences=describe_effects(self.effects, self.units) if is_series else (),
                    note="Averages over the other columns. First order and total are Sobol "
                    "indices of the posterior mean: parts of its variance when columns vary "
                    "independently.",
                )
            )
        blocks.append(self._components())
        if self.forecast is not None:
            blocks.append(self._continuation(self.forecast))
        note = (
            "Residuals are drawn from the posterior and compared with fresh noise; where they "
            "differ, the model misses structure, or its noise is wrong. Each observation is also "
            "predicted from all the others."
        )
        figures, title = self._check_figures(), "The kernel, by shares of its diagonal"
        return [
            *blocks,
            Block("Model checking", self.checks, note, figures=figures, layout="beside"),
            Block(title, (str(self.expansion),), is_folded=not is_series),
        ]

    def _overview(self) -> Block:
        figures: tuple[Sketch, ...] = ()
        if self.fit is not None:
            caption = "The data, and the sum of all components with its 95 % band."
            figures = (
                self._curve(self.fit, "The whole series", caption, self._y_label(), "data"),
                self._cumulative(),
            )
        return Block("Summary", self.summary, figures=figures)

    def _cumulative(self) -> Sketch:
        names = [
            name if len(name) <= _LONG else f"{name[: _LONG - 3].rstrip()}..."
            for name in (section.name.replace("$", r"\$") for section in self.sections)
        ]
        explained = np.array([section.explained for section in self.sections])
        errors = np.array([section.error for section in self.sections])
        unit = f" ({self.units.y_unit})" if self.units.y_unit else ""
        label = literal(f"mean absolute error,\ncross-validated{unit}")
        return sketch(
            "Share of the variance explained by the components, one after another",
            lambda ax: plotting.plot_cumulative(
                ax, names, explained, errors=errors, error_label=label
            ),
            (SIZE[0], 1.1 + 0.4 * len(names)),
            "Components stand in the order in which they lower the error of prediction most, in "
            "ten-fold cross-validation of parts of the data with the learned kernel.",
        )

    def _components(self) -> Block:
        if self.fit is not None:
            return Block("Components", parts=list(map(self._component, range(len(self.sections)))))
        rows = [
            (
                section.title,
                percent(section.explained),
                f"{section.error:.4g}{' (may be noise)' if section.negligible else ''}",
            )
            for section in self.sections
        ]
        note = (
            "How the kernel splits the prediction by sets of columns. A product of kernels is no "
            "pure interaction: see the effects of the columns."
        )
        head = ("Component", "Explained with those above", "Error with those above")
        return Block("Components", note=note, table=[head, *rows], is_folded=True)

    def _component(self, place: int) -> Block:
        section = self.sections[place]
        figures: tuple[Sketch, ...] = ()
        if section.curve is not None:
            figures = (
                self._curve(
                    section.curve,
                    f"Component {place + 1}: {section.title}",
                    "Points: the mean of this component plus what no component explains.",
                    self._scale_label(),
                    "data less the other parts",
                ),
            )
        sentences = (*section.sentences, f"Terms: {section.terms}")
        return Block(f"{place + 1}. {section.title}", sentences, figures=figures)

    def _curve(
        self, curve: ComponentCurve, text: str, caption: str, y_label: str, data: str
    ) -> Sketch:
        def paint(ax: Axes) -> None:
            plotting.plot_components(
                [ax], [curve], x_label=self._x_label(), y_label=y_label, data_label=data
            )
            if curve is self.fit:
                self._name_median(ax)

        return sketch(text, paint, caption=caption)

    def _continuation(self, forecast: Forecast) -> Block:
        begin = forecast.x[0] - _HISTORY * (forecast.x[-1] - forecast.x[0])
        shown = self.x >= min(begin, self.x[-_SHOWN_POINTS:][0])

        def paint(ax: Axes) -> None:
            plotting.plot_forecast(
                ax, forecast.x, forecast.mean, forecast.lower, forecast.upper,
                train=(self.x[shown], self.y[shown]), x_label=self._x_label(),
                y_label=self._y_label(),
            )  # fmt: skip
            for path in forecast.samples:
                ax.plot(forecast.x, path, color="#2a9d78", linewidth=0.8, alpha=0.7)
            self._name_median(ax)

        centre = "mean" if self.units.link is None else "median"
        note = (
            f"The series goes on like this if the findings stay true. Blue: the {centre} and the "
            f"95 % band of new observations. Green: {len(forecast.samples)} draws of the function "
            "without noise, each as plausible as the others."
        )
        figure = sketch("Continuation of the series, with draws from the posterior", paint)
        return Block("Continuation", note=note, figures=(figure,))

    def _name_median(self, ax: Axes) -> None:
        """Under a link the centre of the distribution is the median."""
        legend = ax.get_legend()
        if legend is not None and self.units.link is not None:
            for text in legend.get_texts():
                text.set_text(text.get_text().replace("mean", "median"))

    def _check_figures(self) -> list[Sketch]:
        checks, size = self.residual_checks, (SIZE[0], 2.4)
        figures = []

        def add(check: Any, plot: Callable[..., object], text: str, **options: Any) -> None:
            if check is not None:
                curves = check.x, check.observed, check.lower, check.upper
                figures.append(sketch(text, lambda ax: plot(ax, *curves, **options), size, text))

        unit = self.units.x_unit or "unit of time"
        text = "Autocorrelation of the residuals"
        add(checks.autocorrelation, plotting.plot_autocorrelation, text)
        text = "Periodogram of the residuals"
        add(checks.periodogram, plotting.plot_periodogram, text, x_label=unit)
        add(checks.qq, plotting.plot_qq, "Quantiles of the residuals against those of the noise")
        return [*figures, calibration_sketch(self.left_out, size)]

    def _x_label(self) -> str:
        units = self.units
        is_date = np.issubdtype(self.x.dtype, np.datetime64)
        return literal(_with_unit(units.names[0], "" if is_date else units.x_unit), _WIDE)

    def _y_label(self) -> str:
        return literal(_with_unit(self.units.y_name, self.units.y_unit))

    def _scale_label(self) -> str:
        """Label of what adds up: the targets, or their transform."""
        units = self.units
        return self._y_label() if units.link is None else literal(units.of_model(units.y_name))


def _with_unit(label: str, unit: str) -> str:
    return label if not unit or f"({unit})" in label else f"{label} ({unit})"
