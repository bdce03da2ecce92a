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
    """Mixin of prediction strategies, for noise of new rows.

    GPyTorch ignores ``noise`` if the likelihood learns its own. With it, the strategy of the
    fantasies has known noise variances, and their likelihood has an attribute ``learned``.
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
            # not a submodule, whose parameters would be trained
            vars(self.likelihood)["learned"] = own
        try:
            return super().get_fantasy_strategy(inputs, targets, *full, **options)  # type: ignore[misc]
        finally:
            self.likelihood = own
