"""Start values of a grid's kernels from the spectra of its values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from gpytorch.kernels import (
    Kernel,
    LinearKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from torch import Tensor

from gpytorch_nkn.initialization.assign import assign, assign_weight
from gpytorch_nkn.initialization.axis_spectrum import AxisSpectrum, axis_spectrum
from gpytorch_nkn.initialization.distances import median_distances
from gpytorch_nkn.kernels import NeuralKernelNetwork, SpectralComponentKernel, spec_of, variances_of
from gpytorch_nkn.kernels.evaluation import unwrap_scales
from gpytorch_nkn.layers import Linear
from gpytorch_nkn.linalg import check_counts

__all__ = ["initialize_grid_kernels", "rescale_kernel"]

# Ranges of lengthscales, in periods: for RBF kernels (fine details) and for other kernels.
_RBF_RANGE, _OTHER_RANGE = (0.03, 0.1), (0.1, 0.3)
# Kernel classes with a variance parameter, its name and number of event dimensions.
_FACTORS: tuple[tuple[type[Kernel], str, int], ...] = (
    (ScaleKernel, "outputscale", 0),
    (LinearKernel, "variance", 2),
    (SpectralMixtureKernel, "mixture_weights", 1),
)
_PERIODIC_RANGE = (0.4, 1.0)  # range of the dimensionless lengthscale of a periodic kernel
_ENVELOPE_RANGE = 0.3, 1.0  # lengthscales, in spans, of kernels that multiply periodic ones
_BINS = 16  # number of frequencies of a spectrum without peaks
_LINEAR = 0.1  # variance of a linear kernel at the edge of the grid


def initialize_grid_kernels(
    kernels: Sequence[Kernel],
    coordinates: Sequence[Tensor],
    values: Tensor,
    observed: Tensor,
    *,
    shortest: Sequence[float] | None = None,
    seed: int = 0,
    restart: int = 0,
) -> None:
    """Set the start values of one kernel per dimension of a grid, in place.

    - *Periods*: the longest period whose spectral peak is at least 60 % of the highest; later
      restarts draw one of the strongest peaks.
    - *Lengthscales*: 0.03 to 0.1 of the period for RBF kernels, 0.1 to 0.3 for others. For kernels
      that multiply a periodic kernel, 0.3 to 1 times the span of the grid.
    - *Frequencies* of spectral mixtures: half of them at the highest peaks, the others drawn from
      the spectrum. *Weights* of Linear layers: drawn.
    - *Random walks* along a dimension with one coordinate column start one step before the grid.

    The product of kernels that are not sums gets unit variance on average over the grid. Other
    parameters and frozen parameters keep their values, except that variances of linear primitives
    are rescaled.

    Args:
        kernels: One kernel per dimension.
        coordinates: Coordinates ``n_p x c_p`` of each dimension.
        values: Standardised values ``... x n_1 x ... x n_P``; the spectrum is computed from the
            first entry of a batch.
        observed: Mask of the observed values.
        shortest: Smallest lengthscale of each dimension; ``None`` for no bound.
        seed: Determines all draws together with ``restart``, independently of the global random
            state.
        restart: Number of the restart.
    """
    check_counts(0, seed=seed, restart=restart)
    num_dims = len(coordinates)
    sizes = values.shape[values.dim() - num_dims :]
    array = values.detach().reshape(-1, *sizes)[0].double().cpu().numpy()
    mask = observed.expand(values.shape).reshape(-1, *sizes)[0].cpu().numpy()
    rng = np.random.default_rng([seed, restart])
    networks = [
        m for kernel in kernels for m in kernel.modules() if isinstance(m, NeuralKernelNetwork)
    ]
    primitives = {id(part) for network in networks for part in network.primitives}
    envelopes = {id(part) for kernel in kernels for part in _envelopes(kernel)}
    for dim, (kernel, x) in enumerate(zip(kernels, coordinates, strict=True)):
        spectrum = None
        if x.size(-1) == 1:
            spectrum = axis_spectrum(array, mask, dim, x[:, 0].detach().double().cpu().numpy())
        spectrum = spectrum or _flat_spectrum(x)
        rank = 0 if restart == 0 else int(rng.integers(0, 4))
        for part in (module for module in kernel.modules() if isinstance(module, Kernel)):
            roles = id(part) in primitives, id(part) in envelopes
            _start(part, x, spectrum, shortest[dim] if shortest else 0.0, rank, rng, *roles)
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        for module in kernel.modules():
            if isinstance(module, Linear) and module.raw_weight.requires_grad:
                assign_weight(module, generator)
        with torch.no_grad():
            variance = variances_of(kernel, x).mean(-1)
            rescale_kernel(kernel, torch.where(variance > 0, 1 / variance, 1.0))


def rescale_kernel(kernel: Kernel, factor: Tensor) -> bool:
    """Multiply a kernel in place by factors of its batch shape; return whether that is possible.

    The kernel needs a trainable scale, variance or weights.
    """
    if isinstance(kernel, NeuralKernelNetwork):
        last = kernel.layers[-1] if len(kernel.layers) else None
        if not isinstance(last, Linear) or last.is_simplex:
            return False
        if not all(raw is None or raw.requires_grad for raw in (last.raw_weight, last.raw_bias)):
            return False
        last.weight = last.weight * factor[..., None, None]
        if last.raw_bias is not None:
            last.bias = last.bias * factor.unsqueeze(-1)  # type: ignore[operator]
        return True
    for kind, name, event_dims in _FACTORS:
        if isinstance(kernel, kind) and kernel._parameters[f"raw_{name}"].requires_grad:
            value = getattr(kernel, name) * factor[(..., *[None] * event_dims)]
            assign(kernel, name, value)
            return True
    return False


def _envelopes(kernel: Kernel) -> Iterator[Kernel]:
    """Yield the kernels that multiply a periodic kernel and let its pattern change slowly."""
    for product in kernel.modules():
        if isinstance(product, ProductKernel):
            factors = [unwrap_scales(factor)[0] for factor in product.kernels]
            periodic = ["raw_period_length" in factor._parameters for factor in factors]
            if any(periodic):
                yield from (f for f, p in zip(factors, periodic, strict=True) if not p)


def _flat_spectrum(x: Tensor) -> AxisSpectrum:
    """Return a spectrum without peaks, whose period is the median distance."""
    period = float(median_distances(x).mean())
    frequencies = np.linspace(0, 2 / period, _BINS)
    return AxisSpectrum(frequencies, np.ones(_BINS), 2 * period, np.empty(0, dtype=int))


def _start(
    part: Kernel,
    x: Tensor,
    spectrum: AxisSpectrum,
    shortest: float,
    rank: int,
    rng: np.random.Generator,
    is_primitive: bool,
    is_envelope: bool,
) -> None:
    period = spectrum.period(rank)

    def draw(value: Tensor, low: float, high: float) -> Tensor:
        draws = np.exp(rng.uniform(np.log(low), np.log(high), tuple(value.shape)))
        return torch.as_tensor(draws, dtype=value.dtype, device=value.device)

    if isinstance(part, SpectralMixtureKernel):
        _start_mixture(part, spectrum, period, rng)
        return
    periodic = "raw_period_length" in part._parameters
    if part.has_lengthscale and part.raw_lengthscale.requires_grad:
        short = isinstance(part, RBFKernel)
        low, high = _PERIODIC_RANGE if periodic else _RBF_RANGE if short else _OTHER_RANGE
        scale = 1.0 if periodic else period
        if is_envelope:
            (low, high), scale = _ENVELOPE_RANGE, float((x.amax(0) - x.amin(0)).amax()) or 1.0
        least = 2 * math.pi / period * shortest if periodic else shortest
        assign(part, "lengthscale", (scale * draw(part.lengthscale, low, high)).clamp_min(least))
    if periodic and part.raw_period_length.requires_grad:
        assign(part, "period_length", torch.full_like(part.period_length, period))
    if isinstance(part, SpectralComponentKernel) and part.frequency.requires_grad:
        part.initialize(frequency=torch.full_like(part.frequency, 2 * math.pi / period))
    # Networks freeze the variance of a linear primitive, but it depends on the unit of x.
    if isinstance(part, LinearKernel) and (is_primitive or part.raw_variance.requires_grad):
        edge = float(x.abs().amax().square())
        if edge > 0:
            assign(part, "variance", torch.full_like(part.variance, _LINEAR / edge))
    spec = spec_of(part)
    if spec is not None and spec.start is not None and x.size(-1) == 1:
        spec.start(part, x)


def _start_mixture(
    part: SpectralMixtureKernel, spectrum: AxisSpectrum, period: float, rng: np.random.Generator
) -> None:
    """Start half of the components at the highest peaks, and draw the others from the spectrum."""
    count = part.num_mixtures
    chosen, step = spectrum.peaks[: count // 2], spectrum.frequencies[1]
    chance = spectrum.power / spectrum.power.sum()
    for index in np.ndindex(*part.mixture_means.shape[:-3]):  # of ... x Q x 1 x c
        frequencies = np.concatenate([[0.0], spectrum.frequencies[chosen]])[:count]
        weights = np.concatenate([spectrum.power[:1], spectrum.power[chosen]])[:count]
        num_drawn = count - frequencies.size
        drawn = rng.choice(spectrum.frequencies, size=num_drawn, p=chance)
        drawn = np.abs(drawn + step * rng.uniform(-0.5, 0.5, num_drawn))
        frequencies = np.concatenate([frequencies, drawn])
        weights = np.concatenate([weights, np.full(num_drawn, weights.mean() / 3)])
        width = step * rng.uniform(0.5, 2, count)
        floor = 1e-3 / period
        for name, numbers in (
            ("mixture_means", np.maximum(frequencies, floor)),
            ("mixture_scales", np.maximum(width, floor)),
            ("mixture_weights", np.maximum(weights / weights.sum(), 1e-4)),
        ):
            if part._parameters[f"raw_{name}"].requires_grad:
                value = getattr(part, name).detach().clone()
                shape = (count, *[1] * (value[index].dim() - 1))
                value[index] = torch.as_tensor(numbers).to(value).view(shape)
                assign(part, name, value)
