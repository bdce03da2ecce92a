"""Evidence for partitions of the input columns: additive GPs, fitted in closed form."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import one_hot

from gpytorch_nkn.models.partitions.partition_kernel import (
    correlation,
    num_shape_parameters,
    shape_center,
)
from gpytorch_nkn.models.partitions.partitions import Partition, labels_of

__all__ = ["USUAL_BOUNDS", "Hyperparameters", "PartitionEvidence"]

# Centre and standard deviation of the normal priors on logarithms, for inputs in the unit cube and
# standardised targets. That of lengthscales is times the root of the group's size, over which
# distances grow likewise. That of the noise has the mode of BoTorch's prior. The others are wide:
# polynomials and the like are lengthscales of several units times scales of hundreds.
_LENGTHSCALE = (math.log(0.4), 1.7)
_OUTPUTSCALE = (math.log(0.5), 3.0)
_NOISE = (-5.0, 1.0)
_SHAPE_SCALE = 1.0

# Of the parameters, in their order: logarithms, but for the shape parameters.
USUAL_BOUNDS = {
    "lengthscale": (math.log(1e-2), math.log(1e3)),
    "outputscale": (math.log(1e-4), math.log(1e3)),
    "shape": (-10.0, 10.0),
    "noise": (math.log(1e-4), math.log(10.0)),  # the lower one is BoTorch's
}
_NOT_PSD = 1e10  # a value that makes a line search turn back


@dataclass(frozen=True)
class Hyperparameters:
    """Hyperparameters of one additive GP.

    Attributes:
        lengthscale: One per column, ``D``.
        outputscale: One per group, ``G``.
        shape: Shape parameters of the groups' correlations, ``G x E``.
        noise: Noise variance, None where it is given with the data.
        mean: Constant mean.
    """

    lengthscale: Tensor
    outputscale: Tensor
    shape: Tensor
    noise: float | None
    mean: float


class PartitionEvidence:
    r"""Log evidence of additive GPs on one data set, each with its best hyperparameters.

    .. math:: \max_\theta\; \log p(y \mid \theta, P)
        - \tfrac{1}{2} \sum_i (\theta_i - c_i)^2 / \tau_i^2

    with :math:`\theta` the logarithms of lengthscales, scales of groups and noise (and the shape
    parameters of the correlations as they are), normal priors of centres :math:`c` and standard
    deviations :math:`\tau`, and the constant mean by generalised least squares. The centres are
    lengthscales of 0.4 times the root of the group's size (:math:`\tau = 1.7`), scales of 0.5 (3)
    and a noise of :math:`e^{-5}` (1), for inputs in the unit cube and standardised targets. A
    parameter at the centre of its prior takes nothing, so that groups are not punished for their
    number of parameters. L-BFGS starts from the hyperparameters of a neighbouring partition. Each
    partition is fitted once and remembered: the values are a fixed table for a sampler.

    Args:
        train_X: Inputs ``N x D``.
        targets: Targets ``N``.
        noise: Noise variances ``N``; ``None`` learns one for all.
        kernel: Name of the groups' correlation, see
            :func:`gpytorch_nkn.models.partitions.partition_kernel.correlation`.
        max_iter: Iterations of L-BFGS per partition, four times as many for the first.
        end: Time of the monotonic clock, after which no evaluation is begun but the first one of
            a partition.
        learn_mean: Estimate a constant mean; otherwise it is zero.
        limits: Bounds of the logarithms of ``"lengthscale"`` (``D``), ``"outputscale"`` (``D``, of
            which the groups take the first) and ``"noise"`` (one), and of ``"shape"`` as it is;
            equal ones fix a parameter. ``None`` for wide ones.
        priors: Further log priors of these values, as functions of an object that has them as
            attributes, which replace that of the noise.
    """

    def __init__(
        self,
        train_X: Tensor,
        targets: Tensor,
        noise: Tensor | None = None,
        *,
        kernel: str = "rbf",
        max_iter: int = 25,
        end: float = math.inf,
        learn_mean: bool = True,
        limits: Mapping[str, list[tuple[float, float]]] | None = None,
        priors: Sequence[Callable[[Any], Tensor]] | None = None,
    ):
        x = train_X.detach().to("cpu", torch.float64)
        self.kernel = kernel
        self.max_iter = max_iter
        self.evaluations = 0
        self.end = end
        self._learn_mean = learn_mean
        self._limits = limits or {}
        self._priors = priors
        self._targets = targets.detach().to("cpu", torch.float64)
        self._noise = None if noise is None else noise.detach().to("cpu", torch.float64)
        self._num_shape = num_shape_parameters(kernel)
        rows, columns = torch.tril_indices(len(x), len(x), -1)
        self._lower = (rows, columns)
        self._sq_dist = (x[rows] - x[columns]).square().T.contiguous()  # D x pairs, shared by all
        self._table: dict[Partition, tuple[float, Tensor]] = {}
        self._known: dict[Partition, Tensor] = {}

    @property
    def num_columns(self) -> int:
        """Number of input columns."""
        return len(self._sq_dist)

    def add_start(self, partition: Partition, hyperparameters: Hyperparameters) -> None:
        """Start the partition from these hyperparameters when its turn comes."""
        h = hyperparameters
        parts = [h.lengthscale.log(), h.outputscale.log(), h.shape.flatten()]
        if self._noise is None:
            noise = _NOISE[0] if h.noise is None else math.log(h.noise)
            parts.append(torch.tensor([noise], dtype=torch.float64))
        self._known[partition] = torch.cat([part.to("cpu", torch.float64) for part in parts])

    def log_evidence(self, partition: Partition, origin: Partition | None = None) -> float:
        """Log evidence of the partition; ``-inf`` if its covariance cannot be factorised.

        Args:
            partition: Groups of columns in canonical order.
            origin: Partition, asked for before, whose hyperparameters the search starts near.
        """
        if partition not in self._table:
            center, _ = self._prior(partition)
            starts = [self._known[partition]] if partition in self._known else []
            if origin is None:
                fits = [self._maximize(partition, s, 4 * self.max_iter) for s in (*starts, center)]
                self._table[partition] = max(fits, key=lambda fit: fit[0])
            else:
                start = starts[0] if starts else self._inherit(partition, origin)
                self._table[partition] = self._maximize(partition, start, self.max_iter)
        return self._table[partition][0]

    def hyperparameters(self, partition: Partition) -> Hyperparameters:
        """Hyperparameters of a partition whose evidence was asked for before."""
        theta = self._table[partition][1]
        lengthscale, outputscale, shape = self._split(theta, len(partition))
        solved = self._solve(*self._entries(theta, self._membership(partition)), theta)
        return Hyperparameters(
            lengthscale=lengthscale.exp(),
            outputscale=outputscale.exp(),
            shape=shape,
            noise=None if self._noise is not None else math.exp(theta[-1].item()),
            mean=0.0 if solved is None else solved[3],
        )

    def _prior(self, partition: Partition) -> tuple[Tensor, Tensor]:
        """Centres and standard deviations of the parameters."""
        sizes = torch.tensor([float(len(group)) for group in partition], dtype=torch.float64)
        labels = torch.tensor(labels_of(partition))
        shape = torch.tensor(shape_center(self.kernel), dtype=torch.float64).repeat(len(sizes))
        center = [_LENGTHSCALE[0] + 0.5 * sizes[labels].log()]
        center += [torch.full_like(sizes, _OUTPUTSCALE[0]), shape]
        scale = [torch.full_like(center[0], _LENGTHSCALE[1])]
        scale += [torch.full_like(sizes, _OUTPUTSCALE[1]), torch.full_like(shape, _SHAPE_SCALE)]
        if self._noise is None:
            center.append(sizes.new_full((1,), _NOISE[0]))
            scale.append(sizes.new_full((1,), _NOISE[1] if self._priors is None else math.inf))
        return torch.cat(center), torch.cat(scale)

    def _bounds(self, num_groups: int) -> list[tuple[float, float]]:
        shape = num_groups * self._num_shape
        counts = self.num_columns, num_groups, shape, int(self._noise is None)
        found: list[tuple[float, float]] = []
        for (name, ends), count in zip(USUAL_BOUNDS.items(), counts, strict=True):
            found += self._limits.get(name, [ends] * count)[:count]
        return found

    def _log_priors(self, theta: Tensor, num_groups: int) -> Tensor:
        """Sum of the further log priors."""
        lengthscale, outputscale, shape = self._split(theta, num_groups)
        read = SimpleNamespace(
            lengthscale=lengthscale.exp().unsqueeze(-2),
            outputscale=outputscale.exp(),
            raw_shape=shape,
            shape_parameters=shape,
            noise=theta[-1:].exp(),
            batch_shape=torch.Size([]),
        )
        total = 0 * theta[0]
        for prior in self._priors or ():
            total = total + prior(read).sum()
        return total

    def _split(self, theta: Tensor, num_groups: int) -> tuple[Tensor, Tensor, Tensor]:
        sizes = [self.num_columns, num_groups, num_groups * self._num_shape]
        lengthscale, outputscale, shape, _ = theta.split([*sizes, len(theta) - sum(sizes)])
        return lengthscale, outputscale, shape.view(num_groups, self._num_shape)

    def _inherit(self, partition: Partition, origin: Partition) -> Tensor:
        """Parameters of the origin; columns whose group is new go half of the way to the prior."""
        theta = self._table[origin][1]
        center, _ = self._prior(partition)
        lengthscale, outputscale, shape = self._split(theta, len(origin))
        start_length, _, _ = self._split(center, len(partition))
        new_length, new_scale, new_shape = lengthscale.clone(), [], []
        for group in partition:
            shared = [len(set(group) & set(old)) for old in origin]
            if group not in origin:
                columns = list(group)
                new_length[columns] = (lengthscale[columns] + start_length[columns]) / 2
            shares = torch.tensor(
                [count / len(old) for count, old in zip(shared, origin, strict=True)],
                dtype=torch.float64,
            )
            new_scale.append((shares * outputscale.exp()).sum().log())
            new_shape.append(shape[shared.index(max(shared))])
        parts = [new_length, torch.stack(new_scale), torch.stack(new_shape).flatten()]
        return torch.cat([*parts, theta[len(theta) - (self._noise is None) :]])

    def _membership(self, partition: Partition) -> Tensor:
        return one_hot(torch.tensor(labels_of(partition)), len(partition)).T.double()  # G x D

    def _entries(self, theta: Tensor, membership: Tensor) -> tuple[Tensor, Tensor]:
        """Covariances of the pairs of points, and the variance, without noise."""
        lengthscale, outputscale, shape = self._split(theta, len(membership))
        sq_dist = (membership * (-2 * lengthscale).exp()) @ self._sq_dist  # G x pairs
        scale = outputscale.exp()
        return scale @ correlation(self.kernel, sq_dist, shape), scale.sum()

    def _solve(
        self, pairs: Tensor, variance: Tensor, theta: Tensor
    ) -> tuple[float, Tensor, Tensor, float] | None:
        """Log likelihood, weights ``K^-1 (y - m)``, ``K^-1`` and mean; None if not PSD."""
        n = len(self._targets)
        matrix = pairs.new_zeros(n, n)
        matrix[self._lower] = pairs.detach()
        noise = theta[-1].exp() if self._noise is None else self._noise
        matrix.diagonal().copy_((variance + noise).detach().expand(n))
        # By hand: the mean is estimated by the inverse that the gradient takes, too.
        factor, info = torch.linalg.cholesky_ex(matrix)  # reads the lower triangle only
        if info:
            return None
        inverse = torch.cholesky_inverse(factor)
        ones, weighted = inverse.sum(-1), inverse @ self._targets
        mean = weighted.sum() / ones.sum() if self._learn_mean else weighted.new_zeros(())
        weights = weighted - mean * ones
        log_det = 2 * factor.diagonal().log().sum()
        quadratic = (self._targets - mean) @ weights
        log_likelihood = -0.5 * (quadratic + log_det + n * math.log(2 * math.pi))
        return log_likelihood.item(), weights, inverse, mean.item()

    def _maximize(self, partition: Partition, start: Tensor, max_iter: int) -> tuple[float, Tensor]:
        membership = self._membership(partition)
        center, scale = self._prior(partition)

        best = math.inf, start
        seconds = 0.0  # of an evaluation

        def in_time(values: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal best, seconds
            begin = time.monotonic()
            if seconds and begin + seconds > self.end:
                raise StopIteration
            value, gradient = loss(values)
            seconds = time.monotonic() - begin
            if value < best[0]:
                best = value, torch.from_numpy(values.copy())
            return value, gradient

        def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
            self.evaluations += 1
            theta = torch.from_numpy(values.copy()).requires_grad_()
            with torch.enable_grad():
                entries = self._entries(theta, membership)
                further = self._log_priors(theta, len(partition))
            solved = self._solve(*entries, theta.detach())
            if solved is None:
                return _NOT_PSD, np.zeros_like(values)
            log_likelihood, weights, inverse, _ = solved
            # d log p = tr((w w' - K^-1) dK) / 2, in which every pair counts twice
            slope = torch.outer(weights, weights) - inverse
            of_diagonal = 0.5 * slope.diagonal()
            (gradient,) = torch.autograd.grad(
                (*entries, further),
                theta,
                (slope[self._lower], of_diagonal.sum(), torch.ones_like(further)),
            )
            z = (theta.detach() - center) / scale
            if self._noise is None:
                gradient[-1] += of_diagonal.sum() * math.exp(values[-1])
            value = log_likelihood - 0.5 * (z @ z).item() + further.item()
            return -value, -(gradient - z / scale).numpy()

        bounds = self._bounds(len(partition))
        with suppress(StopIteration):
            minimize(
                in_time,
                np.clip(start.numpy(), *np.array(bounds).T),
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                options={"maxiter": max_iter, "maxcor": 20},
            )
        value = -best[0] if best[0] < _NOT_PSD else -math.inf
        return value, best[1]
