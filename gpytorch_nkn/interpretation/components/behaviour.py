"""What the terms of a kernel over one input say of a series, in numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from gpytorch.kernels import Kernel
from linear_operator import to_dense
from torch import Tensor

from gpytorch_nkn.interpretation.expansion import (
    Term,
    columns_of,
    name_of,
    period_of,
    window_of,
)
from gpytorch_nkn.kernels import role_of

__all__ = ["Behaviour", "Geometry", "Role", "behaviours_of", "roles_of"]

_DISTANCES = 401  # at which correlations are looked at
_NEAR = (0.125, 0.25, 0.5, 1.0)  # steps, at which they are looked at as well
_STILL = 1e-6  # fall of the correlation over the data from which on something varies
_SLOW = 0.25  # spans: smooth variation of this correlation length is part of the trend
_DRIFT = 0.5  # cycles by which two periods may drift apart over the data and still be one
_HARMONICS = 3  # a cycle and its half and third are one; a cycle in ten is another
_TAKES_OVER = 0.25  # of a harmonic's importance that its fundamental period must have


@dataclass(frozen=True)
class Geometry:
    """Range of the inputs and median distance of neighbours, in units of the kernel."""

    span: float
    step: float

    @classmethod
    def of(cls, inputs: Tensor) -> Geometry:
        """Of inputs ``... x N x 1``."""
        values = inputs.reshape(-1).unique()
        steps = values.diff()
        span = float(values[-1] - values[0])
        return cls(span, float(steps.median()) if steps.numel() else span)


@dataclass(frozen=True)
class Behaviour:
    """Periods and lengths of the functions of one term, in units of the kernel."""

    periods: tuple[float, ...]  # above two steps, below the span, shortest first
    length: float  # at which smooth and longer periodic factors fall to exp(-1/2), or infinity
    relative_length: float  # at which they have fallen by 39 % of their fall over the data
    degree: int  # number of linear factors
    walks: bool  # it is a random walk
    others: tuple[str, ...]  # names of factors of other families


@dataclass(frozen=True)
class Role:
    """Kind of a component: constant, trend, cycle, variation, effect (of covariates), other."""

    kind: str
    period: float | None = None  # of a cycle, in units of the kernel
    begin: float = -math.inf  # where steps begin and end it
    end: float = math.inf

    @property
    def is_window(self) -> bool:
        """Whether it has a beginning or an end."""
        return math.isfinite(self.begin) or math.isfinite(self.end)


def behaviours_of(terms: Sequence[Term], geometry: Geometry) -> list[Behaviour]:
    """What the factors of each term say together."""
    distances = geometry.span * torch.linspace(0, 1, _DISTANCES, dtype=torch.float64, device="cpu")
    near = geometry.step * torch.tensor(_NEAR, dtype=torch.float64, device="cpu")
    distances = torch.cat([distances, near]).unique()
    curves: dict[int, Tensor] = {}
    behaviours = []
    for term in terms:
        curve = torch.ones_like(distances)
        periods, others, degree, walks = [], [], 0, False
        for factor in term.factors:
            repeats = period_of(factor)  # averaged over a batch
            period = None if repeats is None else float(repeats.mean())
            if period is not None and period < geometry.span:
                periods.append(period)
            elif period is not None or role_of(factor) in ("smooth", "walk"):  # nothing comes back
                walks |= role_of(factor) == "walk"
                if id(factor) not in curves:
                    curves[id(factor)] = _correlation(factor, distances)
                curve = curve * curves[id(factor)]
            elif role_of(factor) == "linear":
                degree += 1
            elif role_of(factor) == "step":  # see roles_of
                continue
            else:
                others.append(name_of(factor))
        seen = sorted({p for p in periods if p >= 2 * geometry.step})
        if any(p < 2 * geometry.step for p in periods):  # an alias: no cycle that can be seen
            curve = curve * (distances == 0)
        lengths = _fall(curve, distances)
        behaviours.append(Behaviour(tuple(seen), *lengths, degree, walks, tuple(others)))
    return behaviours


def _correlation(kernel: Kernel, distances: Tensor) -> Tensor:
    """Correlation at distances along the first column, averaged over a batch.

    Of a walk, those of its last value, a span after its origin, with the values before.
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


