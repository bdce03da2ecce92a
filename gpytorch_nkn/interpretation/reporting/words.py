"""Facts about components, effects and checks, from which ``phrases.jinja`` makes sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpytorch_nkn.interpretation.behaviour import Geometry, behaviours_of
from gpytorch_nkn.interpretation.checks import LeaveOneOut, autocorrelation
from gpytorch_nkn.interpretation.decompose import Component
from gpytorch_nkn.interpretation.effects import Effect, Effects
from gpytorch_nkn.interpretation.expansion import Term, words_of
from gpytorch_nkn.interpretation.reporting.page import MATTERS, render_all
from gpytorch_nkn.interpretation.units import (
    Units,
    length_text,
    listed,
    percent,
    period_name,
    rounded,
    singular,
    three_digits,
)
from gpytorch_nkn.kernels import role_of, spec_of_values

__all__ = ["describe_checks", "describe_component", "describe_effects", "std_text"]

_PAIRS = 3  # largest number of named pairs
_MIN_R_SQUARED = 0.99  # R squared above which a trend is a straight line
_MIN_REVERSAL = 0.05  # reversal, relative to the range of a curve, that counts as a turn
_MIN_STEEPENING = 1.5  # least ratio of the changes in the two halves of a trend that gets steeper
_MAX_LEVEL_RANGE = 0.02  # largest range of a constant level, in standard deviations of the targets
_MIN_EXACT_SPANS = 2.0  # least correlation length of an exact cycle, in spans of the data
_MIN_WALK = 0.05  # least standard deviation of a named random walk, relative to the component
_MAX_HOURLY_SPAN = np.timedelta64(2, "D")  # range of dates above which hours are omitted
_MIN_FACTOR = 4.0  # least factor that is not written as a percentage
_MAX_UNCORRELATED = 0.25  # largest correlation length, in steps, of uncorrelated neighbours


def describe_component(
    component: Component,
    x: np.ndarray,
    mean: np.ndarray,
    targets_std: float,
    geometry: Geometry,
    units: Units,
) -> tuple[str, ...]:
    """Return a title of a component, such as "A yearly cycle", and sentences on it.

    ``mean`` is the posterior mean ``N`` at sorted times ``x``, in units of the data or on the scale
    of a ``link``. The geometry is in units of the kernel.
    """
    kind = "" if component.role is None else component.role.kind
    facts: dict[str, Any] = {"size": std_text(mean.std(), units)}
    if kind in ("cycle", "variation"):
        facts |= _cycle_facts(component, geometry, units)
    elif component.has_mean:
        kind, facts = "trend", _trend_facts(x, mean, targets_std, units)
        facts["walks"] = _random_walks(component, units)
        steps = [r for t in component.terms if "step" in (r := {role_of(f) for f in t.factors})]
        names = {"a change of slope" if "linear" in roles else "a level shift" for roles in steps}
        if names and facts["shape"] in ("steeper", "flatter", ""):
            facts["shape"] = f"with {listed(sorted(names))}"
    else:
        facts["name"] = words_of(component.terms[0], units) if kind == "other" else component.name
        kind = "other"
    return tuple(render_all(kind, **facts))


def _trend_facts(
    x: np.ndarray, mean: np.ndarray, targets_std: float, units: Units
) -> dict[str, Any]:
    """Return facts on the posterior mean of a trend."""
    change = float(np.ptp(mean))
    facts = {"rises": bool(mean[-1] > mean[0]), "unit": singular(units.x_unit)}
    facts |= {
        name: _level(value, mean, max(change, _MAX_LEVEL_RANGE * targets_std), units)
        for name, value in (("start", mean[0]), ("low", mean.min()), ("high", mean.max()))
    }
    if change <= _MAX_LEVEL_RANGE * targets_std or facts["low"] == facts["high"]:
        level = _with_unit(_level(mean.mean(), mean, targets_std, units), units)
        return facts | {"shape": "level", "end": level}
    facts["end"] = _with_unit(_level(mean[-1], mean, change, units), units)
    slope = (mean[-1] - mean[0]) / (x[-1] - x[0])
    halfway = np.interp((x[0] + x[-1]) / 2, x, mean)
    before, after = abs(np.diff(units.original(np.array([mean[0], halfway, mean[-1]]))))
    if np.corrcoef(x, mean)[0, 1] ** 2 > _MIN_R_SQUARED:
        rate = _with_unit(three_digits((before + after) / (x[-1] - x[0])), units)
        shape = "a straight line" if units.link is None else units.of_model("a straight line")
        if units.log_targets:
            shape, rate = "exponential", percent(abs(math.expm1(slope)))
        return facts | {"shape": "straight", "line": shape, "rate": rate}
    if _turns(mean, _MIN_REVERSAL * change):
        return facts | {"shape": "turning"}
    shape = "flatter" if before > _MIN_STEEPENING * after else ""
    return facts | {"shape": "steeper" if after > _MIN_STEEPENING * before else shape}


def _random_walks(component: Component, units: Units) -> str:
    """Return words for random walks and level shifts in a trend."""
    moving = [term for term in component.terms if term.factors]
    least = _MIN_WALK**2 * sum(term.mean_share() for term in moving)
    roles = [{role_of(factor) for factor in term.factors} for term in moving]
    phrases = [
        words_of(term, units)
        for term, kinds in zip(moving, roles, strict=True)
        if term.mean_share() >= least and ("walk" in kinds or kinds == {"step"})
    ]
    return listed(phrases) if phrases else ""


def _cycle_facts(component: Component, geometry: Geometry, units: Units) -> dict[str, Any]:
    """Return facts on a cycle or a variation, with median correlation lengths of its terms."""
    shares = np.array([term.mean_share() for term in component.terms])
    behaviours = behaviours_of(component.terms, geometry)
    length = _weighted_median([b.length for b in behaviours], shares)
    relative = _weighted_median([b.relative_length for b in behaviours], shares)
    scale, unit = float(units.x_scale[0]), units.x_unit
    period = None if component.role is None else component.role.period
    if period is not None:
        return {
            "period": length_text(period * scale, unit),
            "name": period_name(period * scale, unit),
            "exact": length >= _MIN_EXACT_SPANS * geometry.span,
            "fast": length < 2 * period,
            "length": length_text(length * scale, unit),
        }
    fading = [any(role_of(f) == "smooth" for f in term.factors) for term in component.terms]
    lengths = [
        _stated_length(term, b.relative_length)
        for term, b in zip(component.terms, behaviours, strict=True)
    ]
    return {
        "alone": relative <= _MAX_UNCORRELATED * geometry.step,
        "length": length_text(_weighted_median(lengths, shares) * scale, unit),
        "fades": np.dot(fading, shares) > 0.5 * shares.sum(),  # long periods repeat
    }


def _stated_length(term: Term, otherwise: float) -> float:
    """Return the lengthscale of a term's only factor, as in its label."""
    spec = spec_of_values(term.factors[0]) if len(term.factors) == 1 else None
    value = spec.first(term.factors[0], "lengthscale") if spec is not None else None
    return otherwise if value is None else float(value.mean())


