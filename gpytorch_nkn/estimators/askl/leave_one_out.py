"""Ridge regression with a penalty, and a kernel's scale, chosen by held-out rows."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "GAMMAS",
    "KernelRidge",
    "Ridge",
    "affordable_rows",
    "kernel_ridge",
    "relevance",
    "ridge_by_left_out_rows",
    "ridge_operations",
]

GAMMAS = tuple(2.0**exponent for exponent in range(-5, 5))  # over the median squared distance

_PENALTIES = 10.0 ** np.arange(-7, 1.1, 0.5)  # per row
_LEAST_PENALTY = 1e-5  # per row, where slopes are to be taken
_LEAST_FREEDOM = 1e-10  # of a row that is left out, to divide by
_LEAST_BLOCK = 1024  # rows
_MAX_ROWS = 4000  # that are left out one by one
_PROBE_ROWS = 100  # by which the time of others is estimated
_EIGEN = 25  # operations of an eigenproblem, over the cube of its size


class KernelRidge(NamedTuple):
    """Settings of a kernel ridge regression.

    Attributes:
        gamma: Of the RBF kernel ``exp(-gamma r^2)``.
        penalty: Of the squared norm, per row.
        error: Mean squared error at held-out rows over the variance of the targets.
    """

    gamma: float
    penalty: float
    error: float


class Ridge(NamedTuple):
    """A linear map of features.

    Attributes:
        weight: ``D x K``.
        intercept: ``K``.
        rows: Numbers of the rows that were held out one by one.
        left_out: Outputs at these rows without themselves.
    """

    weight: Tensor
    intercept: Tensor
    rows: Tensor
    left_out: Tensor


def _spectrum_beside_constants(gram: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Eigenvalues and eigenvectors of a centred matrix, whose constants get a large eigenvalue.

    Left at zero, they mix with the eigenvectors of small eigenvalues: an error of rounding over
    these eigenvalues, which is too much where a row has little freedom.
    """
    level = gram.diagonal().mean()
    values, vectors = torch.linalg.eigh(gram + level / len(gram))
    return values.clamp_min(0), vectors, level


def _left_out_residuals(
    values: Tensor,
    vectors: Tensor,
    projected: Tensor,
    rest: Tensor | None,
    penalties: Tensor,
    level: Tensor | None,
) -> Tensor:
    """Residuals ``N x P x K`` of ridge regressions with an intercept at rows left out one by one.

    Args:
        values: Eigenvalues ``D`` of the centred product of features, or centred kernel matrix.
        vectors: Eigenvectors ``N x D``.
        projected: Centred targets times the eigenvectors, ``D x K``.
        rest: Centred targets without their projection on the eigenvectors, ``N x K``; ``None``
            where that is nothing.
        penalties: Of the squared weights, ``P``.
        level: Eigenvalue of constants, if the eigenvectors span all rows.
    """
    count = len(vectors)
    remaining = penalties / (values.unsqueeze(1) + penalties)  # D x P
    if level is None:
        freedom = 1 - 1 / count - vectors.square() @ (1 - remaining)
    else:
        freedom = vectors.square() @ remaining - penalties / (level + penalties) / count
    fits = vectors @ (remaining.unsqueeze(2) * projected.unsqueeze(1)).flatten(1)
    residuals = fits.view(count, len(penalties), -1)
    if rest is not None:
        residuals += rest.unsqueeze(1)
    return residuals.div_(freedom.clamp_min(_LEAST_FREEDOM).unsqueeze(2))


def kernel_ridge(x: Tensor, targets: Tensor, gammas: Sequence[float] = GAMMAS) -> KernelRidge:
    """The RBF kernel ridge regression, with an intercept, that predicts held-out rows best.

    Args:
        x: Float64 rows ``N x d``; the cost is that of an eigenproblem of this size for each gamma.
        targets: Float64 targets ``N x K``.
        gammas: What to try, over the median squared distance of rows that differ.
    """
    squares = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square()
    apart = squares[squares > 0]
    median = float(apart.median()) if len(apart) else 1.0
    centred = targets - targets.mean(0)
    level = float(centred.square().mean()) or 1.0
    best = KernelRidge(1 / median, 1.0, math.inf)
    penalties = torch.from_numpy(_PENALTIES).to(x) * len(x)
    for factor in gammas:
        gamma = factor / median
        kernel = torch.exp(-gamma * squares)
        kernel = kernel - kernel.mean(0) - kernel.mean(1, keepdim=True) + kernel.mean()
        values, vectors, above = _spectrum_beside_constants(kernel)
        projected = vectors.mT @ centred
        residuals = _left_out_residuals(values, vectors, projected, None, penalties, above)
        error, number = residuals.square().mean(dim=(0, 2)).min(0)
        if float(error) / level < best.error:
            best = KernelRidge(gamma, float(_PENALTIES[number]), float(error) / level)
    return best


