"""Predictions of a trained exact GP in chunks of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn.fit import free_bytes
from gpytorch_nkn.linalg import ExactPosterior

__all__ = ["ConditionedGP", "max_exact_rows"]

_MAX_EXACT = 12_000
_MATRICES = 4  # of rows by rows, that an exact prediction needs at its peak
_CHUNK_ENTRIES = 16_000_000  # of a covariance between rows: 128 MB


class ConditionedGP:
    """The posterior of an exact GP at its hyperparameters, from one Cholesky factor.

    GPyTorch evaluates the kernel over training and new rows together, and between all new rows,
    in every prediction. Here memory is that of one N x N matrix, and a prediction goes through
    the new rows in chunks. The factor is computed when it is first needed and is left behind by
    pickle and copies.

    Args:
        model: A GP with ``mean_module``, ``covar_module``, homoskedastic Gaussian noise and inputs
            ``N x D``.

    Raises:
        torch.linalg.LinAlgError: The covariance matrix is not positive definite.
    """

    def __init__(self, model: ExactGP):
        self.model = model.eval()
        assert model.train_inputs is not None
        self._inputs, self._targets = model.train_inputs[0], model.train_targets
        self._alpha: Tensor | None = None  # what means need, which outlives the factor
        self._kept: ExactPosterior | None = None

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_kept": None}

    @property
    def num_bytes(self) -> int:
        """Memory of the factor."""
        return 0 if self._kept is None else self._kept.factor.nbytes

    @property
    def noise(self) -> float:
        """Variance of the noise."""
        return self.model.likelihood.noise.item()

    def prepare(self) -> None:
        """Do what all predictions have in common."""
        if self._alpha is None:
            self._posterior()

    def release(self) -> None:
        """Forget the factor until it is needed again."""
        self._kept = None

    def blocks(self, size: int, max_rows: int) -> Iterator[ConditionedGP]:
        """The same model conditioned on blocks of its rows only, in the order of the rows."""
        for rows in torch.arange(min(max_rows, self._targets.numel())).split(size):
            part = ConditionedGP(self.model)
            part._inputs, part._targets = self._inputs[rows], self._targets[rows]
            yield part

    @property
    def inputs(self) -> Tensor:
        """Inputs ``N x D`` that it is conditioned on."""
        return self._inputs

    @property
    def targets(self) -> Tensor:
        """Targets ``N`` that it is conditioned on."""
        return self._targets

    @torch.no_grad()
    def covariances(self) -> Tensor:
        """Covariances ``N x N`` of the function at the rows that it is conditioned on."""
        return self._kernel(self._inputs, self._inputs)

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Mean and variance ``N`` of each target (noise included) given all the others."""
        posterior = self._posterior()
        mean, variance = posterior.leave_one_out()
        return self._targets - posterior.residual + mean, variance

    def leave_blocks_out(self, blocks: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Mean and variance ``b`` (noise included) of the targets of blocks, given all others.

        Args:
            blocks: Index vectors ``b``.
        """
        posterior = self._posterior()
        prior = self._targets - posterior.residual
        found = zip(blocks, posterior.leave_blocks_out(blocks), strict=True)
        return [(prior[rows] + mean, variance) for rows, (mean, variance) in found]

    def moments(self, x: Tensor, *, variance: bool = True) -> tuple[Tensor, Tensor | None]:
        """Mean and variance ``M`` of the function at rows ``M x D``, without noise."""
        chunk = max(1, _CHUNK_ENTRIES // self._targets.numel())
        parts = [self._moments(rows, variance) for rows in x.split(chunk)]
        means, variances = zip(*parts, strict=True)
        return torch.cat(means), torch.cat(variances) if variance else None

    @torch.no_grad()
    def covariance(self, x: Tensor) -> Tensor:
        """Covariance ``M x M`` of the function at rows ``M x D``, without noise."""
        half = self._posterior().whiten(self._kernel(x, self._inputs))
        return self._kernel(x, x) - half.mT @ half

    @torch.no_grad()
    def _moments(self, x: Tensor, variance: bool) -> tuple[Tensor, Tensor | None]:
        alpha = self._posterior().alpha if self._alpha is None else self._alpha
        between = self._kernel(x, self._inputs)
        mean = self.model.mean_module(x) + between @ alpha
        if not variance:
            return mean, None
        prior = self.model.covar_module(x, diag=True)
        return mean, (prior - self._posterior().reduction(between)).clamp_min(0)

    @torch.no_grad()
    def _posterior(self) -> ExactPosterior:
        if self._kept is None:
            inputs, n = self._inputs, self._targets.numel()

            def fill(out: Tensor) -> None:
                for rows in torch.arange(n).split(max(1, _CHUNK_ENTRIES // n)):
                    part = slice(int(rows[0]), int(rows[-1]) + 1)
                    out[part] = self._kernel(inputs[part], inputs)
                out.diagonal().add_(self.noise)

            residual = self._targets - self.model.mean_module(inputs)
            self._kept = ExactPosterior.from_fill(fill, residual)
            self._alpha = self._kept.alpha
        return self._kept

    def _kernel(self, x1: Tensor, x2: Tensor) -> Tensor:
        return self.model.covar_module(x1, x2).to_dense()


def max_exact_rows(device: str | None) -> int:
    """Rows up to which exact predictions are quick and fit into half of the memory that is free."""
    free = free_bytes(device)
    if math.isinf(free):
        return _MAX_EXACT
    return min(_MAX_EXACT, math.isqrt(max(int(free), 0) // (2 * 8 * _MATRICES)))
