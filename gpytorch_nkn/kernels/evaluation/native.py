"""Evaluation of a program by compiled code."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import zlib
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from gpytorch_nkn import settings
from gpytorch_nkn.kernels.evaluation.program import LayerKind, Primitive, Program
from gpytorch_nkn.linalg import add_all, broadcast_batches, in_threads, symmetric_strips

__all__ = [
    "NativeEvaluator",
    "applies_to",
    "evaluator_in_use",
    "instruction_set",
    "is_compiled",
    "supports",
]

_ENTRIES_PER_THREAD = 30_000  # matrix entries; below this, a thread costs more than it saves


@cache
def _library() -> ctypes.CDLL | None:
    """Load the compiled library; None if it is missing or built from different sources."""
    sources = sorted(Path(__file__).parent.glob("cpp/native*.[chi]*"))
    version = zlib.crc32(b"".join(path.read_bytes() for path in sources)) & 0x7FFFFFFF
    for path in sorted(Path(__file__).parent.glob("_native*")):
        try:
            library = ctypes.CDLL(str(path))
            library.nkn_fill, library.nkn_vjp  # noqa: B018, raises if missing
            library.nkn_instruction_set.restype = ctypes.c_char_p
            if not sources or library.nkn_version() == version:
                return library
        except (OSError, AttributeError):  # built for another system, or not this library
            continue
    return None


def instruction_set() -> str | None:
    """Return the vector instruction set of the compiled code; None without compiled code."""
    library = _library()
    return None if library is None else library.nkn_instruction_set().decode()


def is_compiled() -> bool:
    """Return whether compiled code is installed and ``settings.kernel_evaluation`` allows it."""
    return settings.kernel_evaluation.path() in ("auto", "compiled") and _library() is not None


def evaluator_in_use() -> str:
    """Describe the code that evaluates networks in float64 on a CPU, and how to change it."""
    instructions = instruction_set()
    if instructions is not None:
        return (
            f"Networks of kernels are evaluated by compiled code ({instructions}). To use PyTorch "
            "instead, install the package with GPYTORCH_NKN_PURE=1 in the environment."
        )
    return (
        "Networks of kernels are evaluated by PyTorch, which takes several times as long as "
        "compiled code. To compile, install a C++ compiler and reinstall the package from a clone: "
        "pip install --force-reinstall --no-deps --no-cache-dir -e ."
    )


@cache
def _notify() -> None:
    """Log once that compiled code is missing, unless GPYTORCH_NKN_PURE is set."""
    is_intended = os.environ.get("GPYTORCH_NKN_PURE") == "1"
    if not is_intended and multiprocessing.parent_process() is None:
        logging.getLogger(__name__).warning(
            "%s GPYTORCH_NKN_PURE=1 in the environment silences this notice.", evaluator_in_use()
        )


def applies_to(x: Tensor) -> bool:
    """Return whether compiled code exists for the device and dtype of ``x``."""
    if x.device.type != "cpu" or x.dtype != torch.float64:
        return False
    if _library() is None:
        _notify()
        return False
    return True


def supports(program: Program) -> bool:
    """Return whether compiled code supports all formulas of a program."""
    return all(_factors(primitive) for primitive in program.primitives)


def _factors(primitive: Primitive) -> list[Primitive]:
    """Return the factors of a primitive; an empty list if compiled code lacks a formula."""
    if not primitive.factors:
        return [] if primitive.formula.code is None else [primitive]
    nested = [_factors(factor) for factor in primitive.factors]
    if not all(nested):
        return []
    flat = sum(nested, [])
    if primitive.scale is not None:
        free = next((index for index, factor in enumerate(flat) if factor.scale is None), None)
        if free is None:
            return []
        flat[free] = flat[free]._replace(scale=primitive.scale)
    return flat


class _Block(NamedTuple):
    """Range of matrices and range of rows that one thread computes."""

    first: int
    last: int
    row_begin: int
    row_end: int


class NativeEvaluator:
    """Evaluates a batch of networks on inputs ``... x N x D`` and ``... x M x D``, in float64.

    Gradients are in the order ``[x1, x2, theta]``, or ``[x1, theta]`` for symmetric matrices.
    Gradients with respect to inputs are None unless ``with_inputs``.
    """

    def __init__(self, program: Program, theta: Tensor, x1: Tensor, x2: Tensor, with_inputs: bool):
        self.symmetric = x1 is x2
        self._with_inputs = with_inputs
        self._shapes = x1.shape, x2.shape, theta.shape
        batch_shape = broadcast_batches(theta.shape[:-1], x1.shape[:-2], x2.shape[:-2])
        self._batch = batch_shape.numel()
        self._theta = _expand(theta.detach(), batch_shape, 1).contiguous()
        x1, x2 = x1.detach().resolve_neg(), x2.detach().resolve_neg()
        self._x1 = _expand(x1, batch_shape, 2).contiguous()
        self._x2t = _expand(x2, batch_shape, 2).mT.contiguous()
        self._codes, self._constants = _encode(program, x1.size(-1))
        self._blocks = self._partition(x1.size(-2), x2.size(-2))

    def fill(self, out: Tensor) -> None:
        """Write the matrices (if symmetric, their lower triangles) into ``out``."""
        library = _library()
        out = out.view(-1, *out.shape[-2:])

        def work(block: _Block) -> None:
            library.nkn_fill(*self._arguments(block), *_matrices(out, block))  # type: ignore

        in_threads(work, self._blocks)

    def vjp(self, weights: Tensor, solution: Tensor | None = None) -> list[Tensor | None]:
        """Return gradients; see :class:`gpytorch_nkn.linalg.Evaluator`."""
        library = _library()
        weights = weights.resolve_neg()
        if weights.dim() > 2 or weights.stride(1) != 1 or weights.stride(0) < weights.size(1):
            weights = weights.contiguous()
        weights = weights.view(-1, *weights.shape[-2:])

        def work(block: _Block) -> list[Tensor | None]:
            grad_theta = torch.zeros_like(self._theta)
            grad_x1 = torch.zeros_like(self._x1) if self._with_inputs else None
            grad_x2t = torch.zeros_like(self._x2t) if self._with_inputs else None
            library.nkn_vjp(  # type: ignore[union-attr]
                *self._arguments(block),
                *_matrices(weights, block),
                _pointer(solution),
                _pointer(grad_theta, 1, block.first),
                _pointer(grad_x1, 2, block.first),
                _pointer(grad_x2t, 2, block.first),
            )
            return [grad_x1, grad_x2t, grad_theta]

        grad_x1, grad_x2t, grad_theta = add_all(in_threads(work, self._blocks))
        grad_x2 = None if grad_x2t is None else grad_x2t.mT
        results = [
            None if gradient is None else _sum_to_shape(gradient, shape)
            for gradient, shape in zip((grad_x1, grad_x2, grad_theta), self._shapes, strict=True)
        ]
        if not self.symmetric:
            return results
        grad_x1, grad_x2, grad_theta = results
        return [None if grad_x1 is None or grad_x2 is None else grad_x1 + grad_x2, grad_theta]

    def _partition(self, num_rows: int, num_columns: int) -> list[_Block]:
        """Split the work between threads, by rows or by matrices."""
        entries = self._batch * num_rows * num_columns // (2 if self.symmetric else 1)
        parts = min(torch.get_num_threads(), entries // _ENTRIES_PER_THREAD)
        if parts <= 1:
            return [_Block(0, self._batch, 0, num_rows)]
        if num_rows < self._batch:
            return [_Block(a, b, 0, num_rows) for a, b in _strips(self._batch, parts)]
        split = symmetric_strips if self.symmetric else _strips
        return [_Block(0, self._batch, a, b) for a, b in split(num_rows, parts)]

    def _arguments(self, block: _Block) -> tuple:
        return (
            self._codes,
            self._constants,
            _pointer(self._theta, 1, block.first),
            ctypes.c_int64(_step(self._theta, 1)),
            _pointer(self._x1, 2, block.first),
            ctypes.c_int64(_step(self._x1, 2)),
            _pointer(self._x2t, 2, block.first),
            ctypes.c_int64(_step(self._x2t, 2)),
            ctypes.c_int64(block.last - block.first),
            ctypes.c_int64(self._x1.size(-2)),
            ctypes.c_int64(self._x2t.size(-1)),
            ctypes.c_int32(self.symmetric),
            ctypes.c_int64(block.row_begin),
            ctypes.c_int64(block.row_end),
        )


def _expand(tensor: Tensor, batch_shape: torch.Size, event_dims: int) -> Tensor:
    """Expand a tensor to the batch shape; do not copy a value that all elements share."""
    batch_dims = tensor.dim() - event_dims
    event = tensor.shape[batch_dims:]
    if tensor.shape[:batch_dims].numel() == 1:
        return tensor.reshape(event)
    return tensor.expand(*batch_shape, *event)


def _sum_to_shape(gradient: Tensor, shape: torch.Size) -> Tensor:
    """Sum the gradient of an expanded tensor over the expanded dimensions."""
    if gradient.numel() == shape.numel():
        return gradient.reshape(shape)
    return gradient.sum_to_size(shape)


def _strips(size: int, parts: int) -> list[tuple[int, int]]:
    edges = [size * part // parts for part in range(parts + 1)]
    return list(zip(edges[:-1], edges[1:], strict=True))


def _step(tensor: Tensor, event_dims: int) -> int:
    """Return the offset between batch elements of a contiguous tensor; 0 if they share one value.

    The offset is computed from the shape, because dimensions of size one have arbitrary strides.
    """
    return 0 if tensor.dim() == event_dims else tensor.shape[tensor.dim() - event_dims :].numel()


def _pointer(tensor: Tensor | None, event_dims: int = 0, element: int = 0) -> ctypes.c_void_p:
    if tensor is None:
        return ctypes.c_void_p(None)
    offset = element * _step(tensor, event_dims) if element else 0
    return ctypes.c_void_p(tensor.data_ptr() + offset * tensor.element_size())


def _matrices(matrices: Tensor, block: _Block) -> tuple:
    """Return a pointer to the block's first matrix, the row stride and the matrix stride."""
    step, row = matrices.stride(0), matrices.stride(1)
    return _pointer(matrices, 2, block.first), ctypes.c_int64(row), ctypes.c_int64(step)


