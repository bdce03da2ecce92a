"""Mixture of interpolants, with weights and variances from held-out blocks."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence

import numpy as np
from scipy.ndimage import distance_transform_edt
from scipy.optimize import minimize, nnls

from gpytorch_nkn.grids.fill import SmoothInterpolants, local_variance

__all__ = ["Mixture"]

_SHRINKAGE = 0.003  # ridge penalty towards equal weights, relative to mean squared errors
_DOMINANT_WEIGHT = 0.8  # the mixture is a single interpolant if both of its weights are larger
_BOX_RADIUS = 3  # radius of the box of the local variance, in cells
_MAX_CELLS = 20_000  # largest number of held-out cells in the fit of the variance
_COVERED_BLOCKS = 0.8  # fraction of blocks in which 95 % intervals must cover 95 % of the cells
_UNTESTED = 8.0  # largest ratio of mean distances along a dimension, holes to blocks
_PRIOR = 0.5  # twice the concentration above 1 of a Dirichlet prior on fractions of the variance
_MIN_CALIBRATION = 0.5  # smallest calibration factor of variances
_MIN_STD = 1e-4  # smallest standard deviation of standardised values


class Mixture:
    r"""Mixture of interpolants :math:`f_k`, weighted by the distance d to known cells.

    .. math::
        f(x) = \sum_k \bigl((1 - t) u_k + t v_k\bigr) f_k(x), \qquad
        t = \log d / \log d_{\max}

    The weights u and v are non-negative, each sum to one, and minimise squared errors in held-out
    blocks. The variance is a positive combination of a constant, the squared disagreement of the
    interpolants, and local variances times functions of d. Its coefficients maximise the likelihood
    of the blocks, with a Dirichlet prior on their fractions. A calibration factor then makes 95 %
    intervals cover 95 % of the cells in 80 % of the blocks. A second factor is
    :math:`(m + 1) / (m - 1)`, Akaike's final prediction error for one parameter. The number m
    counts the cubes of side :math:`2 d_{\max}` with scored cells in any block. Without scored
    cells, the variance is that of the known values, times this factor for their number.

    Args:
        values, missing: Standardised values ``C x n_1 x ... x n_P``, and the mask of missing ones.
        blocks: Masks of held-out cells, ``B x n_1 x ... x n_P``. Cells farther from known cells
            than any missing cell are scored only if all are, as in regular sub-grids.
        smoother, names: Smooth interpolants of the grid, and names of those in the mixture.
        cells: Mask ``n_1 x ... x n_P`` of cells, among which missing ones are filled.
        end: Value of ``time.monotonic()`` after which only the first block is predicted.
    """

    def __init__(
        self,
        values: np.ndarray,
        missing: np.ndarray,
        blocks: np.ndarray,
        smoother: SmoothInterpolants,
        names: Sequence[str],
        *,
        cells: np.ndarray,
        end: float = math.inf,
    ):
        self.values = values
        self.missing = missing
        self.cells = missing & cells
        self._known = int((~missing).reshape(len(missing), -1).sum(1).min())
        self.names = list(names)
        distance = np.stack([distance_transform_edt(hole) for hole in missing])
        self._longest = longest = float(distance[self.cells].max())
        self._cases: list[_Case] = []
        for block in (np.zeros_like(missing[0]), *blocks):
            if len(self._cases) < 2 or time.monotonic() < end:
                self._cases.append(_Case(values, missing, block, smoother, names, longest))
        self.blocks = blocks[: len(self._cases) - 1]
        held = [case.distance[case.held] for case in self._cases[1:] if case.held.any()]
        if held and min(map(np.min, held)) > longest:  # between rows of a coarser grid
            longest = float(max(map(np.max, held)))
        for case in self._cases:
            case.depth = np.log(case.distance) / np.log(max(longest, 2.0))
            case.distance = case.distance / longest

    def add(
        self, name: str, fill: np.ndarray, in_blocks: Iterable[np.ndarray], num_parameters: int = 0
    ) -> None:
        """Add an interpolant ``C x n_1 x ... x n_P`` with parameters trained on all known cells.

        ``in_blocks`` are the same values without each block. Their errors are increased for the
        effective ``num_parameters``, which were trained on the blocks, too.
        """
        self.names.insert(0, name)
        optimism = math.sqrt(_prediction_error(self._known, num_parameters))
        for case, values in zip(self._cases, (fill, *in_blocks), strict=True):
            truth = np.where(self.missing, values, self.values)
            values = truth + optimism * (values - truth)
            case.stack = np.concatenate([values[case.missing][None], case.stack])

    def least_error(self) -> float:
        """Return the smallest mean squared error in the blocks over interpolants; inf if none."""
        errors = [np.square(stack - truth) for stack, _, truth, *_ in self._scored()]
        together = np.concatenate(errors, 1) if errors else np.empty((1, 0))
        return float(together.mean(1).min()) if together.size else math.inf

    def fill(self) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
        """Return means, variances ``C x n_1 x ...`` (0 outside ``cells``), and mean weights."""
        hole, parts = self._cases[0], self._scored()
        weights = self._weights(parts)  # 2 x K
        inside = self.cells[hole.missing]
        mean, variance = self.values.copy(), np.zeros(self.values.shape)
        depth = hole.depth[inside]
        mean[self.cells], weight = _combine(hole.stack[:, inside], depth, weights)
        if parts:
            blocks = [
                (truth - _combine(stack, depth, weights)[0], case.features(weights)[:, cells])
                for stack, depth, truth, case, cells in parts
            ]
            count = self._count_cubes(parts)
            terms = _coefficients(blocks, count) * _prediction_error(count, 1)
            variance[self.cells] = terms @ hole.features(weights)[:, inside]
        else:
            variance[self.cells] = _prediction_error(self._known, 1)
        variance[self.cells] = np.maximum(variance[self.cells], _MIN_STD**2)
        return mean, variance, dict(zip(self.names, weight.mean(1).tolist(), strict=True))

    def _scored(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, _Case, np.ndarray]]:
        """Return interpolants ``K x S``, depths, values, case and mask of S scored cells per block.

        The mask selects the scored cells among the missing cells of the case. The list is empty if
        distances along a dimension are much shorter than in the holes. Cells of a known row then
        show no errors across the row.
        """
        parts = []
        for case in self._cases[1:]:
            cells = case.held & (case.depth <= 1.0)
            if cells.any():
                truth = self.values[case.missing][cells]
                parts.append((case.stack[:, cells], case.depth[cells], truth, case, cells))
        if parts:
            hole = self._cases[0]
            offset = hole.offset[:, self.cells[hole.missing]].mean(1)
            tested = np.mean([case.offset[:, cells].mean(1) for *_, case, cells in parts], 0)
            if (offset > _UNTESTED * tested + 1).any():
                return []
        return parts

    def _count_cubes(self, parts: Sequence) -> int:
        """Count the cubes, with sides of twice the longest distance, that have scored cells."""
        positions = [np.argwhere(case.missing)[cells, 1:] for *_, case, cells in parts]
        cubes = np.concatenate(positions) // math.ceil(2 * self._longest)
        return len(np.unique(cubes, axis=0))

    def _weights(self, parts: Sequence) -> np.ndarray:
        """Return weights ``2 x K``: u next to known cells, and v at the largest distance."""
        count = len(self.names)
        equal = np.full((2, count), 1 / count)
        if not parts or count == 1:
            return equal
        gram, right = np.zeros((2 * count, 2 * count)), np.zeros(2 * count)
        for stack, depth, truth, *_ in parts:
            center = stack.mean(0)
            rows = np.concatenate([(stack - center) * (1 - depth), (stack - center) * depth])
            error = truth - center
            unit = len(truth) * max(float(np.square(error).mean()), _MIN_STD**2) * len(parts)
            gram += rows @ rows.T / unit
            right += rows @ error / unit
        gram += _SHRINKAGE * np.eye(2 * count)
        right += _SHRINKAGE * equal.ravel()
        root = np.linalg.cholesky(gram).T
        both = np.kron(np.eye(2), np.ones(count))  # u and v sum to one
        penalty = 1e3 * np.sqrt(gram.trace())  # enforces these sums
        solution, _ = nnls(
            np.concatenate([root, penalty * both]),
            np.concatenate([np.linalg.solve(root.T, right), np.full(2, penalty)]),
        )
        weights = solution.reshape(2, count)
        weights /= weights.sum(1, keepdims=True)
        best = weights.sum(0).argmax()
        is_dominant = (weights[:, best] > _DOMINANT_WEIGHT).all()
        return np.eye(count)[[best, best]] if is_dominant else weights


class _Case:
    """Interpolants ``K x cells`` of missing cells, and features for their variances."""

    depth: np.ndarray  # logarithm of the distance to known cells, 1 at the longest distance

    def __init__(
        self,
        values: np.ndarray,
        missing: np.ndarray,
        block: np.ndarray,
        smoother: SmoothInterpolants,
        names: Sequence[str],
        longest: float,
    ):
        known, self.missing = ~missing, (missing := missing | block)
        self.held = known[missing]  # held-out cells among the missing ones
        shared = bool((missing == missing[0]).all())
        groups = [slice(None)] if shared else [slice(i, i + 1) for i in range(len(missing))]
        variances = np.zeros((2, *values.shape))
        fills = {name: values.copy() for name in names}
        for group in groups:
            hole, channels = missing[group][0], values[group]
            if not hole.any():
                continue
            for name in names:
                fills[name][group] = getattr(smoother, name)(channels, hole)
            radius = 1 + round(longest) + _BOX_RADIUS
            far = np.stack([local_variance(v, hole, radius, 1.0) for v in channels])
            pairs = zip(channels, far, strict=True)
            near = np.stack([local_variance(v, hole, _BOX_RADIUS, prior) for v, prior in pairs])
            variances[0, group], variances[1, group] = smoother.harmonic(near, hole), far
        stack = [fills[name][missing] for name in names]
        self.stack = np.reshape(stack, (len(stack), int(missing.sum())))
        self.variances = variances[:, missing]
        nearest = [distance_transform_edt(h, return_indices=True)[1] for h in missing]
        steps = np.abs(np.stack(nearest, 1) - np.indices(missing.shape[1:], np.int32)[:, None])
        self.offset = steps[:, missing]  # P x cells, from the nearest known cells
        self.distance = np.sqrt(np.square(self.offset).sum(0))

    def features(self, weights: np.ndarray) -> np.ndarray:
        """Return positive features ``J x cells`` whose combination is the variance."""
        disagreement = np.square(self.stack - _combine(self.stack, self.depth, weights)[0]).mean(0)
        near, far = self.variances
        t = np.clip(self.depth, 0, 1)
        s = np.minimum(self.distance, 1.0) ** 2
        return np.stack(
            [near, near * t, far * t, far, far * s, disagreement, np.full_like(t, 1e-2)]
        )


def _prediction_error(count: int, num_parameters: int) -> float:
    """Return Akaike's ratio of variances of errors of new data and of ``count`` training data."""
    return (count + num_parameters) / max(count - num_parameters, 1)


