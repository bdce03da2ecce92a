"""Losses of a Kronecker GP on a grid with missing cells, with gradients in closed form."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpytorch_nkn.linalg.grid.kronecker import KroneckerEigen, outer_product
from gpytorch_nkn.linalg.grid.partial_kronecker import PartialGrid, PartialKronecker, take_slices
from gpytorch_nkn.linalg.known_gradients import any_needed, with_gradients

__all__ = ["GridLikelihood", "HeldOutBlocks"]

_PROBES = 4  # number of random vectors that estimate a sum of variances
_RIDGE_STEPS = 20  # largest number of Newton steps for the determinant


class GridLikelihood:
    r"""Negative log density of the observed cells of a grid.

    .. math::
        \tfrac12 y_o^\top A_{oo}^{-1} y_o + \tfrac12 \log|A_{oo}| + \tfrac M2 \log 2\pi,
        \qquad A = K_1 \otimes \dots \otimes K_P + \sigma^2 I

    With :math:`\alpha_i` the N eigenvalues of A, :math:`\rho = M / N` and r the solution of
    :math:`\sum_i \alpha_i / (\alpha_i + r) = M`, the determinant is approximated by

    .. math::
        \log|A_{oo}| \approx \sum_i \log(\alpha_i + r) - (N - M) \log r
            + M \log \rho + (N - M) \log(1 - \rho).

    This is the asymptotic value for M random cells if the eigenvectors are random, too (a free
    compression). It is exact on a complete grid and if A is a multiple of the identity. The paper
    (equation 39) instead takes the M largest eigenvalues of :math:`A - \sigma^2 I`, times M / N,
    plus the noise. Its error per cell grows with :math:`-\log \rho` for short lengthscales, so
    training on few observed cells learns white noise. If one side of the grid is missing, both
    approximations are too large at lengthscales of a few cells. For a regular lattice of observed
    cells, only the paper's is accurate.

    If cells have extra noise, let :math:`d_j` be the total noise variance of observed cell j, and
    d the harmonic mean of the :math:`d_j`. The determinant for the noise d is then multiplied by
    :math:`\prod_j d_j / d`.

    Derivatives are computed in the eigenbasis of the grid; the result is differentiable once.

    Args:
        grid: Grid with the observed cells.
        options: ``tolerance`` and ``max_iterations`` of :class:`PartialKronecker`.

    Attributes:
        state: Solution of the last call, from which the next solve starts.

    Reference: Sun et al. (2018), appendix J.4; Nica and Speicher (1996), On the multiplication of
    free N-tuples of noncommutative random variables.
    """

    def __init__(self, grid: PartialGrid, **options: Any):
        self.grid, self.options = grid, options
        self.state: Tensor | None = None

    def __call__(self, residual: Tensor, noise: Tensor, factors: Sequence[Tensor]) -> Tensor:
        """Return values ``...`` for a noise variance ``...``.

        Residuals, targets minus their mean, are ``... x n_1 x ... x n_P``; values at missing cells
        are ignored. Factors are symmetric matrices ``... x n_p x n_p``.
        """
        inputs, grid = (residual, noise, *factors), self.grid
        with torch.no_grad():
            system = PartialKronecker(grid, factors, noise, **self.options)
            weights = system.weights(torch.where(grid.observed, residual, 0.0), self.state)
            self.state = weights.state
            counts = grid.num_observed.to(residual)
            determinant, (grad_noise, *grad_values) = _log_determinant(system)
            value = 0.5 * (weights.quadratic + determinant + math.log(2 * math.pi) * counts)
        if not any_needed(inputs):
            return value
        with torch.no_grad():
            alpha, eigen = weights.coefficients, system.eigen
            quadratic = system.factor_gradients(alpha, alpha)
            squares = alpha.square().sum(tuple(range(-grid.num_dims, 0)))
            gradients = [
                grid.observed * eigen.from_basis(alpha) if residual.requires_grad else None,
                0.5 * (grad_noise.squeeze(-1) - squares),
                *(
                    0.5 * (torch.diag_embed(grad_eigen) - grad_quadratic)
                    for grad_eigen, grad_quadratic in zip(grad_values, quadratic, strict=True)
                ),
            ]
        return with_gradients(value, inputs, gradients, _from_basis(eigen))


class HeldOutBlocks:
    r"""Squared errors of blocks of observed cells, each predicted from all other observed cells.

    The prediction of a block b from the other observed cells o is
    :math:`f = K_{bo} A_{oo}^{-1} y_o`. Let g be the derivative of the loss with respect to f. The
    gradient needs a second solve:

    .. math:: g^\top df = \gamma^\top (dA)\, \alpha, \qquad
        \alpha = A_{oo}^{-1} y_o, \quad \gamma_b = g, \quad \gamma_o = -A_{oo}^{-1} K_{ob}\, g.

    Args:
        grid: Grid with the observed cells.
        blocks: Held-out cells ``B x n_1 x ... x n_P`` (``B x ... x n_1 x ... x n_P`` for a
            batch); missing cells are ignored.
        options: As in :class:`GridLikelihood`.

    Raises:
        ValueError: A block contains no observed cell, or all of them.
    """

    def __init__(self, grid: PartialGrid, blocks: Tensor, **options: Any):
        self.options, self.num_dims = options, grid.num_dims
        self.parts = [_Block(grid, block) for block in blocks]

    def __call__(
        self,
        residual: Tensor,
        noise: Tensor,
        factors: Sequence[Tensor],
        chosen: Sequence[int] | None = None,
    ) -> Tensor:
        """Return the mean squared errors ``B x ...`` of the ``chosen`` blocks, by default all.

        Other arguments are as in :class:`GridLikelihood`.
        """
        inputs = (residual, noise, *factors)
        differentiate = any_needed(inputs)
        with torch.no_grad():
            eigen = KroneckerEigen(factors)
            systems = self._systems(noise, factors, eigen, chosen)
            results = [self._error(*pair, residual, differentiate) for pair in systems]
            value = torch.stack([error for error, _ in results])
            if not differentiate:
                return value
            parts = zip(*(gradients for _, gradients in results), strict=True)
            gradients = [None if grads[0] is None else torch.stack(grads) for grads in parts]
        return with_gradients(value, inputs, gradients, _from_basis(eigen))

    def _systems(
        self,
        noise: Tensor,
        factors: Sequence[Tensor],
        eigen: KroneckerEigen,
        chosen: Sequence[int] | None,
    ) -> Iterator[tuple[_Block, PartialKronecker]]:
        """Yield blocks, each with the covariance of the observed cells outside the block."""
        for block in self.parts if chosen is None else [self.parts[i] for i in chosen]:
            yield block, PartialKronecker(block.grid, factors, noise, eigen=eigen, **self.options)

    def _error(
        self, block: _Block, system: PartialKronecker, residual: Tensor, differentiate: bool
    ) -> tuple[Tensor, list[Tensor | None]]:
        """Return the mean squared error ``...`` of a block, and gradients in the eigenbases."""
        axes, eigen = tuple(range(-self.num_dims, 0)), system.eigen
        alpha, prediction = block.predict(system, residual)
        error = torch.where(block.cells, prediction - residual, 0.0)
        gradients: list[Tensor | None] = []
        if differentiate:
            outer = error * (2 / block.size.to(error))[(..., *[None] * self.num_dims)]
            gamma, block.states[1] = system.extended(outer, block.states[1])
            with_block = block.grid.observed | block.cells
            gradients = [
                torch.where(with_block, -eigen.from_basis(gamma), 0.0)
                if residual.requires_grad
                else None,
                (gamma * alpha).sum(axes),
                *system.factor_gradients(gamma, alpha),
            ]
        return error.square().sum(axes) / block.size, gradients

    @torch.no_grad()
    def predictions(
        self, residual: Tensor, noise: Tensor, factors: Sequence[Tensor]
    ) -> Iterator[Tensor]:
        """Yield predictions of all cells ``... x n_1 x ... x n_P`` without each block."""
        for block, system in self._systems(noise, factors, KroneckerEigen(factors), None):
            yield block.predict(system, residual)[1]

    @torch.no_grad()
    def scale(
        self,
        residual: Tensor,
        noise: Tensor,
        factors: Sequence[Tensor],
        chosen: Sequence[int] | None = None,
    ) -> Tensor:
        """Return the calibration factor ``...`` of the predicted variances.

        In each block, the sum of squared errors is divided by the sum of predicted variances of
        new observations (Hutchinson's estimate). The factors of the blocks are averaged.
        """
        axes, generator = tuple(range(-self.num_dims, 0)), torch.Generator().manual_seed(0)
        ratios, eigen = [], KroneckerEigen(factors)
        for block, system in self._systems(noise, factors, eigen, chosen):
            errors = torch.where(block.cells, block.predict(system, residual)[1] - residual, 0.0)
            shape = (_PROBES, *system.batch_shape, *system.grid.shape)
            signs = torch.randint(0, 2, shape, generator=generator, device="cpu")
            target = take_slices((2 * signs - 1).to(residual) * block.cells, system.grid.rows)
            variances = (target * system.solve(target)).sum(axes)
            ratios.append(errors.square().sum(axes) / variances.mean(0))
        return torch.stack(ratios).mean(0)


def _log_determinant(system: PartialKronecker) -> tuple[Tensor, Sequence[Tensor]]:
    """Return the approximate log determinant ``...``, and its gradients.

    The gradients are with respect to the noise, ``... x 1``, and to the eigenvalues of each factor,
    ``... x n_p``.
    """
    grid, batch = system.grid, system.batch_shape
    sources = [system.noise.flatten(-grid.num_dims), *system.eigen.values]
    sources = [s.expand(*batch, s.size(-1)).clone().requires_grad_() for s in sources]
    counts = grid.num_observed.unsqueeze(-1).to(system.noise)
    gaps = grid.shape.numel() - counts
    with torch.enable_grad():
        noise, *values = sources
        correction = torch.zeros_like(noise)
        if grid.extra is not None:
            seen = grid.observed.flatten(-grid.num_dims)
            cell_noise = grid.extra.flatten(-grid.num_dims) + noise
            correction = (seen * cell_noise.log()).sum(-1, keepdim=True)
            noise = counts / (seen / cell_noise).sum(-1, keepdim=True)  # harmonic mean
            correction = correction - counts * noise.log()
        spectrum = outer_product(values).flatten(-grid.num_dims) + noise  # ... x N
        ridge = _ridge(spectrum.detach(), counts)  # a stationary point of the value
        entropy = torch.xlogy(counts, counts) + torch.xlogy(gaps, gaps) - torch.xlogy(gaps, ridge)
        value = (spectrum + ridge).log().sum(-1, keepdim=True) + entropy + correction
        gradients = torch.autograd.grad(value.sum(), sources)
    size = grid.shape.numel()
    return value.detach().squeeze(-1) - size * math.log(size), gradients


def _ridge(spectrum: Tensor, counts: Tensor) -> Tensor:
    """Return r ``... x 1`` that solves ``sum(a / (a + r)) = counts`` for eigenvalues a, or 0."""
    size = spectrum.size(-1)
    odds = ((size - counts) / counts).log()
    low, high = (f(spectrum, -1, keepdim=True).log() + odds for f in (torch.amin, torch.amax))
    log_ridge = spectrum.log().mean(-1, keepdim=True) + odds
    for _ in range(_RIDGE_STEPS):
        share = spectrum / (spectrum + log_ridge.exp())
        excess = share.sum(-1, keepdim=True) - counts
        if bool((excess.abs() <= torch.finfo(excess.dtype).eps * size).all()):
            break
        low = torch.where(excess > 0, log_ridge, low)
        high = torch.where(excess > 0, high, log_ridge)
        newton = log_ridge + excess / (share * (1 - share)).sum(-1, keepdim=True)
        inside = (low <= newton) & (newton <= high)
        log_ridge = torch.where(inside, newton, (low + high) / 2)
    return torch.where(counts < size, log_ridge.exp(), 0.0)


class _Block:
    """Block of cells, the grid without the block, and start values of the solves on this grid."""

    def __init__(self, grid: PartialGrid, block: Tensor):
        self.cells = block & grid.observed
        self.size = self.cells.flatten(-grid.num_dims).sum(-1)
        if bool((self.size == 0).any()):
            raise ValueError("Every block must have an observed cell in every entry of a batch.")
        self.grid = PartialGrid(grid.observed & ~self.cells, grid.num_dims, grid.extra)
        self.states: list[Tensor | None] = [None, None]

    def predict(self, system: PartialKronecker, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``alpha`` of the cells outside the block, in the eigenbasis, and predictions."""
        targets = torch.where(self.grid.observed, residual, 0.0)
        weights = system.weights(targets, self.states[0])
        self.states[0] = weights.state
        return weights.coefficients, system.eigen.from_basis(weights.coefficients * system.spectrum)


def _from_basis(eigen: KroneckerEigen) -> list[Any]:
    """Return maps that rotate gradients out of the eigenbases; None for residual and noise."""

    def rotate(grad: Tensor, vectors: Tensor, transposed: Tensor) -> Tensor:
        if grad.dim() > vectors.dim():  # several grids may share the basis
            grad = grad.sum_to_size(vectors.shape)
        return vectors @ grad @ transposed

    bases = zip(eigen.vectors, eigen.transposed, strict=True)
    return [None, None, *(partial(rotate, vectors=q, transposed=t) for q, t in bases)]
