"""Coordinates and values of a grid with missing cells, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from botorch.models.model import Model
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from botorch.posteriors import GPyTorchPosterior
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from gpytorch_nkn.linalg import check_tensors

__all__ = [
    "GridData",
    "check_coordinates",
    "check_grid",
    "check_kernels",
    "standardize",
    "transform_outcomes",
    "untransform_moments",
]


class GridData(NamedTuple):
    """A checked grid without slices that have no observed cell."""

    coordinates: list[Tensor]  # of all slices, n_p x c_p for each dimension
    kept: list[Tensor]  # indices of the slices with an observed cell
    targets: Tensor  # values of these slices ... x k_1 x ... x k_P, zero where missing
    observed: Tensor  # observed cells of these slices


def check_grid(coordinates: Sequence[Tensor], targets: Tensor, missing: Tensor | None) -> GridData:
    """Check coordinates, values and mask of a grid; see :class:`KroneckerGridGP`."""
    check_tensors(targets=targets)
    coordinates = check_coordinates(coordinates, targets)
    num_dims = len(coordinates)
    sizes = tuple(part.size(0) for part in coordinates)
    if tuple(targets.shape[-num_dims:]) != sizes:
        raise ValueError(
            f"The last {num_dims} dimensions of targets must have the sizes {sizes} of the "
            f"coordinates, got targets of shape {tuple(targets.shape)}."
        )
    gone = targets.isnan()
    if missing is not None:
        if not isinstance(missing, Tensor) or missing.dtype != torch.bool:
            kind = missing.dtype if isinstance(missing, Tensor) else type(missing).__name__
            raise TypeError(f"missing must be a boolean tensor, True where missing, got {kind}.")
        try:
            gone = gone | missing.to(targets.device).expand(targets.shape)
        except RuntimeError:
            raise ValueError(
                f"missing must have the shape {tuple(targets.shape)} of targets or broadcast to "
                f"it, got {tuple(missing.shape)}."
            ) from None
    observed = ~gone
    if bool(targets[observed].isinf().any()):
        raise ValueError("targets must be finite or NaN (missing), got infinite values.")
    counts = observed.flatten(-num_dims).sum(-1)
    if bool((counts < 2).any()):
        raise ValueError(
            "Every entry of the batch needs at least 2 observed cells, got "
            f"{int(counts.min())} of {targets.shape[-num_dims:].numel()}."
        )
    seen = observed.reshape(-1, *sizes).any(0)
    kept = []
    for dim in range(num_dims):
        others = [d for d in range(num_dims) if d != dim]
        kept.append((seen.any(dim=others) if others else seen).nonzero()[:, 0])
    targets = torch.where(observed, targets, 0.0)
    for dim, rows in enumerate(kept):
        targets = targets.index_select(dim - num_dims, rows)
        observed = observed.index_select(dim - num_dims, rows)
    return GridData(coordinates, kept, targets, observed)


def check_coordinates(coordinates: Sequence[Tensor], like: Tensor) -> list[Tensor]:
    """Check coordinates; returns ``n_p x c_p`` of each dimension, as tensors like the targets."""
    if isinstance(coordinates, Tensor) or len(coordinates) == 0:
        got = tuple(coordinates.shape) if isinstance(coordinates, Tensor) else coordinates
        raise ValueError(f"coordinates must be one tensor per dimension of the grid, got {got}.")
    checked = []
    for number, part in enumerate(coordinates):
        part = torch.as_tensor(part)
        part = part.unsqueeze(-1) if part.dim() == 1 else part
        if part.dim() != 2 or 0 in part.shape:
            raise ValueError(
                f"The coordinates of dimension {number} must be of shape n or n x c, got "
                f"{tuple(part.shape)}."
            )
        if part.is_floating_point() and part.dtype != like.dtype:
            raise TypeError(
                f"Coordinates and targets must be of one dtype, got {part.dtype} in dimension "
                f"{number} and {like.dtype}."
            )
        part = part.to(like, copy=True)
        if not bool(part.isfinite().all()):
            raise ValueError(f"The coordinates of dimension {number} must be finite.")
        checked.append(part)
    return checked


def check_kernels(kernels: Sequence[Kernel], coordinates: Sequence[Tensor]) -> list[Kernel]:
    """Return one kernel for each dimension of a grid with coordinates ``n_p x c_p``."""
    if isinstance(kernels, Kernel):
        raise TypeError(
            f"kernels must be a list of one kernel for each of {len(coordinates)} dimensions, got "
            f"one {type(kernels).__name__}."
        )
    kernels = list(kernels)
    for kernel in kernels:
        if not isinstance(kernel, Kernel):
            raise TypeError(f"kernels must be gpytorch.kernels.Kernel, got {kernel!r}.")
    if len(kernels) != len(coordinates):
        raise ValueError(
            f"Expected one kernel for each of {len(coordinates)} dimensions, got {len(kernels)}."
        )
    for number, (kernel, x) in enumerate(zip(kernels, coordinates, strict=True)):
        for part in [kernel, *kernel.sub_kernels()]:
            dims = part.active_dims
            if dims is not None and int(dims.max()) >= x.size(-1):
                raise ValueError(
                    f"active_dims of kernels[{number}] must be among the {x.size(-1)} column(s) "
                    f"of its dimension, counted from 0, got {tuple(dims.tolist())}."
                )
        if (outputs := kernel.num_outputs_per_input(x, x)) != 1:
            raise ValueError(
                f"The kernel of dimension {number} must have one output per input, got {outputs}."
            )
    return kernels


def standardize(data: GridData, batch_shape: torch.Size) -> Standardize:
    """Return the default outcome transform, which takes rounding errors for a constant."""
    rounding = 8 * torch.finfo(data.targets.dtype).eps * float(data.targets.abs().max())
    smallest = max(rounding, torch.finfo(data.targets.dtype).tiny)  # which squares to zero
    return Standardize(m=1, batch_shape=batch_shape, min_stdv=smallest)


def transform_outcomes(transform: OutcomeTransform, data: GridData) -> Tensor:
    """Fit the transform and apply it to the targets; missing cells become zero.

    Raises:
        ValueError: Transformed values are not finite.
        NotImplementedError: The grids of a batch miss different cells, and the transform is not
            :class:`Standardize`.
    """
    targets, observed, num_dims = data.targets, data.observed, len(data.kept)
    batch = targets.shape[: targets.dim() - num_dims]
    cells = targets.shape[targets.dim() - num_dims :]
    flat, mask = targets.reshape(*batch, -1), observed.reshape(*batch, -1)
    first = mask.reshape(-1, mask.size(-1))[0]
    transformed = torch.zeros_like(flat)
    if bool((mask == first).all()):
        values, _ = transform(flat[..., first].unsqueeze(-1))
        transformed[..., first] = values.squeeze(-1)
    elif type(transform) is Standardize:
        counts = mask.sum(-1, keepdim=True)
        mean = flat.sum(-1, keepdim=True) / counts
        centred = torch.where(mask, flat - mean, 0.0)
        std = (centred.square().sum(-1, keepdim=True) / (counts - 1)).sqrt()
        std = torch.where(std >= transform._min_stdv, std, 1.0)
        transform.means = mean.unsqueeze(-1)
        transform.stdvs = std.unsqueeze(-1)
        transform._stdvs_sq = transform.stdvs.square()
        transform._is_trained = torch.tensor(True)
        transformed = centred / std
    else:
        raise NotImplementedError(
            "outcome_transform must be Standardize or None if the grids of a batch miss different "
            f"cells, got {type(transform).__name__}."
        )
    values = torch.where(observed, transformed.view(*batch, *cells), 0.0)
    scale = torch.ones(()) if type(transform) is not Standardize else transform._stdvs_sq
    if not bool(values.isfinite().all() & scale.isfinite().all() & (scale > 0).all()):
        largest = float(targets.abs().max())
        raise ValueError(
            f"Squares of targets must be finite numbers, got targets of up to {largest:g}."
        )
    return values


def untransform_moments(model: Model, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Return means and variances ``... x T`` of a model in the units of its targets."""
    transform = getattr(model, "outcome_transform", None)
    if transform is None:
        return mean, variance
    if type(transform) is Standardize:
        scale = transform.stdvs.squeeze(-1)
        return transform.means.squeeze(-1) + scale * mean, scale.square() * variance
    normal = MultivariateNormal(mean, DiagLinearOperator(variance.clamp_min(1e-9)))
    posterior: Any = transform.untransform_posterior(GPyTorchPosterior(normal))
    return posterior.mean.squeeze(-1), posterior.variance.squeeze(-1)
