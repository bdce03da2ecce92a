"""Transforms of skewed targets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import skew
from torch import Tensor

from gpytorch_nkn.averaging import PredictiveMixture, Transform, candidate_transforms
from gpytorch_nkn.estimators.nkn.ensemble import Ensemble
from gpytorch_nkn.estimators.nkn.table_models import train_structures
from gpytorch_nkn.estimators.table_input import is_constant, offset_and_scale, scaled_variance
from gpytorch_nkn.fit import Recipe, Rows

__all__ = ["Targets", "candidates", "choose_transform"]

_SKEWED = 0.5  # least skewness for a transform
_STANDARD_ERRORS = 2.0  # required gain of a transform in held-out log density
_COMPARED_ROWS = 300  # largest number of rows for the choice of a transform
_QUARTILES = 1.349  # distance of the quartiles of a normal distribution in standard deviations
_QUICK = Recipe(adam_steps=0, lbfgs_iterations=40)


@dataclass(frozen=True)
class Targets:
    """Transform and standardisation of the targets of a table."""

    transform: Transform
    offset: float  # mean and standard deviation of the transformed targets
    scale: float
    lowest: float  # range of the transformed targets
    highest: float

    @classmethod
    def of(cls, y: np.ndarray, transform: Transform, *, robust: bool = False) -> Targets:
        """Learn the standardisation of targets ``N``, if ``robust`` by their quartiles."""
        scaled = transform.forward(y)
        offset, scale = offset_and_scale(scaled)
        low, middle, high = np.quantile(scaled, [0.25, 0.5, 0.75]).tolist()
        if robust and not is_constant(np.array([low, high])):
            offset, scale = middle, (high - low) / _QUARTILES
        return cls(transform, offset, scale, float(scaled.min()), float(scaled.max()))

    def rows(self, x: Tensor, observed: np.ndarray) -> Rows:
        """Return rows with standardised targets and, unless all are 0, known noise variances.

        ``observed`` has targets, logarithms of exposures and known noise variances, ``3 x N``.
        """
        y, _, variance = observed
        noise = scaled_variance(self.transform, y, variance, self.scale)
        y = (self.transform.forward(y) - self.offset) / self.scale
        known_noise = torch.as_tensor(noise).to(x) if variance.any() else None
        return Rows(x, torch.as_tensor(y).to(x), known_noise)

    def scores(
        self, standardised: np.ndarray, mixture: PredictiveMixture, resolution: float = 0.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return log densities ``n`` of targets under their mixture, and ranks ``2 x n``.

        Densities are per unit of the targets; at counts and closed bounds they are probabilities.
        Densities of other targets are averages over an interval of width ``resolution``. Ranks are
        the probabilities below the targets, and up to them.
        """
        kind, weights = self.transform, mixture.weights
        y = kind.inverse(self.offset + self.scale * standardised)
        for bound in (kind.lower, kind.upper):  # where it is an atom, in spite of rounding
            y = np.where(np.abs(y - bound) <= 1e-12 * np.ptp(y), bound, y)
        means, stds = self.offset + self.scale * mixture.means, self.scale * mixture.stds
        mixture = PredictiveMixture(weights, means, stds, (kind,) * len(weights))
        before = y - 1 if kind.whole else np.nextafter(y, -np.inf)
        logs = mixture.log_density(y, 0.0 if kind.whole else resolution)
        return logs, np.stack([mixture.below(before), mixture.below(y)])

    def moments(self, mixture: PredictiveMixture) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations ``M`` of a mixture.

        Transformed values are clipped at one standard deviation beyond the range of the fit's
        targets and the predictive median. Otherwise log-normal tails would dominate the moments.
        """
        if self.transform.is_linear:
            return mixture.moments()
        median = self.transform.forward(mixture.quantile(0.5))
        lower = np.minimum(self.lowest, median) - self.scale
        upper = np.maximum(self.highest, median) + self.scale
        return mixture.moments((lower, upper))


def candidates(option: str, y: np.ndarray, bounds: tuple[float, float] | None) -> list[Transform]:
    """Return candidate transforms of targets ``N`` for an option of the regressor."""
    if option == "auto" and bounds is None and not (y.min() >= 0 and skew(y) > _SKEWED):
        option = "identity"
    transforms = candidate_transforms(option, y, bounds, prefix="y_")
    if bounds is None and transforms[0].is_identity:
        transforms[0] = Transform()  # without bounds
    return transforms


def choose_transform(
    transforms: Sequence[Transform],
    x: Tensor,
    observed: np.ndarray,
    *,
    seed: int,
    recipe: Recipe | None,
    **options: Any,
) -> Transform:
    """Return the transform under which a kernel predicts held-out rows best.

    To replace the first one, it must gain 2 standard errors in mean log density. Inputs ``N x d``
    are standardised, and ``observed`` is as in :meth:`Targets.rows`. Options are passed to
    :func:`train_structures`.
    """
    rows = np.random.default_rng(seed).permutation(len(x))[:_COMPARED_ROWS]
    x, observed = x[rows], observed[:, rows]
    y, _, variance = observed
    if len(transforms) == 1 or np.ptp(y) == 0:
        return transforms[0]

    def held_out(transform: Transform) -> np.ndarray:
        targets = Targets.of(y, transform, robust=bool(variance.any()))
        results = train_structures(
            {"rbf": "rbf"},
            targets.rows(x, observed),
            restarts=1,
            recipe=recipe or _QUICK,
            seed=seed,
            progress=False,
            **options,
        )
        if any(result.interrupted for result in results.values()):
            raise KeyboardInterrupt
        ensemble = Ensemble(results, cat_dims=options["cat_dims"], scale_noise=False)
        return targets.scores(*ensemble.held_out, resolution)[0]

    resolution = 1.0 if any(transform.whole for transform in transforms) else 0.0
    densities = np.stack([held_out(transform) for transform in transforms])
    gains = densities - densities[0]
    gains = gains[:, np.isfinite(gains).all(0)]
    if gains.shape[1] < 2:
        return transforms[0]
    best = int(gains.mean(1).argmax())
    error = gains[best].std() / math.sqrt(gains.shape[1])
    return transforms[best if gains[best].mean() > _STANDARD_ERRORS * error else 0]
