"""Gaussian likelihood of a covariance of low rank plus noise, one chunk of rows at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from linear_operator.utils.errors import NotPSDError
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

__all__ = ["low_rank_negative_log_likelihood", "low_rank_posterior"]

# Features in memory at a time: 16 MB, several times as much for autograd.
_CHUNK_ENTRIES = 2_000_000


def low_rank_negative_log_likelihood(
    features: Callable[[Tensor], Tensor],
    inputs: Tensor,
    residual: Tensor,
    noise: Tensor,
    parameters: Sequence[Tensor],
    rest: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    r"""Negative log density of zero-mean Gaussian vectors of covariance :math:`\Phi \Phi^\top + S`.

    .. math::
        \tfrac12 \|\tilde r - \tilde\Phi \alpha\|^2 + \tfrac12 \|\alpha\|^2
        + \tfrac12 \log|I + \tilde\Phi^\top \tilde\Phi|
        + \tfrac12 \log|S| + \tfrac n2 \log 2\pi, \qquad
        \alpha = (I + \tilde\Phi^\top \tilde\Phi)^{-1} \tilde\Phi^\top \tilde r

    with features :math:`\tilde\Phi` and residuals :math:`\tilde r` divided by the noise's standard
    deviations. Value and gradient take :math:`O(N P^2)` time and the memory of P x P matrices and
    of a chunk of rows, in float64. A batch element that is not finite gets infinity and a gradient
    of zeros.

    Args:
        features: Maps inputs ``... x C x D`` to features ``... x C x P``, row by row.
        inputs: ``... x N x D``.
        residual: Vectors ``... x N``.
        noise: Variances ``... x N``, diagonal of S.
        parameters: Tensors of the features that need a gradient.
        rest: Maps inputs ``... x C x D`` to variances ``... x C`` that the features leave out. Half
            their sum over the noise is added: the bound of Titsias (2009).

    Returns:
        Values ``...``, in the dtype of the residual, differentiable once.

    Reference: Rasmussen and Williams (2006), section 2.1 and equation 2.30, by the matrix
    inversion lemma.
    """
    return _LowRankLikelihood.apply(features, rest, inputs, residual, noise, *parameters)


@torch.no_grad()
def low_rank_posterior(
    features: Callable[[Tensor], Tensor], inputs: Tensor, residual: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Posterior of the weights of features, which are standard normal a priori.

    Args:
        features, inputs, residual, noise: As in :func:`low_rank_negative_log_likelihood`; rows of
            infinite noise have no part in it.

    Returns:
        Means ``... x P``, and Cholesky factors ``... x P x P`` of the precisions, in float64.

    Raises:
        NotPSDError: Features or residuals are not finite.
    """
    _, factor, weights = _Problem(features, inputs, residual, noise).solve()
    if not bool(weights.isfinite().all() and factor.isfinite().all()):
        raise NotPSDError("The posterior precision of the weights of the features is not finite.")
    return weights.squeeze(-1), factor


class _LowRankLikelihood(Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Callable[[Tensor], Tensor],
        rest: Callable[[Tensor], Tensor] | None,
        inputs: Tensor,
        residual: Tensor,
        noise: Tensor,
        *parameters: Tensor,
    ) -> Tensor:
        problem = _Problem(features, inputs, residual, noise, rest)
        value, factor, weights = problem.solve()
        ctx.functions = features, rest
        ctx.save_for_backward(inputs, residual, noise, value, factor, weights)
        ctx.parameters = parameters
        return value.to(residual)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        inputs, residual, noise, value, factor, weights = ctx.saved_tensors
        features, rest = ctx.functions
        problem = _Problem(features, inputs, residual, noise, rest)
        failed = ~value.isfinite()
        outer = outer.double().masked_fill(failed, 0.0)
        needed = ctx.needs_input_grad[2:]
        return (
            None,
            None,
            *problem.gradients(factor, weights, outer, failed, ctx.parameters, needed),
        )


