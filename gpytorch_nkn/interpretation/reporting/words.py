"""Sentences on components, effects and checks, by rules with thresholds relative to the data."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gpytorch_nkn.interpretation.checks import LeaveOneOut, autocorrelation
from gpytorch_nkn.interpretation.components import Component, Geometry, Role, behaviours_of
from gpytorch_nkn.interpretation.effects import Effect, Effects
from gpytorch_nkn.interpretation.expansion import words_of
from gpytorch_nkn.interpretation.reporting.page import MATTERS, say, say_all
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
from gpytorch_nkn.kernels import role_of

__all__ = [
    "Description",
    "describe_checks",
    "describe_component",
    "describe_effects",
    "spread_text",
]

_UNCERTAIN = 0.1  # share of the variance above which unseen effects are mentioned
_PAIRS = 3  # largest number of pairs that are named
_STRAIGHT = 0.99  # R squared of a straight line above which a trend is one
_TURN = 0.05  # reversal, relative to the range of a curve, that counts as a turn
_STEEPER = 1.5  # ratio of the changes in the halves of a trend that gets steeper or flatter
_FLAT = 0.02  # range in standard deviations of the targets below which a trend is a level
_FEW = 4  # columns that are named one by one
_EXACT = 2.0  # correlation length in spans above which a cycle keeps its shape
_WALK = 0.05  # relative standard deviation above which a random walk is named
_ALONE = 0.25  # correlation length in steps below which neighbours are uncorrelated


#: Title of a component, such as "A yearly cycle", and sentences on it
Description = tuple[str, tuple[str, ...]]


def describe_component(
    component: Component,
    x: np.ndarray,
    mean: np.ndarray,
    targets_std: float,
    geometry: Geometry,
    units: Units,
) -> Description:
    """Describe a component of a series by its posterior mean ``N`` at sorted times ``N``.

    Times and mean are in units of the data (under a ``link`` on its scale), the geometry in units
    of the kernel.
    """
    role, size = component.role, spread_text(mean.std(), units)
    if role is not None and role.kind == "cycle":
        return _cycle(component, role, size, geometry, units)
    if role is not None and role.kind == "variation":
        return _variation(component, size, geometry, units)
    if component.has_mean:
        title, sentences = _trend(x, mean, targets_std, units)
        return title, (*sentences, *_random_walks(component, units))
    name = component.name
    if role is not None and role.kind == "other":
        name = words_of(component.terms[0], units)
    title = name[:1].upper() + name[1:]
    return title, (say("size", plural=title.endswith("components"), value=size),)


def describe_effects(effects: Effects, units: Units, *, lowest_first: bool = False) -> list[str]:
    """Describe the effects of columns and of the largest pairs, each in a sentence.

    The best of several categories is the highest, or the lowest with ``lowest_first``.
    """
    if len(effects.names) > 1 and not effects.total_order.any():
        return [say("no_effect")]
    total = dict(zip(effects.names, effects.total_order, strict=True))
    main = [e for e in effects.main if total[e.names[0]] >= MATTERS] or effects.main[:1]
    sentences = [_main_effect(effect, units, lowest_first) for effect in main]
    matter = [pair for pair in effects.pairs if pair.share >= MATTERS]
    for pair in sorted(matter, key=lambda pair: -pair.share)[:_PAIRS]:
        one, other = pair.names
        sentences.append(say("pair", one=one, other=other, share=percent(pair.share)))
    drawn = {e.names[0] for e in effects.main}
    hardly = [name for name in effects.names if total[name] < MATTERS]
    others = [name for name in effects.names if total[name] >= MATTERS and name not in drawn]
    if others:  # such as time, which is not drawn
        most = percent(max(total[name] for name in others))
        sentences.append(say("others", who=_who(others), one=len(others) == 1, share=most))
    if 0 < len(hardly) < len(effects.names):
        uncertain = percent(effects.uncertain) if effects.uncertain >= _UNCERTAIN else ""
        facts = {"one": len(hardly) == 1, "uncertain": uncertain}
        sentences.append(say("hardly", who=_who(hardly), **facts))
    return sentences


def _who(names: Sequence[str]) -> str:
    return f"{len(names)} other columns" if len(names) > _FEW else listed(names)


def _main_effect(effect: Effect, units: Units, lowest_first: bool) -> str:
    (name,), (grid,), (levels,), mean = effect.names, effect.grid, effect.levels, effect.mean
    change = float(np.ptp(mean))
    if len(mean) < 2 or not change > 0:
        return say("still", name=name)
    what = "the prediction" if units.log_targets else units.of_model("the prediction")
    facts: dict[str, object] = {"name": name, "what": what}
    if levels is not None:
        highest, lowest = levels[int(mean.argmax())], levels[int(mean.argmin())]
        best, worst = (lowest, highest) if lowest_first else (highest, lowest)
        facts |= {"number": len(levels), "best": best, "worst": worst}
        facts |= {"extreme": "lowest", "other": "higher"} if lowest_first else {}
        facts = {"extreme": "highest", "other": "lower"} | facts
        return say("categories", step=_step(change if lowest_first else -change, units), **facts)
    span = float(grid[-1] - grid[0])
    whole = bool((grid[[0, -1]] % 1 == 0).all()) and abs(grid).max() < 1e6
    low, high = (f"{end:g}" if whole else rounded(end, span) for end in grid[[0, -1]])
    facts |= {"low": low, "high": high}
    if _turns(mean, _TURN * change):
        most, least = (rounded(grid[i], 0.1 * span) for i in (mean.argmax(), mean.argmin()))
        return say("wavy_effect", **facts, step=_step(change, units), most=most, least=least)
    goes = "rises" if mean[-1] > mean[0] else "falls"
    return say("effect", **facts, goes=goes, step=_step(mean[-1] - mean[0], units))


def _step(change: float, units: Units) -> str:
    """A rise or fall on the model's scale; of logarithms as a percentage of the level."""
    return percent(abs(math.expm1(change))) if units.log_targets else _amount(abs(change), units)


