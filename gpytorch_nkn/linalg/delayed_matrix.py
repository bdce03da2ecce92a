"""Lazily evaluated covariance matrices with known diagonals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator
from torch import Tensor

__all__ = ["DelayedMatrix"]


class DelayedMatrix(LinearOperator):
    """Symmetric matrices ``... x N x N`` with known diagonals, evaluated lazily.

    The covariance of many points may not fit into memory; means and variances do not need it.
    Batch operations and equal slices of rows and columns are lazy too. Gradients are recorded if
    they were enabled at construction. ``compute`` returns the matrices.
    """

    def __init__(self, diagonal: Tensor, compute: Callable[[], Tensor]):
        super().__init__(diagonal, compute=compute)
        self._given_diagonal, self._compute = diagonal, compute
        self._dense: Tensor | None = None
        self._records_gradients = torch.is_grad_enabled()

    def to_dense(self) -> Tensor:
        """Evaluate and cache the matrices."""
        if self._dense is None:
            with torch.set_grad_enabled(self._records_gradients):
                self._dense = self._compute()
        return self._dense

    def representation(self) -> tuple[Tensor, ...]:
        """Return the representation of the dense matrices, through which gradients pass."""
        return to_linear_operator(self.to_dense()).representation()

    def representation_tree(self) -> Any:
        """Return the representation tree of the dense matrices."""
        return to_linear_operator(self.to_dense()).representation_tree()

    def clone(self) -> DelayedMatrix:
        """Return a copy with its own memory."""
        return self._map(lambda values, dim: values.clone())

    def detach(self) -> DelayedMatrix:
        """Return the matrices without gradients."""
        return self._map(lambda values, dim: values.detach())

    def to(self, *args: Any, **kwargs: Any) -> DelayedMatrix:
        """Convert to another device or dtype."""
        return self._map(lambda values, dim: values.to(*args, **kwargs))

    type = to

    def cpu(self) -> DelayedMatrix:
        """Move to the CPU."""
        return self.to("cpu")

    def cuda(self, device_id: Any = None) -> DelayedMatrix:
        """Move to a GPU."""
        return self._map(lambda values, dim: values.cuda(device_id))

    def __reduce__(self) -> tuple[Any, ...]:
        return to_linear_operator, (self.to_dense(),)

    def _map(self, change: Callable[[Tensor, int], Tensor]) -> DelayedMatrix:
        """Apply ``change(tensor, event_dims)`` to the diagonals and, lazily, to the matrices."""
        return DelayedMatrix(change(self._given_diagonal, 1), lambda: change(self.to_dense(), 2))

    def _set_requires_grad(self, val: bool) -> None:
        self._given_diagonal.requires_grad_(val)
        self.to_dense().requires_grad_(val)

    def _size(self) -> torch.Size:
        return torch.Size([*self._given_diagonal.shape, self._given_diagonal.size(-1)])

    def _diagonal(self) -> Tensor:
        return self._given_diagonal

    def _transpose_nonbatch(self) -> DelayedMatrix:  # the matrices are symmetric
        return DelayedMatrix(self._given_diagonal, lambda: self.to_dense().mT)

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.to_dense() @ rhs

    def _getitem(self, row_index: Any, col_index: Any, *batch_indices: Any) -> LinearOperator:
        if isinstance(row_index, slice) and row_index == col_index:
            return self._map(lambda values, dim: values[(*batch_indices, *dim * (row_index,))])
        return to_linear_operator(self.to_dense())._getitem(row_index, col_index, *batch_indices)

    def _get_indices(self, row_index: Any, col_index: Any, *batch_indices: Any) -> Tensor:
        return self.to_dense()[(*batch_indices, row_index, col_index)]

    def _expand_batch(self, batch_shape: torch.Size | list[int]) -> LinearOperator:
        return self._map(
            lambda values, dim: values.expand(*batch_shape, *values.shape[values.dim() - dim :])
        )

    def _unsqueeze_batch(self, dim: int) -> LinearOperator:
        return self._map(lambda values, _: values.unsqueeze(dim))

    def _permute_batch(self, *dims: int) -> LinearOperator:
        return self._map(lambda values, dim: values.permute(*dims, *range(-dim, 0)))

    def _sum_batch(self, dim: int) -> LinearOperator:
        return self._map(lambda values, _: values.sum(dim))
