"""Averages of the posterior over rows of the data, in which columns are set to values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
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

_COPIES = 200  # least number of rows whose columns are made independent
_ENTRIES = 2**20  # of a covariance matrix that are held at once

Part = tuple[float, np.ndarray]  # sign, and points ... x n x D over which the posterior is averaged


class Averages:
    """Means and variances of averages of the posterior of one output, in units of the targets.

    ``inputs`` are the training inputs ``N x D`` in the user's units; ``targets`` ``N`` and
    ``residuals``, targets less posterior mean, belong to them.
    """

    def __init__(self, gp: FittedGP, inputs: np.ndarray):
        self._gp = gp
        self._scale, self._offset = float(gp.units.y_scale), float(gp.units.y_offset)
        self.targets = gp.targets.double().cpu().numpy() * self._scale + self._offset
        self.residuals = self.targets - self.mean(inputs)

    def mean(self, x: np.ndarray) -> np.ndarray:
        """Posterior mean ``...`` at inputs ``... x D``."""
        flat = np.ascontiguousarray(x).reshape(-1, 1, x.shape[-1])
        means, _ = self._moments(flat, with_cross=False)
        return means.double().cpu().numpy().reshape(x.shape[:-1]) * self._scale + self._offset

    def contrast(self, parts: Sequence[Part]) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation ``...`` of the signed sum of averages over points."""
        moments = [(sign, *self._moments(points)) for sign, points in parts]
        mean = sum(sign * value for sign, value, _ in moments)
        cross = sum(sign * value for sign, _, value in moments)
        assert isinstance(mean, Tensor) and isinstance(cross, Tensor)
        variance = -self._gp.posterior.reduction(cross.reshape(-1, cross.size(-1))).reshape(
            mean.shape
        )
        for place, (sign, points) in enumerate(parts):
            variance = variance + self._covariance(points, points)
            for other_sign, other in parts[:place]:
                variance = variance + 2 * sign * other_sign * self._covariance(points, other)
        offset = sum(sign for sign, _ in parts) * self._offset
        deviation = variance.clamp_min(0).sqrt().double().cpu().numpy() * abs(self._scale)
        return mean.double().cpu().numpy() * self._scale + offset, deviation

    def _moments(self, points: np.ndarray, with_cross: bool = True) -> tuple[Tensor, Tensor]:
        """Mean ``...`` in the model's units and covariance with the data ``... x N``."""
        *shape, n, dim = points.shape
        flat = points.reshape(-1, n, dim)
        means, crosses = [], []
        for start, stop in _chunks(len(flat), n * self._gp.inputs.size(0)):
            x = self._gp.to_inputs(flat[start:stop].reshape(-1, dim))
            cross = self._gp.kernel(x, self._gp.inputs).to_dense()
            cross = cross.reshape(stop - start, n, -1).mean(1)
            prior = self._gp.prior_mean(x).reshape(stop - start, n).mean(1)
            means.append(prior + self._gp.posterior.mean(cross))
            crosses.append(cross if with_cross else cross[:, :0])
        return torch.cat(means).reshape(shape), torch.cat(crosses).reshape(*shape, -1)

    def _covariance(self, first: np.ndarray, second: np.ndarray) -> Tensor:
        """Mean prior covariance ``...`` of points ``... x n x D`` and ``... x m x D``."""
        shape = np.broadcast_shapes(first.shape[:-2], second.shape[:-2])
        left, right = (
            np.broadcast_to(p, (*shape, *p.shape[-2:])).copy().reshape(-1, *p.shape[-2:])
            for p in (first, second)
        )
        values = []
        for start, stop in _chunks(len(left), left.shape[1] * right.shape[1]):
            x1, x2 = (self._gp.to_inputs(p[start:stop]) for p in (left, right))
            values.append(self._gp.kernel(x1, x2).to_dense().mean((-2, -1)))
        return torch.cat(values).reshape(shape)


def _chunks(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Places from and to, so that blocks of ``size`` entries stay below a bound together."""
    step = max(1, _ENTRIES // size)
    return ((start, min(count, start + step)) for start in range(0, count, step))


class Empirical:
    """The distribution of values ``N`` as SciPy's Sobol indices want it: each equally likely."""

    def __init__(self, values: np.ndarray):
        self._values = np.sort(values)

    def ppf(self, q: np.ndarray) -> np.ndarray:
        """Quantiles: values of the data only, which discrete columns need."""
        places = np.floor(np.asarray(q) * self._values.size).astype(int)
        return self._values[places.clip(0, self._values.size - 1)]


def draw_rows(inputs: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
    """Up to ``number`` rows of inputs ``N x D``, without replacement.

    Each row drawn is exchanged once for another one if that brings the means and variances of the
    columns closer to those of all rows: averages over a few rows that lie to one side would turn
    interactions into main effects.
    """
    if len(inputs) <= number:
        return inputs
    spread = inputs.std(0)
    scaled = (inputs - inputs.mean(0)) / np.where(spread > 0, spread, 1.0)
    moments = np.concatenate([scaled, scaled**2 - (scaled**2).mean(0)], axis=1)
    order = rng.permutation(len(inputs))
    total = moments[order[:number]].sum(0)
    for place in range(number):
        rest = total - moments[order[place]]
        distances = np.square(rest + moments[order[number:]]).sum(1)
        other = number + int(distances.argmin())
        if distances.min() < np.square(total).sum():
            order[[place, other]] = order[[other, place]]
            total = rest + moments[order[place]]
    return inputs[order[:number]]


def independent_copies(
    rows: np.ndarray, columns: Sequence[int], rng: np.random.Generator
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Rows ``m x D`` and values ``m`` of columns that vary independently of them.

    Every row comes as often as any other, and so does every value: all combinations where these
    are few, else quasi-random ones.
    """
    n, k = len(rows), len(columns)
    if n ** (1 + k) <= _COPIES:
        places = np.indices((n,) * (1 + k)).reshape(1 + k, -1).T
    else:
        times = -(-_COPIES // n)
        sequence = qmc.Halton(1 + k, rng=rng).random(n * times)
        places = sequence.argsort(0).argsort(0) // times
    values = [np.sort(rows[:, i])[places[:, 1 + k]] for k, i in enumerate(columns)]
    return rows[places[:, 0]], values


def set_columns(rows: np.ndarray, values: dict[int, np.ndarray]) -> np.ndarray:
    """Rows ``n x D`` with columns set to values ``... x n`` or ``... x 1``."""
    shape = np.broadcast_shapes(*(value.shape for value in values.values()), rows.shape[:1])
    points = np.broadcast_to(rows, (*shape, rows.shape[1])).copy()
    for column, value in values.items():
        points[..., column] = value
    return points
