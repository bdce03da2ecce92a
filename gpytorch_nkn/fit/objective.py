"""The negative log posterior of an exact Gaussian process, one value per restart."""

from __future__ import annotations

import math

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.models import ExactGP
from gpytorch.module import Module
from torch import Tensor

from gpytorch_nkn.layers import LogNormalPrior
from gpytorch_nkn.mlls import exact_log_density

__all__ = ["Objective", "check_model", "noisy_prior"]


def check_model(model: object) -> None:
    """Refuse what cannot be fitted here.

    Raises:
        TypeError: Not an exact GP with a Gaussian likelihood.
        ValueError: No training data, or such as are not finite or belong to a graph.
    """
    if not isinstance(model, ExactGP):
        raise TypeError(f"model must be a gpytorch ExactGP, got {type(model).__name__}.")
    if not isinstance(model.likelihood, GaussianLikelihood | FixedNoiseGaussianLikelihood):
        raise TypeError(
            "The likelihood must be a GaussianLikelihood or a FixedNoiseGaussianLikelihood, got "
            f"{type(model.likelihood).__name__}: for others, maximise gpytorch.mlls."
            "ExactMarginalLogLikelihood(model.likelihood, model) by an optimiser of torch.optim."
        )
    if model.train_inputs is None or model.train_targets is None:
        raise ValueError("The model has no training data.")
    for name, tensors in (("inputs", model.train_inputs), ("targets", [model.train_targets])):
        if not all(bool(tensor.isfinite().all()) for tensor in tensors):
            raise ValueError(f"The training {name} contain NaN or infinite values.")
        if not all(tensor.is_leaf for tensor in tensors):
            raise ValueError(
                f"The training {name} are results of a differentiable computation, which models "
                "cannot be copied with: make the model of detached data."
            )


def noisy_prior(model: ExactGP) -> tuple[Tensor, Tensor]:
    """Prior mean ``... x N`` and covariance with noise ``... x N x N`` at the training inputs.

    The model must be in training mode (where BoTorch models transform their inputs).
    """
    output = _noisy_prior(model)
    return output.mean, output.lazy_covariance_matrix.to_dense()


def _noisy_prior(model: ExactGP) -> MultivariateNormal:
    inputs = list(model.train_inputs)
    # forward, not __call__: no check against the training inputs, which a batch would fail
    return model.likelihood(model.forward(*inputs), inputs)


class Objective:
    """Negative log marginal likelihood less log priors, summed over outputs.

    Args:
        model: An exact GP in training mode. With ``num_restarts``, every parameter leads with
            a dimension of that size (see :func:`gpytorch_nkn.fit.batching.stack_models`).
        num_restarts: Number of stacked restarts; ``None`` for a plain model.
    """

    def __init__(self, model: ExactGP, num_restarts: int | None = None):
        self.model = model
        self.num_restarts = num_restarts
        parts = [m for m in model.modules() if isinstance(m, Module)]
        self.adds_loss = any(part._added_loss_terms for part in parts)
        priors = [(m, prior, get) for _, m, prior, get, _ in model.named_priors()]
        self._log_normal = [p for p in priors if _is_scalar_log_normal(p[1])]
        self._other = [p for p in priors if not _is_scalar_log_normal(p[1])]
        if self._log_normal:
            sizes = [get(m).numel() // (num_restarts or 1) for m, _, get in self._log_normal]
            sizes_and_priors = list(zip(sizes, (p[1] for p in self._log_normal), strict=True))
            # GPyTorch's priors stay on the CPU, whatever their model does.
            at = model.train_targets.device
            self._location = torch.cat(
                [p.loc.detach().expand(s).to(at) for s, p in sizes_and_priors]
            )
            self._scale = torch.cat(
                [p.scale.detach().expand(s).to(at) for s, p in sizes_and_priors]
            )

    def __call__(self) -> Tensor:
        """One value per restart, ``R`` (``R`` = 1 for a plain model)."""
        value = -exact_log_density(_noisy_prior(self.model), self.model.train_targets)
        loss = self._per_restart(value).sum(-1) - self._log_prior(value)
        if self.adds_loss:  # sparse kernels do; never in a batch
            for term in self.model.added_loss_terms():
                loss = loss - term.loss().sum()
        return loss

    def _log_prior(self, like: Tensor) -> Tensor:
        total = like.new_zeros(self.num_restarts or 1)
        if self._log_normal:
            # All of them in one expression: dozens of small distributions cost more than K does.
            values = [self._per_restart(get(module)) for module, _, get in self._log_normal]
            location, scale = self._location.to(like), self._scale.to(like)
            logs = torch.cat(values, dim=-1).log()
            density = -0.5 * ((logs - location) / scale).square() - logs - scale.log()
            total = total + (density - 0.5 * math.log(2 * math.pi)).sum(-1)
        for module, prior, get in self._other:
            total = total + self._per_restart(prior.log_prob(get(module))).sum(-1)
        return total

    def _per_restart(self, value: Tensor) -> Tensor:
        return value.reshape(self.num_restarts or 1, -1)


def _is_scalar_log_normal(prior: object) -> bool:
    if type(prior) not in (gpytorch.priors.LogNormalPrior, LogNormalPrior):  # a class of a user
        return False
    return prior.loc.dim() == 0 and prior._transform is None  # type: ignore[attr-defined]