def _combine(
    stack: np.ndarray, depth: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return weighted means of interpolants ``K x cells``, and the weights in each cell."""
    t = np.clip(depth, 0, 1)
    weight = np.outer(weights[0], 1 - t) + np.outer(weights[1], t)
    return (weight * stack).sum(0), weight


def _coefficients(blocks: Sequence[tuple[np.ndarray, np.ndarray]], count: int) -> np.ndarray:
    """Return coefficients ``J``, given errors ``S`` and features ``J x S`` of each block."""
    error = np.concatenate([error for error, _ in blocks])
    features = np.concatenate([f for _, f in blocks], 1)
    weight = np.concatenate([np.full(len(error), 1 / len(error)) for error, _ in blocks])
    step = 1 + len(error) // _MAX_CELLS
    squares, features, weight = error[::step] ** 2, features[:, ::step], weight[::step]
    weight = weight / weight.sum()
    unit = np.maximum(features @ weight, _MIN_STD**2)
    features = features / unit[:, None]

    def loss(logs: np.ndarray) -> tuple[float, np.ndarray]:
        terms = np.exp(logs)
        variance = terms @ features + _MIN_STD**2
        ratio = squares / variance
        slope = features @ (weight * (1 - ratio) / variance)
        value = weight @ (np.log(variance) + ratio)
        fractions = terms / terms.sum()
        value -= _PRIOR / count * np.log(fractions).sum()
        gradient = slope * terms - _PRIOR / count * (1 - len(terms) * fractions)
        return float(value), gradient

    equal = max(float(weight @ squares), _MIN_STD**2) / len(features)
    start = np.full(len(features), np.log(equal))
    best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(-30, 10)] * len(start)).x
    terms = np.exp(best) / unit
    wide = [np.quantile(error**2 / (terms @ f + _MIN_STD**2), 0.95) for error, f in blocks]
    return terms * max(float(np.quantile(wide, _COVERED_BLOCKS)) / 1.96**2, _MIN_CALIBRATION)
