"""The variational bound of Titsias, its gradient and the posterior that attains it.

Rows are taken one chunk at a time. The likelihood of linalg for features of low rank, with what
they leave out, has the same value; here the Cholesky factor of the inducing points is computed and
differentiated once, not in every chunk, and one pass over the rows serves value and posterior.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from linear_operator import to_linear_operator
from linear_operator.operators import MatmulLinearOperator
from linear_operator.utils.errors import NotPSDError
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gpytorch_nkn.kernels.network import kernel_values
from gpytorch_nkn.linalg import factorize_inducing

__all__ = ["CollapsedGP", "Statistics", "WhitenedPosterior", "collapsed_bound"]

_DENSE = 512  # rows up to which a joint distribution is made of dense matrices

# Kernel values that are in memory at a time: 16 MB, several times as much in plain evaluation.
_CHUNK_ENTRIES = 2_000_000


@dataclass
class WhitenedPosterior:
    r"""Distribution :math:`v \sim N(\mu, C C^\top)` where inducing values are :math:`u = L v`.

    With :math:`r = L^{-1} k_u(x)` the mean of the function is :math:`m(x) + r^\top \mu` and its
    variance :math:`k(x, x) - r^\top r + \lVert C^\top r \rVert^2`.

    Attributes:
        factor: :math:`L`, the Cholesky factor of the inducing covariance, ``... x m x m``.
        mean: :math:`\mu` ``... x m``.
        root: :math:`C` ``... x m x m``.
        is_given: It cannot be computed anew from the training data of its model.
    """

    factor: Tensor
    mean: Tensor
    root: Tensor
    is_given: bool = False

    def to(self, device: torch.device) -> WhitenedPosterior:
        """The same on another device; it stays in float64."""
        factor, mean, root = (part.to(device) for part in (self.factor, self.mean, self.root))
        return WhitenedPosterior(factor, mean, root, self.is_given)

    def joint(self, kernel: Kernel, mean: Mean, points: Tensor, x: Tensor) -> MultivariateNormal:
        """Distribution of the function at ``x`` ``... x q x d``.

        Its covariance stays a sum of the prior's and a product of q x m matrices where there are
        many rows, so that its diagonal does not take a q x q matrix.
        """
        x, half, shape = self._half(kernel, points, x)
        means = mean(x) + self._unfolded(self.mean.unsqueeze(-2) @ half, shape).squeeze(-2).to(x)
        after = self.root @ (self.root.mT @ half) - half
        half, after = (self._unfolded(part, shape) for part in (half, after))
        if x.size(-2) <= _DENSE:
            single = x.size(-2) == 1  # a diagonal is far cheaper than many matrices of one entry
            dense = kernel_values(kernel, x, x, diag=single)
            dense = dense.unsqueeze(-1) if single else dense
            change = half.mT @ after
            covariance = dense.double() + 0.5 * (change + change.mT)
            return MultivariateNormal(means, to_linear_operator(covariance.to(dense)))
        change = MatmulLinearOperator(half.mT.to(x), after.to(x))
        return MultivariateNormal(means, kernel(x) + change)

    def mean_at(self, kernel: Kernel, mean: Mean, points: Tensor, x: Tensor) -> Tensor:
        """Means ``... x q`` of the function at ``x`` ``... x q x d``, without a solve for each."""
        weights = torch.linalg.solve_triangular(self.factor.mT, self.mean.unsqueeze(-1), upper=True)
        return mean(x) + (_values(kernel, x, points).double() @ weights).squeeze(-1).to(x)

    def _half(self, kernel: Kernel, points: Tensor, x: Tensor) -> tuple[Tensor, Tensor, torch.Size]:
        """Inputs with the whole batch shape, r as columns ``... x m x (t q)``, and the shape.

        Test batches ``t`` go into the columns: expanded to them, the factor would be copied.
        """
        own = self.factor.shape[:-2]
        shape = torch.broadcast_shapes(x.shape[:-2], own)
        x = x.expand(*shape, *x.shape[-2:])
        extra = len(shape) - len(own)
        flat = x
        if extra:
            flat = x.movedim(tuple(range(extra)), tuple(range(-2 - extra, -2)))
            flat = flat.flatten(-2 - extra, -2)  # ... x (t q) x d
        points = points.expand(*shape[extra:], *points.shape[-2:])
        columns = kernel_values(kernel, flat, points).double().mT
        factor = self.factor.expand(*shape[extra:], *self.factor.shape[-2:])
        half = torch.linalg.solve_triangular(factor, columns, upper=False)
        return x, half, x.shape[:-1]

    def _unfolded(self, columns: Tensor, shape: torch.Size) -> Tensor:
        """Columns ``... x k x (t q)`` as ``t x ... x k x q``, for a shape ``t x ... x q``."""
        extra = len(shape) - columns.dim() + 1
        if extra <= 0:
            return columns
        columns = columns.unflatten(-1, (*shape[:extra], shape[-1]))
        return columns.movedim(tuple(range(-1 - extra, -1)), tuple(range(extra)))


@dataclass
class Statistics:
    r"""What the bound needs to know of the data, for a matrix :math:`A = L^{-1} K_{uf}`.

    Attributes:
        factor: :math:`L`, with :math:`L L^\top = K_{uu}`, ``... x m x m``.
        jitter: Part of the mean diagonal that was added to :math:`K_{uu}`.
        gram: :math:`A A^\top`.
        cross: :math:`A r` ``... x m`` for the residuals :math:`r` of the targets.
        residual: :math:`r^\top r` ``...``.
        variance: Sum of the prior variances ``...`` of the rows.
        num_data: Number of rows.
    """

    factor: Tensor
    jitter: float
    gram: Tensor
    cross: Tensor
    residual: Tensor
    variance: Tensor
    num_data: int

    @classmethod
    def of(cls, covariance: Tensor, parts: Iterable[tuple[Tensor, Tensor, Tensor]]) -> Statistics:
        """Summed over chunks of rows, of which one is in memory at a time.

        Args:
            covariance: Of the inducing points, ``... x m x m``.
            parts: Covariances ``... x c x m`` of the rows of a chunk with the inducing points,
                their prior variances ``... x c`` and the residuals ``... x c`` of their targets.

        Raises:
            NotPSDError: The covariance is not positive definite.
        """
        factor, jitter = factorize_inducing(covariance)
        batch_shape, num_points = factor.shape[:-2], factor.size(-1)
        gram = factor.new_zeros(*batch_shape, num_points, num_points)
        cross = factor.new_zeros(*batch_shape, num_points)
        residual = variance = factor.new_zeros(batch_shape)
        num_data = 0
        for between, prior, errors in parts:
            half = torch.linalg.solve_triangular(factor, between.mT.double(), upper=False)
            errors = errors.double()
            gram += half @ half.mT
            cross += (half @ errors.unsqueeze(-1)).squeeze(-1)
            residual = residual + errors.square().sum(-1)
            variance = variance + prior.double().sum(-1)
            num_data += errors.size(-1)
        return cls(factor, jitter, gram, cross, residual, variance, num_data)

    def solve(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        r"""Cholesky factor of :math:`B = I + A A^\top / \sigma^2`, and :math:`B^{-1} A r`."""
        eye = torch.eye(self.gram.size(-1), dtype=self.gram.dtype, device=self.gram.device)
        factor, info = torch.linalg.cholesky_ex(eye + self.gram / noise[..., None, None])
        if bool(info.any()) or not bool(factor.isfinite().all()):
            raise NotPSDError("The posterior precision of the inducing values is not finite.")
        return factor, torch.cholesky_solve(self.cross.unsqueeze(-1), factor).squeeze(-1)

    def bound(self, noise: Tensor) -> Tensor:
        """Lower bound ``...`` of the log marginal likelihood, for variances of noise ``...``."""
        factor, solution = self.solve(noise)
        log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        fit = self.residual - (self.cross * solution).sum(-1) / noise
        rest = self.variance - self.gram.diagonal(dim1=-2, dim2=-1).sum(-1)
        constant = self.num_data * (math.log(2 * math.pi) + noise.log())
        return -0.5 * (constant + log_det + fit / noise + rest / noise)

    def posterior(self, noise: Tensor) -> WhitenedPosterior:
        """The distribution of the inducing values that attains the bound."""
        factor, solution = self.solve(noise)
        eye = torch.eye(factor.size(-1), dtype=factor.dtype, device=factor.device)
        root = torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False).mT
        return WhitenedPosterior(self.factor, solution / noise.unsqueeze(-1), root)


@dataclass
class CollapsedGP:
    """A sparse GP whose inducing values are integrated out.

    Attributes:
        kernel: Kernel of the GP, with batch shape ``...``.
        mean: Its mean.
        points: Inducing points ``... x m x d``.
        inputs: Gives ``... x n x d``; called once per pass, so that it may depend on parameters.
        targets: ``... x n``.
        noise: Gives the variances of the noise ``... x 1``.
    """

    kernel: Kernel
    mean: Mean
    points: Tensor
    inputs: Callable[[], Tensor]
    targets: Tensor
    noise: Callable[[], Tensor]

    @torch.no_grad()
    def statistics(self) -> Statistics:
        """One pass over the rows, in the memory of a chunk of them."""
        return self.statistics_of([(self.inputs(), self.targets)])

    @torch.no_grad()
    def statistics_of(self, chunks: Iterable[tuple[Tensor, Tensor]]) -> Statistics:
        """Those of other rows, inputs ``... x c x d`` and targets ``... x c`` of each chunk."""
        shape = torch.broadcast_shapes(self.points.shape[:-2], self.kernel.batch_shape)
        parts = (
            self._chunk(inputs[..., rows, :], slice(None), targets[..., rows])
            for inputs, targets in chunks
            for rows in self._chunks(shape, targets.size(-1))
        )
        return Statistics.of(self._inducing_covariance(), parts)

    @property
    def num_data(self) -> int:
        """Number of rows."""
        return self.targets.size(-1)

    def noise_variance(self) -> Tensor:
        """Variances of the noise ``...`` in float64."""
        return self.noise().squeeze(-1).double()

    def gradients(
        self, statistics: Statistics, outer: Tensor, parameters: tuple[Tensor, ...]
    ) -> list[Tensor | None]:
        """Gradients of the bounds, weighted by ``outer`` ``...``, in one more pass."""
        s, outer = statistics, outer.double()
        noise = self.noise_variance().detach().expand(outer.shape)
        outer2, noise2 = outer[..., None, None], noise[..., None, None]
        factor, solution = s.solve(noise)
        inverse = torch.cholesky_inverse(factor)
        weights = solution / noise.square().unsqueeze(-1)  # derivatives by the cross term
        rank_one = weights.unsqueeze(-1) * weights.unsqueeze(-2)
        eye = torch.eye(inverse.size(-1), dtype=inverse.dtype, device=inverse.device)
        middle = (eye - inverse) / noise2 - noise2 * rank_one
        total = _Sum(parameters)
        with torch.enable_grad():
            inner = s.gram / noise2 - eye + inverse + noise2.square() * rank_one
            inner = torch.linalg.solve_triangular(s.factor.mT, inner, upper=True)
            of_points = -0.5 * torch.linalg.solve_triangular(
                s.factor, inner, upper=False, left=False
            )
            slope = of_points.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
            total.add(
                [self._inducing_covariance()], [outer2 * (of_points + s.jitter * slope * eye)]
            )
            trace = (inverse * s.gram).sum((-2, -1))
            curved = (weights * (s.gram @ weights.unsqueeze(-1)).squeeze(-1)).sum(-1)
            rest = s.variance - s.gram.diagonal(dim1=-2, dim2=-1).sum(-1)
            of_noise = (
                0.5 * (trace + s.residual + rest) / noise.square()
                - 0.5 * s.num_data / noise
                - (weights * s.cross).sum(-1) / noise
                + 0.5 * curved
            )
            total.add([self.noise()], [(outer * of_noise).unsqueeze(-1)])
            whole = self.inputs()
            inputs = whole.detach().requires_grad_(whole.requires_grad)
            of_inputs = torch.zeros_like(inputs)
            for rows in self._chunks(noise.shape, self.num_data):
                part = inputs[..., rows, :].detach().requires_grad_(whole.requires_grad)
                between, prior, errors = self._chunk(part, slice(None), self.targets[..., rows])
                half = torch.linalg.solve_triangular(
                    s.factor, between.detach().mT.double(), upper=False
                )
                left = errors.detach().double()
                of_half = middle @ half + weights.unsqueeze(-1) * left.unsqueeze(-2)
                of_between = torch.linalg.solve_triangular(s.factor.mT, of_half, upper=True).mT
                of_errors = (half.mT @ weights.unsqueeze(-1)).squeeze(-1) - left / noise[..., None]
                of_prior = (-0.5 / noise).unsqueeze(-1).expand_as(prior)
                more = total.add(
                    [between, prior, errors],
                    [
                        outer2 * of_between,
                        outer[..., None] * of_prior,
                        outer[..., None] * of_errors,
                    ],
                    part,
                )
                if more is not None:
                    of_inputs[..., rows, :] += more
            if whole.requires_grad:  # a transform of the inputs learns, too
                total.add([whole], [of_inputs])
        return total.gradients

    def _inducing_covariance(self) -> Tensor:
        return _values(self.kernel, self.points, self.points)

    def _chunks(self, batch_shape: torch.Size, num_rows: int) -> Iterator[slice]:
        width = self.points.size(-2) * max(1, batch_shape.numel())
        size = max(1, _CHUNK_ENTRIES // width)
        for start in range(0, num_rows, size):
            yield slice(start, min(start + size, num_rows))

    def _chunk(
        self, inputs: Tensor, rows: slice, targets: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Covariances with the inducing points ``... x c x m``, prior variances, residuals."""
        x = inputs[..., rows, :]
        y = self.targets[..., rows] if targets is None else targets
        prior = self.kernel(x, diag=True)
        return _values(self.kernel, x, self.points), prior, y - self.mean(x)


