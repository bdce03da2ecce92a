"""Scalings of a table's columns for spectral features."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from gpytorch_nkn.estimators.askl.leave_one_out import KernelRidge, kernel_ridge, relevance
from gpytorch_nkn.estimators.table_input import moments, varying

__all__ = ["SCALINGS", "InputMap", "choose_input_map"]

SCALINGS = ("standard", "common", "ranks")
_KNEE = 3.0  # number of standard deviations beyond which values are compressed
_RANK_SCALE = 1.7  # factor that gives ranks from -1 to 1 about unit variance
_NUM_QUANTILES = 1000  # largest number of quantiles for the interpolation of ranks
_MAX_RANKED = 100  # largest number of columns for which ranks are a candidate
_MAX_SCALED = 1e150  # largest absolute value of a scaled cell, so that its square is finite

_ROWS = 900  # largest number of rows for the choice of scalings
_MIN_ROWS = 40  # smallest number of rows for the choice of scalings
_HANDICAP = 1.03  # factor of the errors of scalings other than "standard"
_RELEVANCE_HANDICAP = 1.02  # factor of the errors with column weights
_GAMMAS = (2.0**-5, 2.0**-3, 2.0**-1, 2.0, 2.0**3)  # times the inverse median squared distance
_MIN_SLOPE = 1e-3  # smallest mean squared slope of a column, relative to the mean of all columns


@dataclass(frozen=True, eq=False)
class InputMap:
    """Map of a table's varying columns to the scaled and weighted inputs of a network.

    Scalings are:

    - ``"standard"``: standardised, logarithmic beyond 3 standard deviations, and standardised
      again. The angles are linear in the inputs, and outliers would dominate them;
    - ``"ranks"``: standardised with bounded tails, with ranks as additional columns;
    - ``"common"``: one standard deviation for all columns, suitable for pixels.
    """

    scaling: str
    used: np.ndarray  # mask D of the c columns that vary
    centre: np.ndarray  # offsets c before the compression of tails
    first_scale: np.ndarray  # scales c before the compression
    quantiles: np.ndarray  # quantiles Q x c for ranks; otherwise empty
    offset: np.ndarray  # offsets d after the compression; d is 2 c with ranks, otherwise c
    scale: np.ndarray  # scales d after the compression
    weight: np.ndarray  # column weights d

    @classmethod
    def of(cls, X: np.ndarray, scaling: str) -> InputMap:
        """Learn the scaling of a table ``N x D``, with unit weights."""
        used = varying(X)
        columns = X[:, used]
        centre, first_scale = moments(columns)
        quantiles = np.empty((0, len(centre)))
        if scaling == "common":
            first_scale = np.full_like(
                first_scale,
                first_scale.max() * np.sqrt(np.mean((first_scale / first_scale.max()) ** 2)),
            )
        elif scaling == "ranks":
            levels = np.linspace(0, 1, min(_NUM_QUANTILES, len(X)))
            quantiles = np.quantile(columns, levels, axis=0)
        width = len(centre) * (2 if scaling == "ranks" else 1)
        zeros, ones = np.zeros(width), np.ones(width)
        first = cls(scaling, used, centre, first_scale, quantiles, zeros, ones, ones)
        if scaling == "common":
            return first
        scaled = first(X)
        stds = scaled.std(0)
        return replace(first, offset=scaled.mean(0), scale=np.where(stds > 1e-9, stds, 1.0))

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Return the scaled and weighted inputs ``N x d`` of rows ``N x D``, in float64."""
        columns = X[:, self.used]
        with np.errstate(over="ignore"):
            z = (columns - self.centre) / self.first_scale
        z = np.clip(z, -_MAX_SCALED, _MAX_SCALED)
        if self.scaling == "standard":
            size = np.abs(z)
            far = size > _KNEE
            z[far] = np.sign(z[far]) * (_KNEE + np.log1p(size[far] - _KNEE))
        elif self.scaling == "ranks":
            z = np.hstack([_KNEE * z / np.hypot(_KNEE, z), _RANK_SCALE * self._ranks(columns)])
        return (z - self.offset) / self.scale * self.weight

    def _ranks(self, columns: np.ndarray) -> np.ndarray:
        """Return ranks ``N x c`` from -1 to 1; ties get their mean rank."""
        levels = np.linspace(-1, 1, len(self.quantiles))
        ranks = [
            np.interp(column, points, levels) - np.interp(-column, -points[::-1], levels)
            for column, points in zip(columns.T, self.quantiles.T, strict=True)
        ]
        return 0.5 * np.stack(ranks, 1)


def choose_input_map(X: np.ndarray, targets: np.ndarray, rng: np.random.RandomState) -> InputMap:
    """Choose the scaling and the column weights by the error of kernel ridge regression.

    Each half of a sample of up to 900 rows gives leave-one-out errors of the scalings. Candidate
    weights are powers of the slopes of a regression on the first half; the second half gives their
    errors. Scalings other than ``"standard"`` must be better by 3 %, weights by 2 %. Targets
    ``N x K`` are standardised, or -1 and 1 for classes.
    """
    rows = rng.permutation(len(X))[:_ROWS]
    best, lowest, z = InputMap.of(X, "standard"), np.inf, torch.empty(0)
    if len(rows) < _MIN_ROWS:
        return best
    first, second = np.array_split(np.arange(len(rows)), 2)
    y = torch.from_numpy(targets[rows])
    for scaling in SCALINGS:
        if scaling == "ranks" and len(best.centre) > _MAX_RANKED:
            continue
        candidate = InputMap.of(X, scaling)
        inputs = torch.from_numpy(candidate(X[rows]))
        error = sum(kernel_ridge(inputs[half], y[half], _GAMMAS).error for half in (first, second))
        error *= 1.0 if scaling == "standard" else _HANDICAP
        if error < lowest:
            best, lowest, z = candidate, error, inputs
    errors = [kernel_ridge(z[second], y[second], _GAMMAS).error / _RELEVANCE_HANDICAP]
    for weight in _weights(z[first], y[first]):
        errors.append(kernel_ridge(z[second] * weight, y[second], _GAMMAS).error)
    chosen = int(np.argmin(errors))
    if chosen == 0:
        return best
    return replace(best, weight=_weights(z, y)[chosen - 1].numpy())


def _weights(z: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    """Return candidates ``d``: powers 1/4 and 1/2 of mean squared slopes, in two rounds."""
    candidates: list[torch.Tensor] = []
    weight = torch.ones_like(z[0])
    for _ in range(2):
        settings: KernelRidge = kernel_ridge(z * weight, y, _GAMMAS)
        slopes = relevance(z * weight, y, settings)
        slopes = (slopes / slopes.mean().clamp_min(1e-300)).clamp_min(_MIN_SLOPE)
        for power in (0.25, 0.5):
            candidate = slopes**power * weight
            candidates.append(candidate / candidate.square().mean().sqrt())
        weight = candidates[-2]
    return candidates
