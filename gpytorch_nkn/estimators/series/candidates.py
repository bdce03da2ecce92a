"""Candidate Gaussian processes of a forecast, and their training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import LinearMean, Mean, ZeroMean
from gpytorch.priors import NormalPrior
from torch import Tensor

from gpytorch_nkn.averaging import Transform
from gpytorch_nkn.estimators.series.member import CONDITIONED, Member, Scales
from gpytorch_nkn.estimators.series.scoring import one_thread, score
from gpytorch_nkn.estimators.series.series import Series, view
from gpytorch_nkn.fit import Recipe, Rows, RowsGP, fit_best_of
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import add_prior, log_normal_prior

__all__ = [
    "QUALITIES",
    "SHIFTED",
    "Key",
    "SeriesGP",
    "candidate_keys",
    "check_network",
    "screen",
    "train",
]

Key = tuple[str, Transform]  # structure by name, and transform of the targets

_STEADY, _DRIFTING, _LEVEL, _NO_COVARIATES = "steady", "drifting", "level", "no covariates"
SHIFTED = "shifted"  # structure with the changes of level and slope
# Terms of each structure.
_TERMS: dict[str, tuple[str, ...]] = {
    _STEADY: ("walk", "steady_season"),
    "damped": ("walk", "damped", "line", "rough", "steady_season", "shifting_season"),
    "smooth": ("walk", "trend", "line", "smooth", "rough", "steady_season"),
    "shifting": ("walk", "rough", "shifting_season"),
    _DRIFTING: ("walk", "trend", "line", "smooth", "rough", "season", "shifting_season"),
    "cycle": ("walk", "trend", "line", "rough", "season", "shifting_season", "cycle"),
    SHIFTED: ("walk", "line", "rough", "steady_season"),
    _LEVEL: ("level", "smooth", "rough", "season", "fixed_season"),
    _NO_COVARIATES: ("walk", "trend", "line", "rough", "season", "shifting_season"),
}
# Structures of each quality, for short and for long series.
QUALITIES: dict[str, tuple[str, ...]] = {
    "fast": (_STEADY, "damped", "smooth"),
    "default": (_STEADY, "damped", "smooth", "shifting", "cycle", _LEVEL, _NO_COVARIATES),
}
_LONG_QUALITIES: dict[str, tuple[str, ...]] = {
    "fast": (_DRIFTING, _LEVEL),
    "default": (_DRIFTING, "damped", "cycle", _LEVEL, _NO_COVARIATES),
}
# Log prior weight of a cycle: a penalty, as its period is chosen on the scored values. With n > 6
# periods in the data, it is multiplied by 6 / n.
_CYCLE_LOG_PRIOR, _FEW_CYCLES = -3.0, 6.0
_SUM_RECIPE = Recipe(adam_steps=0, lbfgs_iterations=40)  # for the single start, at the prior modes
_TIME = (0,)  # column of time in the inputs
_MANY = 250  # number of points up to which a network has 20 starts; above, 6


class SeriesGP(RowsGP):
    """Exact GP on scaled time, covariates and targets.

    ``data`` has inputs ``N x (1 + C)`` (time and covariates), targets ``N`` and known noise ``N``.
    If the kernel has priors, noise and mean have weak ones. The mean is zero or, with ``line``,
    linear.
    """

    def __init__(self, data: Rows, kernel: Kernel, *, line: bool):
        priors = any(True for _ in kernel.named_priors())
        # The lower bound keeps the covariance matrix of a noise-free series well conditioned.
        noise = (0.01, 2.0) if line else (0.05, 1.5)  # mode, and std of the logarithm
        likelihood = GaussianLikelihood(
            noise_prior=log_normal_prior(*noise) if priors else None,
            noise_constraint=GreaterThan(1e-6),
        )
        mean: Mean = ZeroMean()
        if line:
            with torch.random.fork_rng():  # LinearMean uses the global random state
                mean = LinearMean(data.x.size(-1)).initialize(weights=0.0, bias=0.0)
            for name, scale in (("weights", 1.0), ("bias", 2.0)) if priors else ():
                add_prior(mean, name, NormalPrior(0.0, scale))
        else:
            likelihood.noise = noise[0]
        super().__init__(data, kernel, mean, likelihood)


def screen(series: Series) -> str:
    """Return the structure of the candidate that finds outliers and changes."""
    return _DRIFTING if series.is_long else _STEADY


def candidate_keys(
    structure: str | NeuralKernelNetwork,
    quality: str,
    series: Series,
    transforms: Sequence[Transform],
) -> list[Key]:
    """Return structures and transforms of the candidates.

    Each structure is combined with the first and the last transform, the cycle with the middle one.
    """
    names: tuple[str, ...] = ("network",)
    if isinstance(structure, str):
        known = _LONG_QUALITIES if series.is_long else QUALITIES
        names = known[quality] if structure == "auto" else (structure,)
    is_needed = {
        _LEVEL: series.time_scale > 1 or (series.is_long and quality == "default"),
        _NO_COVARIATES: series.covariates is not None,
        SHIFTED: bool(series.shifts or series.kinks),
    }
    names = tuple(name for name in (*names, SHIFTED) if is_needed.get(name, True))
    ends = list(dict.fromkeys((transforms[0], transforms[-1])))
    special = {"cycle": [transforms[len(transforms) // 2]]}
    return [(name, transform) for name in names for transform in special.get(name, ends)]


def train(shared: tuple[Any, Series], key: Key, seconds: float | None) -> Member:
    """Train and score a candidate, and condition it on its training rows.

    ``shared`` contains an unfitted :class:`NKNForecaster`, for its options, and the series.
    """
    try:
        return _train(shared, key, seconds)
    except ValueError as error:  # an error in the data, because options are checked earlier
        raise ArithmeticError(str(error)) from error


def _train(shared: tuple[Any, Series], key: Key, seconds: float | None) -> Member:
    options, series = shared
    name, transform = key
    if name != SHIFTED:
        series = replace(series, shifts=(), kinks=())
    is_sum = name in _TERMS
    subset = series.select(series.learned)
    if is_sum:
        x_offset, x_scale = float(series.time[-1]), series.unit
    else:
        x_offset, x_scale = float(series.time.mean()), float(series.time.std())
    seen = series.select(view(len(series.time), series.reach, CONDITIONED))
    scales = Scales.of(x_offset, x_scale, transform, seen)
    log_prior, cycles = 0.0, []
    if name == "cycle":
        cycle = series.cycle()
        if cycle is None:
            raise ArithmeticError("the series has no cycle")
        period, count = cycle
        cycles, log_prior = [period], _CYCLE_LOG_PRIOR * min(_FEW_CYCLES / count, 1.0)
    data = scales.data(subset.rows, subset.values, subset.noise, options.device)
    if is_sum:
        kernel = _sum_kernel(name, cycles, series, scales, data.x)
        restarts, initialize, recipe = 1, None, options.recipe or _SUM_RECIPE
    else:
        kernel = NeuralKernelNetwork.time_series(active_dims=_TIME)
        if isinstance(options.structure, NeuralKernelNetwork):
            kernel = deepcopy(options.structure)
        initialize, recipe = "data", options.recipe
        restarts = options.restarts or (20 if len(series.time) <= _MANY else 6)
    model = SeriesGP(data, kernel, line=not is_sum)
    with one_thread(subset):
        result = fit_best_of(
            model.to(device=options.device, dtype=data.y.dtype),
            restarts=restarts,
            initialize=initialize,
            recipe=recipe,
            budget=seconds,
            seed=options.random_state,
            progress=options.progress,
        )
        log_density, calibration = score(result.model, scales, series)
    if not math.isfinite(log_density):
        raise ArithmeticError(f"its log density is {log_density}")
    member = Member(
        name,
        scales,
        result,
        log_density,
        calibration,
        series.horizon,
        series.reach,
        series.span,
        log_prior,
        is_sum=is_sum,
        shifts=series.shifts,
    )
    member.limit(series.time, series.values)
    return member


def _sum_kernel(
    name: str, cycles: list[float], series: Series, scales: Scales, x: Tensor
) -> NeuralKernelNetwork:
    columns = 1 if name == _NO_COVARIATES else x.size(-1)
    shifts, kinks = (
        [(time - scales.x_offset) / scales.x_scale for time in times]
        for times in (series.shifts, series.kinks)
    )
    return NeuralKernelNetwork.forecast(
        origin=float(scales.inputs(series.last(series.reach).rows)[0, 0])
        - series.step / scales.x_scale,
        time_scale=series.time_scale,
        seasons=[period / scales.x_scale for period in series.seasons],
        cycles=[period / scales.x_scale for period in cycles],
        shifts=shifts,
        kinks=kinks,
        terms=_TERMS[name],
        covariates=range(1, columns),
        nonlinear=series.curves if columns > 1 else (),
        active_dims=_TIME if columns < x.size(-1) else None,
    )


def check_network(network: NeuralKernelNetwork, width: int) -> None:
    """Raise an error unless a network is one kernel, without batches, of ``width`` columns."""
    kernel = deepcopy(network).double()
    rows = torch.arange(3.0, dtype=torch.float64).unsqueeze(-1).expand(3, width)
    columns = "one input column" if width == 1 else f"{width} input columns (time and covariates)"
    expected = f"structure must be one kernel over {columns}"
    try:
        with torch.no_grad():
            shape = tuple(kernel(rows).to_dense().shape)
    except (IndexError, RuntimeError, ValueError) as error:
        raise ValueError(f"{expected}: {error}") from error
    if shape != (3, 3):
        raise ValueError(f"{expected}, got covariances of shape {shape} for 3 times.")
