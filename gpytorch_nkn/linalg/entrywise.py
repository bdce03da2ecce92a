"""Entrywise evaluation of matrices without recording inner operations in the autograd graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Protocol

import torch
from torch import Tensor
from torch.autograd import Function

from gpytorch_nkn.linalg.tiles import Evaluator, Gradients, mirror

__all__ = ["EntrywiseMatrix", "broadcast_batches", "broadcasts", "elements", "gathered", "to_dense"]

Index = tuple[int, ...]

_KEEP_ENTRIES = 10_000  # smallest number of entries whose evaluator is cached for backward


class EntrywiseMatrix(Protocol):
    """Batch of matrices ``... x N x M`` whose entries are evaluated lazily.

    Attributes:
        shape: Shape ``... x N x M``.
        tensors, event_dims: Inputs (one if symmetric, else of rows and of columns), then
            parameters; number of event dimensions of each.
        whole: Whether one evaluator handles the whole batch.
    """

    shape: torch.Size
    tensors: tuple[Tensor, ...]
    event_dims: tuple[int, ...]
    whole: bool

    def bind(self, tensors: Sequence[Tensor], needed: Sequence[bool]) -> Evaluator:
        """Return an evaluator of one batch element or, with ``whole``, of the batch.

        Its ``vjp`` returns one gradient per tensor; gradients that are not ``needed`` may be None.
        """

    def differentiable(self, tensors: Sequence[Tensor]) -> Iterator[tuple[Index, Tensor]]:
        """Evaluate by differentiable operations; yield parts of the batch with their indices."""


def broadcasts(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Return whether ``shape`` broadcasts to ``target``."""
    sizes = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(size in (1, want) for size, want in sizes)


def broadcast_batches(*shapes: torch.Size) -> torch.Size:
    """Return ``torch.broadcast_shapes``; equal shapes do not need its 30 microseconds."""
    return shapes[0] if len(set(shapes)) == 1 else torch.broadcast_shapes(*shapes)


def to_dense(matrix: EntrywiseMatrix) -> Tensor:
    """Evaluate matrices ``... x N x M``; the backward pass recomputes the entries.

    Memory does not depend on the number of operations per entry. The gradient is differentiable.
    """
    return _Dense.apply(matrix, *matrix.tensors)


class _Dense(Function):
    @staticmethod
    def forward(ctx, matrix: EntrywiseMatrix, *tensors: Tensor) -> Tensor:
        ctx.matrix = matrix
        ctx.save_for_backward(*tensors)
        out = tensors[0].new_empty(matrix.shape)
        needed = ctx.needs_input_grad[1:]
        for index, element in _parts(matrix, tensors):
            evaluator = matrix.bind(element, needed)
            evaluator.fill(out[index])
            if evaluator.symmetric:
                mirror(out[index])
        # keep the evaluator, which caches a tile, for the backward pass
        large = not matrix.shape[:-2] and matrix.shape.numel() >= _KEEP_ENTRIES
        ctx.evaluator = evaluator if any(needed) and (matrix.whole or large) else None
        return out

    @staticmethod
    def backward(ctx, *outer: Tensor):
        matrix, tensors, (weights,) = ctx.matrix, ctx.saved_tensors, outer
        needed = ctx.needs_input_grad[1:]
        functorch = torch._C._functorch
        batched = functorch.is_batchedtensor(weights) or functorch.is_legacy_batchedtensor(weights)
        if torch.is_grad_enabled() or batched:  # second derivatives, or several outputs
            return (None, *_differentiable_gradients(matrix, tensors, weights, needed))
        evaluator, ctx.evaluator = ctx.evaluator, None
        if matrix.whole:
            return (None, *(evaluator or matrix.bind(tensors, needed)).vjp(weights))
        gradients = [
            (evaluator or matrix.bind(element, needed)).vjp(weights[index])
            for index, element in elements(matrix, tensors)
        ]
        totals = zip(tensors, gathered(gradients, matrix.shape[:-2]), strict=True)
        return None, *(None if g is None else g.sum_to_size(t.shape) for t, g in totals)


def _differentiable_gradients(
    matrix: EntrywiseMatrix, tensors: Sequence[Tensor], weights: Tensor, needed: Sequence[bool]
) -> Gradients:
    # differentiate views: weights that depend on the tensors themselves would cause a recursion
    with torch.enable_grad():
        views = [tensor.view_as(tensor) for tensor in tensors]
        indices, values = zip(*matrix.differentiable(views), strict=True)
    wanted = [view for view, need in zip(views, needed, strict=True) if need]
    outer = [weights[index] if index else weights for index in indices]
    grads = iter(torch.autograd.grad(values, wanted, outer, create_graph=True, allow_unused=True))
    return [next(grads) if need else None for need in needed]


def _parts(
    matrix: EntrywiseMatrix, tensors: Sequence[Tensor]
) -> Iterable[tuple[Index, Sequence[Tensor]]]:
    """Yield the batch index and the tensors of each evaluator."""
    return [((), tensors)] if matrix.whole else elements(matrix, tensors)


def elements(
    matrix: EntrywiseMatrix, tensors: Sequence[Tensor]
) -> Iterator[tuple[Index, list[Tensor]]]:
    """Yield the index of each batch element and its part of every tensor."""
    batch_shape = matrix.shape[:-2]
    if not batch_shape:
        yield (), list(tensors)
        return
    expanded = [
        tensor.expand(*batch_shape, *tensor.shape[tensor.dim() - event_dims :])
        for tensor, event_dims in zip(tensors, matrix.event_dims, strict=True)
    ]
    for index in product(*map(range, batch_shape)):
        yield index, [tensor[index] for tensor in expanded]


def gathered(gradients: Sequence[Gradients], batch_shape: torch.Size) -> Gradients:
    """Stack gradients ``E`` of batch elements into gradients ``... x E`` of the batch."""
    return [
        None
        if any(part is None for part in parts)
        else torch.stack(parts).view(*batch_shape, *parts[0].shape)
        for parts in zip(*gradients, strict=True)
    ]
