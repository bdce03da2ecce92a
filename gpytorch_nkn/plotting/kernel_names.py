"""Short names of kernels, and the input columns that they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel

from gpytorch_nkn.kernels import short_name

__all__ = ["input_dim", "kernel_name"]


def kernel_name(kernel: Kernel, column_name: Callable[[int], str]) -> str:
    """Return a short name such as ``RBF``, or ``PER (month)`` for a kernel of some columns.

    Args:
        kernel: A kernel; scales are left out, and sums and products are written out.
        column_name: Gives the name of a column by its number.
    """
    if isinstance(kernel, ScaleKernel):
        name = kernel_name(kernel.base_kernel, column_name)
        # GPyTorch gives the columns of its part to a ScaleKernel
        inherited = kernel.base_kernel.active_dims is not None
        return name if inherited else name + _columns(kernel, column_name)
    if type(kernel) in (AdditiveKernel, ProductKernel):
        sign = " + " if isinstance(kernel, AdditiveKernel) else " \N{MULTIPLICATION SIGN} "
        name = sign.join(kernel_name(part, column_name) for part in kernel.kernels)
        return name if kernel.active_dims is None else f"[{name}]" + _columns(kernel, column_name)
    return short_name(kernel) + _columns(kernel, column_name)


def _columns(kernel: Kernel, column_name: Callable[[int], str]) -> str:
    if kernel.active_dims is None:
        return ""
    columns: Sequence[int] = kernel.active_dims.tolist()
    return f" ({', '.join(column_name(column) for column in columns)})"


def input_dim(kernel: Kernel) -> int:
    """Return the smallest number of input columns that a kernel can be evaluated with."""
    if kernel.active_dims is not None:
        return int(kernel.active_dims.max()) + 1
    parts = [part for part in kernel.children() if isinstance(part, Kernel)]
    for name in ("kernels", "primitives"):
        parts += list(getattr(kernel, name, []))
    return max([kernel.ard_num_dims or 1, *(input_dim(part) for part in parts)])
