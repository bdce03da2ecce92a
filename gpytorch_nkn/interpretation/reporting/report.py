"""Report on a fitted Gaussian process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpytorch_nkn import plotting
from gpytorch_nkn.fit import Session, warn_of_size
from gpytorch_nkn.interpretation.affine import raw_inputs
from gpytorch_nkn.interpretation.behaviour import Geometry
from gpytorch_nkn.interpretation.checks import LeaveOneOut, held_out
from gpytorch_nkn.interpretation.decompose import ComponentCurve, Decomposition, decompose_gp
from gpytorch_nkn.interpretation.effects import Effects, effects
from gpytorch_nkn.interpretation.reporting.class_report import ClassReport, report_on_class
from gpytorch_nkn.interpretation.reporting.page import (
    Block,
    Findings,
    Sketch,
    literal,
    render,
    render_all,
)
from gpytorch_nkn.interpretation.reporting.words import (
    describe_checks,
    describe_component,
    describe_effects,
    std_text,
)
from gpytorch_nkn.interpretation.source import FittedGP, check_one_output, class_units, fitted_gp
from gpytorch_nkn.interpretation.units import Z95, Units, means_text, percent, three_digits

__all__ = ["Forecast", "Report", "Section", "report"]

_MIN_POINTS, _MAX_POINTS = 200, 1000  # least and largest number of forecast points
_MAX_SPANS = 100  # largest horizon in spans of the data
_MAX_UNWARNED = 2500
_ADVICE = (
    "its time grows with the cube of the number of points (minutes for 4,500). Effects alone, or a "
    "report on a model of a subset of the points, takes less time."
)
_TASK_POINTS, _TASK_DRAWS, _TASK_PAIRS = 1000, 500, 6  # limits for the correlations of tasks
_EFFECTS = 6  # largest number of figures of main effects, and of pairs
_HISTORY, _SHOWN_POINTS = 4, 30  # horizons, and least number of points, shown before a forecast
_TERMS = "Terms of the kernel, with shares of its diagonal"
_AXIS_CHARACTERS = 60  # characters of a label along the horizontal axis


@dataclass(frozen=True, eq=False)
class Section:
    """Component of a series in a report."""

    title: str
    sentences: tuple[str, ...]
    terms: str  #: labels of the leading terms
    share: float  #: gain in explained variance; negative if it opposes earlier components
    #: held-out data whose prediction it improves: ``"blocks"``, only ``"points"`` or ``"none"``;
    #: ``"level"`` for a constant, because errors are measured about the level
    improves: str
    curve: ComponentCurve  #: over time


@dataclass(frozen=True, eq=False)
class Forecast:
    """Forecast of a series, in units of the data."""

    x: np.ndarray  #: times M after the data
    mean: np.ndarray  #: M; the median under a transform of the targets
    lower: np.ndarray  #: ends M of the 95 % interval of new observations (of counts: of the rate)
    upper: np.ndarray


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Report(Findings):
    """Findings of a model, see :func:`gpytorch_nkn.interpretation.report`.

    Attributes:
        summary, checks: Sentences on what was found, and on the predictions of the model.
        sections: One per component of a series, by importance.
        effects: Effects of the input columns; None for one column.
        fit, forecast: Sum of all components, and its continuation; None for a table.
        x, y: Inputs ``N x D``, or sorted times ``N`` of a series, and training targets ``N``.
        decomposition: Components of the posterior.
    """

    sections: tuple[Section, ...]
    y: np.ndarray
    fit: ComponentCurve | None
    forecast: Forecast | None
    decomposition: Decomposition

    @property
    def units(self) -> Units:
        """Units of the data."""
        return self.decomposition.gp.units

    def blocks(self) -> list[Block]:
        """Return the parts of the report in their order."""
        terms = _TERMS, (str(self.decomposition.expansion),)
        if self.fit is None:
            effects = self.effect_blocks(self._scale())
            return [Block("Summary", self.summary), *effects, self.checking(), Block(*terms)]
        note = render("note_components")
        caption = "The data, and the sum of all components with its 95 % interval."
        labels = {"data_label": "data", "mean_label": self._centre}
        whole = self._curve(self.fit, "The whole series", caption, self._y_label(), **labels)
        parts = [self._component(*pair) for pair in enumerate(self.sections, 1)]
        sentences = () if self.effects is None else describe_effects(self.effects, self.units)
        return [
            Block("Summary", self.summary, figures=(whole,)),
            *self.effect_blocks(self._scale(), sentences),
            Block("Components", note=note, table=self._explained(), parts=parts),
            *([] if self.forecast is None else [self._continuation(self.forecast)]),
            self.checking(),
            Block(*terms),
        ]

    def _explained(self) -> list[tuple[str, str, str]]:
        """Return a table of the variance that the first components explain, and their error."""
        split, link = self.decomposition, self.units.link
        error = _with_unit("mean absolute error", self.units.y_unit if link is None else link.noun)
        return [("Components up to", "variance explained", error)] + [
            (component.name, percent(explained), three_digits(value))
            for component, explained, value in zip(
                split.components, split.explained, split.errors, strict=True
            )
        ]

    def _component(self, number: int, section: Section) -> Block:
        text = f"Component {number}: {section.title}"
        caption = "Points: the mean of this component plus the residuals of the model."
        figure = self._curve(section.curve, text, caption, literal(self._scale()))
        sentences = (*section.sentences, f"Terms: {section.terms}")
        return Block(f"{number}. {section.title}", sentences, figures=(figure,))

    def _curve(
        self, curve: ComponentCurve, text: str, caption: str, y_label: str, **labels: str
    ) -> Sketch:
        labels |= {"x_label": self._x_label(), "y_label": y_label}
        shown = [replace(curve, label="")]  # the heading has the label
        return Sketch(text, lambda ax: plotting.plot_components([ax], shown, **labels), caption)

    def _continuation(self, forecast: Forecast) -> Block:
        begin = forecast.x[0] - _HISTORY * (forecast.x[-1] - forecast.x[0])
        shown = self.x >= min(begin, self.x[-_SHOWN_POINTS:][0])

        def paint(ax: Any) -> None:
            plotting.plot_forecast(
                ax, forecast.x, forecast.mean, forecast.lower, forecast.upper,
                train=(self.x[shown], self.y[shown]), x_label=self._x_label(),
                y_label=self._y_label(),
            )  # fmt: skip

        counts = self.units.targets == "the rate"
        note = render("note_continuation", centre=self._centre, counts=counts)
        figure = Sketch("Continuation of the series, with its interval", paint)
        return Block("Continuation", note=note, figures=(figure,))

    @property
    def _centre(self) -> str:
        return "mean" if self.units.link is None else "median"

    def _x_label(self) -> str:
        is_date = np.issubdtype(self.x.dtype, np.datetime64)
        return literal(
            _with_unit(self.units.names[0], "" if is_date else self.units.x_unit), _AXIS_CHARACTERS
        )

    def _y_label(self) -> str:
        return literal(_with_unit(self.units.y_name, self.units.y_unit))

    def _scale(self) -> str:
        """Return the name of the scale on which components add up."""
        units = self.units
        if units.link is None:
            return _with_unit(units.y_name, units.y_unit)
        return units.of_model(units.y_name)


def _with_unit(label: str, unit: str) -> str:
    return label if not unit or f"({unit})" in label else f"{label} ({unit})"


def report(
    model: Any,
    *,
    horizon: Any = None,
    future: Any = None,
    title: str | None = None,
    x_unit: str | None = None,
    y_name: str | None = None,
    y_unit: str | None = None,
    columns: Sequence[str] | None = None,
    label: Any = None,
    progress: bool = True,
) -> Report | ClassReport:
    """Describe a fitted Gaussian process: components, forecast, effects, checks.

    For a classifier, the report describes the effects on the probability of a class, and its
    calibration.

    Args:
        model: A fitted estimator of this package, an ExactGP with one output and a Gaussian
            likelihood (including SingleTaskGP), or the result of a trainer.
        horizon: Length of the forecast in units of time (for dates: days, or a duration). The
            default is a tenth of the span of the data, the maximum 100 spans.
        future: Times after the data and covariates at these times, as a pair.
        title: Title of the report.
        x_unit: Unit of times that are numbers, such as ``"yr"``, needed to name yearly or weekly
            periods. Dates are in ``"yr"`` from two years on, otherwise in ``"days"``.
        y_name: Name of the targets.
        y_unit: Unit of the targets, such as ``"ppm"``.
        columns: Names of the input columns; for a series, of time and the covariates.
        label: Class of a classifier; default: the second of two classes.
        progress: Show a progress bar on a terminal.

    Returns:
        Report; ``print`` shows its text, and ``save("report.html")`` writes a page with figures.

    Raises:
        TypeError: The model has another type, or its likelihood is not Gaussian.
        ValueError: As in :func:`gpytorch_nkn.interpretation.decompose`, an option does not apply,
            ``label`` is not a class, or there are fewer than 3 points.
        NotImplementedError: The model has several outputs.
    """
    of_class, code = class_units(model, label)
    title = title or f"Report on {y_name or 'the data'}"
    if of_class is not None:
        options = {"horizon": horizon, "future": future, "x_unit": x_unit, "y_unit": y_unit}
        extra = [name for name, value in options.items() if value is not None]
        if extra:
            raise ValueError(
                f"A report on a probability has no {extra[0]}, got {options[extra[0]]!r}: leave it "
                "out."
            )
        return report_on_class(model, of_class.named(columns), code, title, _EFFECTS)
    session = Session(progress=progress)
    gp = fitted_gp(model)
    check_one_output(gp, "report")
    number, dim = gp.inputs.shape
    if number < 3:
        raise ValueError(f"A report needs at least 3 points, got {number}.")
    warn_of_size("report", number, _MAX_UNWARNED, _ADVICE, "points")
    if gp.is_series:
        gp = _in_order_of_time(gp)
    elif horizon is not None or x_unit is not None:
        raise ValueError(f"horizon and x_unit are for one input column, got {dim} columns.")
    units = gp.units.named(columns)
    if x_unit is not None and (units.to_dates is not None or 0 in units.first_dates):
        raise ValueError(f"x_unit is for times that are numbers, got {x_unit!r} and dates.")
    x_unit, y_name = x_unit or units.x_unit, y_name or units.y_name
    gp = replace(gp, units=replace(units, x_unit=x_unit, y_name=y_name, y_unit=y_unit or ""))
    length, new_inputs = _continuation(gp, horizon, future)
    with session.bar(2, "report") as bar:
        split = decompose_gp(gp)
        bar.update()
        y, ahead, loo = _held_out(gp)
        sections, influence, fit, forecast = list[Section](), None, None, None
        if dim > 1:
            influence = effects(model, max_effects=_EFFECTS, columns=gp.units.names)
        if gp.is_series:
            x, y, sections, fit, forecast = _series(split, length, new_inputs)
        else:
            x = gp.units.x_offset + gp.units.x_scale * gp.inputs.double().cpu().numpy()
            if not gp.units.affine:
                x = raw_inputs(gp.model).cpu().numpy()
        bar.update()
    return Report(
        title=title,
        summary=tuple(_summary(split, sections, influence)),
        checks=tuple(describe_checks(loo, ahead if gp.is_series else None)),
        sections=tuple(sections),
        x=x,
        y=y,
        fit=fit,
        forecast=forecast,
        effects=influence,
        ahead=ahead if gp.is_series else None,
        held_out=loo,
        decomposition=split,
    )


def _in_order_of_time(gp: FittedGP) -> FittedGP:
    if bool((gp.time == gp.time[:1]).all()):
        raise ValueError("A report on a series needs distinct times, got one time for all points.")
    order = gp.inputs[:, 0].argsort(stable=True)
    names = "inputs", "targets", "observed", "mean", "noise"
    vectors = {name: getattr(gp, name)[order] for name in names}
    return replace(gp, covariance=gp.covariance[order][:, order], **vectors)


def _held_out(gp: FittedGP) -> tuple[np.ndarray, LeaveOneOut, LeaveOneOut]:
    """Return targets, one-step-ahead and leave-one-out predictions, of the estimator if any."""
    y, ahead, loo = held_out([(1.0, gp)])
    transform = getattr(gp.estimator, "transform_", None)  # of a series
    if transform is not None and transform.whole:
        ahead, loo = (scores.of_counts(transform, y) for scores in (ahead, loo))
    ranks = getattr(gp.estimator, "held_out_ranks_", None)
    if ranks is not None:  # of the mixture, with the likelihood of the targets
        loo = loo.with_ranks(ranks)
    return y, ahead, loo


def _continuation(gp: FittedGP, horizon: Any, future: Any) -> tuple[float, Tensor | None]:
    """Return the forecast's length in units of the kernel, and its inputs if it has covariates."""
    last, span = float(gp.time.max()), float(gp.time.max() - gp.time.min())
    has_covariates = gp.is_series and gp.inputs.size(-1) > 1
    if has_covariates and horizon is not None:
        raise ValueError(
            "A forecast of a series with covariates needs their future values: give "
            f"future=(times, covariates) in place of horizon, got horizon={horizon!r}."
        )
    if future is not None:
        if not has_covariates:
            raise ValueError("future is for a series with covariates; horizon is for others.")
        ahead = gp.to_inputs(future)
        ahead = ahead[ahead[:, 0].argsort(stable=True)]
        if not bool(ahead[0, 0] > last):
            first = gp.to_times(ahead[:1, 0].double().cpu().numpy())[0]
            raise ValueError(f"The times of future must come after the data, got {first}.")
        return float(ahead[-1, 0]) - last, ahead
    if horizon is None:
        return 0.1 * span, None
    length = gp.time_span(horizon)
    if not 0 < length <= _MAX_SPANS * span:
        raise ValueError(
            f"horizon must be positive and at most {_MAX_SPANS} times the span of the data, "
            f"{span * gp.time_scale:.4g}, got {length * gp.time_scale:.4g}."
        )
    return length, None