def describe_effects(effects: Effects, units: Units) -> list[str]:
    """Describe each effect of a column or a large pair in a sentence."""
    total = dict(zip(effects.names, effects.total_order, strict=True))
    main = [e for e in effects.main if total[e.names[0]] >= MATTERS] or effects.main[:1]
    hardly = [name for name in effects.names if total[name] < MATTERS]
    drawn = {e.names[0] for e in effects.main}
    others = [name for name in effects.names if name not in drawn and name not in hardly]
    return render_all(
        "effects",
        nothing=len(total) > 1 and not effects.total_order.any(),
        main=[_main_effect(effect, units) for effect in main],
        pairs=[pair for pair in effects.pairs if pair.share >= MATTERS][:_PAIRS],
        others=others,  # such as time
        most=max((total[name] for name in others), default=0.0),
        hardly=hardly if len(hardly) < len(total) else [],
        uncertain=effects.uncertain,
    )


def _main_effect(effect: Effect, units: Units) -> dict[str, Any]:
    """Return facts on the effect of a column."""
    (name,), (grid,), (levels,), mean = effect.names, effect.grid, effect.levels, effect.mean
    change = float(np.ptp(mean))
    subject = "the prediction" if units.log_targets else units.of_model("the prediction")
    facts: dict[str, Any] = {"name": name, "what": subject, "kind": "", "levels": levels}
    if len(mean) < 2 or not change > 0:
        return facts
    if levels is not None:
        ends = {"most": levels[mean.argmax()], "least": levels[mean.argmin()]}
        return facts | ends | {"kind": "levels", "step": _step(-change, units)}
    low, high, most, least = _positions(grid, [0, -1, mean.argmax(), mean.argmin()])
    facts |= {"low": low, "high": high, "rises": bool(mean[-1] > mean[0])}
    if _turns(mean, _MIN_REVERSAL * change):
        facts["at"] = "on" if grid.dtype.kind == "M" else "at"
        return facts | {"kind": "wave", "step": _step(change, units), "most": most, "least": least}
    return facts | {"kind": "slope", "step": _step(mean[-1] - mean[0], units)}


