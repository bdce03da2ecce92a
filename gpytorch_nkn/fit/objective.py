"""Negative log posterior of an exact Gaussian process."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.likelihoods import (
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    HadamardGaussianLikelihood,
    MultitaskGaussianLikelihood,
)
from gpytorch.models import ExactGP
from gpytorch.module import Module
from torch import Tensor

from gpytorch_nkn.mlls import exact_log_density

__all__ = [
    "GAUSSIAN_LIKELIHOODS",
    "Objective",
    "check_model",
    "flat_targets",
    "has_evidence",
    "log_prior",
    "noisy_prior",
]

GAUSSIAN_LIKELIHOODS = (
    GaussianLikelihood,
    FixedNoiseGaussianLikelihood,
    HadamardGaussianLikelihood,
    MultitaskGaussianLikelihood,
)


def check_model(model: Any) -> None:
    """Raise an error unless a model can be trained."""
    if not isinstance(model, ExactGP) and not has_evidence(model):
        raise TypeError(f"model must be a gpytorch ExactGP, got {type(model).__name__}.")
    if not has_evidence(model) and not isinstance(model.likelihood, GAUSSIAN_LIKELIHOODS):
        names = ", ".join(kind.__name__ for kind in GAUSSIAN_LIKELIHOODS)
        raise TypeError(
            f"The likelihood of an exact GP must be one of {names}, got "
            f"{type(model.likelihood).__name__}: gpytorch_nkn.models.LaplaceGP supports others."
        )
    if model.train_inputs is None or model.train_targets is None:
        raise ValueError("The model has no training data.")
    for name, tensors in (("inputs", model.train_inputs), ("targets", [model.train_targets])):
        if not all(bool(tensor.isfinite().all()) for tensor in tensors):
            raise ValueError(f"The training {name} must be finite, got NaN or infinite values.")
        if not all(tensor.is_leaf for tensor in tensors):
            raise ValueError(
                f"The training {name} must not require gradients, because models with such data "
                "cannot be copied: create the model from detached data."
            )


def has_evidence(model: Any) -> bool:
    """Return whether a model, such as ``LaplaceGP``, defines its own log marginal likelihood."""
    return callable(getattr(model, "log_evidence", None))


def noisy_prior(model: ExactGP) -> tuple[Tensor, Tensor]:
    """Return prior mean ``... x N`` and covariance with noise ``... x N x N`` at training inputs.

    With several tasks, N counts all pairs of input and task, in the order of
    :func:`flat_targets`. The model must be in training mode, for BoTorch's input transforms.
    """
    output = _noisy_prior(model)
    return output.mean, output.lazy_covariance_matrix.to_dense()


def flat_targets(model: ExactGP) -> Tensor:
    """Return training targets ``... x N``, with ``... x n x T`` targets of T tasks flattened."""
    targets = model.train_targets
    is_multitask = isinstance(model.likelihood, MultitaskGaussianLikelihood)
    return targets.flatten(-2) if is_multitask else targets


def _noisy_prior(model: ExactGP) -> MultivariateNormal:
    inputs = list(model.train_inputs)
    # not __call__, whose check against the training inputs fails for a batch
    output = model.likelihood(model.forward(*inputs), inputs)
    if not isinstance(output, MultitaskMultivariateNormal):
        return output
    mean, covariance = output.mean.flatten(-2), output.lazy_covariance_matrix
    if not output._interleaved:  # tasks first
        count = output.mean.size(-2)
        order = torch.arange(mean.size(-1), device=mean.device).reshape(-1, count).mT.flatten()
        covariance = covariance[..., order, :][..., order]
    return MultivariateNormal(mean, covariance)


def log_prior(model: Module, like: Tensor) -> Tensor:
    """Return the log density of a model's priors, with the dtype and device of ``like``."""
    total = like.new_zeros(())
    for _, module, prior, get, _ in model.named_priors():
        total = total + prior.log_prob(get(module)).sum().to(total)
    return total


class Objective:
    """Negative log marginal likelihood minus log priors, summed over outputs."""

    def __init__(self, model: ExactGP):
        self.model = model
        parts = [m for m in model.modules() if isinstance(m, Module)]
        self.adds_loss = any(part._added_loss_terms for part in parts)

    def __call__(self) -> Tensor:
        """Return the scalar loss."""
        if has_evidence(self.model):
            value = self.model.log_evidence().sum()
        else:
            value = exact_log_density(_noisy_prior(self.model), flat_targets(self.model)).sum()
        loss = -value - log_prior(self.model, value)
        if self.adds_loss:  # terms of sparse kernels
            for term in self.model.added_loss_terms():
                loss = loss - term.loss().sum()
        return loss