def _series(
    split: Decomposition, length: float, ahead: Tensor | None
) -> tuple[np.ndarray, np.ndarray, list[Section], ComponentCurve, Forecast | None]:
    gp, units = split.gp, split.gp.units
    geometry, has_covariates = Geometry.of(gp.time), gp.inputs.size(-1) > 1
    train = gp.inputs[:, 0].double().cpu().numpy()
    points = int(np.clip(2 * length / geometry.step, _MIN_POINTS, _MAX_POINTS))
    past = train[-1] + np.linspace(0, length, points)[1:]
    near = past[past <= train[-1] + geometry.span]  # longer curves would hide the data
    curves, total = split.curves_at(near[:0] if has_covariates else near)
    times, y = total.data
    numbers = units.x_offset[0] + units.x_scale[0] * train
    sections = []
    for number, (component, curve) in enumerate(zip(split.components, curves, strict=True)):
        values = curve.mean if has_covariates else curve.mean[np.searchsorted(curve.x, times)]
        title, *sentences = describe_component(
            component, numbers, values, float(y.std()), geometry, units
        )
        blocks, points = split.improves[number]
        improves = "blocks" if blocks else "points" if points else "none"
        improves = "level" if title == "A constant level" else improves
        sentences += render_all("evidence", title=title, improves=improves)
        terms = component.label or "the mean function only"
        share = float(np.diff(split.explained, prepend=0.0)[number])
        sections.append(Section(title, tuple(sentences), terms, share, improves, curve))
    if not has_covariates:
        ahead = torch.as_tensor(past).to(gp.inputs).unsqueeze(-1)
    forecast = None if ahead is None else _forecast(split, ahead)
    y, mean, lower, upper = map(units.original, (y, total.mean, total.lower, total.upper))
    fit = replace(total, mean=mean, lower=lower, upper=upper, data=(times, y))
    return times, y, sections, fit, forecast


