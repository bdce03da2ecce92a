"""Trained Gaussian processes that predict together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import torch
from gpytorch.models import ExactGP
from scipy.special import logsumexp
from torch import Tensor

from gpytorch_nkn.estimators.conditioned_gp import ConditionedGP
from gpytorch_nkn.fit import FitResult, stacking_weights

__all__ = ["SELECTIONS", "Ensemble", "Predictor"]

SELECTIONS = ("stacking", "loo", "marginal_likelihood")

_KEPT_BYTES = 2 * 2**30  # of factors, between predictions
_MAX_LOO_ROWS = 4000  # of models that are not exact, whose rows are left out within blocks


class Predictor(Protocol):
    """What a member of an ensemble can do, at rows ``M x D``, without noise."""

    model: ExactGP

    @property
    def noise(self) -> float:
        """Variance of the noise."""

    @property
    def num_bytes(self) -> int:
        """Memory that :meth:`release` gives back."""

    def moments(self, x: Tensor, *, variance: bool = True) -> tuple[Tensor, Tensor | None]:
        """Mean and variance ``M``."""

    def covariance(self, x: Tensor) -> Tensor:
        """Covariance ``M x M``."""

    def release(self) -> None:
        """Forget what can be computed again."""


class Ensemble:
    """A mixture of Gaussian processes over the same rows.

    Args:
        results: Records of fits whose members have all rows, by name of the network.
        selection: One of ``SELECTIONS``: a mixture, or one of the members.
        make_predictor: Makes a sparse predictor of a model; ``None`` for exact predictions.
        block_size: Rows of a block within which each row is left out, for sparse predictions.

    Attributes:
        members: Name of the network and number of the start of each member.
        weights: Their shares, of sum 1.
        predictors: Their predictions.
        loo_log_density: Mean log density of left-out targets under the mixture.

    Raises:
        RuntimeError: No member has a covariance matrix that is positive definite.
    """

    def __init__(
        self,
        results: Mapping[str, FitResult],
        *,
        selection: str,
        make_predictor: Callable[[ExactGP], Predictor] | None,
        block_size: int,
    ):
        found: list[tuple[tuple[str, int], Predictor, np.ndarray]] = []
        kept = 0
        for name, result in results.items():
            only_best = selection == "marginal_likelihood"
            for number, model in result.members.items():
                if only_best and number != result.best:
                    continue
                exact = ConditionedGP(model)
                try:
                    if make_predictor is None:
                        predictor: Predictor = exact
                        logs = _left_out(exact)
                    else:
                        predictor = make_predictor(model)
                        logs = np.concatenate(
                            [_left_out(block) for block in exact.blocks(block_size, _MAX_LOO_ROWS)]
                        )
                except torch.linalg.LinAlgError:
                    continue
                found.append(((name, number), predictor, logs))
                kept += predictor.num_bytes
                if kept > _KEPT_BYTES:
                    predictor.release()
        if not found:
            raise RuntimeError("No trained network has a positive definite covariance matrix.")
        densities = np.stack([logs for _, _, logs in found])
        if selection == "stacking":
            weights = stacking_weights(densities)
        else:
            weights = np.eye(len(found))[densities.mean(1).argmax()]
        chosen = np.flatnonzero(weights)
        self.members = [found[place][0] for place in chosen]
        self.predictors = [found[place][1] for place in chosen]
        self.weights = weights[chosen]
        with np.errstate(divide="ignore"):
            mixed = logsumexp(densities[chosen], axis=0, b=self.weights[:, None])
        self.loo_log_density = float(mixed.mean())

    @property
    def model(self) -> ExactGP:
        """The model of the largest share."""
        return self.predictors[int(self.weights.argmax())].model

    def moments(self, x: Tensor, *, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances ``R x M`` of the members at rows ``M x D``."""
        means, variances = [], []
        for predictor in self.predictors:
            mean, own = predictor.moments(x, variance=variance)
            means.append(mean.cpu().numpy())
            if own is not None:
                variances.append(own.cpu().numpy() + noise * predictor.noise)
            self._release_some()
        return np.stack(means), np.stack(variances) if variance else np.zeros((len(means), 1))

    def covariance(self, x: Tensor, *, noise: bool) -> np.ndarray:
        """Covariances ``R x M x M`` of the members."""
        covariances = []
        for predictor in self.predictors:
            own = predictor.covariance(x).cpu().numpy()
            own[np.diag_indices_from(own)] += noise * predictor.noise
            covariances.append(own)
            self._release_some()
        return np.stack(covariances)

    def _release_some(self) -> None:
        kept = 0
        for predictor in self.predictors:
            kept += predictor.num_bytes
            if kept > _KEPT_BYTES:
                predictor.release()


def _left_out(predictor: ConditionedGP) -> np.ndarray:
    """Log densities ``N`` of the targets, each given all the others."""
    mean, variance = predictor.leave_one_out()
    squares = (predictor.targets - mean).square() / variance
    logs = -0.5 * (squares + variance.log() + math.log(2 * math.pi))
    return logs.cpu().numpy()
