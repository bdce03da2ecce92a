"""Mixture of trained Gaussian processes, whose noise may depend on the inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from gpytorch.likelihoods import StudentTLikelihood
from gpytorch.models import ExactGP
from linear_operator.utils.errors import NotPSDError
from scipy.special import gammaincc
from sklearn.linear_model import GammaRegressor
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from gpytorch_nkn.averaging import (
    WIDTHS,
    PredictiveMixture,
    Transform,
    stack_predictions,
    weigh_unique,
)
from gpytorch_nkn.estimators.conditioned_gp import ConditionedGP
from gpytorch_nkn.estimators.nkn.sparse_predictor import LocalPredictor, SparsePredictor
from gpytorch_nkn.estimators.nkn.table_models import LatentGP
from gpytorch_nkn.fit import FitResult, Rows, warn_user

__all__ = ["Ensemble", "NoiseScale", "of_held_out_rows", "release_some", "warn_of_covariance"]

_KEPT_BYTES = 2 * 2**30  # largest size of the factors that are kept between predictions
_SCALED_ROWS = 100  # least number of rows for noise that depends on the inputs
_HEAVY_WIDTHS = 2.0 ** np.arange(-1.0, 6.5, 0.5)  # factors of the scale of Student-t noise
_STANDARD_ERRORS = 3.0  # required gain of scaled noise in held-out log density
_PENALTY = 10.0  # ridge penalty in rows: coefficients have a prior standard deviation of 0.3
_LARGEST = 16.0  # squared standardised errors are clipped here, to be robust to outliers
_LIMITS = (1 / 9, 9.0)  # range of the factor of a variance
_FOLDS = 5
_IDENTITY = Transform()

Predictor = ConditionedGP | SparsePredictor | LocalPredictor


class Ensemble:
    """Mixture of the trained Gaussian processes in ``results``, with stacking weights.

    ``sparse`` makes a model's sparse predictor. Exact predictors are also conditioned on
    ``incomplete`` rows, whose inputs are draws ``S x n x D``. With ``scale_noise``, a
    :class:`NoiseScale` is kept if it predicts held-out rows better. There are at most ``limit``
    members.

    Attributes:
        members: Network and number of the start of each member.
        width_weights: Weights of the ``widths``.
        gap_noises: Variances ``R`` of the additional noise of rows with gaps.
        held_out: Held-out targets ``n``, and their mixture.
    """

    widths = WIDTHS  # candidate factors of the standard deviation of observations

    def __init__(
        self,
        results: Mapping[str, FitResult],
        *,
        cat_dims: Sequence[int],
        sparse: Callable[[ExactGP], Predictor] | None = None,
        incomplete: Rows | None = None,
        scale_noise: bool = True,
        limit: int | None = None,
    ):
        members, predictors, table, unseen, rows = _members(results, sparse or _exact, limit)
        weights = self._weigh(unseen, predictors)
        used = np.flatnonzero(weights)
        self.members = [members[index] for index in used]
        self.predictors = [predictors[index] for index in used]
        self.weights, table, unseen = weights[used], table[:, used], unseen[:, used]
        self.width_weights = self._weigh_widths(table, table[2])
        self.scale: NoiseScale | None = None
        factors = np.ones(table.shape[-1])
        if scale_noise and len(factors) >= _SCALED_ROWS:
            factors = self._learn_scale(table, cat_dims)
        mixture = self.mixture(self.weights, unseen[1], unseen[2] * factors[rows])
        self.held_out = unseen[0, 0], mixture
        self.gap_noises = np.zeros(len(self.predictors))
        if incomplete is not None:
            for member, predictor in enumerate(self.predictors):
                if isinstance(predictor, ConditionedGP):
                    self.gap_noises[member] = predictor.add_uncertain_rows(incomplete)

    def _weigh(self, table: np.ndarray, predictors: Sequence[Predictor]) -> np.ndarray:
        """Return weights of members for held-out targets, means and variances ``3 x M x N``."""
        targets, means, variances = table
        return weigh_unique(
            means, lambda first: stack_predictions(targets[0], means[first], variances[first])[0]
        )

    def mixture(
        self,
        weights: np.ndarray,
        means: np.ndarray,
        variances: np.ndarray,
        of_gaps: np.ndarray | float = 0.0,
        transform: Transform = _IDENTITY,
    ) -> PredictiveMixture:
        """Return the mixture of observations for weights ``R`` and moments ``R x M``.

        Each component is repeated for every width. The variances ``of_gaps``, due to missing
        values, are averages over the widths.
        """
        weights = np.outer(weights, self.width_weights).ravel()
        stds = np.kron(np.sqrt(variances + of_gaps / self.widening), self.widths[:, None])
        means = means.repeat(len(self.widths), 0)
        return PredictiveMixture(weights, means, stds, (transform,) * weights.size)

    def _weigh_widths(self, table: np.ndarray, variances: np.ndarray) -> np.ndarray:
        """Return weights of widths from held-out targets and means, with variances ``R x N``.

        Student-t noise is a mixture of widths whose inverse squares have a gamma distribution.
        """
        models: list[Any] = [predictor.model for predictor in self.predictors]
        if isinstance(getattr(models[0], "observations", None), StudentTLikelihood):
            half = self.weights @ [model.observations.deg_free.item() for model in models] / 2
            self.widths = _HEAVY_WIDTHS
            below = gammaincc(half, half / (_HEAVY_WIDTHS[:-1] * 2**0.25) ** 2)
            return np.diff(below, prepend=0.0, append=1.0)
        return stack_predictions(table[0, 0], table[1], variances, weights=self.weights)[1]

    def _learn_scale(self, table: np.ndarray, cat_dims: Sequence[int]) -> np.ndarray:
        """Keep a noise scale if it predicts held-out rows better; return factors ``N`` of these."""
        first, (targets, means, variances) = self.predictors[0], table
        train_inputs: Any = first.model.train_inputs[0]
        inputs = train_inputs[first.loo_rows].cpu().numpy()
        mean = self.weights @ means
        variance = self.widening * (self.weights @ variances) + self.weights @ (means - mean) ** 2
        numbers = ~np.isin(np.arange(inputs.shape[1]), cat_dims)
        arguments = inputs, mean, (targets[0] - mean) ** 2 / variance, numbers
        before, constant = self.mixture(self.weights, means, variances), self.width_weights
        scale = NoiseScale(*arguments)
        variances = variances * scale.held_out
        self.width_weights = self._weigh_widths(table, variances)
        after = self.mixture(self.weights, means, variances)
        gain = after.log_density(targets[0]) - before.log_density(targets[0])
        if gain.mean() > _STANDARD_ERRORS * gain.std() / math.sqrt(len(gain)):
            self.scale = scale
            return scale.held_out
        self.width_weights = constant
        return np.ones(len(gain))

    @property
    def widening(self) -> float:
        """Factor of the variance of an observation, over all widths."""
        return float(self.width_weights @ self.widths**2)

    @property
    def model(self) -> ExactGP:
        """The model with the largest weight."""
        return self.predictors[int(self.weights.argmax())].model

    def moments(self, x: Tensor, *, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return means and variances ``R x M`` of the members at rows ``M x D``."""
        means, variances = [], []
        for predictor in self.predictors:
            mean, var = predictor.moments(x, variance=variance)
            means.append(mean.cpu().numpy())
            var = 0 * mean if var is None else var + noise * predictor.noise
            variances.append(var.cpu().numpy())
            release_some(self.predictors)
        factors = 1.0 if self.scale is None else self.scale(x.cpu().numpy(), self.weights @ means)
        return np.stack(means), np.stack(variances) * factors

    def covariance(self, member: int, x: Tensor, *, noise: bool) -> np.ndarray:
        """Return the covariance ``M x M`` of a member at rows ``M x D``."""
        predictor = self.predictors[member]
        covariance = predictor.covariance(x).cpu().numpy()
        covariance[np.diag_indices_from(covariance)] += noise * predictor.noise
        release_some(self.predictors)
        if self.scale is not None:
            means, _ = self.moments(x, variance=False, noise=False)
            roots = np.sqrt(self.scale(x.cpu().numpy(), self.weights @ means))
            covariance = roots[:, None] * covariance * roots
        return covariance


