"""Which Gaussian processes are candidates for a series, and how each is trained."""

from __future__ import annotations

import math
import time as clock
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import LinearMean, ZeroMean
from gpytorch.models import ExactGP
from gpytorch.priors import NormalPrior
from torch import Tensor

from gpytorch_nkn.averaging import Transform
from gpytorch_nkn.estimators.series.member import CONDITIONED, Member, Scales
from gpytorch_nkn.estimators.series.scoring import one_thread, score
from gpytorch_nkn.estimators.series.series import Series, view
from gpytorch_nkn.estimators.table_input import offset_and_scale
from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import log_normal_prior

__all__ = [
    "QUALITIES",
    "Key",
    "Options",
    "SeriesGP",
    "candidate_keys",
    "scout",
    "train",
]

Key = tuple[str, Transform]  # name of the structure, and what it models of the targets

_STEADY, _DRIFTING, _LEVEL, _NO_COVARIATES = "steady", "drifting", "level", "no covariates"
# Terms of the networks, by name.
_TERMS: dict[str, tuple[str, ...]] = {
    _STEADY: ("walk", "steady_season"),
    "damped": ("walk", "damped", "line", "rough", "steady_season", "shifting_season"),
    "smooth": ("walk", "trend", "line", "smooth", "rough", "steady_season"),
    "shifting": ("walk", "rough", "shifting_season"),
    _DRIFTING: ("walk", "trend", "line", "smooth", "rough", "season", "shifting_season"),
    "cycle": ("walk", "trend", "line", "rough", "season", "shifting_season", "cycle"),
    _LEVEL: ("level", "smooth", "rough", "season", "fixed_season"),
    _NO_COVARIATES: ("walk", "trend", "line", "rough", "season", "shifting_season"),
}
QUALITIES: dict[str, tuple[str, ...]] = {
    "fast": (_STEADY, "damped"),
    "default": (_STEADY, "damped", "smooth", "shifting", "cycle", _LEVEL, _NO_COVARIATES),
}
_OF_LONG: dict[str, tuple[str, ...]] = {
    "fast": (_DRIFTING,),
    "default": (_DRIFTING, "damped", "cycle", _LEVEL, _NO_COVARIATES),
}
# Log prior weight of a candidate whose structure is picked with the values that score it: a
# network, or a cycle that came less often than so many times.
_PICKED, _FEW_CYCLES = -3.0, 6.0
_SUMS = Recipe(adam_steps=0, lbfgs_iterations=40)  # of one start, at the modes of the priors
_TIME = (0,)  # column of the inputs
_MANY = 250  # points


@dataclass(frozen=True)
class Options:
    """Options of a search, as of :class:`NKNForecaster`.

    Attributes:
        structure, transform, bounds, quality, outliers, priors, restarts, recipe, budget, n_jobs,
            device, progress: Of the forecaster.
        seed: Of all that is drawn.
        begin: When the call began, by the monotonic clock.
    """

    structure: str | NeuralKernelNetwork
    transform: str
    bounds: Sequence[float | None] | None
    quality: str
    outliers: str
    priors: bool
    restarts: int | None
    recipe: Recipe | None
    budget: float | None
    n_jobs: int
    device: str | None
    progress: bool
    seed: int
    begin: float = field(default_factory=clock.monotonic)

    @property
    def seconds_left(self) -> float:
        """Seconds that are left of the budget, infinite without one."""
        budget = math.inf if self.budget is None else self.budget
        return budget - (clock.monotonic() - self.begin)


class SeriesGP(ExactGP):
    """Exact GP over scaled time and targets.

    Args:
        x: Inputs ``N x (1 + C)``, time and covariates.
        y: Targets ``N``.
        kernel: Its kernel.
        priors: Weak priors on noise and mean.
        line: The mean is linear; else it is zero.
    """

    def __init__(self, x: Tensor, y: Tensor, kernel: Kernel, priors: bool, *, line: bool):
        # The floor keeps the covariance matrix of a noise-free series well conditioned.
        noise = (0.01, 2.0) if line else (0.05, 1.5)
        likelihood = GaussianLikelihood(
            noise_prior=log_normal_prior(*noise) if priors else None,
            noise_constraint=GreaterThan(1e-6),
        )
        if not line:
            likelihood.noise = noise[0]
        super().__init__(x, y, likelihood)
        self.mean_module = ZeroMean()
        if line:
            with torch.random.fork_rng():  # LinearMean draws its start from the global state
                self.mean_module = LinearMean(x.size(-1)).initialize(weights=0.0, bias=0.0)
            if priors:
                mean = self.mean_module
                mean.register_prior("weights_prior", NormalPrior(0.0, 1.0), _weights, _set_weights)
                mean.register_prior("bias_prior", NormalPrior(0.0, 2.0), _bias, _set_bias)
        self.covar_module = kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def scout(series: Series) -> str:
    """Name of the candidate that finds outliers: what came once must not look like a season."""
    return _DRIFTING if series.is_long else _STEADY


