"""Checks of the data of a grid with missing cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from botorch.utils.types import _DefaultType
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_nkn.linalg import check_tensors
from gpytorch_nkn.linalg.grid import take_slices

__all__ = ["GridData", "check_grid", "check_kernels", "check_variances", "transform_outcomes"]


class GridData(NamedTuple):
    """Checked data of the slices with an observed cell."""

    coordinates: list[Tensor]  # of all slices, n_p x c_p for each dimension
    kept: list[Tensor]  # indices of the slices with an observed cell
    targets: Tensor  # values of these slices ... x k_1 x ... x k_P, zero where missing
    observed: Tensor  # observed cells of these slices


def check_grid(coordinates: Sequence[Tensor], targets: Tensor) -> GridData:
    """Check coordinates and values of a :class:`KroneckerGridGP`."""
    check_tensors(targets=targets)
    coordinates = _check_coordinates(coordinates, targets)
    sizes = tuple(x.size(0) for x in coordinates)
    if tuple(targets.shape[-len(sizes) :]) != sizes:
        raise ValueError(
            f"The last {len(sizes)} dimensions of targets must have the sizes {sizes} of the "
            f"coordinates, got targets of shape {tuple(targets.shape)}."
        )
    observed = ~targets.isnan()
    if bool(targets[observed].isinf().any()):
        raise ValueError("targets must be finite or NaN (missing), got infinite values.")
    counts = observed.flatten(-len(sizes)).sum(-1)
    if bool((counts < 2).any()):
        raise ValueError(
            "Every entry of the batch needs at least 2 observed cells, got "
            f"{int(counts.min())} of {targets.shape[-len(sizes) :].numel()}."
        )
    kept = [index.unique() for index in observed.reshape(-1, *sizes).any(0).nonzero().unbind(-1)]
    targets = take_slices(torch.where(observed, targets, 0.0), kept)
    return GridData(coordinates, kept, targets, take_slices(observed, kept))


def check_variances(train_Yvar: Tensor | float, data: GridData, sizes: Sequence[int]) -> Tensor:
    """Return noise variances ``... x n_1 x ... x n_P`` of the kept slices, 0 where missing."""
    if isinstance(train_Yvar, str | bool):
        raise TypeError(f"train_Yvar must be a number or a tensor, got {train_Yvar!r}.")
    variances = torch.as_tensor(train_Yvar).to(data.targets)
    batch = data.targets.shape[: -len(data.kept)]
    try:
        variances = take_slices(variances.expand(*batch, *sizes), data.kept)
    except RuntimeError:
        raise ValueError(
            f"train_Yvar must have the shape {(*batch, *sizes)} of targets or broadcast to it, got "
            f"{tuple(variances.shape)}."
        ) from None
    variances = torch.where(data.observed, variances, 0.0)
    if not bool((variances.isfinite() & (variances >= 0)).all()):
        raise ValueError(
            "train_Yvar must be at least 0 and finite at observed cells, got values from "
            f"{float(variances.min()):g} to {float(variances.max()):g}."
        )
    return variances


def check_kernels(kernels: Sequence[Kernel], coordinates: Sequence[Tensor]) -> list[Kernel]:
    """Return one kernel for each dimension of a grid with coordinates ``n_p x c_p``."""
    if isinstance(kernels, Kernel) or len(kernels) != len(coordinates):
        got = f"one {type(kernels).__name__}" if isinstance(kernels, Kernel) else len(kernels)
        raise ValueError(
            f"kernels must be a list of one kernel for each of {len(coordinates)} dimensions, got "
            f"{got}."
        )
    for number, (kernel, x) in enumerate(zip(kernels, coordinates, strict=True)):
        if not isinstance(kernel, Kernel):
            raise TypeError(f"kernels must be gpytorch.kernels.Kernel, got {kernel!r}.")
        for sub_kernel in [kernel, *kernel.sub_kernels()]:
            dims = sub_kernel.active_dims
            if dims is not None and int(dims.max()) >= x.size(-1):
                raise ValueError(
                    f"active_dims of kernels[{number}] must be among the {x.size(-1)} column(s) "
                    f"of its dimension, counted from 0, got {tuple(dims.tolist())}."
                )
        if (outputs := kernel.num_outputs_per_input(x, x)) != 1:
            raise ValueError(
                f"The kernel of dimension {number} must have one output per input, got {outputs}."
            )
    return list(kernels)


def transform_outcomes(
    data: GridData, transform: OutcomeTransform | _DefaultType
) -> tuple[OutcomeTransform, Tensor]:
    """Fit an outcome transform, by default :class:`Standardize`, and apply it to the targets.

    Transformed targets are zero at missing cells.
    """
    targets, batch = data.targets, data.targets.shape[: -len(data.kept)]
    if isinstance(transform, _DefaultType):  # divides by any scale except that of rounding errors
        info = torch.finfo(targets.dtype)
        smallest = max(8 * info.eps * float(targets.abs().max()), info.tiny)
        transform = Standardize(m=1, batch_shape=batch, min_stdv=smallest)
    transform = transform.to(targets).train()
    observed_targets = torch.where(data.observed, targets, torch.nan).reshape(*batch, -1, 1)
    values = transform(observed_targets)[0].view_as(targets)
    scale = getattr(transform, "stdvs", values.new_ones(())).square()
    if not bool(
        values[data.observed].isfinite().all() & scale.isfinite().all() & (scale > 0).all()
    ):
        raise ValueError(
            "Squares of targets must be finite numbers, got targets of up to "
            f"{float(targets.abs().max()):g}."
        )
    return transform.eval(), torch.where(data.observed, values, 0.0)


def _check_coordinates(coordinates: Sequence[Tensor], like: Tensor) -> list[Tensor]:
    """Return copies ``n_p x c_p`` with the dtype and device of the targets."""
    if isinstance(coordinates, Tensor) or len(coordinates) == 0:
        got = tuple(coordinates.shape) if isinstance(coordinates, Tensor) else coordinates
        raise ValueError(f"coordinates must be one tensor per dimension of the grid, got {got}.")
    checked = []
    for number, x in enumerate(coordinates):
        x = torch.as_tensor(x).to(like, copy=True)
        x = x.unsqueeze(-1) if x.dim() == 1 else x
        if x.dim() != 2 or 0 in x.shape:
            raise ValueError(
                f"The coordinates of dimension {number} must be of shape n or n x c, got "
                f"{tuple(x.shape)}."
            )
        if not bool(x.isfinite().all()):
            raise ValueError(f"The coordinates of dimension {number} must be finite.")
        checked.append(x)
    return checked
