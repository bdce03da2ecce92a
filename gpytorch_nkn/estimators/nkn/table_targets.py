"""Transforms of skewed targets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.stats import skew
from torch import Tensor

from gpytorch_nkn.averaging import PredictiveMixture, Transform, candidate_transforms
from gpytorch_nkn.estimators.nkn.ensemble import Ensemble
from gpytorch_nkn.estimators.nkn.table_models import TableGP, train_structures
from gpytorch_nkn.estimators.table_input import offset_and_scale, scaled_variance
from gpytorch_nkn.fit import Recipe

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
    lowest: float  # range of the transformed targets, infinite for rates of counts
    highest: float

    @classmethod
    def of(cls, y: np.ndarray, transform: Transform, *, robust: bool = False) -> Targets:
        """Learn the standardisation of targets ``N``, if ``robust`` by their quartiles.

        Raises:
            ValueError: The transform is not defined for a target, or targets are too large.
        """
        scaled = _forward(transform, y)
        offset, scale = offset_and_scale(scaled)
        low, middle, high = np.quantile(scaled, [0.25, 0.5, 0.75]).tolist()
        if robust and high > low:
            offset, scale = middle, (high - low) / _QUARTILES
        return cls(transform, offset, scale, float(scaled.min()), float(scaled.max()))

    def standardised(self, y: np.ndarray) -> np.ndarray:
        """Transform and standardise targets ``N``."""
        return (_forward(self.transform, y) - self.offset) / self.scale

    def standardised_variance(self, y: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Convert noise variances ``N`` of targets ``N`` to variances of standardised targets."""
        return scaled_variance(self.transform, y, variance, self.scale)

    def log_density_of(self, standardised: np.ndarray, logs: np.ndarray) -> np.ndarray:
        """Convert log densities ``N`` per standardised unit to those per unit of the targets."""
        found = self.transform.inverse(self.offset + self.scale * standardised)
        return logs + self.transform.log_slope(found) - math.log(self.scale)

    def moments(self, mixture: PredictiveMixture) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations ``M`` of a mixture.

        Transformed values more than a standard deviation beyond both the targets of the fit and
        the median are clipped: under a logarithm, wide tails would dominate the moments.
        """
        if self.transform.is_linear or np.isinf(self.lowest):
            return mixture.moments()
        median = self.transform.forward(mixture.quantile(0.5))
        lower = np.minimum(self.lowest, median) - self.scale
        upper = np.maximum(self.highest, median) + self.scale
        return mixture.moments((lower, upper))


def _forward(transform: Transform, y: np.ndarray) -> np.ndarray:
    if not transform.accepts(y):
        raise ValueError(
            f"y_transform={transform.name!r} must be defined for all targets, got targets from "
            f"{y.min():g} to {y.max():g}."
        )
    return transform.forward(y)


def candidates(option: str, y: np.ndarray, bounds: tuple[float, float] | None) -> list[Transform]:
    """Return candidate transforms of targets ``N`` for an option of the regressor."""
    if option == "auto" and bounds is None and not _is_skewed(y):
        option = "identity"
    found = candidate_transforms(option, y, bounds, prefix="y_")
    return [Transform(), *found[1:]] if bounds is None and found[0].is_identity else found


def _is_skewed(y: np.ndarray) -> bool:
    """Return whether non-negative targets ``N`` are skewed to the right."""
    return bool(y.min() >= 0 and skew(y) > _SKEWED)


def choose_transform(
    found: Sequence[Transform],
    inputs: Tensor,
    y: np.ndarray,
    noise: np.ndarray | None = None,
    *,
    seed: int,
    recipe: Recipe | None,
    **options: Any,
) -> Transform:
    """Return the transform under which a single kernel predicts held-out rows best.

    Inputs ``N x d`` are standardised, known noise variances ``N`` are of targets ``N``, and options
    are of :func:`train_structures`.
    """
    rows = np.random.default_rng(seed).permutation(len(y))[:_COMPARED_ROWS]
    if len(found) == 1 or np.ptp(y[rows]) == 0:
        return found[0]

    def held_out(transform: Transform) -> np.ndarray:
        targets, known = Targets.of(y[rows], transform, robust=noise is not None), None
        if noise is not None:
            known = torch.as_tensor(targets.standardised_variance(y[rows], noise[rows])).to(inputs)
        results = train_structures(
            {"rbf": "rbf"},
            inputs[rows],
            torch.as_tensor(targets.standardised(y[rows])).to(inputs),
            restarts=1,
            recipe=recipe or _QUICK,
            seed=seed,
            progress=False,
            make_model=partial(TableGP, noise=known),
            **options,
        )
        ensemble = Ensemble(results, cat_dims=options["cat_dims"], scale_noise=False)
        return targets.log_density_of(*ensemble.held_out)

    return _best(found, [held_out(transform) for transform in found])


def _best(found: Sequence[Transform], densities: Sequence[np.ndarray]) -> Transform:
    """Return the first transform, or the best one if it gains at least 2 standard errors.

    Log densities ``M`` are of the same rows, per unit of the targets.
    """
    gains = np.array(densities) - densities[0]
    gains = gains[:, np.isfinite(gains).all(0)]
    if gains.shape[1] < 2:
        return found[0]
    means = gains.mean(1)
    errors = gains.std(1) / np.sqrt(gains.shape[1])
    best = int(means.argmax())
    return found[best if means[best] > _STANDARD_ERRORS * errors[best] else 0]