def affordable_rows(x: Tensor, targets: Tensor, regressions: int, seconds: float, most: int) -> int:
    """Rows of which so many kernel ridge regressions, of a gamma each, take some seconds.

    Args:
        x: Float64 rows ``N x d``.
        targets: Float64 targets ``N x K``.
        regressions: Their number.
        seconds: What they may take, by the time that one of 100 rows takes.
        most: Largest number of rows.
    """
    most = min(most, len(x))
    if seconds == math.inf or most <= _PROBE_ROWS:
        return most
    begin = time.monotonic()
    kernel_ridge(x[:_PROBE_ROWS], targets[:_PROBE_ROWS], (1.0,))
    taken = time.monotonic() - begin
    share = max(seconds - taken, 0.0) / max(regressions * taken, 1e-9)
    return min(most, int(_PROBE_ROWS * share ** (1 / 3)))


def relevance(x: Tensor, targets: Tensor, settings: KernelRidge) -> Tensor:
    """Mean squared slope ``d`` of a kernel ridge regression by each column, summed over outputs.

    Args:
        x: Float64 rows ``N x d``.
        targets: Float64 targets ``N x K``.
        settings: Its settings.
    """
    squares = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square()
    kernel = torch.exp(-settings.gamma * squares)
    system = kernel.clone()
    system.diagonal().add_(max(settings.penalty, _LEAST_PENALTY) * len(x))
    weights = torch.linalg.solve(system, targets - targets.mean(0))  # N x K
    slopes = torch.zeros_like(x[0])
    for weight in weights.mT.unsqueeze(-1):  # N x 1; sum of w_i k(x, x_i) (x_i - x)
        slopes += (kernel @ (weight * x) - (kernel @ weight) * x).square().mean(0)
    return (2 * settings.gamma) ** 2 * slopes


def _joined(blocks: Iterable[Tensor]) -> Iterator[Tensor]:
    """The same rows in blocks that are worth a product of all columns."""
    waiting: list[Tensor] = []
    for block in blocks:
        waiting.append(block)
        if sum(len(part) for part in waiting) >= _LEAST_BLOCK:
            yield torch.cat(waiting)
            waiting = []
    if waiting:
        yield torch.cat(waiting)


def ridge_operations(count: int, width: int, outputs: int) -> float:
    """About how many operations :func:`ridge_by_left_out_rows` takes, features not included.

    Args:
        count: Number of rows.
        width: Number of features.
        outputs: Number of targets.
    """
    chosen = min(count, _MAX_ROWS)
    size = min(chosen, width)
    spectrum = 2 * chosen * width * size + _EIGEN * size**3 + 2 * chosen * size * width
    left_out = 2 * len(_PENALTIES) * chosen * size * (1 + outputs)
    products = 2 * count * width**2 + width**3 if count > _MAX_ROWS else 0
    return float(spectrum + left_out + products)


def ridge_by_left_out_rows(
    blocks: Iterable[Tensor], targets: Tensor, rng: np.random.RandomState
) -> Ridge:
    """Ridge regression on features, with the penalty under which held-out rows are predicted best.

    Args:
        blocks: Features of blocks of rows, in float64.
        targets: Targets ``N x K`` in float64.
        rng: Chooses the rows that are held out, where there are many.
    """
    size, device = len(targets), targets.device
    chosen = torch.arange(size, device=device)
    if size > _MAX_ROWS:
        rows = np.sort(rng.choice(size, _MAX_ROWS, replace=False))
        chosen = torch.from_numpy(rows).to(device)
    marked = torch.zeros(size, dtype=torch.bool, device=device)
    marked[chosen] = True
    picked, seen = [], 0
    products: Tensor | None = None
    sums, cross = torch.zeros(()), torch.zeros(())
    for block in _joined(blocks):
        stop = seen + len(block)
        picked.append(block[marked[seen:stop]])
        if size > _MAX_ROWS:  # products over all the rows
            products = block.mT @ block if products is None else products.addmm_(block.mT, block)
            sums = sums.to(device) + block.sum(0)
            cross = cross.to(device) + block.mT @ targets[seen:stop]
        seen = stop
    features, own = torch.cat(picked), targets[chosen]
    centre, level = features.mean(0), own.mean(0)
    features, own = features - centre, own - level
    count, width = features.shape
    if count <= width:
        values, vectors, above = _spectrum_beside_constants(features @ features.mT)
    else:
        above = None
        values, axes = torch.linalg.eigh(features.mT @ features)
        values = values.clamp_min(1e-12)
        vectors = (features @ axes) / values.sqrt()
    projected = vectors.mT @ own
    rest = own - vectors @ projected
    best, penalty, residuals = float("inf"), 1.0, own
    for candidate in (torch.from_numpy(_PENALTIES).to(values) * count).split(1):
        found = _left_out_residuals(values, vectors, projected, rest, candidate, above)[:, 0]
        error = float(found.square().mean())
        if error < best:
            best, penalty, residuals = error, float(candidate), found
    if products is None:
        weight = features.mT @ (vectors @ (projected / (values + penalty).unsqueeze(1)))
        if count > width:
            weight = axes @ ((values.sqrt() / (values + penalty)).unsqueeze(1) * projected)
    else:
        centre, level = sums / size, targets.mean(0)
        products -= size * torch.outer(centre, centre)
        products.diagonal().add_(penalty)
        weight = torch.cholesky_solve(
            cross - size * torch.outer(centre, level), torch.linalg.cholesky(products)
        )
    return Ridge(weight, level - centre @ weight, chosen, targets[chosen] - residuals)
