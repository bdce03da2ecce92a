"""Which processes are tried for a series, and how each is trained."""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np

from gpytorch_nkn.averaging import Transform
from gpytorch_nkn.estimators.series.member import CONDITIONED, Member, Scales, SeriesGP, judge
from gpytorch_nkn.estimators.series.seasons import typical_step
from gpytorch_nkn.estimators.table_input import offset_and_scale
from gpytorch_nkn.fit import FitResult, Recipe, fit_best_of
from gpytorch_nkn.initialization import candidate_periods
from gpytorch_nkn.kernels import NeuralKernelNetwork

__all__ = [
    "LEARNING",
    "NO_COVARIATES",
    "NO_SEASON",
    "QUALITIES",
    "Series",
    "Settings",
    "candidates",
    "find_cycles",
    "train",
]

LEARNING = 0.6  # of the time, where a series is longer than what is learned from

# The same as others where there are none.
NO_SEASON, NO_COVARIATES = "no season", "no covariates"
# Terms of the networks that are tried, by name.
_TERMS: dict[str, tuple[str, ...]] = {
    "smooth": ("walk", "trend", "line", "smooth", "rough", "season", "shifting_season"),
    "damped": ("walk", "damped", "line", "rough", "season", "shifting_season"),
    NO_SEASON: ("walk", "trend", "line", "smooth", "rough"),
    "cycle": ("walk", "trend", "line", "rough", "season", "shifting_season", "cycle"),
    NO_COVARIATES: ("walk", "trend", "line", "rough", "season", "shifting_season"),
}
QUALITIES: dict[str, tuple[str, ...]] = {
    "fast": ("smooth",),
    "default": ("smooth", "damped", "cycle", NO_SEASON, NO_COVARIATES),
    "best": ("smooth", "damped", "cycle", NO_SEASON, NO_COVARIATES, "time_series"),
}
# Those that are tried for every transform, where others are, too.
_OF_ALL = ("smooth", "damped", NO_SEASON)
# Log weight, before forecasts are judged, of a candidate whose structure is picked with the values
# that judge it: a network, or a cycle, which most series have none of (chance makes few cycles of a
# period, not many).
_PICKED, _FEW_CYCLES = -3.0, 6.0
_SEARCHED = (
    2000  # the last rows, that periods are looked for in: time and memory grow as the square
)
# One start, at the modes of the priors; forecasts do not change after so many iterations.
_SUMS = Recipe(adam_steps=0, lbfgs_iterations=40)
_TIME = (0,)  # column of the inputs
_STEPS = 4  # per unit of time, without a season
# The last rows, that hyperparameters are learned from: so many, or more where they hold fewer than
# so many of the longest season.
_ROWS, _MAX_ROWS, _LONGEST_SEASONS = 600, 1500, 2.5
_SHORTEST, _LONGEST = 3.0, 1 / 2.5  # of them, in steps and spans
_HARMONICS = 6


