"""Block-diagonal matrices."""

from __future__ import annotations

from typing import Any

from linear_operator.operators import BlockDiagLinearOperator, LinearOperator

__all__ = ["BlockDiagonal"]

_ALL = slice(None)


class BlockDiagonal(BlockDiagLinearOperator):
    """BlockDiagLinearOperator with correct slicing, see ``docs/upstream.md``."""

    def _getitem(self, row_index: Any, col_index: Any, *batch_indices: Any) -> LinearOperator:
        if isinstance(row_index, slice) and row_index == col_index:
            start, stop, step = row_index.indices(self.size(-1))
            size = self.base_linear_op.size(-1)
            if (start, stop, step) == (0, self.size(-1), 1):
                return super()._getitem(_ALL, _ALL, *batch_indices)
            if (start % size, stop - start, step) == (0, size, 1):
                return self.base_linear_op._getitem(_ALL, _ALL, *batch_indices, start // size)
        return LinearOperator._getitem(self, row_index, col_index, *batch_indices)
