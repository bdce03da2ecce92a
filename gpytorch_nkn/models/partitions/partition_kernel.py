"""A batch of additive kernels, each with a partition of the columns of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from gpytorch.constraints import Positive
from torch import Tensor, nn

from gpytorch_nkn.kernels import BatchKernel, matern52_of
from gpytorch_nkn.models.partitions.partitions import (
    Partition,
    canonical_partition,
    labels_of,
    partition_of,
)

__all__ = [
    "KERNELS",
    "PartitionKernel",
    "correlation",
    "num_shape_parameters",
    "shape_center",
]

PartKernel = Literal["matern", "nkn", "rbf"]
KERNELS: tuple[PartKernel, ...] = get_args(PartKernel)

# Start values of the network: its first product is near the first RBF, its second near the
# product of both, and the first one counts more. A symmetric start would never break its symmetry.
_FIRST_LAYER = ((2.0, 0.0, 0.0), (0.0, 0.0, 2.0), (0.0, 2.0, 0.0), (2.0, 0.0, 0.0))
_LAST_LAYER = (1.0, 0.0)


class PartitionKernel(BatchKernel):
    r"""Sum over groups of columns, where every entry of the batch has groups of its own.

    .. math::
        k(x, x') = \sum_g s_g\, c_g\Bigl(\sum_{d \in g} (x_d - x_d')^2 / \ell_d^2\Bigr)

    A column is in one group, and its group is a number, not a shape: partitions that differ are
    values of one buffer, and the batch is evaluated as one. Each correlation :math:`c_g` is a
    kernel on the columns of its group, and sums of kernels with non-negative weights are kernels.

    Args:
        num_columns: Number of input columns, ``D``, also the number of groups that there is room
            for. Of scales and shape parameters beyond an entry's groups nothing is read.
        kernel: ``"rbf"``, ``"matern"`` or ``"nkn"``; see
            :func:`correlation`.
        batch_shape: Shape of the batch of partitions.
        active_dims: Input columns that the kernel sees; ``None`` means all of them.

    It starts with every column in a group of its own, lengthscales of 0.4 and scales of 0.5.

    Raises:
        ValueError: ``num_columns`` is below one, or the name of the kernel is unknown.
    """

    has_lengthscale = True
    is_stationary = True

    labels: Tensor
    raw_outputscale: Tensor
    raw_shape: Tensor

    def __init__(
        self,
        num_columns: int,
        *,
        kernel: PartKernel = "rbf",
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ):
        if kernel not in KERNELS:
            raise ValueError(f"kernel must be one of {KERNELS}, got {kernel!r}.")
        if num_columns < 1:
            raise ValueError(f"num_columns must be at least 1, got {num_columns}.")
        shape = torch.Size([] if batch_shape is None else batch_shape)
        super().__init__(ard_num_dims=num_columns, batch_shape=shape, active_dims=active_dims)
        self.kernel = kernel
        labels = torch.arange(num_columns).expand(*shape, num_columns).clone()
        self.register_buffer("labels", labels)
        self.register_parameter("raw_outputscale", nn.Parameter(torch.zeros(*shape, num_columns)))
        self.register_constraint("raw_outputscale", Positive())
        if num_shape_parameters(kernel):
            center = torch.tensor(shape_center(kernel)).repeat(*shape, num_columns, 1)
            self.register_parameter("raw_shape", nn.Parameter(center))
        self.lengthscale = 0.4
        self.outputscale = 0.5

    @property
    def outputscale(self) -> Tensor:
        """Scales ``... x D``, of which the first ones, as many as there are groups, count."""
        return self.raw_outputscale_constraint.transform(self.raw_outputscale)

    @outputscale.setter
    def outputscale(self, value: Tensor | float) -> None:
        value = torch.as_tensor(value).to(self.raw_outputscale).expand_as(self.raw_outputscale)
        self.initialize(raw_outputscale=self.raw_outputscale_constraint.inverse_transform(value))

    @property
    def shape_parameters(self) -> Tensor:
        """Shape parameters ``... x D x E`` of the groups' correlations."""
        if self.kernel != "nkn":
            return self.raw_outputscale.new_zeros(*self.raw_outputscale.shape, 0)
        return self.raw_shape

    @property
    def partitions(self) -> list[Partition]:
        """Partition of every entry of the batch, the last dimension fastest."""
        return [
            partition_of(labels) for labels in self.labels.reshape(-1, self.ard_num_dims).tolist()
        ]

    @partitions.setter
    def partitions(self, value: Sequence[Partition]) -> None:
        rows = [labels_of(canonical_partition(p, self.ard_num_dims)) for p in value]
        entries = self.labels[..., 0].numel()
        if len(rows) != entries:
            raise ValueError(f"Expected {entries} partitions, one per entry, got {len(rows)}.")
        self.labels = torch.tensor(rows, device=self.labels.device).view(self.labels.shape)

    def expand_batch(self, *sizes: torch.Size | tuple[int, ...] | int) -> PartitionKernel:
        """Return a copy of the kernel whose parts carry the given batch shape."""
        expanded = super().expand_batch(*sizes)
        if expanded is not self:
            shape = (*expanded.batch_shape, self.labels.size(-1))
            expanded.labels = expanded.labels.expand(shape).clone()
        return expanded

    def forward(
        self,
        x1: Tensor,
        x2: Tensor,
        diag: bool = False,
        last_dim_is_batch: bool = False,
        **params,
    ) -> Tensor:
        """Values ``... x N x M`` (``... x N`` with ``diag``) for inputs ``... x N x D``."""
        if last_dim_is_batch:
            raise NotImplementedError("Groups of columns have no values column by column.")
        x1, x2 = (x1 / self.lengthscale).mT, (x2 / self.lengthscale).mT  # ... x D x N
        difference = x1 - x2 if diag else x1.unsqueeze(-1) - x2.unsqueeze(-2)
        entry_shape = difference.shape[-1:] if diag else difference.shape[-2:]
        sq_dist = difference.square().flatten(-len(entry_shape))  # ... x D x E
        num_groups = int(self.labels.max()) + 1
        groups = torch.arange(num_groups, device=self.labels.device).unsqueeze(-1)
        member = (self.labels.unsqueeze(-2) == groups).to(sq_dist)  # ... x G x D
        scale = self.outputscale[..., :num_groups] * member.amax(-1)  # nothing for empty groups
        values = correlation(
            self.kernel, member @ sq_dist, self.shape_parameters[..., :num_groups, :]
        )
        values = (scale.unsqueeze(-2) @ values).squeeze(-2)
        return values.unflatten(-1, entry_shape)