class NoiseScale:
    """Log-linear factor of the variances of function and noise.

    Features are the columns, the prediction and their squares, clipped to the range of the fit.
    Squared standardised errors have a Gamma distribution with this factor as mean, whose likelihood
    is the Gaussian likelihood with the scaled variance. ``squares`` are squared errors of held-out
    predictions ``means`` over their variances, each ``N``; ``numbers`` is the mask ``d`` of numeric
    columns. The factors ``held_out`` of the ``N`` rows come from cross-validation.
    """

    def __init__(
        self, inputs: np.ndarray, means: np.ndarray, squares: np.ndarray, numbers: np.ndarray
    ):
        self._numbers = numbers
        plain = self._plain(inputs, means)
        self._lower, self._upper = plain.min(0), plain.max(0)
        gamma = GammaRegressor(alpha=_PENALTY / len(means), solver="newton-cholesky")
        self._regressor = make_pipeline(StandardScaler(), gamma)
        data = self._features(inputs, means), np.clip(squares, 1e-12, _LARGEST)
        folds = KFold(_FOLDS, shuffle=True, random_state=0)
        self.held_out = cross_val_predict(self._regressor, *data, cv=folds).clip(*_LIMITS)
        self._regressor.fit(*data)

    def __call__(self, inputs: np.ndarray, means: np.ndarray) -> np.ndarray:
        """Return factors ``M`` of variances at rows ``M x d`` with predictions ``M``."""
        return np.clip(self._regressor.predict(self._features(inputs, means)), *_LIMITS)

    def _plain(self, inputs: np.ndarray, means: np.ndarray) -> np.ndarray:
        return np.column_stack([inputs[:, self._numbers], means])

    def _features(self, inputs: np.ndarray, means: np.ndarray) -> np.ndarray:
        plain = np.clip(self._plain(inputs, means), self._lower, self._upper)
        return np.column_stack([plain, plain**2])


