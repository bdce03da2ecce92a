"""Trained Gaussian processes that predict together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy

import numpy as np
import torch
from gpytorch.models import ExactGP
from linear_operator.utils.errors import NotPSDError
from scipy.special import logsumexp, ndtr
from scipy.stats import norm
from torch import Tensor

from gpytorch_nkn.estimators.conditioned_gp import ConditionedGP
from gpytorch_nkn.fit import WIDTHS, FitResult, stack_predictions, stacking_weights

__all__ = [
    "SELECTIONS",
    "Ensemble",
    "mixture_log_density",
    "mixture_quantile",
    "sparse_predictors",
]

SELECTIONS = ("stacking", "loo", "marginal_likelihood")

_KEPT_BYTES = 2 * 2**30  # of factors, between predictions
_MAX_LOO_ROWS = 4000  # of models that are not exact, whose rows are held out within blocks


class SparsePredictor:
    """Titsias' posterior at the hyperparameters of an exact GP; see ``SparseNKNGP``.

    Args:
        model: A GP with ``mean_module``, ``covar_module``, homoskedastic Gaussian noise and inputs
            ``N x D``.
        points: Inducing points ``m x D``.
    """

    num_bytes = 0  # nothing that would be worth forgetting

    def __init__(self, model: ExactGP, points: Tensor):
        self.model = model.eval()
        assert model.train_inputs is not None
        # BoTorch, which the models stand on, is loaded where it is needed only
        from gpytorch_nkn.models import SparseNKNGP

        self._sparse = SparseNKNGP(
            model.train_inputs[0],
            model.train_targets.unsqueeze(-1),
            structure=model.covar_module,
            inducing_points=points,
            learn_inducing_points=False,
            likelihood=deepcopy(model.likelihood),
            mean_module=deepcopy(model.mean_module),
            outcome_transform=None,
        ).eval()

    @property
    def noise(self) -> float:
        """Variance of the noise."""
        return self.model.likelihood.noise.item()

    def moments(self, x: Tensor, *, variance: bool = True) -> tuple[Tensor, Tensor | None]:
        """Mean and variance ``M`` of the function at rows ``M x D``, without noise."""
        mean, own = self._sparse.predict(x)
        return mean.squeeze(-1), own.squeeze(-1) if variance else None

    @torch.no_grad()
    def covariance(self, x: Tensor) -> Tensor:
        """Covariance ``M x M`` of the function at rows ``M x D``, without noise."""
        return self._sparse(x).covariance_matrix

    def release(self) -> None:
        """Nothing to forget."""


# What a member of an ensemble predicts by.
Predictor = ConditionedGP | SparsePredictor


class Ensemble:
    """A mixture of Gaussian processes over the same rows.

    Args:
        results: Records of fits whose members have all rows, by name of the network.
        selection: One of ``SELECTIONS``: a mixture, or one of the members.
        calibrate: Learn the shares of several widths of a prediction.
        sparse: Makes a sparse predictor of a model; ``None`` for exact predictions.
        block_size: Rows of a block within which each row is left out, for sparse predictions.

    Attributes:
        members: Name of the network and number of the start of each member.
        weights: Their shares, of sum 1.
        widths: Factors of the standard deviation of an observation.
        width_shares: Shares of the widths, of sum 1.
        predictors: Their predictions.
        left_out_log_density: Mean log density of held-out targets under the mixture.

    Raises:
        RuntimeError: No member has a covariance matrix that is positive definite.
    """

    def __init__(
        self,
        results: Mapping[str, FitResult],
        *,
        selection: str,
        calibrate: bool,
        sparse: Callable[[ExactGP], Predictor] | None,
        block_size: int,
    ):
        found: list[tuple[tuple[str, int], Predictor, np.ndarray]] = []
        kept = 0
        for name, result in results.items():
            # the best start first: of starts that weigh the same, the first one is what is read
            for number in sorted(result.members, key=lambda number: number != result.best):
                model = result.members[number]
                if selection == "marginal_likelihood" and number != result.best:
                    continue
                exact = ConditionedGP(model)
                try:
                    predictor: Predictor = exact if sparse is None else sparse(model)
                    blocks = [exact]
                    if sparse is not None:
                        blocks = list(exact.blocks(block_size, _MAX_LOO_ROWS))
                    left_out = np.concatenate([_left_out(block) for block in blocks], 1)
                except (torch.linalg.LinAlgError, NotPSDError):
                    continue
                found.append(((name, number), predictor, left_out))
                kept += predictor.num_bytes
                if kept > _KEPT_BYTES:
                    predictor.release()
        if not found:
            raise RuntimeError("No trained network has a positive definite covariance matrix.")
        members = [member for member, _, _ in found]
        table = np.stack([left_out for _, _, left_out in found], 1)
        held_out = _held_out(results, members)
        honest = table if held_out is None else held_out
        if selection == "stacking":
            weights = _weights(honest[0], honest[1], honest[2], calibrate)
        else:
            logs = norm.logpdf(honest[0], honest[1], np.sqrt(honest[2]))
            weights = np.eye(len(found))[np.nanmean(logs, 1).argmax()]
        self.widths, self.width_shares = np.ones(1), np.ones(1)
        if calibrate:
            self.widths = WIDTHS
            _, self.width_shares = stack_predictions(
                table[0, 0], table[1], table[2], weights=weights
            )
        places = np.flatnonzero(weights)
        self.members = [members[place] for place in places]
        self.predictors = [found[place][1] for place in places]
        self.weights = weights[places]
        parts = self.observations(honest[1, places], honest[2, places])
        densities = mixture_log_density(*parts, honest[0, places[0]])
        self.left_out_log_density = float(np.nanmean(densities))

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

    def covariance(
        self, x: Tensor, *, noise: bool, members: np.ndarray | None = None
    ) -> np.ndarray:
        """Covariances ``R x M x M`` of the members, or of those at some places."""
        covariances = []
        places = np.arange(len(self.predictors)) if members is None else members
        for predictor in (self.predictors[place] for place in places):
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
    from gpytorch_nkn.models import select_inducing_points

    points = select_inducing_points(inputs, count, method="kmeans", seed=seed)
    return lambda model: SparsePredictor(model, points)


def _weights(
    targets: np.ndarray, means: np.ndarray, variances: np.ndarray, calibrate: bool
) -> np.ndarray:
    """Weights of members by what they predicted, ``M x N``; those who did alike share theirs."""
    _, first, alike = np.unique(means, axis=0, return_index=True, return_inverse=True)
    own = targets[0], means[first], variances[first]
    if calibrate:
        weights, _ = stack_predictions(*own)
    else:
        weights = stacking_weights(norm.logpdf(own[0], own[1], np.sqrt(own[2])))
    return (weights / np.bincount(alike))[alike]


def _held_out(
    results: Mapping[str, FitResult], members: list[tuple[str, int]]
) -> np.ndarray | None:
    """Targets and what networks predicted of rows before they saw them, ``3 x M x N``.

    All starts of a network have what they predicted together: each did so for other rows.
    """
    if not all(result.held_out for result in results.values()):
        return None
    tables = {}
    for name, result in results.items():
        targets = result.model.train_targets.cpu()
        table = torch.full((3, targets.numel()), torch.nan, dtype=targets.dtype)
        for held in result.held_out.values():  # of more starts than folds the last one counts
            rows = held.rows.cpu()
            table[:, rows] = torch.stack([targets[rows], held.mean.cpu(), held.variance.cpu()])
        tables[name] = table.numpy()
    whole = np.stack([tables[name] for name, _ in members], 1)
    whole = whole[..., np.isfinite(whole).all((0, 1))]
    return whole if whole.shape[-1] else None


def _left_out(predictor: ConditionedGP) -> np.ndarray:
    """Targets, and their means and variances given all others, ``3 x N``."""
    mean, variance = predictor.leave_one_out()
    return torch.stack([predictor.targets, mean, variance]).cpu().numpy()


def mixture_log_density(
    shares: np.ndarray, means: np.ndarray, stds: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """Log density of values ``M`` under mixtures of ``R`` Gaussians, with moments ``R x M``."""
    return logsumexp(norm.logpdf(values, means, stds), axis=0, b=shares[:, None])


def mixture_quantile(
    shares: np.ndarray, means: np.ndarray, stds: np.ndarray, probability: float
) -> np.ndarray:
    """Quantile of a mixture of Gaussians by bisection between those of its parts."""
    parts = means + stds * norm.ppf(probability)
    lower, upper = parts.min(0), parts.max(0)
    for _ in range(60):
        middle = (lower + upper) / 2
        below = shares @ ndtr((middle - means) / stds) < probability
        lower, upper = np.where(below, middle, lower), np.where(below, upper, middle)
    return (lower + upper) / 2
