"""Checks of training data, default outcome transforms and likelihoods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from botorch.utils.types import _DefaultType
from gpytorch import settings
from gpytorch.constraints import GreaterThan
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from gpytorch.means import Mean
from torch import Tensor, nn

from gpytorch_nkn.fit import warn_user
from gpytorch_nkn.layers import log_normal_prior
from gpytorch_nkn.linalg import check_finite, check_tensors

__all__ = [
    "check_batch",
    "check_codes_kept",
    "check_likelihood",
    "check_noise",
    "check_parts",
    "check_support",
    "check_training_data",
    "frozen",
    "load_parts",
    "make_likelihood",
    "outcome_transform_for",
]

_NOISE_FLOOR = 1e-6  # smallest noise variance of standardised targets, for numerical stability
_FLOOR_SHARE = 0.01  # largest negligible standard deviation, relative to that of the outcomes
_BOTORCH_LEAST = 1e-8  # smallest standard deviation by which BoTorch's Standardize divides
_ROUNDING = 10.0  # largest rounding error of constant outcomes, in machine epsilons


def check_training_data(train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None = None) -> None:
    """Check inputs ``... x n x d``, and outcomes and noise variances ``... x n x m``."""
    check_tensors(train_X=train_X, train_Y=train_Y)
    if train_X.dim() < 2:
        raise ValueError(f"train_X must be ... x n x d, got shape {tuple(train_X.shape)}.")
    check_finite(train_X=train_X, train_Y=train_Y)
    if train_Y.dim() < 2:
        return  # BoTorch's error names the missing dimension
    if train_X.shape[:-1] != train_Y.shape[:-1]:
        raise ValueError(
            "train_X and train_Y must have the same number of rows and batch shape, got shapes "
            f"{tuple(train_X.shape)} and {tuple(train_Y.shape)}."
        )
    if train_Yvar is not None:
        check_noise(train_Yvar, train_Y.shape, "train_Yvar")


def check_noise(noise: Tensor, shape: torch.Size, name: str = "noise") -> None:
    """Check noise variances of outcomes with a shape ``... x q x m``."""
    check_tensors(**{name: noise})
    check_finite(**{name: noise})
    if noise.dim() < 2 or noise.shape != shape[-noise.dim() :] or not (noise >= 0).all():
        least = f"{noise.min():.3g}" if noise.numel() else "none"
        raise ValueError(
            f"{name} must be non-negative variances of shape {tuple(shape)} like Y, got shape "
            f"{tuple(noise.shape)} and a minimum of {least}."
        )


def check_codes_kept(model: Any, train_X: Tensor) -> None:
    """Raise a ValueError if the input transform merges categories, or moves or removes them."""
    if not model.cat_dims:
        return
    transformed = model.transform_inputs(train_X)
    for column in model.cat_dims:
        lost = column >= transformed.size(-1)
        before, after = train_X[..., column], transformed[..., 0 if lost else column]
        pairs = torch.stack([before, after.expand_as(before)], -1).flatten(0, -2)
        if lost or not len(before.unique()) == len(after.unique()) == len(pairs.unique(dim=0)):
            raise ValueError(
                f"input_transform must not remove or merge the categories of column {column}, got "
                f"{type(model.input_transform).__name__}: give it the indices of other columns."
            )


def outcome_transform_for(
    given: OutcomeTransform | _DefaultType | None, train_Y: Tensor
) -> OutcomeTransform | None:
    """Return the given transform; by default, standardise outcomes ``... x n x m`` of any scale.

    BoTorch's default does not scale outcomes with a standard deviation below 1e-8; this one does,
    unless they differ only by rounding. Warn if GPyTorch's smallest variance is not negligible.
    """
    options: dict[str, Any] = {}
    if train_Y.dim() > 1 and train_Y.size(-2) > 1:
        values = train_Y.detach()
        info, deviations = torch.finfo(values.dtype), values.std(-2)
        rounding = _ROUNDING * info.eps * values.abs().amax(-2)
        least = max(rounding.min().item(), info.tiny**0.5)  # avoids underflow of squares
        options["min_stdv"] = min(least, _BOTORCH_LEAST)
        floor = settings.min_variance.value(values.dtype)
        small = deviations[(deviations < floor**0.5 / _FLOOR_SHARE) & (deviations > least)]
        if small.numel() and (given is None or isinstance(given, _DefaultType | Standardize)):
            warn_user(
                f"The outcomes have a standard deviation of {small.min():.1e}. Predicted standard "
                f"deviations are too large, because GPyTorch's smallest variance is {floor:.0e}: "
                "give train_Y in a larger unit, or predict under gpytorch.settings.min_variance "
                "with smaller values."
            )
    if not isinstance(given, _DefaultType):
        return given
    return Standardize(train_Y.size(-1), batch_shape=train_Y.shape[:-2], **options)


def check_likelihood(
    likelihood: GaussianLikelihood | None, train_Yvar: Tensor | None = None
) -> None:
    """Check that the likelihood is None or, without known noise, a GaussianLikelihood."""
    if likelihood is not None and train_Yvar is not None:
        raise ValueError(
            f"Give either likelihood or train_Yvar, got both: {type(likelihood).__name__} infers "
            "the noise, and train_Yvar fixes it."
        )
    if likelihood is not None and type(likelihood) is not GaussianLikelihood:
        raise TypeError(
            f"likelihood must be a GaussianLikelihood, got {type(likelihood).__name__}."
        )


def check_batch(name: str, batch_shape: torch.Size, *shapes: Any) -> torch.Size:
    """Broadcast batch shapes of parts, and check the result against a model's batch shape."""
    try:
        shape = torch.broadcast_shapes(*shapes)
        fits = torch.broadcast_shapes(shape, batch_shape) == batch_shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"The batch shape of {name} must broadcast to the model's, {tuple(batch_shape)}, got "
            f"{', '.join(str(tuple(s)) for s in shapes)}."
        )
    return shape


