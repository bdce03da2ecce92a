"""The Gaussian likelihood of models that need the same noise in every row."""

from __future__ import annotations

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.likelihoods import GaussianLikelihood

from gpytorch_nkn.layers import log_normal_prior

__all__ = ["check_likelihood", "make_likelihood"]

_NOISE_FLOOR = 1e-6  # of the variance of standardised targets: noise-free data remain solvable


def check_likelihood(likelihood: GaussianLikelihood | None) -> None:
    """Refuse other likelihoods; None is allowed.

    Raises:
        TypeError: It is not a GaussianLikelihood.
    """
    if likelihood is not None and type(likelihood) is not GaussianLikelihood:
        raise TypeError(
            f"likelihood must be a GaussianLikelihood, got {type(likelihood).__name__}."
        )


def make_likelihood(batch_shape: torch.Size) -> GaussianLikelihood:
    """Gaussian likelihood with a weak prior on the noise and a floor below it."""
    return GaussianLikelihood(
        noise_prior=log_normal_prior(0.01, 2.0),
        noise_constraint=GreaterThan(_NOISE_FLOOR, initial_value=0.01),
        batch_shape=batch_shape,
    )