def candidate_keys(
    structure: str | NeuralKernelNetwork,
    quality: str,
    series: Series,
    transforms: Sequence[Transform],
) -> list[Key]:
    """Structures and transforms to train for a series, given its possible transforms.

    Each is trained for the first and the last transform, a cycle for the middle one.
    """
    names: tuple[str, ...] = ("network",)
    if isinstance(structure, str):
        known = _OF_LONG if series.is_long else QUALITIES
        names = known[quality] if structure == "auto" else (structure,)
    if not series.is_long and series.far == 1:
        names = tuple(name for name in names if name != _LEVEL)
    if series.covariates is None:
        names = tuple(name for name in names if name != _NO_COVARIATES)
    ends = list(dict.fromkeys((transforms[0], transforms[-1])))
    middle = transforms[len(transforms) // 2]
    keys: list[Key] = []
    for name in names:
        keys += [(name, transform) for transform in ([middle] if name == "cycle" else ends)]
    return keys


def train(shared: tuple[Options, Series], key: Key, seconds: float | None) -> Member:
    """Train and score a candidate, which is then conditioned on the rows it learned from.

    Raises:
        RuntimeError, ArithmeticError: It cannot be trained, or there is no cycle.
    """
    try:
        return _trained(shared, key, seconds)
    except ValueError as error:  # of the numbers: options are checked before
        raise ArithmeticError(str(error)) from error


def _trained(shared: tuple[Options, Series], key: Key, seconds: float | None) -> Member:
    options, whole = shared
    name, transform = key
    is_sum = name in _TERMS
    series = whole.select(whole.learned)
    if is_sum:
        x_offset, x_scale = float(whole.time[-1]), whole.unit
    else:
        x_offset, x_scale = float(whole.time.mean()), float(whole.time.std())
    y_scales = offset_and_scale(
        transform.forward(whole.select(view(len(whole.time), whole.reach, CONDITIONED)).values)
    )
    scales = Scales(x_offset, x_scale, *y_scales, transform)
    log_prior, cycles = 0.0 if is_sum else _PICKED, []
    if name == "cycle":
        found = whole.cycle()
        if found is None:
            raise ArithmeticError("the series has no cycle")
        period, times = found
        cycles, log_prior = [period], _PICKED * min(_FEW_CYCLES / times, 1.0)
    x = scales.inputs(series.rows, options.device)
    y = scales.targets(series.values, options.device)
    if is_sum:
        kernel = _sum(name, cycles, whole, scales, x, options.priors)
        how: dict[str, Any] = {"restarts": 1, "initialize": None, "recipe": options.recipe or _SUMS}
    else:
        kernel = NeuralKernelNetwork.time_series(priors=options.priors, active_dims=_TIME)
        if isinstance(options.structure, NeuralKernelNetwork):
            kernel = deepcopy(options.structure)
        how = {"restarts": _restarts(options, len(whole.time)), "recipe": options.recipe}
    model = SeriesGP(x, y, kernel, options.priors, line=not is_sum)
    with one_thread(series):
        result = fit_best_of(
            model.to(device=options.device, dtype=y.dtype),
            budget=seconds,
            seed=options.seed,
            progress=options.progress,
            **how,
        )
        log_density, spread = score(result.model, scales, whole)
    if not math.isfinite(log_density):
        raise ArithmeticError(f"its log density is {log_density}")
    member = Member(
        name,
        scales,
        result,
        log_density,
        spread,
        whole.horizon,
        whole.reach,
        whole.span,
        log_prior,
        is_sum=is_sum,
    )
    member.limit(whole.time, whole.values)
    return member


def _restarts(options: Options, num_rows: int) -> int:
    if options.restarts is not None:
        return options.restarts
    return 20 if num_rows <= _MANY else 6


def _sum(
    name: str, cycles: list[float], series: Series, scales: Scales, x: Tensor, priors: bool
) -> NeuralKernelNetwork:
    columns = 1 if name == _NO_COVARIATES else x.size(-1)
    return NeuralKernelNetwork.forecast(
        origin=float(scales.inputs(series.last(series.reach).rows)[0, 0])
        - series.step / scales.x_scale,
        far=series.far,
        seasons=[period / scales.x_scale for period in series.seasons],
        cycles=[period / scales.x_scale for period in cycles],
        terms=_TERMS[name],
        covariates=range(1, columns),
        curves=series.curves if columns > 1 else (),
        priors=priors,
        active_dims=_TIME if columns < x.size(-1) else None,
    )


def _weights(mean: LinearMean) -> Tensor:
    return mean.weights


def _set_weights(mean: LinearMean, value: Tensor) -> None:
    mean.initialize(weights=value)


def _bias(mean: LinearMean) -> Tensor:
    return mean.bias


def _set_bias(mean: LinearMean, value: Tensor) -> None:
    mean.initialize(bias=value)
