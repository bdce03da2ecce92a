"""Kernels over time as sums of Gaussian Markov processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache, reduce
from itertools import product as pairs, starmap

import numpy as np
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, RQKernel
from scipy.linalg import solve_continuous_lyapunov
from scipy.optimize import nnls
from scipy.special import ive

from gpytorch_nkn.kernels import (
    DampedTrendKernel,
    IntegratedWienerKernel,
    NeuralKernelNetwork,
    WienerKernel,
    ZeroMeanPeriodicKernel,
)
from gpytorch_nkn.layers import Linear, Product
from gpytorch_nkn.linalg import MarkovProcess, product, scaled, stationary

__all__ = ["NotMarkovError", "markov_processes"]

_ORDER = 6  # of the expansion of a Gaussian spectral density: 0.004 of the variance is missed
_ROUGH_ORDER = 4  # of those that are mixed or multiply harmonics: 0.02
_MIXED = np.geomspace(0.4, 60.0, 8)  # lengthscales of a rational quadratic kernel's parts
_LAGS = np.linspace(0.0, 60.0, 2000)
_HARMONICS = 200  # at most
_LEFT_OUT = 1e-3  # of the noise: the variance of harmonics that are left out


class NotMarkovError(ValueError):
    """A kernel is not that of a sum of Markov processes from a time on."""


def markov_processes(
    kernel: Kernel, start: float, span: float, noise: float
) -> list[MarkovProcess]:
    r"""Markov processes whose sum has the covariances of a network from a time on.

    Walks, damped trends, lines and Matern kernels are such processes. Periodic kernels are
    truncated sums of harmonics. RBF kernels are approximated by a series of the inverse spectral
    density (up to 0.004 of the variance is missed, 0.02 in products), rational quadratic kernels by
    mixtures of these (0.01).

    Args:
        kernel: A network of products and their weighted sum over one column.
        start: The time at which walks have to start.
        span: From there to the last time that is of interest.
        noise: Variance of the noise.

    Raises:
        NotMarkovError: The kernel is another one.

    References: Hartikainen and Sarkka (2010), Kalman filtering and smoothing solutions to
    temporal Gaussian process regression models; Solin and Sarkka (2014), Explicit link between
    periodic covariance functions and state space models; Sarkka and Piche (2014), On convergence
    and accuracy of state-space approximations of squared exponential covariance functions.
    """
    layers = list(kernel.layers) if isinstance(kernel, NeuralKernelNetwork) else []
    match layers:
        case [Product() as products, Linear(out_features=1) as total]:
            weights, bias = total.weight.detach().flatten().tolist(), total.bias
        case _:
            raise NotMarkovError(f"Needs a network of products and their sum, got {kernel}.")
    if kernel.batch_shape.numel() > 1:
        raise NotMarkovError(f"Needs one kernel, got a batch of {tuple(kernel.batch_shape)}.")
    processes = [] if bias is None else [scaled(_level(), bias.item())]
    primitives = iter(kernel.primitives)
    for size, weight in zip(products.groups, weights, strict=True):
        reach = weight * max(span, 1.0)  # of a walk that starts there
        tolerance = _LEFT_OUT * noise / max(reach, 1e-300)
        group = [next(primitives) for _ in range(size)]
        order = _ORDER if size == 1 else _ROUGH_ORDER
        sums = [_parts(primitive, start, tolerance, order) for primitive in group]
        terms = reduce(lambda left, right: list(starmap(_product, pairs(left, right))), sums)
        processes += [scaled(term, weight) for term in terms]
    return processes


def _product(left: MarkovProcess, right: MarkovProcess) -> MarkovProcess:
    result = product(left, right)
    if result is None:
        raise NotMarkovError("A product of two walks has noise that varies.")
    return result


def _parts(kernel: Kernel, start: float, tolerance: float, order: int) -> list[MarkovProcess]:
    """Processes that add up to one of a kernel; variance up to a tolerance is left out."""
    if type(kernel) is RBFKernel and kernel.ard_num_dims in (None, 1):
        return [_all_pole(_poles(order), kernel.lengthscale.item())]
    make = _MAKERS.get(type(kernel))
    if make is None or kernel.ard_num_dims not in (None, 1):
        raise NotMarkovError(f"{type(kernel).__name__} over one column is not a Markov process.")
    if hasattr(kernel, "origin") and abs(kernel.origin.item() - start) > 1e-9 * (1 + abs(start)):
        raise NotMarkovError(f"A walk starts at {kernel.origin.item()}, not at {start}.")
    return list(make(kernel, start, tolerance))


def _level() -> MarkovProcess:
    one = np.ones((1, 1))
    return MarkovProcess(
        one[0], one, lambda time: np.ones((len(time), 1, 1)),
        lambda time: np.zeros((len(time), 1, 1)), is_fixed=True, is_stationary=True,
    )  # fmt: skip


def _of_line(kernel: LinearKernel, start: float, _: float) -> Iterable[MarkovProcess]:
    variance = kernel.variance.item()
    state = np.array([start, 1.0])  # value and slope of the line x
    initial = variance * np.outer(state, state)
    yield MarkovProcess(_FIRST, initial, _straight, lambda time: np.zeros((len(time), 2, 2)))


def _of_wiener(kernel: WienerKernel, _: float, __: float) -> Iterable[MarkovProcess]:
    unit = kernel.unit.item()
    yield MarkovProcess(
        np.ones(1), np.zeros((1, 1)), lambda time: np.ones((len(time), 1, 1)),
        lambda time: (time / unit)[:, None, None],
    )  # fmt: skip


def _of_trend(kernel: IntegratedWienerKernel, _: float, __: float) -> Iterable[MarkovProcess]:
    unit = kernel.unit.item()

    def noise(time: np.ndarray) -> np.ndarray:
        return _matrices(time**3 / 3, time**2 / 2, time**2 / 2, time) / unit**3

    yield MarkovProcess(_FIRST, np.zeros((2, 2)), _straight, noise)


def _of_damped(kernel: DampedTrendKernel, _: float, __: float) -> Iterable[MarkovProcess]:
    unit, length = kernel.unit.item(), kernel.lengthscale.item()

    def transition(time: np.ndarray) -> np.ndarray:
        gone = -np.expm1(-time / length)
        return _matrices(np.ones_like(time), length * gone, np.zeros_like(time), 1 - gone)

    def noise(time: np.ndarray) -> np.ndarray:
        tensor = torch.as_tensor(time)
        level = DampedTrendKernel.covariance(tensor, tensor, torch.tensor(length)).numpy()
        both = (length * np.expm1(-time / length)) ** 2 / 2
        slope = -length * np.expm1(-2 * time / length) / 2
        return _matrices(level, both, both, slope) / unit**3

    yield MarkovProcess(_FIRST, np.zeros((2, 2)), transition, noise)


def _of_matern(kernel: MaternKernel, _: float, __: float) -> Iterable[MarkovProcess]:
    pole = math.sqrt(2 * kernel.nu) / kernel.lengthscale.item()
    yield _all_pole(np.full(int(kernel.nu + 0.5), -1.0), 1 / pole)


def _of_rational_quadratic(kernel: RQKernel, _: float, __: float) -> Iterable[MarkovProcess]:
    alpha, length = kernel.alpha.item(), kernel.lengthscale.item()
    values = _rough_values()
    target = (1 + _LAGS**2 / (2 * alpha)) ** -alpha
    emphasis = (1 + _LAGS) ** -0.5
    weights, _ = nnls(values * emphasis[:, None], target * emphasis)
    weights /= weights.sum()
    for weight, scale in zip(weights, _MIXED, strict=True):
        if weight > 1e-6:
            yield scaled(_all_pole(_poles(_ROUGH_ORDER), scale * length), weight)


@cache
def _rough_values() -> np.ndarray:
    """Covariances of the parts of mixtures, lags by lengthscales."""
    process = _all_pole(_poles(_ROUGH_ORDER), 1.0)
    times = np.unique(np.concatenate([_LAGS / scale for scale in _MIXED]).round(4))
    grid = np.linspace(0.0, times[-1], 4000)
    curve = process.output @ process.transition(grid) @ process.initial @ process.output
    return np.stack([np.interp(_LAGS / scale, grid, curve) for scale in _MIXED], 1)


@cache
def _poles(order: int) -> np.ndarray:
    """Stable poles of 1 / (1 + w + ... + w^n / n!) at w = -s^2 / 2, a Gaussian for large n."""
    coefficients = np.zeros(2 * order + 1)
    for power in range(order + 1):
        coefficients[2 * (order - power)] = (-0.5) ** power / math.factorial(power)
    roots = np.roots(coefficients)
    return roots[roots.real < 0]


def _all_pole(poles: np.ndarray, scale: float) -> MarkovProcess:
    """The stationary process of variance one, white noise through poles in units of 1 / scale."""
    size = len(poles)
    drift = np.eye(size, k=1)
    drift[-1] = -np.poly(poles).real[:0:-1]
    driven = np.zeros((size, size))
    driven[-1, -1] = 1.0
    covariance = solve_continuous_lyapunov(drift, -driven)
    deviations = np.sqrt(np.diag(covariance))
    drift = drift * deviations / deviations[:, None]  # states of variance one
    covariance = covariance / deviations / deviations[:, None]
    return stationary(drift / scale, np.eye(size)[0], covariance)


def _of_periodic(
    kernel: ZeroMeanPeriodicKernel, _: float, tolerance: float
) -> Iterable[MarkovProcess]:
    concentration = 1 / kernel.lengthscale.item()
    numbers = np.arange(1, _HARMONICS + 1)
    variances = 2 * ive(numbers, concentration) / (1 - ive(0, concentration))
    missed = 1 - np.cumsum(variances)
    count = 1 + int((missed > max(tolerance, 1e-9)).sum())
    for number, variance in zip(numbers[:count].tolist(), variances, strict=False):
        yield _harmonic(2 * math.pi * number / kernel.period_length.item(), variance)


def _harmonic(frequency: float, variance: float) -> MarkovProcess:
    def transition(time: np.ndarray) -> np.ndarray:
        cosine, sine = np.cos(frequency * time), np.sin(frequency * time)
        return _matrices(cosine, -sine, sine, cosine)

    return MarkovProcess(
        _FIRST, variance * np.eye(2), transition, lambda time: np.zeros((len(time), 2, 2)),
        is_fixed=True, is_stationary=True,
    )  # fmt: skip


_FIRST = np.array([1.0, 0.0])


def _straight(time: np.ndarray) -> np.ndarray:
    return _matrices(np.ones_like(time), time, np.zeros_like(time), np.ones_like(time))


def _matrices(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Matrices ``T x 2 x 2`` of their rows' entries ``T``."""
    return np.stack([a, b, c, d], -1).reshape(-1, 2, 2)


_MAKERS: dict[type[Kernel], Callable[..., Iterable[MarkovProcess]]] = {
    WienerKernel: _of_wiener,
    IntegratedWienerKernel: _of_trend,
    DampedTrendKernel: _of_damped,
    LinearKernel: _of_line,
    MaternKernel: _of_matern,
    RQKernel: _of_rational_quadratic,
    ZeroMeanPeriodicKernel: _of_periodic,
}