def _forecast(split: Decomposition, inputs: Tensor) -> Forecast:
    gp = split.gp
    posterior = split.posterior_at(inputs)
    noise = gp.new_noise * gp.units.y_scale**2
    factor = float(getattr(gp.estimator, "calibration_factor_", 1.0))
    mean = posterior.total_mean.double().cpu().numpy()
    std = factor * (posterior.total_variance.double().cpu().numpy() + noise) ** 0.5
    parts = (mean, mean - Z95 * std, mean + Z95 * std)
    times = gp.to_times(inputs[:, 0].double().cpu().numpy())
    return Forecast(times, *map(gp.units.original, parts))


def _task_correlations(split: Decomposition) -> list[str]:
    """Write pairs of tasks with the median and the 95 % interval of their correlation.

    Correlations are between functions over the training inputs; the strongest come first.
    """
    gp, column = split.gp, split.gp.task_column
    if column is None:
        return []
    names = list(gp.units.categories[column].values())
    tasks = gp.inputs[:, column].unique()
    rows = gp.inputs[:: -(-len(gp.inputs) * len(tasks) // _TASK_POINTS)]
    points = rows.repeat(len(tasks), 1)
    points[:, column] = tasks.repeat_interleave(len(rows))
    mean = split.posterior_at(points).total_mean.double().cpu().numpy()
    with torch.no_grad():
        whitened = gp.posterior.whiten(gp.kernel(points, gp.inputs).to_dense())
        covariance = (gp.kernel(points).to_dense() - whitened.mT @ whitened).double().cpu().numpy()
    covariance *= float(gp.units.y_scale) ** 2
    indefinite: Any = {"check_valid": "ignore", "method": "eigh"}  # by rounding
    rng = np.random.default_rng(0)
    draws = rng.multivariate_normal(mean, covariance, _TASK_DRAWS, **indefinite)
    values = np.stack([np.corrcoef(draw.reshape(len(tasks), -1)) for draw in draws])
    values[~np.isfinite(values)] = 0.0  # of a constant task
    middle, lower, upper = np.quantile(values, [0.5, 0.025, 0.975], axis=0)
    pairs = list(zip(*np.triu_indices(len(tasks), 1), strict=True))
    return [
        f"{names[int(tasks[a])]} and {names[int(tasks[b])]} {middle[a, b]:.2f} "
        f"({lower[a, b]:.2f} to {upper[a, b]:.2f})"
        for a, b in sorted(pairs, key=lambda pair: -abs(middle[pair]))[:_TASK_PAIRS]
    ]


def _summary(split: Decomposition, sections: list[Section], influence: Effects | None) -> list[str]:
    gp, units = split.gp, split.gp.units
    observed = getattr(gp.estimator, "observed_", ())  # a model may use only the last ones
    excess = getattr(getattr(gp.model, "observations", None), "dispersion", None)  # of counts
    variance = "" if excess is None else "m"
    if excess:
        variance += f" + {three_digits(excess.item())} m^2"
    return render_all(
        "model",
        number=gp.targets.numel(),
        of=len(observed) - len(getattr(gp.estimator, "outliers_", ())),
        sections=sections,
        effects=() if gp.is_series or influence is None else describe_effects(influence, units),
        share=percent(max(float(split.explained[-1]), 0.0)),
        target=units.of_model(units.targets),
        score=three_digits(getattr(gp.estimator, "held_out_log_density_", 0.0)),
        variance=variance,
        predictive=split.is_predictive,
        noise=std_text(gp.new_noise**0.5 * float(units.y_scale), units),
        weight=getattr(gp.estimator, "model_weight_", 1.0),
        incomplete=getattr(gp.estimator, "incomplete_rows_", {}),
        tasks=means_text(gp.task_means),
        correlations=_task_correlations(split),
    )
