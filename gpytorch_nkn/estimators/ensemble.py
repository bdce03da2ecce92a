"""Trained Gaussian processes that predict together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import torch
from gpytorch.models import ExactGP
from linear_operator.utils.errors import NotPSDError
from scipy.stats import norm
from torch import Tensor

from gpytorch_nkn.estimators.conditioned_gp import ConditionedGP
from gpytorch_nkn.estimators.mixtures import mixture_log_density
from gpytorch_nkn.fit import FitResult, stacking_weights
from gpytorch_nkn.fit.stacking import WIDTHS, stack_predictions

__all__ = ["SELECTIONS", "Ensemble", "Predictor", "sparse_predictors"]

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
        calibrate: Learn the shares of several widths of a prediction.
        make_predictor: Makes a sparse predictor of a model; ``None`` for exact predictions.
        block_size: Rows of a block within which each row is left out, for sparse predictions.

    Attributes:
        members: Name of the network and number of the start of each member.
        weights: Their shares, of sum 1.
        widths: Factors of the standard deviation of an observation.
        width_shares: Shares of the widths, of sum 1.
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
        calibrate: bool,
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
                        left_out = _left_out(exact)
                    else:
                        predictor = make_predictor(model)
                        blocks = exact.blocks(block_size, _MAX_LOO_ROWS)
                        left_out = np.concatenate([_left_out(block) for block in blocks], 1)
                except (torch.linalg.LinAlgError, NotPSDError):
                    continue
                found.append(((name, number), predictor, left_out))
                kept += predictor.num_bytes
                if kept > _KEPT_BYTES:
                    predictor.release()
        if not found:
            raise RuntimeError("No trained network has a positive definite covariance matrix.")
        targets, means, variances = np.stack([left_out for _, _, left_out in found], 1)
        targets = targets[0]
        densities = norm.logpdf(targets, means, np.sqrt(variances))
        if selection == "stacking":
            chosen = np.arange(len(found))
        else:
            chosen = densities.mean(1).argmax(keepdims=True)
        means, variances = means[chosen], variances[chosen]
        self.widths, self.width_shares = np.ones(1), np.ones(1)
        if calibrate:
            self.widths = WIDTHS
            weights, self.width_shares = stack_predictions(targets, means, variances)
        else:
            weights = stacking_weights(densities[chosen])
        places = np.flatnonzero(weights)
        self.members = [found[chosen[place]][0] for place in places]
        self.predictors = [found[chosen[place]][1] for place in places]
        self.weights = weights[places]
        parts = self.observations(means[places], variances[places])
        self.loo_log_density = float(mixture_log_density(*parts, targets).mean())

    def observations(
        self, means: np.ndarray, variances: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The mixture that observations come from, for moments ``R x M`` of the members.

        Returns:
            Shares ``R K`` of its Gaussians, and their means and deviations ``R K x M``.
        """
        shares = np.outer(self.weights, self.width_shares).ravel()
        deviations = self.widths[:, None] * np.sqrt(variances)[:, None]
        means = np.broadcast_to(means[:, None], deviations.shape)
        return shares, means.reshape(shares.size, -1), deviations.reshape(shares.size, -1)

    @property
    def widening(self) -> float:
        """Factor of the variance of an observation, over all widths."""
        return float(self.width_shares @ self.widths**2)

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


def sparse_predictors(inputs: Tensor, count: int, seed: int) -> Callable[[ExactGP], Predictor]:
    """What makes sparse predictors of models over rows ``N x D``, with ``count`` points."""
    # BoTorch, which the models stand on, is loaded where it is needed only
    from gpytorch_nkn.estimators.sparse_predictor import SparsePredictor, select_points

    points = select_points(inputs, count, seed)
    return lambda model: SparsePredictor(model, points)


def _left_out(predictor: ConditionedGP) -> np.ndarray:
    """Targets, and their means and variances given all others, ``3 x N``."""
    mean, variance = predictor.leave_one_out()
    return torch.stack([predictor.targets, mean, variance]).cpu().numpy()