def _trend(x: np.ndarray, mean: np.ndarray, targets_std: float, units: Units) -> Description:
    change = float(np.ptp(mean))
    if change <= _FLAT * targets_std:
        level = _with_unit(_level(mean.mean(), mean, targets_std, units), units)
        return "A constant level", (say("level", value=level),)
    start, last, low, high = (
        _level(value, mean, change, units) for value in (mean[0], mean[-1], mean.min(), mean.max())
    )
    end = _with_unit(last, units)
    rises = mean[-1] > mean[0]
    direction, goes = ("rising", "rises") if rises else ("falling", "falls")
    line = np.polyval(np.polyfit(x - x[0], mean, 1), x - x[0])
    if 1 - ((mean - line) ** 2).sum() / ((mean - mean.mean()) ** 2).sum() > _STRAIGHT:
        shape, rate = _rate(x, mean, units)
        facts = {"goes": goes, "start": start, "end": end, "rate": rate}
        sentence = say("straight", **facts, unit=singular(units.x_unit))
        return f"A {direction} trend, {shape}", (sentence,)
    if _turns(mean, _TURN * change):
        sentence = say("moving", low=low, high=high, start=start, end=end)
        return "A trend that rises and falls", (sentence,)
    halfway = np.interp((x[0] + x[-1]) / 2, x, mean)
    before, after = abs(np.diff(units.original(np.array([mean[0], halfway, mean[-1]]))))
    course = " that gets steeper" if after > _STEEPER * before else ""
    course = " that gets flatter" if before > _STEEPER * after else course
    sentence = say("monotone", goes=goes, start=start, end=end)
    return f"A {direction} trend{course}", (sentence,)


def _rate(x: np.ndarray, mean: np.ndarray, units: Units) -> tuple[str, str]:
    """Shape of a straight trend, and its change per unit of time."""
    if units.log_targets:
        slope = (mean[-1] - mean[0]) / (x[-1] - x[0])
        return "nearly exponential", percent(abs(math.expm1(slope)))
    change = abs(float(np.diff(units.original(mean[[0, -1]]))[0]))
    shape = "nearly a straight line"
    if units.link is not None:
        shape += f" of the {units.link.noun}"
    return shape, _with_unit(three_digits(change / (x[-1] - x[0])), units)


def _random_walks(component: Component, units: Units) -> list[str]:
    """A sentence on random walks and level shifts that are part of a trend."""
    moving = [term for term in component.terms if term.factors]
    least = _WALK**2 * sum(term.mean_share() for term in moving)
    found = [
        words_of(term, units)
        for term in moving
        if term.mean_share() >= least
        and (roles := [role_of(factor) for factor in term.factors])
        and ("walk" in roles or set(roles) == {"step"})
    ]
    return [say("walks", what=listed(found))] if found else []


