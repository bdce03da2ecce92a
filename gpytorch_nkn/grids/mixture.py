"""Mixture of interpolants, with weights and variances from held-out blocks."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from functools import reduce

import numpy as np
from scipy.ndimage import distance_transform_edt
from scipy.optimize import minimize, nnls
from scipy.spatial import cKDTree

from gpytorch_nkn.grids.fill import SmoothInterpolants, local_variance

__all__ = ["Mixture"]

_SHRINKAGE = 0.003  # ridge penalty towards equal weights, relative to mean squared errors
_DOMINANT_WEIGHT = 0.8  # the mixture is a single interpolant if both of its weights are larger
_BOX_RADIUS = 3  # radius of the box of the local variance, in cells
_MAX_CELLS = 20_000  # largest number of held-out cells in the fit of the variance
_COVERED_BLOCKS = 0.8  # fraction of blocks in which 95 % intervals must cover 95 % of the cells
_UNTESTED = 1.5  # largest ratio of mean depths, holes to blocks
_PRIOR = 0.5  # twice the concentration above 1 of a Dirichlet prior on fractions of the variance
_FAR = 1.5  # largest distance of scored cells to known cells, relative to the holes
_NEIGHBOURS = 8  # known cells that determine the variance of a GP
_CHUNK = 10_000  # cells whose variances are computed at once
_JITTER = 1e-6  # noise relative to the variance, so that matrices are invertible
_MIN_CALIBRATION = 0.5  # smallest calibration factor of variances
_MIN_STD = 1e-4  # smallest standard deviation of standardised values


class Mixture:
    r"""Mixture of interpolants :math:`f_k`.

    .. math::
        f(x) = \sum_k \bigl((1 - t) u_k + t v_k\bigr) f_k(x)

    The depth t is the standard deviation of a Gaussian process with covariance
    :math:`\exp(-|x - x'|_1 / d)`, given the nearest known cells; d is the largest distance to them.
    The weights u and v are non-negative, each sum to one, and minimise squared errors in held-out
    blocks. The variance is a positive combination of a constant, the squared disagreement of the
    interpolants, and the variance of the interpolating GP (otherwise :math:`t^2`) times
    :math:`t^2` and local variances. Its coefficients maximise the likelihood of the blocks, with a
    Dirichlet prior on their fractions. A calibration factor then makes 95 % intervals cover 95 % of
    the cells in 80 % of the blocks. A second factor is :math:`(m + 1) / (m - 1)`, Akaike's final
    prediction error for one parameter. The number m counts the cubes of side 2d with scored cells.
    Without them, the variance is that of the known values, times this factor for their number. The
    result is at least the smaller of the noise variance of the GP and the least error in blocks.

    Args:
        values, missing: Standardised values ``C x n_1 x ... x n_P``, and the mask of missing ones.
        blocks: Masks of cells to hold out, ``B x n_1 x ... x n_P``, known in all channels. They are
            scored up to 1.5 times the largest distance of missing cells, or all if none is nearer.
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
        self.cells = missing & cells
        self._known = int((~missing).reshape(len(missing), -1).sum(1).min())
        self.names = list(names)
        distance = np.stack([distance_transform_edt(hole) for hole in missing])
        self._longest = longest = float(distance[self.cells].max())
        self._hole = _Case(values, missing, self.cells, smoother, names, longest)
        self._cases: list[_Case] = []  # one per block
        self._noise = _MIN_STD**2
        for block in blocks:
            if not self._cases or time.monotonic() < end:
                case = _Case(values, missing | block, block & ~missing, smoother, names, longest)
                self._cases.append(case)
        self.blocks = blocks[: len(self._cases)]

    def add(
        self,
        name: str,
        fill: np.ndarray,
        in_blocks: Iterable[np.ndarray],
        num_parameters: int = 0,
        gp: tuple[Sequence[np.ndarray], float] | None = None,
    ) -> None:
        """Add an interpolant ``C x n_1 x ... x n_P`` with parameters trained on all known cells.

        ``in_blocks`` are the same values without each block. Their errors are increased for the
        effective ``num_parameters``, which were trained on the blocks, too. A ``gp`` consists of
        covariances ``n_p x n_p`` along each dimension, and the noise variance.
        """
        self.names.insert(0, name)
        optimism = math.sqrt(_prediction_error(self._known, num_parameters))
        self._noise = max(self._noise, gp[1] if gp else 0.0)
        for case, values in zip((self._hole, *self._cases), (fill, *in_blocks), strict=True):
            filled = values[case.cells]
            truth = filled if case is self._hole else case.truth
            case.stack = np.stack([truth + optimism * (filled - truth), *case.stack])
            if gp is not None:
                case.variance = gp[1] + case.gp_variance(*gp)

    def least_error(self) -> float:
        """Return the smallest mean squared error in the blocks over interpolants; inf if none."""
        errors = [np.square(case.stack - case.truth) for case in self._scored()]
        return float(np.concatenate(errors, 1).mean(1).min()) if errors else math.inf

    def fill(self) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
        """Return means, variances ``C x n_1 x ...`` (0 outside ``cells``), and mean weights."""
        scored = self._scored()
        weights = self._weights(scored)  # 2 x K
        filled, variance = self.values.copy(), np.zeros(self.values.shape)
        filled[self.cells], weight, features = self._hole.predict(weights)
        if scored:
            parts = [(case.truth, *case.predict(weights)) for case in scored]
            cubes = np.concatenate([np.argwhere(case.cells)[:, 1:] for case in scored])
            count = len(np.unique(cubes // math.ceil(2 * self._longest), axis=0))
            terms = _coefficients([(truth - mean, part) for truth, mean, _, part in parts], count)
            variance[self.cells] = _prediction_error(count, 1) * terms @ features
        else:
            variance[self.cells] = _prediction_error(self._known, 1)
        least = min(self._noise, max(self.least_error(), _MIN_STD**2))
        variance[self.cells] = np.maximum(variance[self.cells], least)
        return filled, variance, dict(zip(self.names, weight.mean(1).tolist(), strict=True))

    def _scored(self) -> list[_Case]:
        """Return the cases of the blocks; none if their cells are much nearer to known cells.

        Held-out cells of a known row, for example, show no errors across the row.
        """
        held = [case.depth.mean() for case in self._cases]
        return [] if held and self._hole.depth.mean() > _UNTESTED * np.mean(held) else self._cases

    def _weights(self, cases: Sequence[_Case]) -> np.ndarray:
        """Return weights ``2 x K``: u next to known cells, and v far from them."""
        count = len(self.names)
        equal = np.full((2, count), 1 / count)
        if not cases or count == 1:
            return equal
        gram, right = np.zeros((2 * count, 2 * count)), np.zeros(2 * count)
        for case in cases:
            center, depth = case.stack.mean(0), case.depth
            stack, error = case.stack - center, case.truth - center
            rows = np.concatenate([stack * (1 - depth), stack * depth])
            unit = len(error) * max(float(np.square(error).mean()), _MIN_STD**2) * len(cases)
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
    """Interpolants ``K x S`` of S ``cells`` near known ones, and features of their variances."""

    def __init__(
        self,
        values: np.ndarray,
        missing: np.ndarray,
        cells: np.ndarray,
        smoother: SmoothInterpolants,
        names: Sequence[str],
        longest: float,
    ):
        distance = np.stack([distance_transform_edt(hole) for hole in missing])
        cells = near if (near := cells & (distance <= _FAR * longest)).any() else cells
        self.missing, self.cells, self.truth = missing, cells, values[cells]  # C x n_1 x ..., S
        shared = bool((missing == missing[0]).all())
        self._groups = [slice(None)] if shared else [slice(i, i + 1) for i in range(len(missing))]
        variances = np.zeros((2, *values.shape))
        fills = {name: values.copy() for name in names}
        for group in self._groups:
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
        self.stack = np.array([f[cells] for f in fills.values()]).reshape(-1, len(self.truth))
        lags = [abs(np.subtract.outer(range(n), range(n))) for n in missing.shape[1:]]
        self.variance = self.gp_variance([np.exp(-lag / longest) for lag in lags])
        self.depth = np.sqrt(self.variance)  # 0 to 1
        self.local = np.stack([*variances[:, cells], self.variance])

    def gp_variance(self, covariances: Sequence[np.ndarray], noise: float = 0.0) -> np.ndarray:
        """Return the variances ``S`` of a GP, without noise, given the nearest known cells."""
        parts = []
        for group in self._groups:
            known, new = np.argwhere(~self.missing[group][0]), np.argwhere(self.cells[group][0])
            count, split = min(_NEIGHBOURS, len(known)), 1 + len(new) // _CHUNK
            nearest = cKDTree(known).query(new, range(1, count + 1))[1]
            pairs = zip(np.array_split(nearest, split), np.array_split(new, split), strict=True)
            variances = [_given(covariances, noise, known[near], cells) for near, cells in pairs]
            parts += variances * len(self.missing[group])
        return np.concatenate(parts)

    def predict(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return means ``S``, weights, and features ``J x S`` whose combination is the variance."""
        weight = np.outer(weights[0], 1 - self.depth) + np.outer(weights[1], self.depth)
        mean = (weight * self.stack).sum(0)
        disagreement = np.square(self.stack - mean).mean(0)
        constant = np.full_like(mean, 1e-2)
        return mean, weight, np.stack([*self.variance * self.local, disagreement, constant])


def _given(
    covariances: Sequence[np.ndarray], noise: float, known: np.ndarray, new: np.ndarray
) -> np.ndarray:
    """Return variances ``T`` of a GP at cells ``T x P``, given noisy values at ``T x M x P``."""
    parts = list(zip(covariances, new.T, np.moveaxis(known, -1, 0), strict=True))
    prior = reduce(np.multiply, [k[x, x] for k, x, _ in parts])
    cross = reduce(np.multiply, [k[x[:, None], z] for k, x, z in parts])  # T x M
    inner = reduce(np.multiply, [k[z[:, :, None], z[:, None]] for k, _, z in parts])
    inner += (noise + _JITTER * prior.max(initial=0.0)) * np.eye(known.shape[1])
    return np.maximum(prior - (cross * np.linalg.solve(inner, cross[..., None])[..., 0]).sum(-1), 0)


def _prediction_error(count: int, num_parameters: int) -> float:
    """Return Akaike's ratio of variances of errors of new data and of ``count`` training data."""
    return (count + num_parameters) / max(count - num_parameters, 1)


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
