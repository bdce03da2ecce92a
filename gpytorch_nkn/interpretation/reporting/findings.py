"""What a report holds, and how it is written as text, as a dictionary and as a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpytorch_nkn import plotting
from gpytorch_nkn.interpretation.checks import LeaveOneOut, ResidualChecks, RollingForecasts
from gpytorch_nkn.interpretation.components import ComponentCurve, Decomposition
from gpytorch_nkn.interpretation.effects import Effect, Effects
from gpytorch_nkn.interpretation.expansion import Expansion
from gpytorch_nkn.interpretation.reporting.picture import (
    SIZE,
    Picture,
    draw,
    draw_figure,
    finite,
    literal,
    render,
    with_unit,
)
from gpytorch_nkn.interpretation.reporting.words import MATTERS, describe_effects
from gpytorch_nkn.interpretation.units import Units
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.evaluation import unwrap_scales
from gpytorch_nkn.layers import Layer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Forecast", "Report", "Section"]

_NO_NOISE = 1e-5  # of the variance of the targets
_SHOWN_TERMS = 12
_HISTORY = 4  # lengths of the continuation that are shown before it
_SHOWN_POINTS = 30  # of the data before the continuation, at least
_WIDE = 60  # characters of a label along the horizontal axis
_LONG = 24  # characters of a component's name beside its bar
_ROWS = 8  # columns that are told of, even where they hardly matter
_PANELS, _PANEL = 3, 18  # effects in a row of the figure, and characters of their labels
_WIDEST = 16  # units of a network that can be drawn


@dataclass(frozen=True, eq=False)
class Section:
    """One component of a report.

    Attributes:
        name: Short name.
        title: What it is, in a few words.
        sentences: What it does.
        terms: Its leading terms.
        share: What it adds to ``explained``; negative where it moves against those before it.
        explained: Share of the targets' variance explained by the components up to this one.
        error: Cross-validated mean absolute error with the components up to this one.
        negligible: It explains nothing.
        curve: Its posterior over time; None for several input columns.
    """

    name: str
    title: str
    sentences: tuple[str, ...]
    terms: str
    share: float
    explained: float
    error: float
    negligible: bool
    curve: ComponentCurve | None


@dataclass(frozen=True, eq=False)
class Forecast:
    """The series and its continuation, in units of the targets (logarithms undone).

    Attributes:
        x: Times ``M`` past the data.
        mean: Mean ``M`` (the median under a ``link``).
        lower: Lower end ``M`` of the 95 % band of new observations.
        upper: Upper end ``M``.
        samples: Draws ``S x M`` of the function without noise.
    """

    x: np.ndarray
    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    samples: np.ndarray


@dataclass(frozen=True, eq=False)
class Report:
    """What a model has found, see :func:`gpytorch_nkn.interpretation.report`.

    Attributes:
        title: Of the report.
        summary: Sentences.
        sections: One per component, in order of importance.
        expansion: The kernel as a sum of products.
        x: Training times ``N`` (inputs ``N x D``), sorted in time.
        y: Training targets ``N``.
        fit: The sum of all components over time; None for several input columns.
        forecast: None for several input columns.
        effects: Of the input columns; None for one.
        residual_checks: Model checking on residuals.
        left_out: Leave-one-out calibration.
        rolling: Calibration of forecasts from earlier points of the series; None for several input
            columns or few points.
        decomposition: The components.
    """

    title: str
    summary: tuple[str, ...]
    sections: tuple[Section, ...]
    expansion: Expansion
    x: np.ndarray
    y: np.ndarray
    fit: ComponentCurve | None
    forecast: Forecast | None
    effects: Effects | None
    residual_checks: ResidualChecks
    left_out: LeaveOneOut
    rolling: RollingForecasts | None
    decomposition: Decomposition

    @property
    def units(self) -> Units:
        """Units of the data."""
        return self.decomposition.gp.units

    @property
    def checks(self) -> list[str]:
        """What residuals, left-out points and earlier forecasts say of the model, in sentences."""
        gp = self.decomposition.gp
        if float(gp.noise.mean()) < _NO_NOISE * float(gp.targets.var(correction=0)):
            return ["Next to nothing is left as noise: what is left says nothing of the model."]
        rolling = [] if self.rolling is None else self.rolling.sentences()
        return [*self.residual_checks.sentences(), *self.left_out.sentences(), *rolling]

    @property
    def text(self) -> str:
        """The report as text."""
        lines = [self.title, "=" * len(self.title), "", *self.summary, ""]
        if self.effects is not None:
            lines += [
                "Effects of the columns",
                "-" * 22,
                *(
                    [str(self.effects)]  # the summary of a table has them in words
                    if self.fit is None
                    else describe_effects(self.effects, self.units)
                ),
                "",
            ]
        for place, section in enumerate(self.sections if self.fit is not None else (), 1):
            head = f"{place}. {section.title}"
            lines += [head, "-" * len(head), *section.sentences]
            lines.append(f"Terms: {section.terms}")
            lines.append("")
        lines += ["Model checking", "-" * 14]
        lines += [*self.checks, ""]
        if self.fit is None:
            lines += ["Components", "-" * 10, str(self.decomposition), ""]
            said = [part for part in self.sections if part.sentences and not part.negligible]
            lines += [f"{part.title}: {' '.join(part.sentences)}" for part in said]
            lines += [""] if said else []
        lines += ["The kernel, by shares of its diagonal", "-" * 37, str(self.expansion)]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Everything but curves and samples, as plain values for JSON.

        What is no finite number becomes None.
        """
        return finite(
            {
                "title": self.title,
                "summary": list(self.summary),
                "components": [
                    {
                        "name": section.name,
                        "title": section.title,
                        "sentences": list(section.sentences),
                        "share": section.share,
                        "explained": section.explained,
                        "cross_validated_error": section.error,
                        "negligible": section.negligible,
                        "terms": [
                            {"weight": term.weight, "share": term.share, "label": term.label}
                            for term in component.terms
                        ],
                    }
                    for section, component in zip(
                        self.sections, self.decomposition.components, strict=True
                    )
                ],
                "dropped": self.expansion.dropped,
                "effects": None if self.effects is None else self.effects.to_dict(),
                "residual_checks": self.residual_checks.to_dict(),
                "leave_one_out": self.left_out.to_dict(),
                "rolling_forecasts": None if self.rolling is None else self.rolling.to_dict(),
            }
        )

    def to_html(self) -> str:
        """One self-contained page, figures included. Needs matplotlib."""
        return _render_page(self)

    def save(self, path: str | Path) -> Path:
        """Write the page of :meth:`to_html` to a file, and return its path."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_html(), encoding="utf-8")
        return path

    def __str__(self) -> str:
        return self.text


def _render_page(report: Report) -> str:
    """The page as text."""
    sections = [
        {
            "section": section,
            "picture": _draw_component(report, place),
            "terms": component.terms[:_SHOWN_TERMS],
            "hidden": max(0, len(component.terms) - _SHOWN_TERMS),
        }
        for place, (section, component) in enumerate(
            zip(report.sections, report.decomposition.components, strict=True)
        )
    ]
    return render(
        "page.html.jinja",
        report=report,
        sections=sections,
        overview=_draw_overview(report),
        cumulative=_draw_cumulative(report) if report.fit is not None else None,
        effects=_draw_effects(report),
        order=_by_total(report.effects),
        sentences=[] if report.effects is None else describe_effects(report.effects, report.units),
        forecast=_draw_forecast(report),
        checks=_draw_checks(report),
        network=_draw_network(report),
    )


def _labels(report: Report) -> tuple[str, str]:
    """Labels of the axes, with units."""
    units = report.units
    x_label, y_label = units.names[0], units.y_name
    if not np.issubdtype(report.x.dtype, np.datetime64):
        x_label = with_unit(x_label, units.x_unit)
    y_label = with_unit(y_label, units.y_unit)
    return literal(x_label, _WIDE), literal(y_label)


def _short(name: str) -> str:
    return name if len(name) <= _LONG else f"{name[: _LONG - 3].rstrip()}..."


def _draw_overview(report: Report) -> Picture | None:
    """The data and the fit, in time."""
    fit = report.fit
    if fit is None:
        return None
    _, y_label = _labels(report)
    return _draw_curve(report, fit, "The data, and the sum of all components", y_label, "data")


def _draw_curve(
    report: Report, curve: ComponentCurve, text: str, y_label: str, data_label: str
) -> Picture:
    x_label, _ = _labels(report)

    def paint(ax: Axes) -> None:
        plotting.plot_components(
            [ax], [curve], x_label=x_label, y_label=y_label, data_label=data_label
        )
        if curve is report.fit and report.units.link is not None:
            _call_it_median(ax)

    return draw(text, paint)


def _call_it_median(ax: Axes) -> None:
    """In the legend: what a mean of logarithms (or others) stands for is no mean."""
    legend = ax.get_legend()
    for text in legend.get_texts() if legend is not None else ():
        if text.get_text() == "mean":
            text.set_text("median")


def _draw_cumulative(report: Report) -> Picture:
    names = [_short(section.name).replace("$", r"\$") for section in report.sections]
    explained = np.array([section.explained for section in report.sections])
    unit = f" ({report.units.y_unit})" if report.units.y_unit else ""
    label = literal(f"mean absolute error,\ncross-validated{unit}")
    errors = np.array([section.error for section in report.sections])
    height = 1.1 + 0.4 * len(names)
    return draw(
        "Share of the variance explained by the components, one after another",
        lambda ax: plotting.plot_cumulative(ax, names, explained, errors=errors, error_label=label),
        (SIZE[0], height),
    )


def _draw_component(report: Report, place: int) -> Picture | None:
    curve = report.sections[place].curve
    if curve is None:
        return None
    _, y_label = _labels(report)
    if report.units.link is not None:
        y_label = literal(report.units.of_model(report.units.y_name))
    text = f"Component {place + 1}: {report.sections[place].title}"
    return _draw_curve(report, curve, text, y_label, "data less the other parts")


def _draw_forecast(report: Report) -> Picture | None:
    forecast = report.forecast
    if forecast is None:
        return None
    x_label, y_label = _labels(report)
    begin = forecast.x[0] - _HISTORY * (forecast.x[-1] - forecast.x[0])
    shown = report.x >= min(begin, report.x[-_SHOWN_POINTS:][0])

    def paint(ax: Axes) -> None:
        plotting.plot_forecast(
            ax, forecast.x, forecast.mean, forecast.lower, forecast.upper,
            train=(report.x[shown], report.y[shown]), x_label=x_label, y_label=y_label,
        )  # fmt: skip
        for path in forecast.samples:
            ax.plot(forecast.x, path, color="#2a9d78", linewidth=0.8, alpha=0.7)
        if report.units.link is not None:
            _call_it_median(ax)

    return draw("Continuation of the series, with draws from the posterior", paint)


def _draw_effects(report: Report) -> list[Picture]:
    if report.effects is None:
        return []
    if report.fit is None:
        return [_draw_panels(report, report.effects)]
    pictures = [_draw_effect(report, effect, "Effect") for effect in report.effects.main]
    return pictures + [_draw_effect(report, e, "Interaction") for e in report.effects.pairs]


def _draw_panels(report: Report, effects: Effects) -> Picture:
    """All effects of a table in one figure, those of single columns on one scale."""
    _, y_label = _labels(report)
    if report.units.link is not None:
        y_label = literal(report.units.of_model(report.units.y_name))
    total = effects.total_order
    main = [e for e in effects.main if total[e.columns[0]] >= MATTERS] or effects.main[:1]
    shown = [
        replace(
            effect,
            label=effect.label.replace("$", r"\$"),
            names=tuple(literal(name, _PANEL) for name in effect.names),
        )
        for effect in (*main, *(pair for pair in effects.pairs if pair.share >= MATTERS))
    ]
    width = min(_PANELS, len(shown))
    height = -(-len(shown) // width)

    def paint(figure: Figure) -> None:
        axes = figure.subplots(height, width, squeeze=False).flatten()
        for ax in axes[len(shown) :]:
            ax.set_axis_off()
        plotting.plot_effects(axes[: len(shown)], shown, y_label=y_label)

    size = (max(SIZE[0], 3.2 * width), 2.6 * height)
    return draw_figure("Effects of the columns, and of pairs beyond these", paint, size)


def _by_total(effects: Effects | None) -> list[tuple[float, float, str]]:
    """First-order and total index and name, by falling total index, of columns that matter."""
    if effects is None:
        return []
    rows = zip(effects.first_order, effects.total_order, effects.names, strict=True)
    found = sorted(rows, key=lambda row: -row[1])
    return [row for place, row in enumerate(found) if place < _ROWS or row[1] >= MATTERS]


def _draw_effect(report: Report, effect: Effect, kind: str) -> Picture:
    _, y_label = _labels(report)
    if report.units.link is not None:
        y_label = literal(report.units.of_model(report.units.y_name))
    names = tuple(literal(name) for name in effect.names)
    shown = replace(effect, label=effect.label.replace("$", r"\$"), names=names)

    def paint(ax: Axes) -> None:
        plotting.plot_effects([ax], [shown], y_label=y_label)
        if report.fit is not None:  # of a series, where components have the shares
            plotting.put_title(ax, shown.label)

    return draw(f"{kind} of {effect.label}", paint)


def _draw_checks(report: Report) -> list[Picture]:
    checks, size = report.residual_checks, (SIZE[0], 2.4)
    pictures: list[Picture] = []

    def add(check: Any, plot: Callable[..., object], text: str, **options: Any) -> None:
        if check is not None:
            curves = check.x, check.observed, check.lower, check.upper
            pictures.append(draw(text, lambda ax: plot(ax, *curves, **options), size))

    unit = report.units.x_unit or "unit of time"
    add(checks.autocorrelation, plotting.plot_autocorrelation, "Autocorrelation of the residuals")
    add(checks.periodogram, plotting.plot_periodogram, "Periodogram of the residuals", x_label=unit)
    add(checks.qq, plotting.plot_qq, "Quantiles of the residuals against those of the noise")
    levels = np.array([c.level for c in report.left_out.coverage])
    fractions = np.array([c.fraction for c in report.left_out.coverage])
    number = report.left_out.z_scores.size
    pictures.append(
        draw(
            "Share of held-out observations inside predictive intervals",
            lambda ax: plotting.plot_calibration(ax, levels, fractions, num_points=number),
            size,
        )
    )
    return pictures


def _draw_network(report: Report) -> Picture | None:
    """The network, if it is one and small enough to be drawn."""
    kernel, _ = unwrap_scales(report.decomposition.gp.kernel)
    if not isinstance(kernel, NeuralKernelNetwork):
        return None
    widths = [layer.out_features for layer in kernel.layers if isinstance(layer, Layer)]
    widest = max(len(kernel.primitives), *widths)
    if widest > _WIDEST:
        return None
    gp, names = report.decomposition.gp, [literal(name) for name in report.units.names]
    step = max(1, gp.inputs.size(-2) // 200)
    return draw(
        "The network, from its primitives on the left to the kernel on the right",
        lambda ax: plotting.plot_network(ax, gp.kernel, x=gp.inputs[::step], names=names),
        (8.6, 0.62 * (widest + kernel.skip)),
    )
