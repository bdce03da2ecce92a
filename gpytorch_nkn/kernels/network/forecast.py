"""Forecast preset: a sum of products of common processes, with priors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, SupportsIndex

import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, RQKernel

from gpytorch_nkn.kernels.centered_linear_kernel import CenteredLinearKernel
from gpytorch_nkn.kernels.damped_trend_kernel import DampedTrendKernel
from gpytorch_nkn.kernels.integrated_wiener_kernel import IntegratedWienerKernel
from gpytorch_nkn.kernels.step_kernel import StepKernel
from gpytorch_nkn.kernels.wiener_kernel import WienerKernel
from gpytorch_nkn.kernels.zero_mean_periodic_kernel import ZeroMeanPeriodicKernel
from gpytorch_nkn.layers import Layer, Linear, LogNormalPrior, Product, add_prior, log_normal_prior
from gpytorch_nkn.linalg import check_number

__all__ = ["MODES", "TERMS", "forecast"]

_CONSTANT = 10.0  # prior variance of the level of standardised targets
_ABRUPT = 1e-9  # width of a change, far below the distance between observations
_SINE = 10.0  # lengthscale at which the periodic kernel is nearly a cosine

# Mode, and standard deviation of the logarithm, of each prior, for standardised targets. The unit
# of time is the shortest season, or four steps without a season.
MODES: dict[str, tuple[float, float]] = {
    "smooth": (3.0, 1.0),  # lengthscale
    "damped": (2.7, 0.7),
    "level": (4.0, 1.5),  # lengthscale, in units of ``time_scale``
    "rough": (0.45, 1.0),
    "shape": (1.5, 1.4),  # dimensionless lengthscale within a season
    "shifting_shape": (1.0, 1.4),
    "drift": (12.0, 1.0),  # lengthscale over which a season drifts, in periods
    "steady_drift": (80.0, 0.4),
    "cycle": (1.0, 0.15),  # period, relative to its start value
    "coherence": (3.0, 1.0),  # lengthscale over which a cycle drifts, in periods
    "curve": (1.5, 0.7),  # lengthscale along a standardised covariate
}


class _Context(NamedTuple):
    """Arguments of a term's kernels."""

    origin: float
    period: float
    scale: float  # time scale of the priors of walks, trends, lines and levels


def _with_prior(kernel: Kernel, name: str, value: tuple[float, float]) -> Kernel:
    kernel.initialize(**{name: value[0]})
    add_prior(kernel, name, log_normal_prior(*value))
    return kernel


def _fixed(kernel: Kernel, name: str, value: float) -> Kernel:
    kernel.initialize(**{name: value})
    getattr(kernel, f"raw_{name}").requires_grad_(False)
    return kernel


def _walk(args: _Context) -> list[Kernel]:
    return [WienerKernel(origin=args.origin, unit=args.scale)]


def _line(args: _Context) -> list[Kernel]:
    return [_fixed(LinearKernel(), "variance", args.scale**-2)]


def _with_lengthscale(kernel: Kernel, name: str, args: _Context, unit: float = 1.0) -> list[Kernel]:
    prior = unit * MODES[name][0], MODES[name][1]
    return [_with_prior(kernel, "lengthscale", prior)]


def _periodic(args: _Context, shape: str) -> Kernel:
    kernel = _fixed(ZeroMeanPeriodicKernel(), "period_length", args.period)
    return _with_prior(kernel, "lengthscale", MODES[shape])


def _season(args: _Context, drift: str) -> list[Kernel]:
    return [_periodic(args, "shape"), *_with_lengthscale(RBFKernel(), drift, args, args.period)]


def _cycle(args: _Context) -> list[Kernel]:
    period = MODES["cycle"][0] * args.period, MODES["cycle"][1]
    wave = _fixed(ZeroMeanPeriodicKernel(), "lengthscale", _SINE)
    return [
        _with_prior(wave, "period_length", period),
        *_with_lengthscale(MaternKernel(nu=0.5), "coherence", args, args.period),
    ]


_Weight = tuple[float, float]  # mode, and standard deviation of the logarithm


class _Term(NamedTuple):
    make: Callable[[_Context], list[Kernel]]
    weight: _Weight


TERMS = {
    "walk": _Term(_walk, (0.06, 1.5)),
    "trend": _Term(lambda s: [IntegratedWienerKernel(origin=s.origin, unit=s.scale)], (1.6e-3, 2)),
    "damped": _Term(
        lambda s: _with_lengthscale(DampedTrendKernel(origin=s.origin, unit=1.0), "damped", s),
        (0.02, 1.5),
    ),
    "line": _Term(_line, (0.22, 1.5)),
    "smooth": _Term(
        lambda s: _with_lengthscale(_fixed(RQKernel(), "alpha", 1.0), "smooth", s), (0.135, 1.2)
    ),
    "rough": _Term(lambda s: _with_lengthscale(MaternKernel(nu=0.5), "rough", s), (0.135, 1.2)),
    "season": _Term(lambda s: _season(s, "drift"), (0.044, 1.8)),
    "steady_season": _Term(lambda s: _season(s, "steady_drift"), (0.044, 1.8)),
    "shifting_season": _Term(lambda s: [_periodic(s, "shifting_shape"), *_walk(s)], (0.0036, 2.2)),
    "level": _Term(
        lambda s: _with_lengthscale(MaternKernel(nu=0.5), "level", s, s.scale), (0.135, 1.5)
    ),
    "fixed_season": _Term(lambda s: [_periodic(s, "shape")], (0.135, 1.8)),
    "cycle": _Term(_cycle, (0.135, 1.5)),
}