def _cycle(
    component: Component, role: Role, size: str, geometry: Geometry, units: Units
) -> Description:
    assert role.period is not None
    length, _ = _lengths(component, geometry)
    scale = float(units.x_scale[0])
    text = length_text(role.period * scale, units.x_unit)
    named = period_name(role.period * scale, units.x_unit)
    exact = length >= _EXACT * geometry.span
    name = f"{named} cycle" if named else f"cycle with a period of {text}"
    article = "An approximate" if not exact else "An" if name.startswith("hourly") else "A"
    sentences = [say("cycle", period=text, size=size)]
    if not exact:
        speed = "from one cycle to the next" if length < 2 * role.period else "slowly"
        own = length_text(length * scale, units.x_unit)
        sentences.append(say("fading_cycle", speed=speed, length=own))
    return f"{article} {name}", tuple(sentences)


def _variation(component: Component, size: str, geometry: Geometry, units: Units) -> Description:
    _, own = _lengths(component, geometry)
    if own <= _ALONE * geometry.step:
        return "A variation from point to point", tuple(say_all("single_points", size=size))
    text = length_text(own * float(units.x_scale[0]), units.x_unit)
    sentences = [say("variation", length=text, size=size)]
    fading = [any(role_of(f) == "smooth" for f in term.factors) for term in component.terms]
    shares = [term.mean_share() for term in component.terms]
    if np.dot(fading, shares) > 0.5 * sum(shares):  # a long period would come back
        sentences.append(say("fades", length=text))
    return "A smooth variation without a period", tuple(sentences)


def _lengths(component: Component, geometry: Geometry) -> tuple[float, float]:
    """Medians of length and relative length of the terms by share, in units of the kernel."""
    shares = np.array([term.mean_share() for term in component.terms])
    if not shares.sum() > 0:
        return math.inf, math.inf
    behaviours = behaviours_of(component.terms, geometry)
    length = _weighted_median([b.length for b in behaviours], shares)
    relative = _weighted_median([b.relative_length for b in behaviours], shares)
    return length, relative


def _turns(values: np.ndarray, tolerance: float) -> bool:
    """Whether values rise and fall by more than a tolerance."""
    fall = np.maximum.accumulate(values) - values
    rise = values - np.minimum.accumulate(values)
    return bool(min(fall.max(), rise.max()) > tolerance)


def _weighted_median(values: list[float], weights: np.ndarray) -> float:
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return float(np.array(values)[order][np.searchsorted(total, 0.5 * total[-1])])


def _level(value: float, values: np.ndarray, change: float, units: Units) -> str:
    """A value of a curve, with the digits that a change of that size needs."""
    if units.link is not None:
        low, high = units.original(np.array([values.min(), values.max()]))
        own, near = units.original(np.array([value, value + change]))
        change, value = float(high - low) or float(near - own), float(own)
    return rounded(value, change)


def spread_text(std: float, units: Units) -> str:
    """Return a standard deviation on the model's scale; of logarithms relative to the level."""
    if units.log_targets:
        return f"{percent(math.expm1(float(std)))} of the level"
    within = "" if units.link is None else f" in the {units.link.noun}"
    return _amount(std, units) + within


def _amount(value: float, units: Units) -> str:
    """A difference on the model's scale, in the unit of the targets if they are not transformed."""
    text = three_digits(value)
    return _with_unit(text, units) if units.link is None else text


def _with_unit(text: str, units: Units) -> str:
    return f"{text} {units.y_unit}".rstrip()


def describe_checks(loo: LeaveOneOut, ahead: LeaveOneOut | None = None) -> list[str]:
    """Describe held-out predictions, and the order of one-step-ahead errors of a series.

    The p-value of the intervals is the smallest of all levels after Bonferroni's correction.
    """
    worst = min(loo.coverage, key=lambda coverage: coverage.p_value)
    shown = next(coverage for coverage in loo.coverage if coverage.level == 0.95)
    p_value = min(1.0, len(loo.coverage) * worst.p_value)
    sentences = [
        say("intervals", p=p_value, worst=worst, shown=shown),
        say("distribution", p=loo.p_value),
    ]
    if ahead is not None:
        values, p_value = autocorrelation(ahead.z_scores)
        sentences.append(say("autocorrelated", p=p_value, lag=1 + int(np.abs(values).argmax())))
    return sentences