def check_parts(
    batch_shape: torch.Size, inputs: Tensor, mean: Mean | None, likelihood: Likelihood | None = None
) -> None:
    """Check that a given mean, and the noise of a given likelihood, fit inputs ``... x n x d``."""
    if (noise := getattr(likelihood, "noise", None)) is not None:
        check_batch("likelihood", batch_shape, noise.shape[:-1])
    if mean is not None:
        try:
            with torch.no_grad():
                shape = mean(inputs[..., :1, :]).shape[:-1]
        except (IndexError, RuntimeError, ValueError) as error:
            raise ValueError(
                f"mean_module does not fit inputs of shape {tuple(inputs.shape)}: {error}"
            ) from error
        check_batch("mean_module", batch_shape, shape)


def check_support(name: str, targets: Tensor, likelihood: Likelihood, shape: torch.Size) -> None:
    """Raise a ValueError unless targets have finite densities at zero latent values."""
    kind, wrong_shape = type(likelihood).__name__, ""
    try:
        with torch.no_grad(), targets.device:  # GPyTorch creates tensors on the default device
            moved = deepcopy(likelihood).to(targets)  # the user may move a model after this check
            density = moved(targets.new_zeros(shape)).log_prob(targets)
        reason = "" if density.isfinite().all() else "a density is not finite"
        if density.numel() > targets.numel():
            wrong_shape = f"densities of shape {tuple(density.shape)}"
    except ValueError as error:
        reason = str(error).partition(", but found")[0]  # PyTorch appends all values
    except RuntimeError as error:
        wrong_shape = str(error)
    if wrong_shape:
        raise ValueError(
            f"likelihood must return one density for each outcome in {name}, which has shape "
            f"{tuple(targets.shape)}, got a {kind}: {wrong_shape}."
        )
    if reason:
        raise ValueError(
            f"{name} must hold outcomes that the likelihood allows, got values from "
            f"{targets.min():.4g} to {targets.max():.4g} for {kind}: {reason}."
        )


def load_parts(parts: Iterable[nn.Module], model: Any) -> None:
    """Set the parameters of a kernel, mean and likelihood to the values in a model."""
    learned = model.covar_module, model.mean_module, model.likelihood
    for part, other in zip(parts, learned, strict=True):
        part.load_state_dict(other.state_dict())


@contextmanager
def frozen(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Exclude parameters from training inside a context."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


def make_likelihood(batch_shape: torch.Size) -> GaussianLikelihood:
    """Return a Gaussian likelihood with a weak noise prior and a smallest noise variance."""
    return GaussianLikelihood(
        noise_prior=log_normal_prior(0.01, 2.0),
        noise_constraint=GreaterThan(_NOISE_FLOOR, initial_value=0.01),
        batch_shape=batch_shape,
    )
