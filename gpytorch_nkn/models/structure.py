"""Kernel of a model, given its structure."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import TypeVar

import torch
from botorch.exceptions import InputDataWarning
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from torch import Tensor

from gpytorch_nkn.fit import warn_user
from gpytorch_nkn.kernels import NeuralKernelNetwork, expand_kernel_batch
from gpytorch_nkn.kernels.network import NETWORKS, check_name, named_network, with_outputscale
from gpytorch_nkn.models.common import check_batch

__all__ = ["check_columns", "check_scale", "make_kernel"]

K = TypeVar("K", bound=Kernel)

_LARGEST = 30.0  # magnitude of inputs up to which presets are well-conditioned in float32


def make_kernel(
    structure: str | Kernel,
    num_columns: int,
    batch_shape: torch.Size,
    *,
    cat_dims: Sequence[int] = (),
) -> Kernel:
    """Return a kernel with a batch shape, given a name in ``NETWORKS`` or a kernel to copy."""
    if isinstance(structure, str):
        check_name(structure, NETWORKS, "a network")
        kernel = named_network(structure, num_columns, batch_shape=batch_shape, cat_dims=cat_dims)
    else:
        if not isinstance(structure, Kernel):
            got = type(structure).__name__
            raise TypeError(f"structure must be a name or a kernel, got {got}.")
        kernel = _copied(structure, batch_shape)
        if type(structure) is ScaleKernel:  # the base kernel may lack the batch of the scale
            kernel.base_kernel = _copied(structure.base_kernel, batch_shape)
    return with_outputscale(kernel, batch_shape)


def check_columns(kernel: Kernel, num_columns: int, like: Tensor) -> None:
    """Check that a kernel fits the inputs, and that a network without active_dims uses them all."""
    point = like.new_zeros(1, num_columns)
    try:
        with torch.no_grad():
            kernel(point, point.expand(2, -1)).to_dense()  # sums of LinearKernels have no root at 0
    except (IndexError, RuntimeError, ValueError) as error:
        raise ValueError(f"structure does not fit {num_columns} input columns: {error}") from error
    network = kernel.base_kernel if type(kernel) is ScaleKernel else kernel
    if not isinstance(network, NeuralKernelNetwork):
        return
    if kernel.active_dims is None and network.active_dims is None:
        used = set().union(*(_columns(primitive, num_columns) for primitive in network.primitives))
        if len(used) < num_columns:
            raise ValueError(
                f"Primitives of the network must use all {num_columns} input columns, but ignore "
                f"{set(range(num_columns)) - used}; give the network active_dims to omit them."
            )


def check_scale(kernel: Kernel, inputs: Tensor) -> None:
    """Warn if transformed inputs ``... x n x d`` are too large for a preset network.

    BoTorch warns only about inputs of its own kernels.
    """
    network = kernel.base_kernel if type(kernel) is ScaleKernel else kernel
    largest = inputs.abs().max() if inputs.numel() else 0.0
    if getattr(network, "input_dim", None) is not None and largest > _LARGEST:
        warn_user(
            f"The inputs reach {largest:.1e}, but the presets are for standardised inputs or the "
            "unit cube: pass input_transform=Normalize(d) of botorch.models.transforms.",
            InputDataWarning,
        )


def _columns(kernel: Kernel, num_columns: int) -> set[int]:
    """Return the input columns that a kernel uses."""
    if kernel.active_dims is not None:
        return {column % num_columns for column in kernel.active_dims.tolist()}
    if isinstance(kernel, AdditiveKernel | ProductKernel):
        return set().union(*(_columns(part, num_columns) for part in kernel.kernels))
    return set(range(num_columns))


def _copied(kernel: K, batch_shape: torch.Size) -> K:
    check_batch("structure", batch_shape, kernel.batch_shape)
    is_same = kernel.batch_shape == batch_shape
    return deepcopy(kernel) if is_same else expand_kernel_batch(kernel, batch_shape)
