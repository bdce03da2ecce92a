"""Fantasies of exact GPs whose new rows have noise of their own."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

__all__ = ["FantasyNoise", "noise_variances"]


def noise_variances(likelihood: Likelihood, targets: Tensor, inputs: Any) -> Tensor:
    """Return the likelihood's noise variances of targets ``... x n``."""
    exact = MultivariateNormal(targets, DiagLinearOperator(torch.zeros_like(targets)))
    return likelihood(exact, inputs).variance.detach()


class FantasyNoise:
    """Mixin of prediction strategies: fantasies with noise, if the likelihood learns its own.

    Fantasies then have a likelihood with known noise, and with an attribute ``learned``.
    """

    def get_fantasy_strategy(
        self: Any, inputs: Any, targets: Tensor, *full: Any, noise: Tensor | None = None
    ) -> Any:
        """As in GPyTorch."""
        own = self.likelihood
        if noise is None and hasattr(own, "learned"):
            noise = noise_variances(own.learned, targets, inputs)
        options = {} if noise is None else {"noise": noise}
        if options and not isinstance(own, FixedNoiseGaussianLikelihood):
            rows = noise_variances(own, self.train_prior_dist.mean, self.train_inputs)
            self.likelihood = FixedNoiseGaussianLikelihood(rows, batch_shape=rows.shape[:-1]).eval()
            vars(self.likelihood)["learned"] = own  # not a submodule, whose parameters would train
        found = super().get_fantasy_strategy(inputs, targets, *full, **options)  # type: ignore[misc]
        self.likelihood = own
        return found
