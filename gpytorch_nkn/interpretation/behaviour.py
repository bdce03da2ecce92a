"""Classification of a kernel's terms over time as trend, cycle or variation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from gpytorch.kernels import Kernel
from linear_operator import to_dense
from torch import Tensor

from gpytorch_nkn.interpretation.expansion import Term, period_of
from gpytorch_nkn.kernels import columns_of, role_of

__all__ = ["Behaviour", "Geometry", "Role", "behaviours_of", "roles_of"]

_DISTANCES = 401  # number of distances at which correlations are evaluated
_SHORT_DISTANCES = (0.125, 0.25, 0.5, 1.0)  # additional short distances, in steps
_MAX_CONSTANT_DECREASE = 1e-6  # largest decrease of the correlation of a constant over the data
_MIN_TREND_LENGTH = 0.25  # correlation length, relative to the span, above which a term is a trend
_MAX_CYCLE_DIFFERENCE = 0.5  # periods are equal if they differ by fewer cycles over the data
_MAX_HARMONIC = 3  # highest harmonic that belongs to a cycle
_MIN_FUNDAMENTAL = 0.25  # smallest importance of a fundamental period, relative to its harmonics


@dataclass(frozen=True)
class Geometry:
    """Span and median step of the inputs of the kernel."""

    span: float
    step: float

    @classmethod
    def of(cls, inputs: Tensor) -> Geometry:
        """Compute the geometry of inputs ``... x N x 1``."""
        values = inputs.reshape(-1).unique()
        steps = values.diff()
        span = float(values[-1] - values[0])
        return cls(span, float(steps.median()) if steps.numel() else span)


@dataclass(frozen=True)
class Behaviour:
    """Periods and correlation lengths of one term, in units of the kernel."""

    periods: tuple[float, ...]  # between two steps and the span, shortest first
    length: float  # distance at which non-periodic factors decrease to exp(-1/2), or infinity
    relative_length: float  # distance at which they have made 39 % of their decrease over the data
    degree: int  # number of linear factors
    walks: bool  # whether a factor is a random walk
    others: bool  # whether there are other factors


@dataclass(frozen=True)
class Role:
    """Kind of a component: constant, trend, cycle, variation, effect (of covariates), other."""

    kind: str
    period: float | None = None  # period of a cycle, in units of the kernel


def behaviours_of(terms: Sequence[Term], geometry: Geometry) -> list[Behaviour]:
    """Return the behaviour of each term."""
    distances = geometry.span * torch.linspace(0, 1, _DISTANCES, dtype=torch.float64, device="cpu")
    near = geometry.step * torch.tensor(_SHORT_DISTANCES, dtype=torch.float64, device="cpu")
    distances = torch.cat([distances, near]).unique()
    correlation = cache(lambda factor: _correlation(factor, distances))
    behaviours = []
    for term in terms:
        curve = torch.ones_like(distances)
        periods, others, degree, walks = [], False, 0, False
        for factor in term.factors:
            repeats = period_of(factor)  # averaged over a batch
            period = None if repeats is None else float(repeats.mean())
            if period is not None and period < geometry.span:
                periods.append(period)
            elif period is not None or role_of(factor) in ("smooth", "walk"):  # no full cycle
                walks |= role_of(factor) == "walk"
                curve = curve * correlation(factor)
            elif role_of(factor) == "linear":
                degree += 1
            elif role_of(factor) != "step":
                others = True
        visible_periods = sorted({p for p in periods if p >= 2 * geometry.step})
        if any(p < 2 * geometry.step for p in periods):  # aliased, so no visible cycle
            curve = curve * (distances == 0)
        lengths = _lengths(curve, distances)
        behaviours.append(Behaviour(tuple(visible_periods), *lengths, degree, walks, others))
    return behaviours


def _correlation(kernel: Kernel, distances: Tensor) -> Tensor:
    """Return correlations at distances along the first column, averaged over a batch.

    For a random walk, these are correlations of the value one span after the origin with earlier
    values.
    """
    like = next(kernel.parameters())
    columns = 1 + max(columns_of(kernel) or (0,))
    x = torch.zeros(distances.numel(), columns, dtype=like.dtype, device=like.device)
    x[:, columns - 1] = there = distances.to(x)
    if role_of(kernel) == "walk":
        x[:, columns - 1] = kernel.origin.reshape(-1)[0] + there[-1] - there
    with torch.no_grad():
        values = to_dense(kernel(x[:1], x))[..., 0, :]
        if role_of(kernel) == "walk":
            scale = kernel(x, diag=True).clamp_min(torch.finfo(x.dtype).tiny)
            values = values / (scale[..., :1] * scale).sqrt()
    return values.reshape(-1, distances.numel()).mean(0).double().cpu()


def _lengths(curve: Tensor, distances: Tensor) -> tuple[float, float]:
    """Return distances where a curve is exp(-1/2), and after 39 % of its total decrease."""
    level = math.exp(-0.5)
    (low,) = torch.nonzero(curve <= level, as_tuple=True)
    length = float(distances[low[0]]) if low.numel() else math.inf
    fall = 1 - curve.min()
    if not fall > _MAX_CONSTANT_DECREASE:
        return length, math.inf
    (low,) = torch.nonzero(1 - curve >= (1 - level) * fall, as_tuple=True)
    return length, float(distances[low[0]])


def roles_of(
    terms: Sequence[Term],
    geometry: Geometry,
    importance: Callable[[list[list[Term]]], list[float]] | None = None,
) -> list[Role]:
    """Return the role of each term, given the importance of groups (default: total shares)."""
    behaviours = behaviours_of(terms, geometry)
    periods = _fundamental_periods(terms, behaviours, geometry, importance or _total_shares)
    return [_role(behaviour, geometry, periods) for behaviour in behaviours]


def _role(behaviour: Behaviour, geometry: Geometry, periods: dict[float, float]) -> Role:
    if behaviour.others:
        return Role("other")
    cycles = [periods[p] for p in _cycles(behaviour)]
    if cycles:
        return Role("cycle", min(cycles))
    if behaviour.walks:
        return Role("trend")
    # without a linear factor, the constant part of a term only shifts the level
    length = behaviour.length if behaviour.degree else behaviour.relative_length
    if length < _MIN_TREND_LENGTH * geometry.span:
        return Role("variation")
    still = math.isinf(length) and not behaviour.degree and not behaviour.periods
    return Role("constant" if still else "trend")


def _total_shares(groups: list[list[Term]]) -> list[float]:
    return [sum(term.mean_share() for term in group) for group in groups]


def _fundamental_periods(
    terms: Sequence[Term],
    behaviours: Sequence[Behaviour],
    geometry: Geometry,
    importance: Callable[[list[list[Term]]], list[float]],
) -> dict[float, float]:
    """Map each period to its fundamental period; equal periods and harmonics share one."""
    members: dict[float, list[Term]] = {}
    for term, behaviour in zip(terms, behaviours, strict=True):
        for period in _cycles(behaviour):
            members.setdefault(period, []).append(term)
    if not members:
        return {}
    sizes = dict(zip(members, _total_shares(list(members.values())), strict=True))
    # the period with the largest share replaces equal periods
    leaders: dict[float, list[Term]] = {}
    for period in sorted(members, key=lambda p: -sizes[p]):
        leader = next((p for p in leaders if _same(p, period, geometry, harmonics=1)), period)
        leaders.setdefault(leader, []).extend(members[period])
    matters = dict(zip(leaders, importance(list(leaders.values())), strict=True))
    fundamentals: list[float] = []
    for leader in sorted(leaders, reverse=True):
        if any(_same(p, leader, geometry) for p in fundamentals):
            continue
        # a longer period is fundamental only if its own terms are important
        harmonics = [p for p in leaders if p < leader and _same(leader, p, geometry)]
        if all(matters[leader] >= _MIN_FUNDAMENTAL * matters[p] for p in harmonics):
            fundamentals.append(leader)
    return {
        period: next((p for p in fundamentals if _same(p, period, geometry)), period)
        for period in members
    }


def _cycles(behaviour: Behaviour) -> list[float]:
    """Return periods within the correlation length; longer periods do not repeat."""
    return [period for period in behaviour.periods if behaviour.length >= period]


def _same(leader: float, period: float, geometry: Geometry, harmonics: int = _MAX_HARMONIC) -> bool:
    """Return whether ``period`` is ``leader`` or one of its harmonics, over all of the data."""
    repeats = max(1, round(leader / period))
    return (
        repeats <= harmonics
        and abs(repeats / leader - 1 / period) * geometry.span < _MAX_CYCLE_DIFFERENCE
    )