@dataclass(frozen=True)
class Series:
    """A series in the order of time.

    Attributes:
        time, values: ``N`` each.
        seasons: Known periods, shortest first, in units of time.
        horizon: Steps that are to be forecast.
        covariates: Scaled columns ``N x C``; None for none.
        curves: Numbers of those of more than two values, from 1 on.
    """

    time: np.ndarray
    values: np.ndarray
    seasons: list[float]
    horizon: int
    covariates: np.ndarray | None = None
    curves: tuple[int, ...] = ()

    @property
    def rows(self) -> np.ndarray:
        """Time and covariates ``N x (1 + C)``."""
        if self.covariates is None:
            return self.time[:, None]
        return np.column_stack([self.time, self.covariates])

    @property
    def step(self) -> float:
        """The typical step."""
        return typical_step(self.time)

    @property
    def unit(self) -> float:
        """The unit of time of the priors: the shortest season that has steps enough."""
        long = [period for period in self.seasons if period >= 2 * self.step]
        return long[0] if long else _STEPS * self.step

    def last(self, rows: int) -> Series:
        """The same with its last rows only."""
        return self.select(slice(-rows, None))

    def select(self, rows: slice | np.ndarray) -> Series:
        """The same with some of its rows."""
        return replace(
            self,
            time=self.time[rows],
            values=self.values[rows],
            covariates=None if self.covariates is None else self.covariates[rows],
        )

    @property
    def num_trained(self) -> int:
        """Rows that hyperparameters are learned from."""
        longest = self.seasons[-1] / self.step if self.seasons else 0.0
        return min(len(self.time), max(_ROWS, int(_LONGEST_SEASONS * longest)), _MAX_ROWS)

    @property
    def first_origin(self) -> int:
        """The first row that is forecast from the rows before it: after two seasons, or a third."""
        n = len(self.time)
        seasons = int(np.ceil(2 * self.seasons[0] / self.step)) if self.seasons else 0
        return max(n // 3, min(seasons, n // 2), 1)

    @property
    def num_windows(self) -> float:
        """Windows of the horizon that are judged and do not overlap."""
        judged = self.last(self.num_trained)
        return (len(judged.time) - judged.first_origin) / self.horizon


@dataclass(frozen=True)
class Settings:
    """How processes are trained."""

    priors: bool
    restarts: int
    recipe: Recipe | None
    device: str | None
    seed: int
    progress: bool


def candidates(
    names: Sequence[str], transforms: Sequence[Transform]
) -> list[tuple[str, Transform]]:
    """Which structures are tried for which transforms, the first of which is the identity.

    One structure alone is tried for the first and the last of them, a cycle for the one between
    these: it matters less to it.
    """
    ends = list(dict.fromkeys((transforms[0], transforms[-1])))
    middle = transforms[len(transforms) // 2]
    tried: list[tuple[str, Transform]] = []
    for name in names:
        every = len(names) > 1 and name in _OF_ALL
        own = transforms if every else [middle] if name == "cycle" else ends
        tried += [(name, transform) for transform in own]
    return tried


def find_cycles(series: Series) -> list[float]:
    """The period that stands out of a series less its seasons and covariates, if there is one."""
    time, values = series.time, series.values
    phases = [
        2 * np.pi * number * time / period
        for period in series.seasons
        for number in range(1, min(int(period / series.step / 2), _HARMONICS) + 1)
    ]
    columns = [np.ones_like(time), (time - time[-1]) / np.ptp(time)]
    columns += [*map(np.sin, phases), *map(np.cos, phases), *series.rows.T[1:]]
    design = np.stack(columns, 1)
    scaled = (values - values.mean()) / np.ptp(values)
    residual = scaled - design @ np.linalg.lstsq(design, scaled, rcond=None)[0]
    if residual.std() <= 1e-9 * scaled.std():  # rounding errors alone
        return []
    span = np.ptp(time)
    found = candidate_periods(time, residual, num_candidates=10)
    kept = [
        period
        for period in found.tolist()
        if _SHORTEST * series.step <= period <= _LONGEST * span
        and all(abs(1 / period - round(own / period) / own) > 1.5 / span for own in series.seasons)
    ]
    return kept[:1]


def train(
    name: str,
    network: NeuralKernelNetwork | None,
    transform: Transform,
    series: Series,
    settings: Settings,
    budget: float | None,
) -> Member:
    """Train one process and let it forecast the series from several origins.

    Args:
        name: One of :data:`QUALITIES`' names, or any other for a network of the caller's.
        network: That network, which is copied.
        transform: What is modelled of the targets.
        series: The series.
        settings: How to train.
        budget: Seconds that it has; ``None`` for any number.

    Returns:
        The process, conditioned on the last rows alone that hyperparameters are learned from.
    """
    begin = clock.monotonic()
    is_sum = network is None and name in _TERMS
    whole, series = series, series.last(series.num_trained)
    if is_sum:
        x_offset, x_scale = float(whole.time[-1]), series.unit
    else:
        x_offset, x_scale = float(whole.time.mean()), float(whole.time.std())
    scale = offset_and_scale(transform.forward(whole.last(CONDITIONED).values))
    scales = Scales(x_offset, x_scale, *scale, transform)
    member = Member(name, scales, None, is_sum=is_sum)
    try:
        if is_sum:
            cycles = []
            if name == "cycle":
                long = whole.last(_SEARCHED)
                cycles = find_cycles(long)
                if not cycles:
                    raise ArithmeticError("the series has no cycle")
                seen = float(np.ptp(long.time)) / cycles[0]
                member.log_prior = _PICKED * min(_FEW_CYCLES / seen, 1.0)
            member.result = _fit_sum(name, cycles, series, scales, settings, budget)
        else:
            member.log_prior = _PICKED  # a matter of other candidates only
            member.result = _fit_network(network, series, scales, settings, budget)
        model, judging = member.result.model, clock.monotonic()
        member.log_density, member.spread = judge(
            model,
            scales,
            series.values,
            series.horizon,
            min(series.first_origin, len(series.time) - 1),
        )
        member.pace = (clock.monotonic() - judging) / len(series.time) ** 2
        if any(record.status == "interrupted" for record in member.result.restarts):
            member.status = "interrupted"
        if not np.isfinite(member.log_density):
            member.status = f"failed: its log density is {member.log_density}"
    except (RuntimeError, ArithmeticError, np.linalg.LinAlgError) as error:
        member.status = f"failed: {type(error).__name__}: {error}"
    member.seconds = clock.monotonic() - begin
    return member


def _fit_sum(
    name: str,
    cycles: list[float],
    series: Series,
    scales: Scales,
    settings: Settings,
    budget: float | None,
) -> FitResult:
    is_alone = name == NO_COVARIATES or series.covariates is None
    x = scales.inputs(series.rows, settings.device)
    kernel = NeuralKernelNetwork.forecast(
        origin=float(x[0, 0]) - series.step / scales.x_scale,
        seasons=[period / scales.x_scale for period in series.seasons],
        cycles=[period / scales.x_scale for period in cycles],
        terms=_TERMS[name],
        covariates=() if is_alone else range(1, x.size(-1)),
        curves=() if is_alone else series.curves,
        priors=settings.priors,
        active_dims=_TIME if is_alone and x.size(-1) > 1 else None,
    )
    model = SeriesGP(
        x, scales.targets(series.values, settings.device), kernel, settings.priors, line=False
    )
    recipe = settings.recipe or _SUMS
    return _fit(model, settings, budget, restarts=1, initialize=None, recipe=recipe)


def _fit_network(
    network: NeuralKernelNetwork | None,
    series: Series,
    scales: Scales,
    settings: Settings,
    budget: float | None,
) -> FitResult:
    if network is None:
        kernel = NeuralKernelNetwork.time_series(priors=settings.priors, active_dims=_TIME)
    else:
        kernel = deepcopy(network)
    x = scales.inputs(series.rows, settings.device)
    y = scales.targets(series.values, settings.device)
    model = SeriesGP(x, y, kernel, settings.priors, line=True)
    return _fit(
        model, settings, budget,
        restarts=settings.restarts, initialize="data", recipe=settings.recipe,
    )  # fmt: skip


def _fit(
    model: SeriesGP,
    settings: Settings,
    budget: float | None,
    *,
    restarts: int,
    initialize: str | None,
    recipe: Recipe | None,
) -> FitResult:
    return fit_best_of(
        model.to(device=settings.device, dtype=model.train_targets.dtype),
        restarts=restarts,
        initialize=initialize,
        recipe=recipe,
        budget=budget,
        seed=settings.seed,
        progress=settings.progress,
    )