def release_some(predictors: Sequence[Predictor]) -> None:
    """Release Cholesky factors of exact predictors beyond 2 GiB; the next use computes them."""
    exact = [predictor for predictor in predictors if isinstance(predictor, ConditionedGP)]
    for predictor, total in zip(exact, accumulate(p.num_bytes for p in exact), strict=True):
        if total > _KEPT_BYTES:
            predictor.release()


def warn_of_covariance(network: str) -> None:
    """Warn that a network is not used."""
    warn_user(
        f"{network!r} is omitted: its covariance matrix is not positive definite.", RuntimeWarning
    )


def _members(
    results: Mapping[str, FitResult], make: Callable[[ExactGP], Predictor], limit: int | None
) -> tuple[list[tuple[str, int]], list[Predictor], np.ndarray, np.ndarray, np.ndarray]:
    """Return at most ``limit`` members, their predictors, and held-out predictions.

    The latter are targets, means and variances of the ``M`` members: ``3 x M x N``; ``3 x M x n``
    with parameters that are learned without these ``n`` rows; and the indices of these rows.
    """
    usable: list[tuple[tuple[str, int], Predictor, np.ndarray, np.ndarray, np.ndarray]] = []
    starts = [(name, number) for name, fit in results.items() for number in sorted(fit.members)]
    # The best start of each network first: of starts with equal weights, the first one is reported.
    starts.sort(key=lambda start: start[1] != results[start[0]].best)
    for name, number in starts[:limit]:
        model = results[name].members[number]
        start, mask = results[name].before_held_out(number)
        try:
            predictor = make(model)
            table = unseen = _leave_one_out(predictor, model)
            if start is not model:
                unseen = _leave_one_out(make(start), start)
        except (torch.linalg.LinAlgError, NotPSDError):
            warn_of_covariance(name)
            continue
        usable.append(((name, number), predictor, table, unseen, mask[predictor.loo_rows]))
        release_some([entry[1] for entry in usable])
    if not usable:
        raise RuntimeError("No trained network has a positive definite covariance matrix.")
    members, predictors, tables, others, masks = (list(part) for part in zip(*usable, strict=True))
    held_out = of_held_out_rows([n for n, _ in members], np.stack(others, 1), np.stack(masks))
    return members, predictors, np.stack(tables, 1), *held_out


def of_held_out_rows(
    networks: Sequence[str], table: np.ndarray, masks: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions ``K x M x n`` of held-out rows, and indices ``n`` of the rows.

    Predictions ``K x M x N`` are by members of the ``networks``, which held out the rows in the
    masks ``M x N``. Members of a network hold out different rows, and share their predictions. Rows
    that a network has not held out are omitted; if no row is left, all rows count as held out.
    """
    table, masks, names = table.copy(), masks.copy(), np.array(networks)
    for member, name in enumerate(names):
        in_network = names == name
        new = masks[member] & ~masks[in_network]
        table[:, in_network] = np.where(new, table[:, [member]], table[:, in_network])
        masks[in_network] |= masks[member]
    rows = np.flatnonzero(masks.all(0))
    rows = rows if rows.size else np.arange(masks.shape[1])
    return table[..., rows], rows


def _exact(model: Any) -> ConditionedGP:
    return ConditionedGP(model if isinstance(model, ExactGP) else LatentGP.of(model))


def _leave_one_out(predictor: Predictor, model: Any) -> np.ndarray:
    """Return targets, and leave-one-out means and variances of observations, ``3 x n``.

    For counts, predictions are of the logarithm of the mean, exposure included.
    """
    mean, variance = predictor.leave_one_out()
    targets = model.train_targets[..., predictor.loo_rows]
    if targets.dim() == 2:
        targets, offset = targets
        mean = mean + offset
    return torch.stack([targets, mean, variance]).cpu().numpy()
