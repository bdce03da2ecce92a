"""Averages of the posterior over rows of the data with given values of some columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from scipy.stats import qmc
from torch import Tensor

from gpytorch_nkn.interpretation.source import FittedGP, fitted_gp

__all__ = [
    "Averages",
    "ClassAverages",
    "Empirical",
    "draw_rows",
    "independent_copies",
    "set_columns",
]

_MIN_COPIES = 200  # least sample of rows with independent columns, unless fewer combinations exist
_ENTRIES = 2**20  # covariance entries held in memory


class Averages:
    """Posterior of averages over rows, for a mixture of processes, in units of the targets.

    Attributes:
        residuals: Training targets minus their posterior mean, ``N``; None for classes.
        largest: Largest absolute target.
    """

    residuals: np.ndarray | None
    is_series = False  # whether the first column is time
    task_means: Mapping[str, float] = MappingProxyType({})  # means of the targets by task

    def __init__(self, members: Sequence[tuple[float, FittedGP]], inputs: np.ndarray):
        self._members = members
        _, gp = members[0]
        if gp.inputs.size(-1) != inputs.shape[1]:
            raise NotImplementedError(
                f"The input transform must keep the {inputs.shape[1]} input columns, got "
                f"{gp.inputs.size(-1)} transformed columns."
            )
        self.is_series, self.task_means = gp.is_series, gp.task_means
        self._scale, self._offset = float(gp.units.y_scale), float(gp.units.y_offset)
        common, _ = gp.on_common_scale(gp.observed)
        targets = common.double().cpu().numpy() * self._scale + self._offset
        self.largest = float(np.abs(targets).max())
        self.residuals = targets - self.mean(inputs)
        self._task_column = task_column = gp.task_column
        if task_column is not None:
            self._tasks = np.unique(inputs[:, task_column])
            means = [self.mean(set_columns(inputs, {task_column: t[None]})) for t in self._tasks]
            self._levels = np.mean(means, 1)

    def mean(self, x: np.ndarray) -> np.ndarray:
        """Return the posterior mean ``...`` at inputs ``... x D``."""
        flat = np.ascontiguousarray(x).reshape(-1, 1, x.shape[-1])
        means = [w * _moments(gp, flat, with_cross=False)[0] for w, gp in self._members]
        mean = torch.stack(means).sum(0)
        return mean.double().cpu().numpy().reshape(x.shape[:-1]) * self._scale + self._offset

    def levels(self, x: np.ndarray) -> np.ndarray:
        """Return the main effect ``...`` of the task at inputs ``... x D``; zero without tasks."""
        if self._task_column is None:
            return np.zeros(x.shape[:-1])
        return self._levels[np.searchsorted(self._tasks, x[..., self._task_column])]

    def contrast(self, points: np.ndarray, base: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations ``A`` of differences of averages.

        Each difference is an average over n of the points ``A x n x D``, minus the average over the
        points ``m x D``. Mixtures use the law of total variance.
        """
        results = [(weight, *contrast(gp, points, base)) for weight, gp in self._members]
        mean = torch.stack([w * means for w, means, _ in results]).sum(0)
        variances = [w * (v.clamp_min(0) + (means - mean).square()) for w, means, v in results]
        std = torch.stack(variances).sum(0).sqrt() * abs(self._scale)
        return mean.double().cpu().numpy() * self._scale, std.double().cpu().numpy()


def contrast(
    gp: FittedGP,
    points: np.ndarray,
    base: np.ndarray,
    slopes: Sequence[np.ndarray | None] = (None, None),
) -> tuple[Tensor, Tensor]:
    """Return mean and variance ``A`` of :meth:`Averages.contrast` for one process.

    For ``K`` classes the variances are ``K x A``. ``slopes`` ``K x A x n`` and ``K x 1 x m`` then
    multiply the latent values.
    """
    n = points.shape[1]
    mean, cross, weights = _moments(gp, points, slopes=slopes[0])
    base_mean, base_cross, base_weights = _moments(gp, base[None], slopes=slopes[1])
    others = gp.to_inputs(base)
    variance = base_weights @ gp.kernel(others, others).to_dense() @ base_weights.mT  # ... x 1 x 1
    variance = variance[..., 0] - gp.posterior.reduction(cross - base_cross)
    terms = []
    for start, stop in _chunks(len(points), n * max(n, len(base))):
        x = gp.to_inputs(points[start:stop].reshape(-1, points.shape[-1]))
        batch, w = x.reshape(-1, n, x.size(-1)), weights[..., start:stop, :].unsqueeze(-2)
        within = w @ gp.kernel(batch, batch).to_dense() @ w.mT  # ... x a x 1 x 1
        shared = gp.kernel(x, others).to_dense() @ base_weights.mT  # fast, as one matrix
        both = within - 2 * w @ shared.reshape(*within.shape[:-2], n, 1)
        terms.append(both[..., 0, 0])
    return mean - base_mean, variance + torch.cat(terms, -1)