@lru_cache(maxsize=256)
def _encode(program: Program, input_dim: int) -> tuple[ctypes.Array, ctypes.Array]:
    """Encode a program in the format of cpp/native.cpp."""
    num_primitives, num_layers = len(program.primitives), len(program.layers)
    factors = [(n, factor) for n, p in enumerate(program.primitives) for factor in _factors(p)]
    dims_offset = 7 + 7 * (len(factors) + num_layers)
    codes: list[int] = []
    columns: list[int] = []
    constants: list[float] = []
    for number, primitive in factors:
        ard = int(any(slot.stop - slot.start > 1 for slot in primitive.slots))
        assert primitive.formula.code is not None
        codes += [primitive.formula.code, len(primitive.dims), dims_offset + len(columns)]
        codes += [primitive.slots[0].start, ard]
        codes += [-1 if primitive.scale is None else primitive.scale.start, number]
        columns += primitive.dims
    for layer in program.layers:
        codes += [int(layer.kind), layer.in_features, layer.out_features]
        if layer.kind is LayerKind.LINEAR:
            codes += [layer.weight.start, -1 if layer.bias is None else layer.bias.start, 0, 0]  # type: ignore
        else:
            numbers_of = layer.groups or layer.coefficients
            codes += [len(constants), -1, len(numbers_of), 0]
            constants += numbers_of
    skip = next((number for number, layer in enumerate(program.layers) if layer.skip), -1)
    head = [num_primitives, num_layers, input_dim, program.num_parameters, len(constants), skip]
    head.append(len(factors))
    numbers = head + codes + columns
    return (ctypes.c_int32 * len(numbers))(*numbers), (ctypes.c_double * len(constants))(*constants)
