"""A report on what a fitted Gaussian process has found, in plain words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from gpytorch_nkn.fit import progress_bar, warn_of_size
from gpytorch_nkn.interpretation.checks import (
    ResidualChecks,
    RollingForecasts,
    check_residuals,
    leave_one_out,
    rolling_forecasts,
)
from gpytorch_nkn.interpretation.components import (
    Z95,
    Component,
    ComponentCurve,
    Decomposition,
    Geometry,
    decompose_gp,
)
from gpytorch_nkn.interpretation.effects import Effects, effects
from gpytorch_nkn.interpretation.expansion import expand_source
from gpytorch_nkn.interpretation.reporting.findings import Forecast, Report, Section
from gpytorch_nkn.interpretation.reporting.words import (
    Description,
    describe_component,
    describe_effects,
    spread_text,
    title_of,
)
from gpytorch_nkn.interpretation.source import FittedGP, Source, fitted_gp, is_ensemble
from gpytorch_nkn.interpretation.units import (
    YEARS,
    Units,
    count,
    length_text,
    percent,
)
from gpytorch_nkn.linalg import ExactPosterior

__all__ = ["report"]

_GRID = 400  # points of a drawn curve
_PAST, _MOST_PAST = 200, 1000  # points of a continuation, at least and at most
_MOST_SPANS = 100  # of the data that a series is continued
_NEARLY_NONE = 0.05  # of a component's variance
_USUAL_POINTS = 2500
_EFFECTS = 6  # of columns, and of pairs, that are drawn
_TERMS, _COLUMN_TERMS = 10_000, 200  # of the expansion of a series, and of a table
_MINOR = 0.02  # share below which nobody asks what the columns of a component do together
_TANGLED = 300  # terms times columns from which on that takes long
_HARDLY = 0.01  # of a component's variance that changes with a column which hardly matters


def report(
    model: Any,
    *,
    horizon: Any = None,
    future: Any = None,
    title: str | None = None,
    x_name: str | None = None,
    x_unit: str | None = None,
    y_name: str | None = None,
    y_unit: str | None = None,
    columns: Sequence[str] | None = None,
    by: Literal["auto", "role", "signature", "columns"] = "auto",
    max_components: int | None = None,
    samples: int = 5,
    seed: int = 0,
    progress: bool = True,
) -> Report:
    """Say what a fitted Gaussian process has found: components, words, forecast, checks.

    Args:
        model: A fitted estimator of this package, an ExactGP with a Gaussian likelihood
            (SingleTaskGP too) with one output, or the record of a fit.
        horizon: How far past the data a series is continued, in units of time (for dates days, or
            a duration);
            default a tenth of the span, at most a hundred spans.
        future: How a series with covariates is continued: a pair of times after the data and the
            covariates there, as the forecaster's ``predict`` takes them.
        title: Of the report.
        x_name: What time is called on the axes.
        x_unit: What one unit of time is called, such as ``"yr"``; periods of a year, a week and so
            on have their names then. For dates the unit of all lengths, default ``"yr"`` for
            two years and more, ``"days"`` for less.
        y_name: What the targets are called.
        y_unit: What one unit of the targets is called, such as ``"ppm"``.
        columns: Names of several input columns.
        by, max_components: As in :func:`gpytorch_nkn.interpretation.decompose`.
        samples: Number of draws of the continuation.
        seed: Of all random draws; the global random state is left alone.
        progress: Show a progress bar on a terminal.

    Returns:
        The report; ``print`` it for text, ``to_dict()`` for JSON, ``save("report.html")`` for a
        page with figures.

    Raises:
        TypeError: The model is none of these, or its likelihood is not Gaussian.
        ValueError: An option has no meaning, there are fewer than 3 points, or what
            :func:`gpytorch_nkn.interpretation.decompose` refuses.
        NotImplementedError: The model has several outputs.
    """
    if not isinstance(samples, int):
        raise TypeError(f"samples must be an integer, got {samples!r}.")
    if samples < 0:
        raise ValueError(f"samples must not be negative, got {samples}.")
    gp = fitted_gp(model)
    if gp.targets.size(-1) < 3:
        raise ValueError(f"A report needs at least 3 points, got {gp.targets.size(-1)}.")
    if gp.targets.dim() == 1:
        warn_of_size(
            "report",
            gp.targets.numel(),
            _USUAL_POINTS,
            "its time grows with their cube, some minutes for 4,500; effects alone are quicker, "
            "and so is a report on a model of some of them.",
            "points",
        )
    if gp.targets.dim() > 1 and is_ensemble(gp.model):
        raise NotImplementedError(
            f"A report is on one process, got an ensemble of {len(gp.targets)}: take "
            "report_search or effects."
        )
    if gp.targets.dim() > 1:
        raise NotImplementedError(
            f"A report is on one output, got targets of shape {tuple(gp.targets.shape)}; use "
            "decompose, or subset_output of a BoTorch model."
        )
    input_dim = gp.inputs.size(-1)
    has_covariates = gp.is_series and input_dim > 1
    if has_covariates and horizon is not None:
        raise ValueError(
            "A series with covariates is continued where these are known: give "
            f"future=(times, covariates) in place of horizon, got horizon={horizon!r}."
        )
    if future is not None and not has_covariates:
        raise ValueError("future is for a series with covariates; others are continued by horizon.")
    for name, value in {"horizon": horizon, "x_name": x_name, "x_unit": x_unit}.items():
        if value is not None and not gp.is_series:
            raise ValueError(f"{name} is for one input column, got {value!r} for {input_dim}.")
    units = _units(gp, columns, x_name, x_unit, y_name, y_unit)
    length = None
    if horizon is not None:
        length = gp.time_span(horizon)
        _check_horizon(gp, length)
    ahead = None
    if future is not None:
        ahead = gp.to_inputs(future)
        ahead = ahead[ahead[:, 0].argsort(stable=True)]
        if not bool(ahead[0, 0] > gp.inputs[:, 0].max()):
            first = gp.to_times(ahead[:1, 0].double().cpu().numpy())[0]
            raise ValueError(f"The times of future must come after the data, got {first}.")
        length = float(ahead[-1, 0] - gp.inputs[:, 0].max())

    with progress_bar(progress, 5, "report") as bar:

        def step(make: Callable[[], Any]) -> Any:
            made = make()
            bar.update()
            return made

        gp = replace(gp, units=units)
        max_terms = _TERMS if gp.is_series else _COLUMN_TERMS
        source = Source(gp.kernel, gp.inputs, gp.units)
        expansion = step(lambda: expand_source(source, max_terms))
        known = {max_terms: expansion}
        split = step(lambda: decompose_gp(gp, by, max_components, expansions=known))
        residual_checks = step(lambda: _check_residuals(split, seed))
        noisy = gp.covariance + torch.diag_embed(gp.noise)
        left_out = step(lambda: leave_one_out(noisy, gp.targets - gp.mean))
        influence = rolling = None
        if input_dim > 1:
            influence = step(
                lambda: effects(model, max_effects=_EFFECTS, seed=seed, columns=units.names)
            )
        if not gp.is_series:
            places = range(len(split.components))
            sections = [_section(split, n, _describe_columns(split, n), None) for n in places]
            x, y, fit, forecast = gp.inputs.double().cpu().numpy(), _targets(gp), None, None
            x = units.x_offset + units.x_scale * x
        else:
            x, y, sections, fit, forecast = step(
                lambda: _series(split, length, ahead, samples, seed)
            )
            rolling = _roll(gp, length, seed)
    return Report(
        title=title or f"What was found in {y_name or 'the data'}",
        summary=tuple(_summary(split, sections, influence)),
        sections=tuple(sections),
        expansion=expansion,
        x=x,
        y=y,
        fit=fit,
        forecast=forecast,
        effects=influence,
        residual_checks=residual_checks,
        left_out=left_out,
        rolling=rolling,
        decomposition=split,
    )


def _units(
    gp: FittedGP,
    columns: Sequence[str] | None,
    x_name: str | None,
    x_unit: str | None,
    y_name: str | None,
    y_unit: str | None,
) -> Units:
    """Units of the data with the names that were given."""
    units = gp.units.named(columns)
    if x_name is not None:
        units = replace(units, names=(x_name, *units.names[1:]))
    if x_unit is not None and np.issubdtype(gp.to_times(np.zeros(1)).dtype, np.datetime64):
        if x_unit not in YEARS:
            raise ValueError(
                f"x_unit of dates must be one of {', '.join(map(repr, YEARS))}, got {x_unit!r}."
            )
        change = YEARS[units.x_unit] / YEARS[x_unit]
        units = replace(units, x_offset=units.x_offset * change, x_scale=units.x_scale * change)
    return replace(
        units,
        x_unit=units.x_unit if x_unit is None else x_unit,
        y_name=units.y_name if y_name is None else y_name,
        y_unit=units.y_unit if y_unit is None else y_unit,
    )


def _check_horizon(gp: FittedGP, length: float) -> None:
    """Refuse a continuation of no length, or that leaves the numbers or the calendar."""
    last, span = float(gp.inputs.max()), float(gp.inputs.max() - gp.inputs.min())
    if not 0 < length <= _MOST_SPANS * span:
        raise ValueError(
            f"horizon must be positive and at most {_MOST_SPANS} times the span of the data, "
            f"{span * gp.time_scale:.4g}, got {length * gp.time_scale:.4g}."
        )
    end = gp.to_times(np.array([last + length]))[0]
    if isinstance(end, np.datetime64) and not end <= np.datetime64("9999-12-31"):
        days = length * gp.time_scale
        raise ValueError(f"horizon must end before the year 10,000, got {days:g} days.")


def _check_residuals(split: Decomposition, seed: int) -> ResidualChecks:
    gp = split.gp
    mean, covariance = split.training_posterior()
    x = gp.inputs[:, 0].double().cpu().numpy() * gp.units.x_scale[0]
    return check_residuals(
        x if gp.is_series else None,
        gp.targets.double().cpu().numpy(),
        mean.double().cpu().numpy(),
        covariance.double().cpu().numpy(),
        gp.noise.double().cpu().numpy(),
        seed=seed,
    )


def _roll(gp: FittedGP, length: float | None, seed: int) -> RollingForecasts | None:
    """Forecasts as far ahead as the series is continued."""
    geometry = Geometry.of(gp.time)
    ahead = 0.1 * geometry.span if length is None else length
    order = gp.inputs[:, 0].argsort(stable=True)
    if bool((order.diff() > 0).all()):
        factor = gp.posterior.factor
    else:
        noisy = (gp.covariance + torch.diag_embed(gp.noise))[order][:, order]
        factor = ExactPosterior(noisy, gp.targets[order]).factor
    residual = (gp.targets - gp.mean)[order]
    return rolling_forecasts(
        factor.tril().double().cpu().numpy(),
        residual.double().cpu().numpy() / gp.spread,
        round(ahead / geometry.step),
        seed,
    )


def _targets(gp: FittedGP) -> np.ndarray:
    return gp.units.y_offset + gp.units.y_scale * gp.targets.double().cpu().numpy()


def _series(
    split: Decomposition, length: float | None, ahead: Tensor | None, samples: int, seed: int
) -> tuple[np.ndarray, np.ndarray, list[Section], ComponentCurve, Forecast | None]:
    gp, units = split.gp, split.gp.units
    train = gp.inputs[:, 0].double().cpu().numpy()
    geometry, has_covariates = Geometry.of(gp.time), gp.inputs.size(-1) > 1
    length = 0.1 * geometry.span if length is None else length
    points = int(np.clip(2 * length / geometry.step, _PAST, _MOST_PAST))
    past = train.max() + np.linspace(0, length, points)[1:]
    near = past[past <= train.max() + geometry.span]  # a longer one would dwarf the data
    curves = split.curves_at(near[:0] if has_covariates else near)
    times, _ = curves[0].data
    order = train.argsort(kind="stable")
    y = _targets(gp)[order]
    numbers = units.x_offset[0] + units.x_scale[0] * train[order]
    sections = []
    for place, (component, curve) in enumerate(zip(split.components, curves, strict=True)):
        own = curve.mean if has_covariates else curve.mean[np.searchsorted(curve.x, times)]
        words = describe_component(component, numbers, own, float(y.std()), geometry, units)
        sections.append(_section(split, place, words, curve))
    if not has_covariates:
        ahead = torch.as_tensor(past).to(gp.inputs).unsqueeze(-1)
    forecast = None if ahead is None else _forecast(split, ahead, samples, seed)
    fit = _fit(split, times, y)
    return times, fit.data[1], sections, fit, forecast


def _fit(split: Decomposition, times: np.ndarray, y: np.ndarray) -> ComponentCurve:
    """The sum of all components over the data."""
    gp = split.gp
    if gp.inputs.size(-1) == 1:
        ends = float(gp.inputs.min()), float(gp.inputs.max())
        inside = torch.linspace(*ends, _GRID, dtype=torch.float64).to(gp.inputs)
        inputs = torch.cat([inside, gp.inputs[:, 0]]).unique().unsqueeze(-1)
    else:  # covariates are known at the data
        inputs = gp.inputs[gp.inputs[:, 0].argsort(stable=True)]
    grid, posterior = inputs[:, 0], split.posterior_at(inputs)
    mean = posterior.total_mean.double().cpu().numpy()
    half = Z95 * posterior.total_variance.sqrt().double().cpu().numpy()
    parts = (y, mean, mean - half, mean + half)
    y, mean, lower, upper = map(gp.units.original, parts)
    return ComponentCurve(
        label="",
        x=gp.to_times(grid.double().cpu().numpy()),
        mean=mean,
        lower=lower,
        upper=upper,
        data=(times, y),
        boundary=None,
    )


def _forecast(split: Decomposition, inputs: Tensor, samples: int, seed: int) -> Forecast:
    gp = split.gp
    past = inputs[:, 0].double().cpu().numpy()
    posterior = split.posterior_at(inputs)
    noise = float(gp.noise.mean()) * gp.units.y_scale**2
    mean = posterior.total_mean.double().cpu().numpy()
    std = gp.spread * (posterior.total_variance.double().cpu().numpy() + noise) ** 0.5
    draws = np.empty((0, past.size))
    if samples:
        draws = split.sample_at(inputs, samples, seed=seed).sum(1).double().cpu().numpy()
        draws = mean + gp.spread * (draws - mean)
    parts = (mean, mean - Z95 * std, mean + Z95 * std, draws)
    mean, lower, upper, draws = map(gp.units.original, parts)
    return Forecast(x=gp.to_times(past), mean=mean, lower=lower, upper=upper, samples=draws)


def _section(
    split: Decomposition, place: int, words: Description, curve: ComponentCurve | None
) -> Section:
    component: Component = split.components[place]
    sentences = list(words.sentences)
    if split.negligible[place] and words.title != "A constant level":
        without = "them" if words.title.endswith("components") else "it"
        sentences.append(f"Held-out data are predicted as well without {without}: it may be noise.")
    name, units = component.name, split.gp.units
    if component.role is not None and component.role.period is not None:
        name = f"cycle of {length_text(component.role.period * units.x_scale[0], units.x_unit)}"
    return Section(
        name=name,
        title=words.title,
        sentences=tuple(sentences),
        terms=component.label or "the mean function alone",
        share=float(np.diff(split.explained, prepend=0.0)[place]),
        explained=float(split.explained[place]),
        error=float(split.errors[place]),
        negligible=bool(split.negligible[place]),
        curve=curve,
    )


def _describe_columns(split: Decomposition, place: int) -> Description:
    """Which columns a component uses, and how much of that is an interaction."""
    component, units = split.components[place], split.gp.units
    columns = len(component.columns or ())
    tangled = len(component.terms) * columns > _TANGLED
    if columns < 2 or tangled or split.shares[place] < _MINOR:
        return Description(title_of(component, units), ())
    use = split.column_use(place)
    unused = [column for column, total in use.totals.items() if total < _HARDLY]
    sentences = []
    if len(use.totals) - len(unused) > 1 and use.joint < _NEARLY_NONE:
        sentences.append("It is nearly a sum of what its columns do one by one.")
    elif _NEARLY_NONE <= use.joint <= 1 - _NEARLY_NONE:
        sentences.append(
            f"{percent(use.joint)} of its variance is what its columns do together, the rest "
            "what they do one by one."
        )
    return Description(title_of(component, units, unused), tuple(sentences))


def _predictive(useful: int, total: int) -> str:
    """How many components help to predict held-out data."""
    if useful == 0:
        who = "none of them predicts" if total > 1 else "it does not predict"
        return f"In cross-validation {who} held-out data better than chance: this may all be noise."
    if useful == total:
        subject = "All of them help" if total > 1 else "It helps"
    else:
        subject = f"Only {useful} of them help" + ("s" if useful == 1 else "")
    return f"{subject} to predict held-out data."


def _summary(split: Decomposition, sections: list[Section], influence: Effects | None) -> list[str]:
    gp, units = split.gp, split.gp.units
    target = units.of_model("the targets")
    useful, total = int((~split.negligible).sum()), len(sections)
    final = float(split.explained[-1])
    number = gp.targets.numel()
    which = f"The last {number} of {gp.num_observed}" if gp.num_observed > number else f"{number}"
    head = f"{which} values were split into {count(total, 'component')}, which "
    head += ("explain" if total > 1 else "explains") + f" {percent(max(final, 0.0))} of the"
    head += f" variance of {target} that were fitted"
    head += f". {_predictive(useful, total)}"
    noise = float(gp.noise.mean()) ** 0.5 * float(units.y_scale)
    size = f"a standard deviation of {spread_text(noise, units)}"
    mixed = ""
    if gp.weight < 1:
        mixed = (
            " Several processes predict together; this is the one of the highest weight "
            f"({percent(gp.weight)})."
        )
    lines = [f"{head} What is left is noise with {size}.{mixed}"]
    if influence is not None and not gp.is_series:
        found = enumerate(describe_effects(influence, units), 1)
        return [*lines, *(f"{place}. {sentence}" for place, sentence in found)]
    for place, section in enumerate(sections, 1):
        doubt = "; it may be noise" if section.negligible else ""
        lines.append(f"{place}. {section.title} ({percent(section.share)} of the variance{doubt}).")
    return lines
