"""Batch of kernels with different structures."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from gpytorch_nkn.kernels import BatchKernel
from gpytorch_nkn.kernels.network import kernel_values

__all__ = ["StructureKernel"]


class StructureKernel(BatchKernel):
    """Batch in which each entry uses one of several kernels.

    Entries with the same kernel and inputs share one evaluation. The kernels have no batch shape;
    ``members`` has the batch shape and contains the index of each entry's kernel.
    """

    members: Tensor

    def __init__(self, kernels: Sequence[Kernel], members: Tensor):
        super().__init__(batch_shape=members.shape)
        self.kernels = nn.ModuleList(kernels)
        self.register_buffer("members", members)

    def expand_batch(self, *sizes: torch.Size | tuple[int, ...] | int) -> StructureKernel:
        """Return a copy of the kernel with the given batch shape."""
        size = sizes[0] if len(sizes) == 1 else sizes
        shape = torch.Size([size] if isinstance(size, int) else size)  # type: ignore[arg-type]
        return self if shape == self.batch_shape else self._with(self.members.expand(shape))

    def __getitem__(self, index: Any) -> StructureKernel:
        """Return a copy with the batch indexed, or the kernel itself if it has no batch."""
        return self._with(self.members[index]) if self.batch_shape else self

    def _with(self, members: Tensor) -> StructureKernel:
        made = deepcopy(self)
        made.members, made.batch_shape = members.clone(), members.shape
        return made

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return values ``... x N x M`` (``... x N`` with ``diag``) for inputs ``... x N x D``."""
        members, kernels = self.members, self.kernels
        where = -2 if diag else -3  # batch dimension
        if members.dim() == 0:
            return kernel_values(kernels[int(members)], x1, x2, diag)
        if members.dim() == 1 and _is_shared(x1) and _is_shared(x2):
            x1, x2 = (x if x.dim() == 2 else x.squeeze(-3) for x in (x1, x2))
            numbers, inverse = members.unique(return_inverse=True)
            values = torch.stack(
                [kernel_values(kernels[n], x1, x2, diag) for n in numbers.tolist()], where
            )
            return values.index_select(where, inverse)
        shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2], members.shape)
        x1, x2 = (x.expand(*shape, *x.shape[-2:]).flatten(0, -3) for x in (x1, x2))
        members = members.expand(shape).flatten()
        entries = {
            number: (members == number).nonzero()[:, 0] for number in members.unique().tolist()
        }
        parts = [kernel_values(kernels[n], x1[i], x2[i], diag) for n, i in entries.items()]
        values = torch.cat(parts)[torch.cat([*entries.values()]).argsort()]
        return values.view(*shape, *values.shape[1:])


def _is_shared(x: Tensor) -> bool:
    """Return whether all entries share the inputs, ``N x D`` or ``... x 1 x N x D``."""
    return x.dim() == 2 or x.size(-3) == 1
