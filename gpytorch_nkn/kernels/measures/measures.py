"""Spectral measures of kernels, from which random features are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.special import gammainc, gammaincinv, ive
from torch import Tensor
from torch.nn.functional import one_hot
from torch.quasirandom import SobolEngine

__all__ = [
    "Constant",
    "Draws",
    "Linear",
    "Measure",
    "Pairs",
    "RandomFeatures",
    "allocated",
    "complex_exponential",
    "flat",
    "matern",
    "periodic",
    "rational_quadratic",
    "rbf",
    "spectral_component",
]

_TAIL_SHARE = 0.5  # fraction of the draws that are allocated evenly to octaves of the frequency


@dataclass
class RandomFeatures:
    r"""Random features under construction; each row ``r`` represents a kernel.

    .. math:: k_r(x, x') = a_r \cos\bigl(\omega_r^\top (x - x')\bigr) \prod_j f_j(x) f_j(x'),
        \qquad f_j(x) = x_{d_j} - c_j \ \text{or}\ \cos(\delta_j^\top x + b_j)

    Attributes:
        frequency: :math:`\omega`, ``R x D``; rows of one batch element are adjacent.
        log_amplitude: :math:`\log a`, ``R``.
        factors: Rows, unit vectors ``n x D`` of columns, and :math:`-c` of linear factors.
        cosines: Rows, :math:`\delta` ``n x D`` and :math:`b` of cosine factors.
    """

    frequency: Tensor
    log_amplitude: Tensor
    factors: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    cosines: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)


@dataclass(frozen=True)
class Draws:
    """Requested draws from a kernel; products of kernels request several draws per row.

    Attributes:
        row: Row of features to which each draw belongs.
        slot: Number of the draw within its row. Draws with equal slots may be dependent, to reduce
            the variance; draws with different slots are independent, as products require.
        sign, rows_per_element: Sign of the frequency, and number of rows per batch element.
    """

    row: Tensor
    slot: Tensor
    sign: Tensor
    rows_per_element: int

    @property
    def element(self) -> Tensor:
        """Batch element of each draw."""
        return self.row // self.rows_per_element

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, index: Tensor) -> Draws:
        return Draws(self.row[index], self.slot[index], self.sign[index], self.rows_per_element)

    def split(self, counts: Tensor) -> tuple[Draws, Tensor, Tensor]:
        """Replace each draw by ``counts`` independent draws.

        Also return the index of each draw's original, and its number among the copies.
        """
        origin = torch.repeat_interleave(counts)
        number = torch.arange(len(origin)) - (counts.cumsum(0) - counts)[origin]
        slot = self.slot[origin] * (int(counts.max()) if len(counts) else 1) + number
        slot = slot.unique(return_inverse=True)[1]  # renumber, so that slots remain small
        draws = Draws(self.row[origin], slot, self.sign[origin], self.rows_per_element)
        return draws, origin, number


def allocated(weights: Tensor, group: Tensor, even_fraction: float) -> tuple[Tensor, Tensor]:
    """Choose entries like :func:`stratified`, with more draws of rare entries.

    Each draw chooses a column of ``weights``, ``G x K``; ``group`` contains its row. A fraction
    ``even_fraction`` of the draws of a group is allocated evenly to all entries. Importance weights
    with mean one in each group correct for this without bias. Return choices and log weights.
    """
    count = group.bincount(minlength=len(weights)).unsqueeze(-1)
    total = weights.sum(-1, keepdim=True)
    wanted = weights / torch.where(total > 0, total, 1.0)  # G x K
    present = (wanted > 0).to(wanted)
    even = present / present.sum(-1, keepdim=True).clamp_min(1.0)
    expected = count * ((1 - even_fraction) * wanted + even_fraction * even)
    # merge entries with less than one expected draw, and add more until the sum is at least one
    ordered, order = expected.sort(-1)
    before = ordered.cumsum(-1) - ordered
    rare = torch.empty_like(expected, dtype=torch.bool)
    rare.scatter_(-1, order, (ordered < 1 + 1e-9) | ((before > 0) & (before < 1 + 1e-9)))
    of_rare = torch.where(rare, wanted, 0.0)
    frequent = torch.where(rare, 0.0, expected)
    num_rare = torch.where(rare, expected, 0.0).sum(-1, keepdim=True)
    choice = stratified(torch.cat([num_rare, frequent], -1), group) - 1
    fractions = torch.cat([of_rare.sum(-1, keepdim=True), torch.where(rare, 0.0, wanted)], -1)
    key = group * fractions.size(-1) + choice + 1
    num_drawn = key.bincount(minlength=fractions.numel())[key]
    log_weight = (fractions.flatten()[key] * count[group, 0] / num_drawn).log()
    is_rare = choice < 0
    choice[is_rare] = stratified(of_rare, group[is_rare])
    return choice, torch.where(total[group, 0] > 0, log_weight, 0.0)


def choose(weights: Tensor, group: Tensor, uniform: Tensor) -> Tensor:
    """Choose a column of ``weights`` ``G x K`` for each row index in ``group``, by inversion."""
    total = weights.sum(-1, keepdim=True)
    cumulative = (weights / torch.where(total > 0, total, 1.0)).cumsum(-1)
    cumulative = cumulative / torch.where(total > 0, cumulative[:, -1:], 1.0)
    # one search serves all rows: row g has values from g to g + 1
    steps = cumulative + torch.arange(len(cumulative)).unsqueeze(-1)
    size = weights.size(-1)
    index = torch.searchsorted(steps.flatten(), uniform + group, right=True)
    return (index - group * size).clamp(0, size - 1)


def stratified(weights: Tensor, group: Tensor, slot: Tensor | None = None) -> Tensor:
    """Choose entries by systematic resampling in random order.

    The probabilities of a draw are the weights of its group. Among the draws of a group with equal
    slots, the number of draws of an entry differs from its expectation by less than one.
    """
    key = group if slot is None else slot * len(weights) + group
    _, stratum, count = key.unique(return_inverse=True, return_counts=True)
    shuffled = torch.randperm(len(key))
    order = shuffled[stratum[shuffled].argsort(stable=True)]
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order)) - (count.cumsum(0) - count)[stratum[order]]
    shift = torch.rand(len(count), dtype=torch.float64)
    return choose(weights, group, (rank + shift[stratum]) / count[stratum])


class Measure:
    """Spectral measure: the kernel is the mass times the mean of randomly drawn simple kernels.

    ``mass`` is the variance per batch element, with linear factors set to one. ``is_stationary``
    states whether the simple kernels are stationary.
    """

    mass: Tensor
    is_stationary = True

    def draw(self, draws: Draws, features: RandomFeatures) -> None:
        """Add the draws to ``features``."""
        raise NotImplementedError


class Frequencies(Measure):
    """Measure with mass one that maps uniform numbers ``n x U`` to frequencies ``n x D``.

    ``strata`` are lengths ``K`` of intervals of the last uniform number; short ones are
    oversampled.
    """

    def __init__(
        self,
        columns: Tensor,
        num_elements: int,
        num_uniforms: int,
        frequency: Callable[[Tensor, Tensor], Tensor],
        strata: Tensor | None = None,
    ):
        self.mass = torch.ones(num_elements, dtype=torch.float64)
        self._columns, self._num_uniforms, self._frequency = columns, num_uniforms, frequency
        self._strata = strata

    def draw(self, draws: Draws, features: RandomFeatures) -> None:
        points = torch.empty(len(draws), self._num_uniforms, dtype=torch.float64)
        slots = draws.slot.unique()
        for slot in slots if self._num_uniforms else ():
            rows = (draws.slot == slot).nonzero()[:, 0]
            rows = rows[torch.randperm(len(rows))]  # else factors of a product would be dependent
            sobol = SobolEngine(self._num_uniforms, scramble=True)
            # points are multiples of 2^-30, including zero
            points[rows] = sobol.draw(len(rows), dtype=torch.float64) + 2.0**-31
            if self._strata is not None:
                strata = self._strata.expand(len(self.mass), -1)
                even_fraction = _TAIL_SHARE / len(slots)  # importance weights of factors multiply
                choice, log_weight = allocated(strata, draws.element[rows], even_fraction)
                ends = self._strata.cumsum(0)
                points[rows, -1] = ends[choice] - self._strata[choice] * points[rows, -1]
                features.log_amplitude[draws.row[rows]] += log_weight
        frequency = draws.sign.unsqueeze(-1) * self._frequency(points, draws.element)
        index = (draws.row.unsqueeze(-1), self._columns)
        features.frequency.index_put_(index, frequency, accumulate=True)


class Constant(Measure):
    """Measure of a constant kernel, with frequency zero."""

    def __init__(self, kernel: Any, columns: Tensor, batch_shape: torch.Size, value: Tensor):
        self.mass = value

    def draw(self, draws: Draws, features: RandomFeatures) -> None:
        pass


class Linear(Measure):
    """Measure of a linear kernel, which draws columns in proportion to their variances."""

    is_stationary = False

    def __init__(
        self,
        kernel: Any,
        columns: Tensor,
        batch_shape: torch.Size,
        variance: Tensor,
        center: Tensor | None = None,
    ):
        self.mass = variance.sum(-1)
        self._columns = columns
        self._variance = variance
        self._center = torch.zeros_like(variance) if center is None else center

    def draw(self, draws: Draws, features: RandomFeatures) -> None:
        choice = stratified(self._variance, draws.element, draws.slot)
        center = self._center[draws.element, choice]
        slope = one_hot(self._columns[choice], features.frequency.size(-1)).to(center)
        features.factors.append((draws.row, slope, -center))


class Pairs(Measure):
    """Uniform measure over frequency pairs; each pair is a sinusoid with a sinusoidal envelope."""

    def __init__(self, kernel: Any, columns: Tensor, shape: torch.Size):
        if len(columns) != kernel.input_dim:
            raise ValueError(f"Inputs must have {kernel.input_dim} columns, got {len(columns)}.")
        scale = flat(kernel.lengthscale, 2, shape)
        pairs = flat(kernel.frequencies, 3, shape) / scale.unsqueeze(-3)
        self.mass = flat(kernel.outputscale, 0, shape)
        self._columns = columns
        self._mean = (pairs[:, 0] + pairs[:, -1]) / 2  # B x R x D
        self._difference = (pairs[:, 0] - pairs[:, -1]) / 2
        self._center = flat(kernel.center, 2, shape).squeeze(-2)
        self._stationary = kernel.stationary
        self._phases: Tensor | None = None  # B x R, only for "phi"
        if kernel.feature_map == "phi":
            self._phases = flat(kernel.phases, 1, shape)

    def draw(self, draws: Draws, features: RandomFeatures) -> None:
        weights = torch.ones(self._mean.shape[:-1], dtype=torch.float64)
        element = draws.element
        choice = stratified(weights, element, draws.slot)
        mean = self._mean[element, choice]
        if not self._stationary:
            self._add_cosine(draws, self._difference[element, choice], 0.0, features)
        if self._phases is None:
            index = (draws.row.unsqueeze(-1), self._columns)
            frequency = draws.sign.unsqueeze(-1) * mean
            features.frequency.index_put_(index, frequency, accumulate=True)
        else:  # a product of sinusoids in x and in x', instead of a sinusoid in x - x'
            self._add_cosine(draws, mean, self._phases[element, choice], features)
            twice = torch.full_like(mean[:, 0], math.log(2.0))
            features.log_amplitude.index_add_(0, draws.row, twice)

    def _add_cosine(
        self, draws: Draws, slope: Tensor, phase: Tensor | float, features: RandomFeatures
    ) -> None:
        frequency = features.frequency.new_zeros(len(draws), features.frequency.size(-1))
        frequency[:, self._columns] = slope
        offset = phase - (slope * self._center[draws.element]).sum(-1)
        features.cosines.append((draws.row, frequency, offset))


def flat(value: Tensor, event_dims: int, batch_shape: torch.Size) -> Tensor:
    """Return the current value ``... x E`` of a parameter as ``B x E``, float64 on the CPU."""
    event = value.shape[value.dim() - event_dims :]
    value = value.detach().cpu().to(torch.float64)
    return value.expand(torch.Size([*batch_shape, *event])).reshape(batch_shape.numel(), *event)


def rbf(kernel: Any, columns: Tensor, batch_shape: torch.Size, lengthscale: Tensor) -> Measure:
    def frequency(points: Tensor, element: Tensor) -> Tensor:
        return torch.special.ndtri(points) / lengthscale[element]

    return Frequencies(columns, len(lengthscale), len(columns), frequency)


def _gaussian_mixture(
    columns: Tensor, lengthscale: Tensor, shape: Tensor, power: float, strata: Tensor | None = None
) -> Measure:
    """Return the measure of normal frequencies times a power of a gamma variable with mean one."""

    def frequency(points: Tensor, element: Tensor) -> Tensor:
        shapes = shape[element]
        gamma = torch.as_tensor(gammaincinv(shapes.numpy(), points[:, -1].numpy())) / shapes
        # gamma variables with tiny shapes underflow
        scale = gamma.clamp_min(torch.finfo(gamma.dtype).tiny) ** power
        return torch.special.ndtri(points[:, :-1]) * scale.unsqueeze(-1) / lengthscale[element]

    return Frequencies(columns, len(lengthscale), len(columns) + 1, frequency, strata)


def periodic(
    kernel: Any,
    columns: Tensor,
    batch_shape: torch.Size,
    lengthscale: Tensor,
    period: Tensor,
    zero_mean: bool = False,
) -> Measure:
    """Return the measure of harmonics with Bessel weights.

    exp(z cos a) = I_0(z) + 2 sum_n I_n(z) cos(n a). Harmonics n of either sign have weights
    I_|n|(z) and a standard deviation of about sqrt(z).
    """
    concentration = lengthscale.reciprocal()
    max_order = math.ceil(10 * math.sqrt(float(concentration.max()))) + 20
    order = torch.arange(-max_order, max_order + 1)
    weights = torch.as_tensor(ive(order.abs().numpy(), concentration.unsqueeze(-1).numpy()))
    if zero_mean:
        weights[..., max_order] = 0.0
    weights = weights.flatten(0, 1)  # one row per element and column
    num_columns = len(columns)

    def frequency(points: Tensor, element: Tensor) -> Tensor:
        group = element.unsqueeze(-1) * num_columns + torch.arange(num_columns)
        harmonic = order[choose(weights, group.flatten(), points.flatten())].view_as(points)
        return 2 * math.pi * harmonic / period[element]

    return Frequencies(columns, len(period), num_columns, frequency)


def matern(kernel: Any, columns: Tensor, batch_shape: torch.Size, lengthscale: Tensor) -> Measure:
    # a Matern kernel's frequencies have a multivariate t distribution with 2 nu degrees of freedom
    nu = torch.full((len(lengthscale),), float(kernel.nu), dtype=torch.float64)
    # Without noise, rare high frequencies determine the posterior variance: a stratum per octave.
    edges = gammainc(kernel.nu, kernel.nu * 4.0 ** np.arange(-5, 1))
    strata = torch.as_tensor(np.diff(edges, prepend=0.0, append=1.0))
    return _gaussian_mixture(columns, lengthscale, nu, -0.5, strata)


def rational_quadratic(
    kernel: Any, columns: Tensor, batch_shape: torch.Size, alpha: Tensor, lengthscale: Tensor
) -> Measure:
    return _gaussian_mixture(columns, lengthscale, alpha, 0.5)


def complex_exponential(
    kernel: Any, columns: Tensor, batch_shape: torch.Size, frequency: Tensor
) -> Measure:
    return Frequencies(columns, len(frequency), 0, lambda points, element: frequency[element])


def spectral_component(
    kernel: Any, columns: Tensor, batch_shape: torch.Size, lengthscale: Tensor, mean: Tensor
) -> Measure:
    def frequency(points: Tensor, element: Tensor) -> Tensor:
        sign = torch.where(points[:, -1:] < 0.5, -1.0, 1.0)
        return sign * mean[element] + torch.special.ndtri(points[:, :-1]) / lengthscale[element]

    return Frequencies(columns, len(lengthscale), len(columns) + 1, frequency)
