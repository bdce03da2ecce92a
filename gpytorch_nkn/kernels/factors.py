"""Checks of product kernels with one factor per group of columns."""

from __future__ import annotations

from collections.abc import Sequence

from gpytorch import settings
from gpytorch.kernels import Kernel
from torch import Tensor

__all__ = ["check_factors", "is_small"]

_MAX_ENTRIES = 2**26  # of a dense matrix that is cheaper than its operator


def is_small(num_entries: int, work: int) -> bool:
    """Whether a matrix should be dense: for its Cholesky factor or to save work."""
    return num_entries <= max(settings.max_cholesky_size.value() ** 2, min(work, _MAX_ENTRIES))


def check_factors(kernels: Sequence[Kernel], inputs: Sequence[Tensor]) -> list[Kernel]:
    """Return one kernel per group of columns, each for inputs ``n x c`` of its own group.

    Raises:
        TypeError: An entry is not a kernel, or a kernel replaces the list.
        ValueError: Numbers of kernels and groups differ, or ``active_dims`` exceed the columns.
        NotImplementedError: A kernel has several outputs per input.
    """
    if isinstance(kernels, Kernel):
        raise TypeError(
            f"kernels must be a list with one kernel for each of {len(inputs)} groups of columns, "
            f"got one {type(kernels).__name__}."
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
                    f"active_dims of kernels[{number}] must be among the {x.size(-1)} column(s) "
                    f"of its own group, counted from 0, got {tuple(dims.tolist())}."
                )
        outputs = kernel.num_outputs_per_input(x, x)
        if outputs != 1:
            raise NotImplementedError(
                f"Factors must have one output per input, got {outputs} for "
                f"{type(kernel).__name__}."
            )
    return kernels
