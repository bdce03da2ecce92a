"""Matrices of which often no more than the diagonal is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator
from linear_operator.utils.memoize import cached
from torch import Tensor

__all__ = ["DelayedMatrix"]

_FEW = 512  # GPyTorch's own, until BoTorch, which keeps little lazy, raises it to 4,096


class DelayedMatrix(LinearOperator):
    """Symmetric matrices ``... x N x N``, computed when more than their diagonals is needed.

    Means and variances at many points need no covariances between these, which for several models
    take more memory than a machine may have. Gradients are recorded if they were at first.

    Args:
        diagonal: ``... x N``.
        compute: Returns the matrices ``... x N x N``.
        depends_on: What ``compute`` reads and others may change, such as parameters of a kernel; a
            copy is kept. Where they have changed the matrices can no longer be had.
    """

    def __init__(
        self,
        diagonal: Tensor,
        compute: Callable[[], Tensor],
        depends_on: Sequence[Tensor] = (),
    ):
        super().__init__(diagonal, compute=compute, depends_on=depends_on)
        self._given_diagonal, self._compute = diagonal, compute
        self._records_gradients = torch.is_grad_enabled()
        self._depends_on = [(tensor, tensor.detach().clone()) for tensor in depends_on]

    @staticmethod
    def is_for(num_points: int) -> bool:
        """Whether matrices of so many points cost more than what it takes to delay them."""
        return num_points > _FEW

    @cached(name="dense")
    def to_dense(self) -> Tensor:
        """The matrices.

        Raises:
            RuntimeError: What they depend on has changed.
        """
        if not all(now.dtype == then.dtype and now.equal(then) for now, then in self._depends_on):
            raise RuntimeError(
                "The model has changed since this posterior was made, and its covariances had not "
                "been asked for: ask the model for a posterior again."
            )
        with torch.set_grad_enabled(self._records_gradients):
            return self._compute()

    def representation(self) -> tuple[Tensor, ...]:
        """That of the matrices, so that gradients are theirs."""
        return to_linear_operator(self.to_dense()).representation()

    def representation_tree(self) -> Any:
        """That of the matrices."""
        return to_linear_operator(self.to_dense()).representation_tree()

    def clone(self) -> DelayedMatrix:
        """With memory of its own."""
        return self._changed(torch.clone)

    def detach(self) -> DelayedMatrix:
        """Without gradients."""
        return self._changed(Tensor.detach)

    def type(self, dtype: torch.dtype) -> DelayedMatrix:
        """Of another type of numbers."""
        return self._changed(lambda values: values.to(dtype))

    def to(self, *args: Any, **kwargs: Any) -> DelayedMatrix:
        """On another device or of another type of numbers."""
        return self._changed(lambda values: values.to(*args, **kwargs))

    def cpu(self) -> DelayedMatrix:
        """In the memory of the processor."""
        return self.to("cpu")

    def cuda(self, device_id: Any = None) -> DelayedMatrix:
        """In the memory of a graphics card."""
        return self._changed(lambda values: values.cuda(device_id))

    def __reduce__(self) -> tuple[Any, ...]:
        return to_linear_operator, (self.to_dense(),)

    def _set_requires_grad(self, val: bool) -> None:
        self._given_diagonal.requires_grad_(val)
        self.to_dense().requires_grad_(val)

    def _changed(self, change: Callable[[Tensor], Tensor]) -> DelayedMatrix:
        return DelayedMatrix(change(self._given_diagonal), lambda: change(self.to_dense()))

    def _size(self) -> torch.Size:
        return torch.Size([*self._given_diagonal.shape, self._given_diagonal.size(-1)])

    def _diagonal(self) -> Tensor:
        return self._given_diagonal

    def _transpose_nonbatch(self) -> DelayedMatrix:  # the same, with gradients in their places
        return DelayedMatrix(self._given_diagonal, lambda: self.to_dense().mT)

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.to_dense() @ rhs

    def _getitem(self, row_index: Any, col_index: Any, *batch_indices: Any) -> LinearOperator:
        return to_linear_operator(self.to_dense())._getitem(row_index, col_index, *batch_indices)

    def _get_indices(self, row_index: Any, col_index: Any, *batch_indices: Any) -> Tensor:
        return self.to_dense()[(*batch_indices, row_index, col_index)]

    def _expand_batch(self, batch_shape: torch.Size) -> LinearOperator:
        return DelayedMatrix(
            self._given_diagonal.expand(*batch_shape, self.size(-1)),
            lambda: self.to_dense().expand(*batch_shape, *self.matrix_shape),
        )

    def _unsqueeze_batch(self, dim: int) -> LinearOperator:
        return DelayedMatrix(
            self._given_diagonal.unsqueeze(dim), lambda: self.to_dense().unsqueeze(dim)
        )

    def _permute_batch(self, *dims: int) -> LinearOperator:
        return to_linear_operator(self.to_dense())._permute_batch(*dims)
