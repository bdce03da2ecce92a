"""Kernels of a product over groups of columns, one per group."""

from __future__ import annotations

from collections.abc import Sequence

from gpytorch import settings
from gpytorch.kernels import Kernel
from torch import Tensor

__all__ = ["check_factors", "is_small"]

_MAX_ENTRIES = 2**26  # of a matrix that is written out, where that saves work


def is_small(num_entries: int, work: int) -> bool:
    """Whether a matrix is as cheap as a product with its operator, or will be factorised."""
    return num_entries <= max(settings.max_cholesky_size.value() ** 2, min(work, _MAX_ENTRIES))


def check_factors(kernels: Sequence[Kernel], inputs: Sequence[Tensor]) -> list[Kernel]:
    """One kernel per group of columns, each for inputs ``n x c`` of its own columns only.

    Raises:
        TypeError: Something is no kernel, or there is one kernel in place of a list.
        ValueError: Numbers of kernels and groups differ, or ``active_dims`` exceed the columns.
        NotImplementedError: A kernel has several outputs per input.
    """
    if isinstance(kernels, Kernel):
        raise TypeError(
            f"Give one kernel for each of {len(inputs)} groups of columns, got one "
            f"{type(kernels).__name__}."
        )
    kernels = list(kernels)
    for kernel in kernels:
        if not isinstance(kernel, Kernel):
            raise TypeError(f"kernels must be gpytorch.kernels.Kernel, got {kernel!r}.")
    if len(kernels) != len(inputs):
        raise ValueError(
            f"Expected one kernel for each of {len(inputs)} groups of columns, got {len(kernels)}."
        )
    for number, (kernel, x) in enumerate(zip(kernels, inputs, strict=True)):
        for part in [kernel, *kernel.sub_kernels()]:
            dims = part.active_dims
            if dims is not None and int(dims.max()) >= x.size(-1):
                raise ValueError(
                    f"kernels[{number}] has active_dims {tuple(dims.tolist())}, but sees the "
                    f"{x.size(-1)} column(s) of its own group only, counted from 0."
                )
        outputs = kernel.num_outputs_per_input(x, x)
        if outputs != 1:
            raise NotImplementedError(
                f"{type(kernel).__name__} has {outputs} outputs per input; factors have one."
            )
    return kernels