def _moments(
    gp: FittedGP, points: np.ndarray, with_cross: bool = True, slopes: np.ndarray | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return means, covariances with the data, and point weights of averages.

    Averages are over points ``A x n x D``, on the common scale of all members. Covariances are
    ``... x A x N``. Weights ``... x A x n`` contain the factors of standard deviations on that
    scale, or the given slopes.
    """
    count, n, dim = points.shape
    means, crosses, weights = [], [], []
    for start, stop in _chunks(count, n * gp.inputs.size(0)):
        x = gp.to_inputs(points[start:stop].reshape(-1, dim))
        cross = gp.kernel(x, gp.inputs).to_dense()
        if slopes is None:
            mean, factor = gp.on_common_scale(gp.prior_mean(x) + gp.posterior.mean(cross))
            means.append(mean.reshape(-1, n).mean(-1))
            weights.append(factor.reshape(-1, n) / n)
        else:
            weights.append(torch.as_tensor(slopes[..., start:stop, :]).to(cross) / n)
        if with_cross:
            cross = cross.reshape(stop - start, n, -1)
            crosses.append((weights[-1].unsqueeze(-2) @ cross).squeeze(-2))
    means, crosses = means or [x.new_zeros(count)], crosses or [x.new_empty(count, 0)]
    return torch.cat(means), torch.cat(crosses, -2), torch.cat(weights, -2)


def _chunks(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Split ``count`` blocks of ``size`` entries into ranges that fit into memory."""
    step = max(1, _ENTRIES // size)
    return ((start, min(count, start + step)) for start in range(0, count, step))


class Empirical:
    """Empirical distribution of values ``N``, for SciPy's Sobol indices."""

    def __init__(self, values: np.ndarray):
        self._values = np.sort(values)

    def ppf(self, q: np.ndarray) -> np.ndarray:
        """Return quantiles that are values of the data, because columns may be discrete."""
        indices = np.floor(np.asarray(q) * self._values.size).astype(int)
        return self._values[indices.clip(0, self._values.size - 1)]


def draw_rows(inputs: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
    """Draw up to ``number`` rows of inputs ``N x D`` without replacement.

    Drawn rows are swapped until their means and variances nearly match all rows. Otherwise
    interactions would enter main effects.
    """
    if len(inputs) <= number:
        return inputs
    std = inputs.std(0)
    scaled = (inputs - inputs.mean(0)) / np.where(std > 0, std, 1.0)
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
    """Return rows ``m x D``, and for each column values ``m`` that are independent of the rows.

    Rows and values are combined in all ways if these are few, otherwise quasi-randomly.
    """
    n, k = len(rows), len(columns)
    if n ** (1 + k) <= _MIN_COPIES:
        chosen = np.indices((n,) * (1 + k)).reshape(1 + k, -1).T
    else:
        times = -(-_MIN_COPIES // n)
        sequence = qmc.Halton(1 + k, rng=rng).random(n * times)
        chosen = sequence.argsort(0).argsort(0) // times
    values = [np.sort(rows[:, i])[chosen[:, 1 + k]] for k, i in enumerate(columns)]
    return rows[chosen[:, 0]], values


def set_columns(rows: np.ndarray, values: dict[int, np.ndarray]) -> np.ndarray:
    """Return rows ``n x D`` with columns set to values ``... x n`` or ``... x 1``."""
    shape = np.broadcast_shapes(*(value.shape for value in values.values()), rows.shape[:1])
    points = np.broadcast_to(rows, (*shape, rows.shape[1])).copy()
    for column, value in values.items():
        points[..., column] = value
    return points


class ClassAverages(Averages):
    r"""Posterior of averages over rows of the predicted probability :math:`\hat p` of a class.

    A linear function of the latent values :math:`f_k(x)` of the classes, with means
    :math:`\mu_k(x)`, approximates the probability with the correct variance at each :math:`x`:

    .. math:: p(x) \approx \hat p(x) + \sum_k c_k(x) (f_k(x) - \mu_k(x)), \qquad
        c_k(x) \propto \frac{\partial \hat p(x)}{\partial \mu_k(x)}

    Deviations :math:`f_k - \mu_k` sum to zero over the classes, because a row has one label.
    """

    largest, residuals, _task_column = 1.0, None, None

    def __init__(self, estimator: Any, code: int):
        self._estimator, self._code = estimator, code
        self._processes = [fitted_gp(model) for model in estimator.processes]

    def mean(self, x: np.ndarray) -> np.ndarray:
        """Return the predicted probability ``...`` at inputs ``... x D``."""
        rows = self._rows(x).reshape(-1, x.shape[-1])
        return self._estimator.class_probabilities(rows)[self._code].reshape(x.shape[:-1])

    def contrast(self, points: np.ndarray, base: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations ``A``, as :meth:`Averages.contrast` does."""
        mean = self.mean(points).mean(-1) - self.mean(base).mean()
        points, base = self._rows(points), self._rows(base)
        values, slopes = self._linearised(points)
        base_values, base_slopes = self._linearised(base[None])
        weights = self._estimator.weights_ / self._estimator.weights_.sum()
        variance = weights @ (values.mean(-1) - base_values.mean(-1) - mean) ** 2
        for weight, gp, *pair in zip(weights, self._processes, slopes, base_slopes, strict=True):
            _, variances = contrast(gp, points, base, pair)  # K x A
            variance += weight * variances.clamp_min(0).sum(0).cpu().numpy()
        return mean, np.sqrt(variance)

    def _rows(self, x: np.ndarray) -> np.ndarray:
        return (x - self._estimator.x_offset_) / self._estimator.x_scale_

    def _linearised(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return values ``R x ...`` and slopes ``R x K x ...`` of R members at rows ``... x D``."""
        arrays = self._estimator.linearised(rows.reshape(-1, rows.shape[-1]), self._code)
        values, slopes = (v.reshape(*v.shape[:-1], *rows.shape[:-1]) for v in arrays)
        return values, slopes