_SHIFT: _Weight = (0.5, 1.5)  # of a level shift
_KINK: _Weight = (0.22, 1.5)  # of a change of slope, as of a line

# Effects of each covariate.
_LINE = _Term(_line, (0.02, 2.0))
_DRIFTING_LINE = _Term(lambda s: [*_line(s), *_walk(s)], (0.0005, 2.0))
_SEASONAL_LINE = _Term(lambda s: [*_line(s), _periodic(s, "shape")], (0.002, 2.0))
_CURVE = _Term(lambda s: _with_lengthscale(RBFKernel(), "curve", s), (0.01, 2.0))


def forecast(
    origin: float,
    seasons: Sequence[float],
    cycles: Sequence[float],
    terms: Sequence[str],
    covariates: Sequence[int],
    nonlinear: Sequence[int],
    time_scale: float = 1.0,
    shifts: Sequence[float] = (),
    kinks: Sequence[float] = (),
) -> tuple[list[Kernel], list[Layer]]:
    """Create the primitives and layers of the preset, one product per term and period."""
    terms = (terms,) if isinstance(terms, str) else tuple(terms)
    covariates, nonlinear = tuple(covariates), tuple(nonlinear)
    unknown = [name for name in terms if name not in TERMS]
    if unknown or not terms:
        raise ValueError(f"terms must be among {tuple(TERMS)}, got {tuple(terms)}.")
    times = {"seasons": seasons, "cycles": cycles, "shifts": shifts, "kinks": kinks}
    for name, values in times.items():
        if not isinstance(values, Iterable):
            raise TypeError(f"{name} must be a sequence of numbers, got {values!r}.")
    seasons, cycles, shifts, kinks = (tuple(values) for values in times.values())
    for period in (*seasons, *cycles):
        check_number("Each of seasons and cycles", period, positive=True)
    check_number("time_scale", time_scale, positive=True)
    _check_columns(covariates, nonlinear)
    args = _Context(float(origin), 1.0, time_scale)
    parts = list(_processes(terms, seasons, cycles, args))
    parts += [([_step(time)], _SHIFT) for time in shifts]
    for time in kinks:
        slope = _fixed(CenteredLinearKernel(), "variance", time_scale**-2)
        parts.append(([slope.initialize(center=float(time)), _step(time)], _KINK))
    if not parts:
        raise ValueError(f"terms={tuple(terms)} need seasons or cycles, got none.")
    if covariates:
        for kernels, _ in parts:
            _on_column(0, kernels)  # time
    args = args._replace(period=float(min(seasons, default=1.0)), scale=1.0)
    for column in covariates:
        seasonal = [_SEASONAL_LINE] if seasons else []
        smooth = [_CURVE] if column in nonlinear else []
        for make, weight in (_LINE, _DRIFTING_LINE, *seasonal, *smooth):
            effect, *over_time = make(args)
            parts.append((_on_column(column, [effect]) + _on_column(0, over_time), weight))
    groups, weights = zip(*parts, strict=True)
    modes, scales = torch.tensor(weights, dtype=torch.float64).T.to(torch.get_default_dtype())
    prior = LogNormalPrior(modes.log() + scales.square(), scales)
    total = Linear(len(groups), 1, weight_prior=prior, initial_bias=_CONSTANT)
    total.weight = modes
    # one series contains little information on the variance of its level
    assert total.raw_bias is not None
    total.raw_bias.requires_grad_(False)
    primitives = [kernel for group in groups for kernel in group]
    return primitives, [Product(len(primitives), len(groups), groups=[*map(len, groups)]), total]


def _processes(
    terms: Sequence[str], seasons: Sequence[float], cycles: Sequence[float], args: _Context
) -> Iterator[tuple[list[Kernel], _Weight]]:
    """Yield the kernels and the weight of each product over time."""
    for name in terms:
        make, weight = TERMS[name]
        periods = seasons if name.endswith("season") else cycles if name == "cycle" else (1.0,)
        for period in periods:
            yield make(args._replace(period=float(period))), weight
        if name == "fixed_season" and len(seasons) > 1:
            # the shortest season varies with the longest, such as a daily season over the year
            ends = (args._replace(period=float(end)) for end in (min(seasons), max(seasons)))
            yield [_periodic(end, "shape") for end in ends], weight


def _step(time: float) -> Kernel:
    return StepKernel(location=float(time), width=_ABRUPT).requires_grad_(False)


def _on_column(column: int, kernels: list[Kernel]) -> list[Kernel]:
    for kernel in kernels:
        kernel.active_dims = torch.tensor([column])
    return kernels


def _check_columns(covariates: Sequence[int], nonlinear: Sequence[int]) -> None:
    """Check that covariates are distinct columns after time and include the nonlinear ones."""
    if any(not isinstance(column, SupportsIndex) or column < 1 for column in covariates):
        raise ValueError(
            f"covariates must be indices of input columns from 1 on (0 is time), got {covariates}."
        )
    if len(set(covariates)) < len(covariates) or not set(nonlinear) <= set(covariates):
        raise ValueError(
            "covariates must be distinct and include the columns in nonlinear, got covariates="
            f"{tuple(covariates)} and nonlinear={tuple(nonlinear)}."
        )