def _positions(grid: np.ndarray, shown: list[Any]) -> list[str]:
    """Write the ends of a grid and other positions on it."""
    span = grid[-1] - grid[0]
    if grid.dtype.kind == "M":
        return np.datetime_as_string(grid[shown], "D" if span > _MAX_HOURLY_SPAN else "m").tolist()
    integers = bool((grid[[0, -1]] % 1 == 0).all()) and abs(grid).max() < 1e6
    ends = [f"{end:g}" if integers else rounded(end, span) for end in grid[shown[:2]]]
    return ends + [rounded(position, 0.1 * span) for position in grid[shown[2:]]]


def describe_checks(loo: LeaveOneOut, ahead: LeaveOneOut | None = None) -> list[str]:
    """Describe held-out predictions, and the order of one-step-ahead errors of a series.

    The p-value of the intervals is the smallest one of all levels, with Bonferroni correction.
    """
    worst = min(loo.coverage, key=lambda coverage: coverage.p_value)
    values, p_value = (None, None) if ahead is None else autocorrelation(ahead.z_scores)
    return render_all(
        "checks",
        p=min(1.0, len(loo.coverage) * worst.p_value),
        worst=worst,
        shown=next(coverage for coverage in loo.coverage if coverage.level == 0.95),
        p_distribution=loo.p_value,
        p_order=p_value,
        lag=0 if values is None else 1 + int(np.abs(values).argmax()),
    )


def _turns(values: np.ndarray, tolerance: float) -> bool:
    """Return whether values rise and fall by more than a tolerance."""
    fall = np.maximum.accumulate(values) - values
    rise = values - np.minimum.accumulate(values)
    return bool(min(fall.max(), rise.max()) > tolerance)


def _weighted_median(values: Sequence[float], weights: np.ndarray) -> float:
    """Return the weighted median of values; infinite if all weights are zero."""
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    if not total[-1] > 0:
        return math.inf
    return float(np.array(values)[order][np.searchsorted(total, 0.5 * total[-1])])


def _level(value: float, values: np.ndarray, change: float, units: Units) -> str:
    """Write a value of a curve, with the digits that resolve ``change``."""
    if units.link is not None:
        low, high = units.original(np.array([values.min(), values.max()]))
        original, near = units.original(np.array([value, value + change]))
        change, value = float(high - low) or float(near - original), float(original)
    return rounded(value, change)


def std_text(std: float, units: Units) -> str:
    """Write a standard deviation of the targets; of logarithms as a fraction of the level."""
    if units.log_targets:
        return f"{percent(math.expm1(float(std)))} of the level"
    return _step(std, units) + ("" if units.link is None else f" in the {units.link.noun}")


def _step(change: float, units: Units) -> str:
    """Write a difference of the targets; of logarithms as a percentage or, if large, a factor."""
    if units.log_targets:
        if change > math.log(_MIN_FACTOR):
            return f"a factor of {three_digits(math.exp(change))}"
        return percent(abs(math.expm1(change)))
    text = three_digits(abs(change))
    return _with_unit(text, units) if units.link is None else text


def _with_unit(text: str, units: Units) -> str:
    return f"{text} {units.y_unit}".rstrip()
