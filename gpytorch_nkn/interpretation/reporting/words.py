"""Plain words for the components of a series, by rules with thresholds tied to the data."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpytorch_nkn.interpretation.components import Component, Geometry, Role, behaviours_of
from gpytorch_nkn.interpretation.effects import Effects
from gpytorch_nkn.interpretation.expansion import window_text, words_of
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
    "MATTERS",
    "Description",
    "describe_component",
    "describe_effect",
    "describe_effects",
    "spread_text",
    "title_of",
]

_UNCERTAIN = 0.1  # share of the variance from which on an effect may be there and not be seen
MATTERS = 5e-3  # total index from which on a column is told of
_PAIRS = 3  # that are told of; tables and figures have the others
_STRAIGHT = 0.99  # of a trend's variance that a straight line explains, to call it one
_TURN = 0.05  # of a curve's range that it goes back by where it turns
_BENT = 1.5  # ratio of the slopes of the two halves of a trend that gets steeper or flatter
_FLAT = 0.02  # standard deviations of the targets that a trend changes by, to be none
_GROWTH = 1.5  # ratio of the last to the first third's amplitude that grows or shrinks
_FEW = 4  # points of a third whose amplitude says nothing; columns that are named one by one
_EXACT = 2.0  # spans over which a cycle that keeps its shape repeats
_SINE = 0.9  # share of the variance within a period that a sine explains, to call it one
_PER_PERIOD = 6  # points of a period whose shape is looked at, at least
_MODULATED = 0.2  # share of a cycle that another period shapes, or that changes its shape
_WALK = 0.05  # standard deviation of a walk over that of all that varies in a trend, to be named
_ALONE = 0.25  # steps within which the correlation of what links no neighbours has fallen


@dataclass(frozen=True)
class Description:
    """A component in words.

    Attributes:
        title: A few words, such as "A yearly cycle whose amplitude grows".
        sentences: What it does, and what its forecast does.
    """

    title: str
    sentences: tuple[str, ...]


def describe_component(
    component: Component,
    x: np.ndarray,
    mean: np.ndarray,
    targets_std: float,
    geometry: Geometry,
    units: Units,
) -> Description:
    """Say what a component of a series does, whose posterior mean at the sorted times is ``mean``.

    Times and mean are in units of the data (under a ``link`` of what it makes of them), the
    geometry in those of the kernel.
    """
    role = component.role
    if role is not None and role.is_window and role.kind != "other":
        return _in_window(component, role, x, mean, targets_std, geometry, units)
    kind = role.kind if role is not None else "other"
    if kind == "cycle":
        return _cycle(component, x, mean, geometry, units)
    if kind == "variation":
        return _variation(component, x, mean, geometry, units)
    if component.has_mean:
        trend = _trend(x, mean, targets_std, units)
        return replace(trend, sentences=(*trend.sentences, *_wandering(component, units)))
    title = title_of(component, units)
    if title == "A constant level":
        return Description(title, ())
    whose = "Their" if title.endswith("components") else "Its"
    size = f"{whose} standard deviation over the data is {spread_text(mean.std(), units)}."
    return Description(title, (size,))


def _in_window(
    component: Component,
    role: Role,
    x: np.ndarray,
    mean: np.ndarray,
    targets_std: float,
    geometry: Geometry,
    units: Units,
) -> Description:
    """What it does where it is there, and since when or until when."""
    scaled = (x - units.x_offset[0]) / units.x_scale[0]
    inside = (scaled >= role.begin) & (scaled <= role.end)
    own = scaled[inside]  # the first and the last time that it is there
    begin = own[0] if own.size and math.isfinite(role.begin) else role.begin
    end = own[-1] if own.size and math.isfinite(role.end) else role.end
    if inside.sum() < _FEW:
        inside[:] = True
    whole = replace(component, role=Role(role.kind, role.period), has_mean=role.kind == "trend")
    found = describe_component(whole, x[inside], mean[inside], targets_std, geometry, units)
    title = f"{found.title}, {window_text(begin, end, units)}"
    return Description(title, found.sentences)


def title_of(component: Component, units: Units, unused: Collection[int] = ()) -> str:
    """A title of a component that has no role in time, and hardly depends on unused columns."""
    if component.columns is not None:
        if not component.terms:
            return "The mean function"
        if not component.columns:
            return "A constant level"
        used = sorted(component.columns - {*unused}) or sorted(component.columns)
        others = [units.names[column] for column in sorted(component.columns - {*used})]
        hardly = ""
        if others:
            hardly = f", and hardly on {listed(others) if len(others) <= _FEW else 'others'}"
        names = [units.names[column] for column in used]
        if len(names) == 1:
            return f"What depends on {names[0]}{hardly or ' alone'}"
        if len(names) > _FEW:
            return f"What depends on {component.name}{hardly}"
        return f"What depends on {listed(names)} together{hardly}"
    if component.role is None and component.terms and not component.name.endswith("components"):
        return f"The part of the kernels {component.name}"
    name = component.name
    if component.role is not None and component.role.kind == "other":
        name = words_of(component.terms[0], units)
    return name[:1].upper() + name[1:]


def describe_effects(effects: Effects, units: Units, *, lowest_first: bool = False) -> list[str]:
    """Say what the columns do, and the pairs that matter most, each in a sentence.

    Of categories the highest is named first, or the lowest.
    """
    if len(effects.names) > 1 and not effects.total_order.any():
        return ["The prediction does not change with any column."]
    sentences = []
    total = dict(zip(effects.names, effects.total_order, strict=True))
    shown = [e for e in effects.main if total[e.names[0]] >= MATTERS] or effects.main[:1]
    for e in shown:
        (levels,) = e.levels
        if levels is None:
            sentences.append(describe_effect(e.names[0], e.grid[0], e.mean, units))
        else:
            sentences.append(describe_categories(e.names[0], levels, e.mean, units, lowest_first))
    matter = [pair for pair in effects.pairs if pair.share >= MATTERS]
    for pair in sorted(matter, key=lambda pair: -pair.share)[:_PAIRS]:
        one, other = pair.names
        sentences.append(
            f"What {one} and {other} do together, beyond what each does alone, makes up "
            f"{percent(pair.share)} of the variance of the prediction."
        )
    drawn = {e.names[0] for e in effects.main}
    hardly = [name for name in effects.names if total[name] < MATTERS]
    others = [n for n in effects.names if total[n] >= MATTERS and n not in drawn]
    least = min((total[name] for name in drawn), default=0.0)
    for name in [name for name in others if total[name] >= least]:  # time, for one, is not drawn
        sentences.append(
            f"{name} makes up {percent(total[name])} of the variance of the prediction, what it "
            "does together with others included."
        )
        others.remove(name)
    unseen = ("hardly matter", "hardly matters")
    if effects.uncertain >= _UNCERTAIN:
        rest = f"so far; {percent(effects.uncertain)} of the variance of the function is uncertain"
        unseen = (f"have shown hardly any effect {rest}", f"has shown hardly any effect {rest}")
    for names, what in ((others, ("matter less", "matters less")), (hardly, unseen)):
        if names and len(hardly) < len(effects.names):
            who = f"{len(names)} other columns" if len(names) > _FEW else listed(names)
            sentences.append(f"{who} {what[len(names) == 1]}.")
    return sentences


def describe_categories(
    name: str,
    categories: Sequence[str],
    mean: np.ndarray,
    units: Units,
    lowest_first: bool = False,
) -> str:
    """Say what a column of categories does, whose effects are ``mean``."""
    change = float(np.ptp(mean))
    if len(categories) < 2 or not change > 0:
        return f"The prediction does not change with {name}."
    what = "the prediction" if units.log_targets else units.of_model("the prediction")
    most, least = categories[int(mean.argmax())], categories[int(mean.argmin())]
    first, last = ("lowest", least), ("higher", most)
    if not lowest_first:
        first, last, change = ("highest", most), ("lower", least), -change
    return (
        f"Of the {len(categories)} categories of {name}, {what} is {first[0]} for {first[1]}, and "
        f"{last[0]} by {_step(change, units)} for {last[1]}."
    )


def describe_effect(name: str, grid: np.ndarray, mean: np.ndarray, units: Units) -> str:
    """Say what a column does, whose effect at sorted positions ``grid`` is ``mean``."""
    change = float(np.ptp(mean))
    if grid.size < 2 or not change > 0:
        return f"The prediction does not change with {name}."
    what = "the prediction" if units.log_targets else units.of_model("the prediction")
    span = float(grid[-1] - grid[0])
    whole = bool((grid[[0, -1]] % 1 == 0).all()) and abs(grid).max() < 1e6
    low, high = (f"{end:g}" if whole else rounded(end, span) for end in grid[[0, -1]])
    ends = f"{name} goes from {low} to {high}"
    turns = _turns(mean, _TURN * change)
    if len(turns) > 1:
        by = _step(change, units)
        most, least = (rounded(grid[place], 0.1 * span) for place in (mean.argmax(), mean.argmin()))
        return (
            f"As {ends}, {what} goes up and down within a range of {by}, highest at {most} and "
            f"lowest at {least}."
        )
    last = turns[0] if turns else -1
    rises = bool(mean[last] > mean[0])
    first, second = ("rises", "falls") if rises else ("falls", "rises")
    if not turns:
        return f"As {ends}, {what} {first} by {_step(mean[-1] - mean[0], units)}."
    one, other = (_step(mean[last] - mean[0], units), _step(mean[-1] - mean[last], units))
    where = rounded(grid[last], span)
    return f"As {ends}, {what} {first} by {one} until {where}, then {second} by {other}."


def _step(change: float, units: Units) -> str:
    """The size of a rise or fall of what the model has; of logarithms as a share of the level."""
    if units.log_targets:
        return percent(abs(math.expm1(change)))
    return _amount(abs(change), units)


def _trend(x: np.ndarray, mean: np.ndarray, targets_std: float, units: Units) -> Description:
    change = float(np.ptp(mean))
    if change <= _FLAT * targets_std:
        level = _with_unit(_level(mean.mean(), mean, targets_std, units), units)
        return Description("A constant level", (f"The level stays at about {level}.",))
    start, end, low, high = (
        _level(value, mean, change, units) for value in (mean[0], mean[-1], mean.min(), mean.max())
    )
    last = _with_unit(end, units)
    rises = mean[-1] > mean[0]
    direction, goes = ("rising", "rises") if rises else ("falling", "falls")
    line = np.polyval(np.polyfit(x - x[0], mean, 1), x - x[0])
    straight = 1 - ((mean - line) ** 2).sum() / ((mean - mean.mean()) ** 2).sum()
    if straight > _STRAIGHT:
        slope = abs(mean[-1] - mean[0]) / (x[-1] - x[0])
        change = abs(float(np.diff(units.original(mean[[0, -1]]))[0]))
        rate = _with_unit(three_digits(change / (x[-1] - x[0])), units)
        shape = "nearly a straight line"
        if units.link is not None:
            shape += f" of the {units.link.noun}"
        if units.log_targets:
            growth = math.expm1(slope) if rises else -math.expm1(-slope)
            shape, rate = "nearly exponential", percent(growth)
        average = f"by {rate} per {singular(units.x_unit)} on average"
        title = f"A {direction} trend, {shape}"
        return Description(title, (f"It {goes} from {start} to {last}, {average}.",))
    turns = _turns(mean, _TURN * change)
    if len(turns) == 1:
        middle = _level(mean[turns[0]], mean, change, units)
        first, then = ("rises", "falls") if mean[turns[0]] > mean[0] else ("falls", "rises")
        sentence = f"It {first} from {start} to {middle}, then {then} to {last}."
        return Description(f"A trend that {first}, then {then}", (sentence,))
    if turns:
        ends = f"from {start} at the start to {last} at the end"
        sentence = f"It moves between {low} and {high}, {ends}."
        return Description("A trend that rises and falls", (sentence,))
    halfway = np.interp((x[0] + x[-1]) / 2, x, mean)
    before, after = abs(np.diff(units.original(np.array([mean[0], halfway, mean[-1]]))))
    bend = ""
    if after > _BENT * before:
        bend = " that gets steeper"
    elif before > _BENT * after:
        bend = " that gets flatter"
    title = f"A {direction} trend{bend}"
    return Description(title, (f"It {goes} from {start} to {last}.",))


def _wandering(component: Component, units: Units) -> list[str]:
    """What walks in a trend, and so in its forecast, and where its level shifts."""
    moving = [term for term in component.terms if term.factors]
    walks = [t for t in moving if any(role_of(factor) == "walk" for factor in t.factors)]
    least = _WALK**2 * sum(term.mean_share() for term in moving)
    kept = [words_of(term, units) for term in walks if term.mean_share() >= least]
    found = [f"Part of it is {listed(kept)}, which its forecast goes on from."] if kept else []
    shifts = [t for t in moving if all(role_of(factor) == "step" for factor in t.factors)]
    kept = [words_of(term, units) for term in shifts if term.mean_share() >= least]
    return [*found, f"Part of it is {listed(kept)}."] if kept else found


def _cycle(
    component: Component, x: np.ndarray, mean: np.ndarray, geometry: Geometry, units: Units
) -> Description:
    features = _features(component, geometry)
    period = features.period * float(units.x_scale[0])
    text = length_text(period, units.x_unit)
    named = period_name(period, units.x_unit)
    # over few cycles the phase of each third would tell more than the amplitude
    growth, size = _growth(x, mean, 0.0 if features.polynomial > 0.5 else period, units)
    exact = features.length >= _EXACT * geometry.span
    name = f"{named} cycle" if named else f"cycle with a period of {text}"
    title = ("A " if exact else "An approximate ") + name
    title += f" whose amplitude {growth}" if growth else ""
    if title.startswith("A hourly"):
        title = "An" + title[1:]
    sentences = [f"It repeats every {text}; {size}"]
    if not exact:
        length = length_text(features.length * float(units.x_scale[0]), units.x_unit)
        speed = "slowly"
        if features.length < 2 * features.period:
            speed = "from one cycle to the next"

        sentences.append(
            f"Its shape changes {speed}: cycles that are {length} apart are alike only in part."
        )
    if features.modulation is not None:
        other = length_text(features.modulation * float(units.x_scale[0]), units.x_unit)
        also = "" if exact else "also "
        sentences.append(f"It {also}changes with a period of {other}.")
    elif features.steady > 1 - _MODULATED and (growth or not features.polynomial):
        its = "Apart from that, its" if growth else "Its"
        sentences.append(f"{its} shape stays nearly the same throughout the data.")
    if _is_sine(x, mean, period):
        sentences.append("Within a period it is close to a sine wave.")
    return Description(title, tuple(sentences))


def _variation(
    component: Component, x: np.ndarray, mean: np.ndarray, geometry: Geometry, units: Units
) -> Description:
    own = _features(component, geometry).relative_length
    length = own * float(units.x_scale[0])
    growth, size = _growth(x, mean, length, units)
    change = f" whose amplitude {growth}" if growth else ""
    if own <= _ALONE * geometry.step:
        return Description(
            f"A variation from point to point{change}",
            (f"It hardly links one point to the next; {size}", "It predicts next to nothing."),
        )
    text = length_text(length, units.x_unit)
    sentences = [f"It varies over about {text}; {size}"]
    fading = [any(role_of(f) == "smooth" for f in term.factors) for term in component.terms]
    shares = [term.mean_share() for term in component.terms]
    if np.dot(fading, shares) > 0.5 * sum(shares):  # a long period would come back
        sentences.append(f"Past the data it fades within a few times {text}.")
    return Description(f"A smooth variation without a period{change}", tuple(sentences))


@dataclass(frozen=True)
class _Features:
    """Means over the terms of a component, by their shares; lengths in units of the kernel."""

    period: float
    length: float  # median
    relative_length: float
    steady: float  # share of terms that keep their shape
    modulation: float | None  # another period that shapes a cycle
    polynomial: float  # share of terms whose amplitude is a polynomial


def _features(component: Component, geometry: Geometry) -> _Features:
    period = math.inf
    if component.role is not None and component.role.period is not None:
        period = component.role.period
    shares = np.array([term.mean_share() for term in component.terms])
    if not shares.sum() > 0:
        return _Features(period, math.inf, math.inf, 1.0, None, 0.0)
    shares = shares / shares.sum()
    behaviours = behaviours_of(component.terms, geometry)
    others: dict[float, float] = {}
    for share, behaviour in zip(shares, behaviours, strict=True):
        for other in behaviour.periods:
            if other > 1.5 * period:
                others[other] = others.get(other, 0.0) + share
    modulation = max(others, key=lambda p: others[p]) if others else None
    if modulation is not None and others[modulation] < _MODULATED:
        modulation = None
    return _Features(
        period,
        _weighted_median([b.length for b in behaviours], shares),
        _weighted_median([b.relative_length for b in behaviours], shares),
        float(shares @ [b.length >= _EXACT * geometry.span for b in behaviours]),
        modulation,
        float(shares @ [b.degree > 0 for b in behaviours]),
    )


def _is_sine(x: np.ndarray, mean: np.ndarray, period: float) -> bool:
    """Whether a sine explains nearly all of the variance within single periods."""
    left = total = 0.0
    number = ((x - x[0]) / period).astype(int)
    for each in range(int((x[-1] - x[0]) / period)):
        inside = number == each
        if inside.sum() < _PER_PERIOD:
            continue
        angle = 2 * np.pi * x[inside] / period
        waves = np.column_stack([np.ones_like(angle), np.cos(angle), np.sin(angle)])
        own = mean[inside] - mean[inside].mean()
        left += np.square(own - waves @ np.linalg.lstsq(waves, own, rcond=None)[0]).sum()
        total += np.square(own).sum()
    return bool(left < (1 - _SINE) * total)


def _growth(x: np.ndarray, mean: np.ndarray, length: float, units: Units) -> tuple[str, str]:
    """How the amplitude of what repeats or varies over a length changes, and its size in words."""
    overall = f"its standard deviation is {spread_text(mean.std(), units)}."
    edges = np.linspace(x[0], x[-1], 4)
    parts = [mean[(x >= low) & (x <= high)] for low, high in zip(edges, edges[1:], strict=False)]
    if length > edges[1] - edges[0] or min(part.size for part in parts) < _FEW:
        return "", overall
    first, middle, last = (float(part.std()) for part in parts)
    if first <= 0 or last <= 0:
        return "", overall
    start, end = spread_text(first, units), spread_text(last, units)
    if units.link is None and units.y_unit:
        start = start.removesuffix(f" {units.y_unit}")
    ends = f"from {start} in the first third to {end} in the last."
    if last > _GROWTH * first and first <= 1.1 * middle and middle <= 1.1 * last:
        return "grows", f"its standard deviation grows {ends}"
    if first > _GROWTH * last and last <= 1.1 * middle and middle <= 1.1 * first:
        return "shrinks", f"its standard deviation shrinks {ends}"
    return "", overall


def _turns(values: np.ndarray, tolerance: float) -> list[int]:
    """Places of the extremes after which values go back by more than a tolerance."""
    turns: list[int] = []
    low = high = extreme = direction = 0
    for place, value in enumerate(values):
        if direction == 0:
            low = place if value < values[low] else low
            high = place if value > values[high] else high
            if value - values[low] > tolerance:
                direction, extreme = 1, place
            elif values[high] - value > tolerance:
                direction, extreme = -1, place
        elif direction * (value - values[extreme]) > 0:
            extreme = place
        elif direction * (values[extreme] - value) > tolerance:
            turns.append(extreme)
            direction, extreme = -direction, place
    return turns


def _weighted_median(values: list[float], shares: np.ndarray) -> float:
    order = np.argsort(values)
    total = np.cumsum(shares[order])
    return float(np.array(values)[order][np.searchsorted(total, 0.5 * total[-1])])


def _level(value: float, values: np.ndarray, change: float, units: Units) -> str:
    """A value of a curve, to digits that show a change of that size."""
    if units.link is not None:
        low, high = units.original(np.array([values.min(), values.max()]))
        own, near = units.original(np.array([value, value + change]))
        change, value = float(high - low) or float(near - own), float(own)
    return rounded(value, change)


def spread_text(std: float, units: Units) -> str:
    """A standard deviation of what the model has; of logarithms as a share of the level."""
    if units.log_targets:
        return f"{percent(math.expm1(float(std)))} of the level"
    within = "" if units.link is None else f" in the {units.link.noun}"
    return _amount(std, units) + within


def _amount(value: float, units: Units) -> str:
    """A difference of what the model has; it has the targets' unit if that is the targets."""
    text = three_digits(value)
    return _with_unit(text, units) if units.link is None else text


def _with_unit(text: str, units: Units) -> str:
    return text + (f" {units.y_unit}" if units.y_unit else "")
