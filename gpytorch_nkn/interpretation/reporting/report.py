"""A report on what a fitted Gaussian process has found, in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpytorch_nkn.fit import progress_bar, warn_of_size
from gpytorch_nkn.interpretation.checks import (
    ResidualChecks,
    check_residuals,
    leave_one_out,
)
from gpytorch_nkn.interpretation.components import (
    Z95,
    ComponentCurve,
    Decomposition,
    Geometry,
    decompose_gp,
)
from gpytorch_nkn.interpretation.effects import Effects, effects
from gpytorch_nkn.interpretation.expansion import expand_source
from gpytorch_nkn.interpretation.reporting.findings import Forecast, Report, Section
from gpytorch_nkn.interpretation.reporting.page import say
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
    length_text,
    percent,
)

__all__ = ["report"]

_GRID = 400  # points of a drawn curve
_PAST, _MOST_PAST = 200, 1000  # points of a continuation, at least and at most
_MOST_SPANS = 100  # of the data that a series is continued
_USUAL_POINTS = 2500
_SAMPLES = 5  # draws of the continuation
_EFFECTS = 6  # of columns, and of pairs, that are drawn
_TERMS, _COLUMN_TERMS = 10_000, 200  # of the expansion of a series, and of a table


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
    seed: int = 0,
    progress: bool = True,
) -> Report:
    """Say what a fitted Gaussian process has found: components, words, forecast, checks.

    Args:
        model: A fitted estimator of this package, an ExactGP with a Gaussian likelihood
            (SingleTaskGP too) with one output, or the record of a fit.
        horizon: How far past the data a series is continued, in units of time (for dates days, or
            a duration); default a tenth of the span, at most a hundred spans.
        future: How a series with covariates is continued: a pair of times after the data and the
            covariates there, as the forecaster's ``predict`` takes them.
        title: Of the report.
        x_name: Name of time on the axes.
        x_unit: Name of one unit of time, such as ``"yr"``; periods of a year, a week and so on
            have their names then. For dates the unit of all lengths, default ``"yr"`` for two
            years and more, ``"days"`` for less.
        y_name: Name of the targets.
        y_unit: Name of one unit of the targets, such as ``"ppm"``.
        columns: Names of several input columns.
        seed: Of all random draws; the global random state is left alone.
        progress: Show a progress bar on a terminal.

    Returns:
        The report; ``print`` it for text, ``to_dict()`` for JSON, ``save("report.html")`` for a
        page with figures.

    Raises:
        TypeError: The model is none of these, or its likelihood is not Gaussian.
        ValueError: An option has no meaning, there are fewer than 3 points, or as for
            :func:`gpytorch_nkn.interpretation.decompose`.
        NotImplementedError: The model has several outputs.
    """
    gp = fitted_gp(model)
    _check_model(gp)
    has_covariates = gp.is_series and gp.inputs.size(-1) > 1
    if has_covariates and horizon is not None:
        raise ValueError(
            "A series with covariates is continued where these are known: give "
            f"future=(times, covariates) in place of horizon, got horizon={horizon!r}."
        )
    if future is not None and not has_covariates:
        raise ValueError("future is for a series with covariates; others are continued by horizon.")
    for name, value in {"horizon": horizon, "x_name": x_name, "x_unit": x_unit}.items():
        if value is not None and not gp.is_series:
            raise ValueError(
                f"{name} is for one input column, got {value!r} for {gp.inputs.size(-1)}."
            )
    gp = replace(gp, units=_units(gp, columns, x_name, x_unit, y_name, y_unit))
    length, ahead = _continuation(gp, horizon, future)
    with progress_bar(progress, 4, "report") as bar:
        max_terms = _TERMS if gp.is_series else _COLUMN_TERMS
        expansion = expand_source(Source(gp.kernel, gp.inputs, gp.units), max_terms)
        bar.update()
        split = decompose_gp(gp, expansions={max_terms: expansion})
        bar.update()
        residual_checks = _check_residuals(split, seed)
        noisy = gp.covariance + torch.diag_embed(gp.noise)
        left_out = leave_one_out(noisy, gp.targets - gp.mean)
        bar.update()
        influence = fit = forecast = None
        if gp.inputs.size(-1) > 1:
            influence = effects(model, max_effects=_EFFECTS, seed=seed, columns=gp.units.names)
        if gp.is_series:
            x, y, sections, fit, forecast = _series(split, length, ahead, seed)
        else:
            titles = [title_of(component, gp.units) for component in split.components]
            sections = [_section(split, n, Description(t, ()), None) for n, t in enumerate(titles)]
            x = gp.units.x_offset + gp.units.x_scale * gp.inputs.double().cpu().numpy()
            y = _targets(gp)
        bar.update()
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
        decomposition=split,
    )


def _check_model(gp: FittedGP) -> None:
    """Raise for models without a report, and warn of large data."""
    if gp.targets.size(-1) < 3:
        raise ValueError(f"A report needs at least 3 points, got {gp.targets.size(-1)}.")
    if gp.is_series and bool((gp.time == gp.time[..., :1, :]).all()):
        raise ValueError("A report on a series needs different times, got one for all points.")
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
    warn_of_size(
        "report",
        gp.targets.numel(),
        _USUAL_POINTS,
        "its time grows with their cube, some minutes for 4,500; effects alone are quicker, "
        "and so is a report on a model of some of them.",
        "points",
    )


def _continuation(gp: FittedGP, horizon: Any, future: Any) -> tuple[float | None, Tensor | None]:
    """Length of the continuation in units of the kernel, and its inputs beside covariates."""
    if horizon is not None:
        length = gp.time_span(horizon)
        _check_horizon(gp, length)
        return length, None
    if future is None:
        return None, None
    ahead = gp.to_inputs(future)
    ahead = ahead[ahead[:, 0].argsort(stable=True)]
    if not bool(ahead[0, 0] > gp.inputs[:, 0].max()):
        first = gp.to_times(ahead[:1, 0].double().cpu().numpy())[0]
        raise ValueError(f"The times of future must come after the data, got {first}.")
    return float(ahead[-1, 0] - gp.inputs[:, 0].max()), ahead


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
    given: dict[str, Any] = {"x_unit": x_unit, "y_name": y_name, "y_unit": y_unit}
    return replace(units, **{name: value for name, value in given.items() if value is not None})


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


def _targets(gp: FittedGP) -> np.ndarray:
    return gp.units.y_offset + gp.units.y_scale * gp.targets.double().cpu().numpy()


def _series(
    split: Decomposition, length: float | None, ahead: Tensor | None, seed: int
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
    forecast = None if ahead is None else _forecast(split, ahead, seed)
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


def _forecast(split: Decomposition, inputs: Tensor, seed: int) -> Forecast:
    gp = split.gp
    past = inputs[:, 0].double().cpu().numpy()
    posterior = split.posterior_at(inputs)
    noise = float(gp.noise.mean()) * gp.units.y_scale**2
    mean = posterior.total_mean.double().cpu().numpy()
    std = gp.spread * (posterior.total_variance.double().cpu().numpy() + noise) ** 0.5
    draws = split.sample_at(inputs, _SAMPLES, seed=seed).sum(1).double().cpu().numpy()
    draws = mean + gp.spread * (draws - mean)
    parts = (mean, mean - Z95 * std, mean + Z95 * std, draws)
    mean, lower, upper, draws = map(gp.units.original, parts)
    return Forecast(x=gp.to_times(past), mean=mean, lower=lower, upper=upper, samples=draws)


def _section(
    split: Decomposition, place: int, words: Description, curve: ComponentCurve | None
) -> Section:
    component = split.components[place]
    sentences = list(words.sentences)
    if split.negligible[place] and words.title != "A constant level":
        sentences.append(say("noise", plural=words.title.endswith("components")))
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


def _summary(split: Decomposition, sections: list[Section], influence: Effects | None) -> list[str]:
    gp, units = split.gp, split.gp.units
    noise = float(gp.noise.mean()) ** 0.5 * float(units.y_scale)
    head = say(
        "split",
        number=gp.targets.numel(),
        of=gp.num_observed,
        count=len(sections),
        share=percent(max(float(split.explained[-1]), 0.0)),
        target=units.of_model("the targets"),
        useful=int((~split.negligible).sum()),
        noise=spread_text(noise, units),
        weight=gp.weight,
    )
    if influence is not None and not gp.is_series:
        found = enumerate(describe_effects(influence, units), 1)
        return [head, *(f"{place}. {sentence}" for place, sentence in found)]
    return [head] + [
        say(
            "found",
            number=place,
            title=section.title,
            share=percent(section.share),
            doubtful=section.negligible,
        )
        for place, section in enumerate(sections, 1)
    ]