class _Problem:
    """Features, residuals and noise of a batch of Gaussian vectors."""

    def __init__(
        self,
        features: Callable[[Tensor], Tensor],
        inputs: Tensor,
        residual: Tensor,
        noise: Tensor,
        rest: Callable[[Tensor], Tensor] | None = None,
    ):
        self._features = features
        self._rest = rest
        self._inputs = inputs
        self._residual = residual
        self._noise = noise
        with torch.no_grad():
            one = features(inputs[..., :1, :])
        self._width = one.size(-1)
        self._batch_shape = torch.broadcast_shapes(
            one.shape[:-2], residual.shape[:-1], noise.shape[:-1]
        )

    def solve(self) -> tuple[Tensor, Tensor, Tensor]:
        """Values ``...``, Cholesky factors ``... x P x P`` of the precision, and ``alpha``."""
        shape = self._batch_shape
        eye = torch.eye(self._width, dtype=torch.float64, device=self._inputs.device)
        precision = eye.expand(*shape, -1, -1).clone()
        cross = precision.new_zeros(*shape, self._width, 1)
        for rows in self._chunks():
            phi, r, _ = self._scaled(self._features(self._inputs[..., rows, :]), rows)
            precision += phi.mT @ phi
            cross += phi.mT @ r
        factor, info = torch.linalg.cholesky_ex(precision)
        weights = torch.cholesky_solve(cross, factor)
        value = 0.5 * weights.square().sum((-2, -1))
        for rows in self._chunks():
            phi, r, deviation = self._scaled(self._features(self._inputs[..., rows, :]), rows)
            value = value + 0.5 * (r - phi @ weights).square().sum((-2, -1))
            if self._rest is not None:
                left = self._rest(self._inputs[..., rows, :]).double() / deviation.squeeze(-1) ** 2
                value = value + 0.5 * left.sum(-1)
        value = value + factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        noise = self._noise.double()
        value = value + 0.5 * (noise.log() + math.log(2 * math.pi)).sum(-1)
        failed = (info != 0) | ~value.isfinite()
        return torch.where(failed, math.inf, value), factor, weights

    def gradients(
        self,
        factor: Tensor,
        weights: Tensor,
        outer: Tensor,
        failed: Tensor,
        parameters: tuple[Tensor, ...],
        needed: tuple[bool, ...],
    ) -> list[Tensor | None]:
        """Gradients, times ``outer`` ``...``, by inputs, residuals, noise and parameters.

        They are zeros for the elements that ``failed`` ``...``.
        """
        inverse = torch.cholesky_inverse(factor)
        wide = outer[..., None, None]
        shape = (*self._batch_shape, self._residual.size(-1))
        of_residual, of_noise = wide.new_zeros(shape), wide.new_zeros(shape)
        of_inputs = torch.zeros_like(self._inputs) if needed[0] else None
        trained = [p for p, need in zip(parameters, needed[3:], strict=True) if need]
        totals: list[Tensor | None] = [None] * len(trained)
        for rows in self._chunks():
            part = self._inputs[..., rows, :].detach().requires_grad_(needed[0])
            with torch.enable_grad():
                values = self._features(part)
                left = None if self._rest is None else self._rest(part)
            phi, r, deviation = self._scaled(values.detach(), rows)
            error = r - phi @ weights
            of_phi = phi @ inverse
            leverage = (of_phi * phi).sum(-1)
            of_phi = wide * (of_phi - error * weights.mT) / deviation
            of_phi = of_phi.masked_fill(failed[..., None, None], 0.0)
            error = error.squeeze(-1)
            of_residual[..., rows] = outer[..., None] * error / deviation.squeeze(-1)
            variance = deviation.squeeze(-1).square()
            change = 0.5 * (1 - leverage - error.square()) / variance
            if left is not None:
                change = change - 0.5 * left.detach().double() / variance.square()
            of_noise[..., rows] = outer[..., None] * change
            sources = [*trained, part] if needed[0] else trained
            if not sources or not values.requires_grad:
                continue
            results, by_results = [values], [of_phi.sum_to_size(values.shape).to(values)]
            if left is not None and left.requires_grad:
                of_left = (outer[..., None] * 0.5 / variance).masked_fill(failed[..., None], 0.0)
                results.append(left)
                shape = torch.broadcast_shapes(of_left.shape, left.shape)
                by_results.append(of_left.expand(shape).sum_to_size(left.shape).to(left))
            found = torch.autograd.grad(results, sources, by_results, allow_unused=True)
            for number, gradient in enumerate(found[: len(trained)]):
                old = totals[number]
                if gradient is not None:
                    totals[number] = gradient if old is None else old + gradient
            if of_inputs is not None and found[-1] is not None:
                of_inputs[..., rows, :] = found[-1]
        of_residual = of_residual.masked_fill(failed.unsqueeze(-1), 0.0)
        of_noise = of_noise.masked_fill(failed.unsqueeze(-1), 0.0)
        own = iter(totals)
        return [
            of_inputs,
            of_residual.sum_to_size(self._residual.shape).to(self._residual) if needed[1] else None,
            of_noise.sum_to_size(self._noise.shape).to(self._noise) if needed[2] else None,
            *(next(own) if need else None for need in needed[3:]),
        ]

    def _scaled(self, values: Tensor, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Features ``... x C x P``, residuals and deviations ``... x C x 1`` in float64."""
        deviation = self._noise[..., rows].double().sqrt().unsqueeze(-1)
        phi = values.double() / deviation
        return phi, self._residual[..., rows].double().unsqueeze(-1) / deviation, deviation

    def _chunks(self) -> Iterator[slice]:
        size = max(1, _CHUNK_ENTRIES // (self._width * max(1, self._batch_shape.numel())))
        for start in range(0, self._residual.size(-1), size):
            yield slice(start, start + size)