def _fall(curve: Tensor, distances: Tensor) -> tuple[float, float]:
    """Distances at which a curve has fallen to exp(-1/2), and as far of its whole fall."""
    level = math.exp(-0.5)
    (low,) = torch.nonzero(curve <= level, as_tuple=True)
    length = float(distances[low[0]]) if low.numel() else math.inf
    fall = 1 - curve.min()
    if not fall > _STILL:
        return length, math.inf
    (low,) = torch.nonzero(1 - curve >= (1 - level) * fall, as_tuple=True)
    return length, float(distances[low[0]])


def roles_of(
    terms: Sequence[Term],
    geometry: Geometry,
    importance: Callable[[list[list[Term]]], list[float]] | None = None,
) -> list[Role]:
    """The part that each term over one column belongs to.

    How much groups of terms matter (``importance``, by default their shares) decides on periods.
    """
    behaviours = behaviours_of(terms, geometry)
    periods = _fundamental_periods(terms, behaviours, geometry, importance or _total_shares)
    roles = [_role(behaviour, geometry, periods) for behaviour in behaviours]
    return [_in_window(role, term) for role, term in zip(roles, terms, strict=True)]


def _in_window(role: Role, term: Term) -> Role:
    """The role with the ends that steps give it; steps alone shift the level, as a trend does."""
    if all(role_of(factor) == "step" for factor in term.factors):
        return Role("trend") if term.factors else role
    begin, end = window_of(term.factors)
    return replace(role, begin=begin, end=end)


def _role(behaviour: Behaviour, geometry: Geometry, periods: dict[float, float]) -> Role:
    if behaviour.others:
        return Role("other")
    cycles = [periods[p] for p in _cycles(behaviour)]
    if cycles:
        return Role("cycle", min(cycles))
    if behaviour.walks:
        return Role("trend")
    # beside a linear factor what does not vary stays visible; alone only what varies does
    length = behaviour.length if behaviour.degree else behaviour.relative_length
    if length < _SLOW * geometry.span:
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
    """For every period the one that it counts as: equal but for a drift, or a harmonic of it."""
    members: dict[float, list[Term]] = {}
    for term, behaviour in zip(terms, behaviours, strict=True):
        for period in _cycles(behaviour):
            members.setdefault(period, []).append(term)
    if not members:
        return {}
    sizes = dict(zip(members, _total_shares(list(members.values())), strict=True))
    # of periods that differ by a drift the one with the largest share stands for all
    leaders: dict[float, list[Term]] = {}
    for period in sorted(members, key=lambda p: -sizes[p]):
        leader = next((p for p in leaders if _same(p, period, geometry, harmonics=1)), period)
        leaders.setdefault(leader, []).extend(members[period])
    matters = dict(zip(leaders, importance(list(leaders.values())), strict=True))
    fundamentals: list[float] = []
    for leader in sorted(leaders, reverse=True):
        if any(_same(p, leader, geometry) for p in fundamentals):
            continue
        # a longer period is the cycle's own only if it carries a good part of it
        harmonics = [p for p in leaders if p < leader and _same(leader, p, geometry)]
        if all(matters[leader] >= _TAKES_OVER * matters[p] for p in harmonics):
            fundamentals.append(leader)
    return {
        period: next((p for p in fundamentals if _same(p, period, geometry)), period)
        for period in members
    }


def _cycles(behaviour: Behaviour) -> list[float]:
    """Periods that repeat: what forgets within a period repeats nothing."""
    return [period for period in behaviour.periods if behaviour.length >= period]


def _same(leader: float, period: float, geometry: Geometry, harmonics: int = _HARMONICS) -> bool:
    """Whether a cycle of ``period`` repeats with ``leader`` too, over all of the data."""
    repeats = max(1, round(leader / period))
    return repeats <= harmonics and abs(repeats / leader - 1 / period) * geometry.span < _DRIFT
