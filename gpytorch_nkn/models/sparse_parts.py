"""What the models with inducing points have in common when they are made."""

from __future__ import annotations

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from gpytorch_nkn.layers import log_normal_prior
from gpytorch_nkn.models.inducing_points import SELECTIONS

__all__ = ["check_likelihood", "given_points", "make_likelihood"]

_NOISE_FLOOR = 1e-6  # of the variance of standardised targets: noise-free data remain solvable


def make_likelihood(batch_shape: torch.Size) -> GaussianLikelihood:
    """Gaussian likelihood with a weak prior on the noise and a floor below it."""
    return GaussianLikelihood(
        noise_prior=log_normal_prior(0.01, 2.0),
        noise_constraint=GreaterThan(_NOISE_FLOOR, initial_value=0.01),
        batch_shape=batch_shape,
    )


def check_likelihood(likelihood: GaussianLikelihood | None, selection: str) -> None:
    """Refuse other likelihoods and unknown selections.

    Raises:
        TypeError: It is not a GaussianLikelihood.
        ValueError: The selection is not known.
    """
    if likelihood is not None and type(likelihood) is not GaussianLikelihood:
        raise TypeError(
            f"likelihood must be a GaussianLikelihood, got {type(likelihood).__name__}."
        )
    if selection not in SELECTIONS:
        raise ValueError(f"selection must be one of {SELECTIONS}, got {selection!r}.")


def given_points(points: int | Tensor, inputs: Tensor) -> Tensor | None:
    """Inducing points of a user with the batch shape of the inputs; ``None`` for a number.

    Raises:
        ValueError: They do not fit the inputs, or are not finite.
    """
    if not isinstance(points, Tensor):
        return None
    batch_shape, width = inputs.shape[:-2], inputs.size(-1)
    fits = points.dim() >= 2 and points.size(-1) == width and points.size(-2) > 0
    if fits:
        try:
            fits = torch.broadcast_shapes(points.shape[:-2], batch_shape) == batch_shape
        except RuntimeError:
            fits = False
    if not fits or not bool(points.isfinite().all()):
        raise ValueError(
            "inducing_points must be a number or finite points of shape "
            f"{(*batch_shape, 'm', width)}, got shape {tuple(points.shape)}."
        )
    return points.detach().clone().to(inputs).expand(*batch_shape, -1, -1)