class _Sum:
    """A sum of gradients by parameters."""

    def __init__(self, parameters: tuple[Tensor, ...]):
        self.parameters = parameters
        self.gradients: list[Tensor | None] = [None] * len(parameters)

    def add(
        self, outputs: list[Tensor], by_outputs: list[Tensor], part: Tensor | None = None
    ) -> Tensor | None:
        """Pull gradients by outputs back; the one by ``part``, if that needs one, is returned."""
        inputs = self.parameters
        if part is not None and part.requires_grad:
            inputs = (*inputs, part)
        pairs = [(o, g) for o, g in zip(outputs, by_outputs, strict=True) if o.requires_grad]
        if not pairs:
            return None
        found = torch.autograd.grad(
            [o for o, _ in pairs],
            inputs,
            [g.to(o).expand(_joint(g, o)).sum_to_size(o.shape) for o, g in pairs],
            allow_unused=True,
        )
        for number, gradient in enumerate(found[: len(self.parameters)]):
            if gradient is not None:
                old = self.gradients[number]
                self.gradients[number] = gradient if old is None else old + gradient
        return found[-1] if len(found) > len(self.parameters) else None


def _joint(a: Tensor, b: Tensor) -> torch.Size:
    return torch.broadcast_shapes(a.shape, b.shape)