def num_shape_parameters(kernel: str) -> int:
    """Number of unconstrained shape parameters per group."""
    return len(shape_center(kernel))


def shape_center(kernel: str) -> tuple[float, ...]:
    """Start values of the shape parameters, the centre of their prior."""
    if kernel != "nkn":
        return ()
    return (math.log(2.0), *(logit for unit in _FIRST_LAYER for logit in unit), *_LAST_LAYER)


def correlation(kernel: str, sq_dist: Tensor, shape: Tensor) -> Tensor:
    r"""Correlation of a group, one at distance zero.

    With :math:`r^2 = \sum_d (x_d - x_d')^2 / \ell_d^2` over the columns of the group, ``"rbf"``
    is :math:`\exp(-r^2 / 2)` and ``"matern"`` the Matern kernel with :math:`\nu = 5/2`. ``"nkn"``
    is the network Linear4-Product2-Linear1 over two RBFs, of lengthscales :math:`\ell_d` and
    :math:`(1 + e^a) \ell_d`. The weights of its units, and the biases of the first layer, are
    shares that add up to one, so that it stays one at distance zero.

    Args:
        kernel: One of ``KERNELS``.
        sq_dist: Squared scaled distances ``... x E`` of any entries ``E``.
        shape: Shape parameters ``... x num_shape_parameters(kernel)``: for ``"nkn"``, :math:`a`,
            four times the logits of two weights and a bias, and the logits of two weights.
    """
    if kernel == "rbf":
        return (-0.5 * sq_dist).exp()
    if kernel == "matern":
        return matern52_of(5 * sq_dist)
    if kernel != "nkn":
        raise ValueError(f"kernel must be one of {KERNELS}, got {kernel!r}.")
    ratio = 1 + shape[..., :1].exp()
    first = (-0.5 * sq_dist).exp()
    second = (-0.5 * sq_dist / ratio.square()).exp()
    inputs = torch.stack([first, second, torch.ones_like(first)], -2)  # ... x 3 x E
    units = shape[..., 1:13].unflatten(-1, (4, 3)).softmax(-1) @ inputs  # ... x 4 x E
    products = units[..., 0::2, :] * units[..., 1::2, :]
    return (shape[..., 13:].softmax(-1).unsqueeze(-2) @ products).squeeze(-2)
