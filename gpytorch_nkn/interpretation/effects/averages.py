"""Averages of the posterior over rows of the data with columns set to values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from gpytorch.settings import lazily_evaluate_kernels
from scipy.stats import qmc
from torch import Tensor

from gpytorch_nkn.interpretation.source import FittedGP

__all__ = [
    "Averages",
    "Empirical",
    "Part",
    "draw_rows",
    "independent_copies",
    "set_columns",
]

_COPIES = 200  # least number of rows with independent columns
_ENTRIES = 2**20  # covariance entries held in memory

Part = tuple[float, np.ndarray]  # sign, and points ... x n x D over which the posterior is averaged


class Averages:
    """Means and variances of averages of a mixture of processes, in units of the targets.

    Weights sum to one. ``residuals`` are training ``targets`` less their posterior mean ``N``.
    """

    def __init__(self, members: Sequence[tuple[float, FittedGP]], inputs: np.ndarray):
        self._members = members
        _, gp = members[0]
        self._scale, self._offset = float(gp.units.y_scale), float(gp.units.y_offset)
        common, _ = gp.on_common_scale(gp.targets)
        self.targets = common.double().cpu().numpy() * self._scale + self._offset
        self.residuals = self.targets - self.mean(inputs)

    def mean(self, x: np.ndarray) -> np.ndarray:
        """Posterior mean ``...`` at inputs ``... x D``."""
        flat = np.ascontiguousarray(x).reshape(-1, 1, x.shape[-1])
        one = np.ones(1)
        means = [w * _moments(gp, flat, one, with_cross=False)[0] for w, gp in self._members]
        mean = torch.stack(means).sum(0)
        return mean.double().cpu().numpy().reshape(x.shape[:-1]) * self._scale + self._offset

    def contrast(self, parts: Sequence[Part]) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation ``...`` of the signed sum of averages over points.

        The variance of a mixture is by the law of total variance.
        """
        weights = [weight for weight, _ in self._members]
        found = [_contrast(gp, parts) for _, gp in self._members]
        mean = sum(w * own for w, (own, _) in zip(weights, found, strict=True))
        variance = sum(
            w * (own.clamp_min(0) + (center - mean).square())
            for w, (center, own) in zip(weights, found, strict=True)
        )
        assert isinstance(mean, Tensor) and isinstance(variance, Tensor)
        offset = sum(sign for sign, _ in parts) * self._offset
        std = variance.sqrt().double().cpu().numpy() * abs(self._scale)
        return mean.double().cpu().numpy() * self._scale + offset, std


def _contrast(gp: FittedGP, parts: Sequence[Part]) -> tuple[Tensor, Tensor]:
    """Mean and variance ``...`` of a signed sum of averages of one process."""
    groups = _grouped(parts)
    moments = [_moments(gp, points, weights) for points, weights in groups]
    mean = sum(value for value, _, _ in moments)
    cross = sum(value for _, value, _ in moments)
    assert isinstance(mean, Tensor) and isinstance(cross, Tensor)
    variance = -gp.posterior.reduction(cross.reshape(-1, cross.size(-1))).reshape(mean.shape)
    weighted = [(points, w) for (points, _), (_, _, w) in zip(groups, moments, strict=True)]
    for i, one in enumerate(weighted):
        variance = variance + _covariance(gp, one, one)
        for other in weighted[:i]:
            variance = variance + 2 * _covariance(gp, other, one)
    return mean, variance