def collapsed_bound(gp: CollapsedGP, parameters: tuple[Tensor, ...]) -> Tensor:
    r"""Lower bound of the log marginal likelihood, summed over the rows.

    .. math:: \log N(y \mid m, Q_{ff} + \sigma^2 I)
        - \frac{1}{2 \sigma^2} \operatorname{tr}(K_{ff} - Q_{ff}),
        \quad Q_{ff} = K_{fu} K_{uu}^{-1} K_{uf}

    Value and gradient take :math:`O(n m^2)` time and the memory of m x m matrices and of a chunk
    of rows, whatever the kernel. Linear algebra is in float64.

    Args:
        gp: The sparse GP.
        parameters: All that it depends on and that a gradient is wanted for.

    Returns:
        Values ``...`` in float64, differentiable once.

    Reference: Titsias (2009), Variational Learning of Inducing Variables in Sparse Gaussian
    Processes, equation 9.
    """
    return _CollapsedBound.apply(gp, *parameters)


class _CollapsedBound(Function):
    @staticmethod
    def forward(ctx: Any, gp: CollapsedGP, *parameters: Tensor) -> Tensor:
        statistics = gp.statistics()
        ctx.gp, ctx.statistics, ctx.parameters = gp, statistics, parameters
        return statistics.bound(gp.noise_variance())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.gp.gradients(ctx.statistics, outer, ctx.parameters)


def _values(kernel: Kernel, x1: Tensor, x2: Tensor) -> Tensor:
    """Values ``... x n x m`` of the kernel at inputs whose batch shapes broadcast."""
    shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    if x1 is x2:
        return kernel_values(kernel, x1, x1)
    return kernel_values(kernel, x1.expand(*shape, -1, -1), x2.expand(*shape, -1, -1))
