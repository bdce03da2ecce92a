"""Evaluation of a program by compiled code, where the package was installed with a compiler."""

from __future__ import annotations

import ctypes
import zlib
from functools import cache, lru_cache
from pathlib import Path

import torch
from torch import Tensor

from gpytorch_nkn import settings
from gpytorch_nkn.kernels.evaluation.program import LayerKind, Program
from gpytorch_nkn.linalg import add_all, in_threads, symmetric_strips

__all__ = ["NativeEvaluator", "applies_to", "instruction_set", "is_compiled"]

_ENTRIES_PER_THREAD = 30_000  # fewer are not worth starting a thread for


@cache
def _library() -> ctypes.CDLL | None:
    """The compiled functions; None where they were not built, or from other sources than these."""
    sources = sorted(Path(__file__).parent.glob("native*.[chi]*"))
    version = zlib.crc32(b"".join(path.read_bytes() for path in sources)) & 0x7FFFFFFF
    for path in sorted(Path(__file__).parent.glob("_native*")):
        try:
            library = ctypes.CDLL(str(path))
            library.nkn_fill, library.nkn_pull_back  # noqa: B018, looks them up
            library.nkn_instruction_set.restype = ctypes.c_char_p
            if not sources or library.nkn_version() == version:
                return library
        except (OSError, AttributeError):  # built for another system, or not ours
            continue
    return None


def instruction_set() -> str | None:
    """Vector instructions that the compiled functions use, None where there are none."""
    library = _library()
    return None if library is None else library.nkn_instruction_set().decode()


def is_compiled() -> bool:
    """Whether the package was installed with a compiler, and networks run compiled by default."""
    return settings.kernel_evaluation.path() in ("auto", "compiled") and _library() is not None


def applies_to(x: Tensor) -> bool:
    """Whether compiled functions exist for this device and dtype."""
    return x.device.type == "cpu" and x.dtype == torch.float64 and _library() is not None


class NativeEvaluator:
    """One element of a batch of networks on inputs ``N x D`` and ``M x D``, float64 on a CPU.

    Args:
        program: The network.
        theta: Its parameters ``T``.
        x1, x2: Inputs; the same tensor for a symmetric matrix.
        with_inputs: Whether gradients of the inputs are wanted.

    Gradients come as ``[x1, x2, theta]``, for a symmetric matrix as ``[x1, theta]``.
    """

    def __init__(self, program: Program, theta: Tensor, x1: Tensor, x2: Tensor, with_inputs: bool):
        self.symmetric = x1 is x2
        self._theta = theta.detach().contiguous()
        self._x1 = x1.detach().resolve_neg().contiguous()
        self._x2t = x2.detach().resolve_neg().mT.contiguous()
        self._with_inputs = with_inputs
        codes, constants = _encode(program, x1.size(-1))
        self._codes = (ctypes.c_int32 * len(codes))(*codes)
        self._constants = (ctypes.c_double * max(len(constants), 1))(*constants)
        size = x1.size(0)
        entries = size * x2.size(0) // (2 if self.symmetric else 1)
        parts = max(1, min(torch.get_num_threads(), entries // _ENTRIES_PER_THREAD))
        if self.symmetric:
            self._strips = symmetric_strips(size, parts)
        else:
            edges = [size * part // parts for part in range(parts + 1)]
            self._strips = list(zip(edges[:-1], edges[1:], strict=True))

    def fill(self, out: Tensor) -> None:
        """Write the matrix into ``out``, its lower triangle if it is symmetric."""
        library = _library()

        def work(rows: tuple[int, int]) -> None:
            library.nkn_fill(*self._arguments(rows), _pointer(out), _stride(out))  # type: ignore

        in_threads(work, self._strips)

    def pull_back(self, weights: Tensor, solution: Tensor | None = None) -> list[Tensor | None]:
        """Gradients of the inputs; see :class:`gpytorch_nkn.linalg.Evaluator`."""
        library = _library()
        weights = weights.resolve_neg()
        if weights.stride(-1) != 1 or weights.stride(0) < weights.size(1):
            weights = weights.contiguous()

        def work(rows: tuple[int, int]) -> list[Tensor | None]:
            of_theta = torch.zeros_like(self._theta)
            of_x1 = torch.zeros_like(self._x1) if self._with_inputs else None
            of_x2t = torch.zeros_like(self._x2t) if self._with_inputs else None
            library.nkn_pull_back(  # type: ignore[union-attr]
                *self._arguments(rows),
                _pointer(weights),
                _stride(weights),
                _pointer(solution),
                _pointer(of_theta),
                _pointer(of_x1),
                _pointer(of_x2t),
            )
            if of_x1 is None or of_x2t is None:
                return [None, of_theta] if self.symmetric else [None, None, of_theta]
            if self.symmetric:
                return [of_x1 + of_x2t.mT, of_theta]
            return [of_x1, of_x2t.mT, of_theta]

        return add_all(in_threads(work, self._strips))

    def _arguments(self, rows: tuple[int, int]) -> tuple:
        return (
            self._codes,
            self._constants,
            _pointer(self._theta),
            _pointer(self._x1),
            _pointer(self._x2t),
            ctypes.c_int64(self._x1.size(0)),
            ctypes.c_int64(self._x2t.size(1)),
            ctypes.c_int32(self.symmetric),
            ctypes.c_int64(rows[0]),
            ctypes.c_int64(rows[1]),
        )


def _pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def _stride(tensor: Tensor) -> ctypes.c_int64:
    return ctypes.c_int64(tensor.stride(0))


@lru_cache(maxsize=256)
def _encode(program: Program, input_dim: int) -> tuple[list[int], list[float]]:
    """The program in the numbers that the compiled functions read (see native.cpp)."""
    num_primitives, num_layers = len(program.primitives), len(program.layers)
    dims_offset = 5 + 6 * (num_primitives + num_layers)
    codes: list[int] = []
    columns: list[int] = []
    constants: list[float] = []
    for primitive in program.primitives:
        ard = int(any(slot.stop - slot.start > 1 for slot in primitive.slots))
        codes += [int(primitive.kind), len(primitive.dims), dims_offset + len(columns)]
        codes += [primitive.slots[0].start, ard]
        codes += [-1 if primitive.scale is None else primitive.scale.start]
        columns += primitive.dims
    for layer in program.layers:
        codes += [int(layer.kind), layer.in_features, layer.out_features]
        if layer.kind is LayerKind.LINEAR:
            codes += [layer.weight.start, -1 if layer.bias is None else layer.bias.start, 0]  # type: ignore
        else:
            codes += [len(constants), -1, len(layer.coefficients)]
            constants += layer.coefficients
    head = [num_primitives, num_layers, input_dim, program.num_parameters, len(constants)]
    return head + codes + columns, constants