def _grouped(parts: Sequence[Part]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Points ``... x n x D`` and their weights ``n``; parts of one batch shape are merged."""
    groups: dict[tuple[int, ...], list[Part]] = {}
    for sign, points in parts:
        groups.setdefault(points.shape[:-2], []).append((sign, points))
    return [
        (
            np.concatenate([points for _, points in group], axis=-2),
            np.concatenate([np.full(p.shape[-2], sign / p.shape[-2]) for sign, p in group]),
        )
        for group in groups.values()
    ]


def _moments(
    gp: FittedGP, points: np.ndarray, weights: np.ndarray, with_cross: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean ``...``, covariance with the data ``... x N``, and the points' weights ``... x n``.

    Means are on the scale that all members share; weights include the factors of deviations there.
    """
    *shape, n, dim = points.shape
    flat = points.reshape(-1, n, dim)
    means, crosses, factors = [], [], []
    for start, stop in _chunks(len(flat), n * gp.inputs.size(0)):
        x = gp.to_inputs(flat[start:stop].reshape(-1, dim))
        cross = _matrix(gp, x, gp.inputs)
        mean, factor = gp.on_common_scale(gp.prior_mean(x) + gp.posterior.mean(cross))
        share = torch.as_tensor(weights).to(mean)
        means.append(mean.reshape(-1, n) @ share)
        factors.append(factor.reshape(-1, n) * share)
        if with_cross:
            cross = cross.reshape(stop - start, n, -1)
            crosses.append((factors[-1].unsqueeze(1) @ cross).squeeze(1))
    crosses = crosses or [means[0].new_empty(len(flat), 0)]
    mean, cross, factor = torch.cat(means), torch.cat(crosses), torch.cat(factors)
    return mean.reshape(shape), cross.reshape(*shape, -1), factor.reshape(*shape, n)


_Weighted = tuple[np.ndarray, Tensor]  # points ... x n x D and their weights ... x n


def _covariance(gp: FittedGP, first: _Weighted, second: _Weighted) -> Tensor:
    """Prior covariance ``...`` of weighted sums over points ``... x n x D`` and ``... x m x D``."""
    if first[1].numel() == first[1].size(-1):  # the points are the same for all entries
        first, second = second, first
    shape = np.broadcast_shapes(first[0].shape[:-2], second[0].shape[:-2])
    same = second[1].numel() == second[1].size(-1)
    (left, rows), (right, columns) = (
        (
            np.broadcast_to(p, (*lead, *p.shape[-2:])).copy().reshape(-1, *p.shape[-2:]),
            w.expand(*lead, w.size(-1)).reshape(-1, w.size(-1)),
        )
        for (p, w), lead in ((first, shape), (second, second[0].shape[:-2] if same else shape))
    )
    values = []
    for start, stop in _chunks(len(left), left.shape[1] * right.shape[1]):
        x1 = left[start:stop]
        if same:  # one large matrix is faster than many small ones
            flat = gp.to_inputs(x1.reshape(-1, x1.shape[-1]))
            matrix = _matrix(gp, flat, gp.to_inputs(right[0])).reshape(*x1.shape[:2], -1)
            sums = matrix @ columns[0]
        else:
            matrix = _matrix(gp, gp.to_inputs(x1), gp.to_inputs(right[start:stop]))
            sums = (matrix @ columns[start:stop].unsqueeze(-1)).squeeze(-1)
        values.append((rows[start:stop] * sums).sum(-1))
    return torch.cat(values).reshape(shape)


def _matrix(gp: FittedGP, x1: Tensor, x2: Tensor) -> Tensor:
    """Values of the kernel, without GPyTorch's slow computation of batch shapes."""
    with lazily_evaluate_kernels(False):
        return gp.kernel(x1, x2).to_dense()


def _chunks(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Ranges of ``count`` blocks of ``size`` entries that fit into memory together."""
    step = max(1, _ENTRIES // size)
    return ((start, min(count, start + step)) for start in range(0, count, step))


class Empirical:
    """Empirical distribution of values ``N``, as SciPy's Sobol indices take it."""

    def __init__(self, values: np.ndarray):
        self._values = np.sort(values)

    def ppf(self, q: np.ndarray) -> np.ndarray:
        """Quantiles, which are values of the data because columns may be discrete."""
        indices = np.floor(np.asarray(q) * self._values.size).astype(int)
        return self._values[indices.clip(0, self._values.size - 1)]


def draw_rows(inputs: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
    """Draw up to ``number`` rows of inputs ``N x D`` without replacement.

    Exchanges balance the columns' means and variances with all rows: averages over unbalanced rows
    would turn interactions into main effects.
    """
    if len(inputs) <= number:
        return inputs
    spread = inputs.std(0)
    scaled = (inputs - inputs.mean(0)) / np.where(spread > 0, spread, 1.0)
    moments = np.concatenate([scaled, scaled**2 - (scaled**2).mean(0)], axis=1)
    order = rng.permutation(len(inputs))
    total = moments[order[:number]].sum(0)
    for i in range(number):
        rest = total - moments[order[i]]
        distances = np.square(rest + moments[order[number:]]).sum(1)
        other = number + int(distances.argmin())
        if distances.min() < np.square(total).sum():
            order[[i, other]] = order[[other, i]]
            total = rest + moments[order[i]]
    return inputs[order[:number]]


def independent_copies(
    rows: np.ndarray, columns: Sequence[int], rng: np.random.Generator
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return rows ``m x D``, and values ``m`` of columns that vary independently of them.

    Uses all combinations if they are few, else balanced quasi-random ones.
    """
    n, k = len(rows), len(columns)
    if n ** (1 + k) <= _COPIES:
        chosen = np.indices((n,) * (1 + k)).reshape(1 + k, -1).T
    else:
        times = -(-_COPIES // n)
        sequence = qmc.Halton(1 + k, rng=rng).random(n * times)
        chosen = sequence.argsort(0).argsort(0) // times
    values = [np.sort(rows[:, i])[chosen[:, 1 + k]] for k, i in enumerate(columns)]
    return rows[chosen[:, 0]], values


def set_columns(rows: np.ndarray, values: dict[int, np.ndarray]) -> np.ndarray:
    """Rows ``n x D`` with columns set to values ``... x n`` or ``... x 1``."""
    shape = np.broadcast_shapes(*(value.shape for value in values.values()), rows.shape[:1])
    points = np.broadcast_to(rows, (*shape, rows.shape[1])).copy()
    for column, value in values.items():
        points[..., column] = value
    return points
