"""Ridge regression whose penalty and kernel width minimise the leave-one-out error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["GAMMAS", "KernelRidge", "Ridge", "kernel_ridge", "leave_one_out_ridge", "relevance"]

# Candidates, times the inverse median squared distance.
GAMMAS = tuple(2.0**exponent for exponent in range(-5, 5))

_PENALTIES = 10.0 ** np.arange(-7, 1.1, 0.5)  # candidate penalties per row
_MIN_PENALTY = 1e-5  # smallest penalty per row in regressions whose slopes are used
_MIN_DIVISOR = 1e-10  # smallest divisor of a leave-one-out residual
_MAX_ROWS = 4000  # largest number of rows for leave-one-out errors


class KernelRidge(NamedTuple):
    """Settings of a kernel ridge regression."""

    gamma: float  # parameter of the RBF kernel exp(-gamma r^2)
    penalty: float  # penalty of the squared norm, per row
    error: float  # leave-one-out mean squared error, relative to the variance of the targets


class Ridge(NamedTuple):
    """Linear model on features, and its leave-one-out outputs."""

    weight: Tensor  # weights D x K
    intercept: Tensor  # intercepts K
    rows: Tensor  # indices n of the rows with leave-one-out outputs
    outputs: Tensor  # leave-one-out outputs at these rows, n x K


def _shifted_spectrum(gram: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return eigenvalues and eigenvectors of a centred Gram matrix, and its shifted eigenvalue.

    The eigenvalue of the constant vector, 0, is shifted to the mean of the diagonal, far from other
    eigenvalues near 0.
    """
    level = gram.diagonal().mean()
    values, vectors = torch.linalg.eigh(gram + level / len(gram))
    return values.clamp_min(0), vectors, level


def _leave_one_out_residuals(
    values: Tensor,
    vectors: Tensor,
    projected: Tensor,
    rest: Tensor | None,
    penalties: Tensor,
    level: Tensor | None,
) -> Tensor:
    """Return leave-one-out residuals ``N x P x K`` of ridge regressions with an intercept.

    The centred Gram matrix has eigenvalues ``D`` and eigenvectors ``N x D``. ``projected``,
    ``D x K``, is the projection of the centred targets on the eigenvectors, and ``rest``,
    ``N x K``, the remainder (``None`` for zero). ``level`` is the eigenvalue of the constant
    vector, ``None`` if it is not among the eigenvectors.
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
    return residuals.div_(freedom.clamp_min(_MIN_DIVISOR).unsqueeze(2))


def kernel_ridge(x: Tensor, targets: Tensor, gammas: Sequence[float] = GAMMAS) -> KernelRidge:
    """Return the settings of RBF kernel ridge regression with the smallest leave-one-out error.

    Rows ``N x d`` and targets ``N x K`` are float64. ``gammas`` are multiples of the inverse median
    squared distance; each needs an eigendecomposition. The regression has an intercept.
    """
    squares = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square()
    distinct = squares[squares > 0]
    median = float(distinct.median()) if len(distinct) else 1.0
    centred = targets - targets.mean(0)
    level = float(centred.square().mean()) or 1.0
    best = KernelRidge(1 / median, 1.0, math.inf)
    penalties = torch.from_numpy(_PENALTIES).to(x) * len(x)
    for factor in gammas:
        gamma = factor / median
        kernel = torch.exp(-gamma * squares)
        kernel = kernel - kernel.mean(0) - kernel.mean(1, keepdim=True) + kernel.mean()
        values, vectors, constant = _shifted_spectrum(kernel)
        projected = vectors.mT @ centred
        residuals = _leave_one_out_residuals(values, vectors, projected, None, penalties, constant)
        error, number = residuals.square().mean(dim=(0, 2)).min(0)
        if float(error) / level < best.error:
            best = KernelRidge(gamma, float(_PENALTIES[number]), float(error) / level)
    return best


def relevance(x: Tensor, targets: Tensor, settings: KernelRidge) -> Tensor:
    """Return squared slopes ``d`` of kernel ridge regression: mean over rows, sum over targets.

    Rows ``N x d`` and targets ``N x K`` are float64.
    """
    squares = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square()
    kernel = torch.exp(-settings.gamma * squares)
    system = kernel.clone()
    system.diagonal().add_(max(settings.penalty, _MIN_PENALTY) * len(x))
    weights = torch.linalg.solve(system, targets - targets.mean(0))  # N x K
    slopes = torch.zeros_like(x[0])
    for weight in weights.mT.unsqueeze(-1):  # N x 1; sum of w_i k(x, x_i) (x_i - x)
        slopes += (kernel @ (weight * x) - (kernel @ weight) * x).square().mean(0)
    return (2 * settings.gamma) ** 2 * slopes


def leave_one_out_ridge(features: Tensor, targets: Tensor, rng: np.random.RandomState) -> Ridge:
    """Return ridge regression on features, with the penalty of smallest leave-one-out error.

    Features ``N x D`` and targets ``N x K`` are float64. Above 4000 rows, a random subset of the
    rows determines the penalty.
    """
    chosen = torch.arange(len(targets), device=targets.device)
    if len(targets) > _MAX_ROWS:
        rows = np.sort(rng.choice(len(targets), _MAX_ROWS, replace=False))
        chosen = torch.from_numpy(rows).to(targets.device)
    x, y = features[chosen], targets[chosen]
    centre, level = x.mean(0), y.mean(0)
    x, y = x - centre, y - level
    count, width = x.shape
    if count <= width:
        values, vectors, constant = _shifted_spectrum(x @ x.mT)
    else:
        constant = None
        values, axes = torch.linalg.eigh(x.mT @ x)
        values = values.clamp_min(1e-12)
        vectors = (x @ axes) / values.sqrt()
    projected = vectors.mT @ y
    rest = y - vectors @ projected
    best, penalty, residuals = float("inf"), 1.0, y
    for candidate in (torch.from_numpy(_PENALTIES).to(values) * count).split(1):
        loo = _leave_one_out_residuals(values, vectors, projected, rest, candidate, constant)[:, 0]
        error = float(loo.square().mean())
        if error < best:
            best, penalty, residuals = error, float(candidate), loo
    if count <= width and count == len(targets):
        weight = x.mT @ (vectors @ (projected / (values + penalty).unsqueeze(1)))
    else:
        centre, level = features.mean(0), targets.mean(0)
        products = features.mT @ features - len(targets) * torch.outer(centre, centre)
        products.diagonal().add_(penalty)
        cross = features.mT @ targets - len(targets) * torch.outer(centre, level)
        weight = torch.cholesky_solve(cross, torch.linalg.cholesky(products))
    return Ridge(weight, level - centre @ weight, chosen, targets[chosen] - residuals)
