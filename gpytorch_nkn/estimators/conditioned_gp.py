"""Chunked predictions of a trained exact GP."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn.fit import Rows, free_bytes
from gpytorch_nkn.linalg import ExactPosterior

__all__ = ["ConditionedGP", "max_exact_rows"]

_MAX_EXACT = 12_000  # largest number of rows of an exact GP, even if more fit into memory
_MATRICES = 4  # peak number of N x N matrices in an exact prediction
_NOISE_ROWS = 2000  # largest number of rows with uncertain inputs in the fit of their noise
_CHUNK_ENTRIES = 16_000_000  # covariance entries per chunk: 128 MB


class ConditionedGP:
    """Posterior of an exact GP with fixed hyperparameters, from one Cholesky factor.

    GPyTorch evaluates the kernel of all training and new rows at once in every prediction. This
    class needs memory for one N x N matrix and processes new rows in chunks. The factor is computed
    on first use, and omitted by pickles and copies. A ``torch.linalg.LinAlgError`` is raised if the
    covariance matrix is not positive definite.
    """

    loo_rows = slice(None)  # rows with leave-one-out predictions

    def __init__(self, model: ExactGP):
        self.model = model.eval()
        assert model.train_inputs is not None
        self.inputs, self.targets = model.train_inputs[0], model.train_targets
        self._noises = model.likelihood.noise.detach().expand(self.targets.shape)  # N
        self._alpha: Tensor | None = None  # kept for means after the factor is released
        self._posterior: ExactPosterior | None = None

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_posterior": None}

    @property
    def num_bytes(self) -> int:
        """Size of the factor in bytes, 0 before its first use."""
        return 0 if self._posterior is None else self._posterior.factor.nbytes

    @property
    def noise(self) -> float:
        """Noise variance of a new observation; the mean over rows, 0 for counts."""
        noise = getattr(getattr(self.model, "observations", self.model.likelihood), "noise", None)
        return 0.0 if noise is None else noise.mean().item()

    def release(self) -> None:
        """Release the memory of the factor; its next use computes it again."""
        self._posterior = None

    def at(self, rows: Tensor | slice) -> ConditionedGP:
        """Return the model conditioned on some of its rows."""
        gp = ConditionedGP(self.model)
        gp.inputs, gp.targets = self.inputs[rows], self.targets[rows]
        gp._noises = self._noises[rows]
        return gp

    @torch.no_grad()
    def add_uncertain_rows(self, rows: Rows) -> float:
        r"""Condition on rows with uncertain inputs; return their additional noise variance.

        Rows are draws ``S x n x D`` of the inputs, targets ``n`` and known noise ``n``. Each target
        becomes an observation at the median input :math:`\bar x` (a median of category codes is a
        code). The posterior mean of :math:`f(x) - f(\bar x)` is subtracted from the target, and its
        variance is added to the noise. The additional variance maximises the likelihood.
        """
        middle, known_noise = rows.x.median(0).values, 0.0 if rows.noise is None else rows.noise
        size = max(1, _CHUNK_ENTRIES // (len(rows.x) * self.targets.numel()))
        parts = [self._differences(chunk) for chunk in rows.x.split(size, 1)]
        shift, noise = (torch.cat(values) for values in zip(*parts, strict=True))
        learned = getattr(self.model.likelihood, "second_noise", self.noise)
        targets, noise = rows.y - shift, noise + learned + known_noise
        errors = targets - self.moments(middle, variance=False)[0]
        first = slice(_NOISE_ROWS)
        covariance = self.covariance(middle[first])
        added = _additional_noise(covariance + noise[first].diag(), errors[first])
        self._noises = torch.cat([self._noises, noise + added])
        self.inputs = torch.cat([self.inputs, middle])
        self.targets = torch.cat([self.targets, targets])
        self._alpha = self._posterior = None
        return added

    def _differences(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance ``n`` of f(x) - f(median x), given draws ``S x n x D``."""
        draws, middle = inputs.flatten(0, 1), inputs.median(0).values
        means, half, prior = self._whitened(draws)
        mean, mid_half, mid_prior = self._whitened(middle)
        between = self.model.covar_module(draws, middle.repeat(len(inputs), 1), diag=True)
        shared = (half.unflatten(-1, inputs.shape[:2]) * mid_half.unsqueeze(-2)).sum(0)
        covariance = between.view(inputs.shape[:2]) - shared
        variances = (prior - half.square().sum(0)).view_as(covariance)
        means = means.view_as(covariance)
        # variance of the difference
        variance = variances + mid_prior - mid_half.square().sum(0) - 2 * covariance
        return means.mean(0) - mean, means.var(0, correction=0) + variance.clamp_min(0).mean(0)

    def _whitened(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return posterior mean ``M``, whitened covariances ``N x M`` and prior variances ``M``."""
        between = self._kernel(x, self.inputs)
        mean = self.model.mean_module(x) + between @ self.posterior().alpha
        half = self.posterior().whiten(between)
        return mean, half, self.model.covar_module(x, diag=True)

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return leave-one-out means and variances ``N`` of the observations, with their noise."""
        posterior = self.posterior()
        mean, variance = posterior.leave_one_out()
        if hasattr(self.model, "observations"):  # targets are not observations
            variance = (variance - self._noises + self.noise).clamp_min(0)
        return self.targets - posterior.residual + mean, variance

    def moments(self, x: Tensor, *, variance: bool = True) -> tuple[Tensor, Tensor | None]:
        """Return means and variances ``M`` of the function (without noise) at rows ``M x D``."""
        parts = [self.moments_given(*part, variance=variance) for part in self.cross(x)]
        means, variances = zip(*parts, strict=True)
        return torch.cat(means), torch.cat(variances) if variance else None

    @torch.no_grad()
    def cross(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield chunks ``m x D`` of rows, and their covariances ``m x N`` with training rows."""
        for rows in x.split(max(1, _CHUNK_ENTRIES // self.targets.numel())):
            yield rows, self._kernel(rows, self.inputs)

    @torch.no_grad()
    def covariance(self, x: Tensor) -> Tensor:
        """Return the covariance ``M x M`` of the function at rows ``M x D``, without noise."""
        half = self.posterior().whiten(self._kernel(x, self.inputs))
        return self._kernel(x, x) - half.mT @ half

    @torch.no_grad()
    def moments_given(
        self, x: Tensor, between: Tensor, *, variance: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        """Return :meth:`moments` at rows ``m x D``, given their covariances ``m x N``."""
        alpha = self.posterior().alpha if self._alpha is None else self._alpha
        mean = self.model.mean_module(x) + between @ alpha
        if not variance:
            return mean, None
        prior = self.model.covar_module(x, diag=True)
        return mean, (prior - self.posterior().reduction(between)).clamp_min(0)

    @torch.no_grad()
    def posterior(self) -> ExactPosterior:
        """Return the posterior given the training rows, with the factor."""
        if self._posterior is None:
            inputs, n = self.inputs, self.targets.numel()

            def fill(out: Tensor) -> None:
                for rows in torch.arange(n).split(max(1, _CHUNK_ENTRIES // n)):
                    block = slice(int(rows[0]), int(rows[-1]) + 1)
                    out[block] = self._kernel(inputs[block], inputs)
                out.diagonal().add_(self._noises)

            residual = self.targets - self.model.mean_module(inputs)
            self._posterior = ExactPosterior.from_fill(fill, residual)
            self._alpha = self._posterior.alpha
        return self._posterior

    def _kernel(self, x1: Tensor, x2: Tensor) -> Tensor:
        return self.model.covar_module(x1, x2).to_dense()


def _additional_noise(covariance: Tensor, errors: Tensor) -> float:
    """Return the ML variance of additional noise, given errors ``n`` of covariance ``n x n``."""
    values, vectors = torch.linalg.eigh(covariance)
    squares = (vectors.mT @ errors).square()
    steps = torch.logspace(-4, 1, 51, dtype=errors.dtype, device=errors.device)
    added = torch.cat([steps.new_zeros(1), errors.square().mean() * steps])
    variances = values.clamp_min(1e-12) + added.unsqueeze(-1)
    logs = -0.5 * (variances.log() + squares / variances).sum(-1)
    return float(added[logs.argmax()])


def max_exact_rows(device: str | None) -> int:
    """Return the largest number of rows for which exact predictions fit into half the memory."""
    free = free_bytes(device)
    if math.isinf(free):
        return _MAX_EXACT
    return min(_MAX_EXACT, math.isqrt(max(int(free), 0) // (2 * 8 * _MATRICES)))
