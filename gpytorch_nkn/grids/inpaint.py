"""Filling the holes of an image, a video or any other grid of numbers."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from gpytorch.kernels import Kernel, ScaleKernel
from numpy.typing import ArrayLike

from gpytorch_nkn.kernels import expand_kernel_batch
from gpytorch_nkn.kernels.network import check_word, named_kernel
from gpytorch_nkn.models import GridFit, KroneckerGridGP, fit_grid_gp

__all__ = ["STRUCTURES", "InpaintResult", "inpaint"]

STRUCTURES = ("texture", "spectral_mixture", "periodic", "rbf")

_EXACT_CELLS = 6000  # missing cells up to which variances are exact by default
_SAMPLES = 64  # joint samples for the variances of more cells


@dataclass(frozen=True, eq=False)
class InpaintResult:
    """What :func:`inpaint` found.

    Attributes:
        mean: Posterior mean of the underlying function at every cell, of the image's shape.
        std: Standard deviation of what would be observed at each missing cell; zero at the others.
        filled: The image, with the mean at missing cells.
        missing: Which cells were missing.
        model: The trained model, in float64, on coordinates from -1 to 1 along the longest
            dimension: for n cells of which L are along the longest, cell i is at
            ``(2 * i - n + 1) / (L - 1)``. None if the observed cells were all the same.
        fit: The record of the training; None likewise. Where the block errors in it are NaN, there
            was no room for blocks of the hole's shape, and nothing checked the uncertainty.
    """

    mean: np.ndarray
    std: np.ndarray
    filled: np.ndarray
    missing: np.ndarray
    model: KroneckerGridGP | None
    fit: GridFit | None

    def __repr__(self) -> str:
        return (
            f"InpaintResult(shape={self.filled.shape}, missing={int(self.missing.sum())}, "
            f"interrupted={self.interrupted})"
        )

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C or the budget ended the training early."""
        ends = ("interrupted", "budget")
        return self.fit is not None and any(r.status in ends for r in self.fit.restarts)


def inpaint(
    image: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    structure: str | Sequence[Kernel] = "texture",
    channel_axis: int | None = None,
    shared: bool = True,
    restarts: int | None = None,
    budget: float | None = None,
    num_samples: int | None = None,
    single_precision: bool = True,
    device: str | torch.device | None = None,
    seed: int = 0,
    progress: bool = True,
) -> InpaintResult:
    """Fill the missing cells of an image, a video or any other regular grid.

    A Gaussian process with a learned kernel for each dimension
    (:class:`gpytorch_nkn.models.KroneckerGridGP`) is trained on the observed cells by
    :func:`gpytorch_nkn.models.fit_grid_gp`. Patterns that repeat are continued into the holes;
    where nothing can be known, the fill falls back to the mean, and the standard deviation says
    so. Values are not cut off at the ends of their range.

    Args:
        image: Numbers, ``n_1 x ... x n_P`` with P of 2 (image), 3 (video) or more; NaN, or
            masked in a masked array, where missing.
        mask: Missing cells are True (or not zero), as in scikit-image and OpenCV; of the image's
            shape, or without the channels. None if NaN says it all.
        structure: The kernel of each dimension: ``"texture"`` (a Neural Kernel Network of linear,
            RBF, rational quadratic and periodic kernels), ``"spectral_mixture"`` (ten components),
            ``"periodic"``, ``"rbf"``; or one kernel per dimension, of which copies are trained, on
            coordinates from -1 to 1 along the longest dimension.
        channel_axis: Which dimension holds channels, such as colours; None for none.
        shared: Channels share their kernels and noise; else each has its own.
        restarts: Starts of the training; default: 3 for a texture, 1 for others.
        budget: Wall time of the steps of the training in seconds. Fitting the variances and
            predicting come on top: a few solves, or many without ``num_samples``.
        num_samples: Estimate standard deviations from so many joint samples. Default: exact up to
            6,000 missing cells, beyond that from 64 samples (a relative error of 9 %), which take
            as many solves: long for hundreds of thousands of cells missing here and there.
        single_precision: Train in float32, which gives the same fill in less time; predictions
            are in float64 always.
        device: Where to compute.
        seed: Determines everything random; the global random state is left alone.
        progress: Show a progress bar, if standard error is a terminal.

    Returns:
        Mean, standard deviation and filled image as float64 arrays of the image's shape, with the
        model. If the observed cells all have one value the holes get it, with a standard
        deviation of zero, as do those of a channel of one value.

    Raises:
        TypeError: The image does not hold real numbers, ``structure`` is a single kernel.
        ValueError: Shapes do not fit, ``structure`` is unknown, numbers are infinite, or fewer
            than two cells (of a channel) are observed.

    Reference: Sun et al. (2018), section 5.4.

    Example:
        >>> rows, columns = np.mgrid[0:40, 0:50]
        >>> image = np.sin(rows / 2) * np.cos(columns / 3)
        >>> hole = np.zeros(image.shape, dtype=bool)
        >>> hole[15:25, 20:32] = True
        >>> result = inpaint(image, hole, restarts=1)
        >>> round(float(np.abs(result.filled - image)[hole].max()), 1)
        0.0
    """
    values, missing = _check(image, mask, channel_axis)  # channels in front
    num_dims = values.ndim - (channel_axis is not None)
    counts = (~missing).sum(axis=tuple(range(-num_dims, 0)))
    if np.min(counts) < 2:
        raise ValueError(f"At least 2 cells must be observed (in each channel), got {counts}.")
    if num_samples is not None and num_samples < 2:
        raise ValueError(f"num_samples must be at least 2, got {num_samples}.")
    kernels = _kernels(structure, num_dims)
    if restarts is None:
        restarts = 3 if structure == "texture" else 1
    if not 0 <= operator.index(seed) < 2**32:
        raise ValueError(f"seed must be from 0 to 2^32 - 1, got {seed}.")
    where = torch.device("cpu" if device is None else device)

    flat = values.reshape(-1, *values.shape[-num_dims:])  # C x ...
    center, scale = _location(flat)
    mean = np.broadcast_to(center, flat.shape).copy()
    std = np.zeros(flat.shape)
    learned = scale.reshape(-1) > 0  # other channels are constant
    model, fit = None, None
    if not np.isfinite(scale).all() or (scale > 1e150).any() or (scale[learned] < 1e-150).any():
        raise ValueError(
            "The values of image must have standard deviations from 1e-150 to 1e150, got "
            f"{scale.reshape(-1)}."
        )
    if learned.any():
        targets, center, scale = flat[learned], center[learned], scale[learned]
        if channel_axis is None:
            targets, center, scale = targets[0], center[0], scale[0]
        elif not shared:
            batch_shape = torch.Size([len(targets)])
            kernels = [expand_kernel_batch(kernel, batch_shape) for kernel in kernels]
        coordinates = _coordinates(flat.shape[1:], where)
        dtype = torch.float32 if single_precision else torch.float64
        trained = KroneckerGridGP(
            [x.to(dtype) for x in coordinates],
            torch.as_tensor((targets - center) / scale, dtype=dtype, device=where),
            [kernel.to(device=where, dtype=dtype) for kernel in kernels],
            outcome_transform=None,
        )
        fit = fit_grid_gp(trained, restarts=restarts, budget=budget, seed=seed, progress=progress)
        model = KroneckerGridGP(
            coordinates,
            torch.as_tensor(targets, device=where),
            list(trained.kernels.double()),
            likelihood=trained.likelihood.double(),
            mean_module=trained.mean_module.double(),
        ).eval()
        fit.model = model
        mean[learned] = model.grid_mean().cpu().numpy()
        if missing.any():
            std[learned] = _deviations(model, num_samples, seed, progress)
    mean, std = mean.reshape(values.shape), std.reshape(values.shape)

    def back(array: np.ndarray) -> np.ndarray:
        return array if channel_axis is None else np.moveaxis(array, 0, channel_axis)

    return InpaintResult(
        back(mean),
        back(np.where(missing, std, 0.0)),
        back(np.where(missing, mean, values)),
        back(missing),
        model,
        fit,
    )


def _location(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations ``C x 1 x ...`` of channels; zero where these are rounding."""
    axes = tuple(range(1, values.ndim))
    largest = np.nanmax(np.abs(values), axis=axes, keepdims=True)
    unit = np.where(largest > 0, largest, 1.0)
    center = unit * np.nanmean(values / unit, axis=axes, keepdims=True)
    scale = unit * np.nanstd(values / unit, axis=axes, keepdims=True, ddof=1)
    return center, np.where(scale <= 8 * np.finfo(float).eps * unit, 0.0, scale)


def _coordinates(sizes: tuple[int, ...], device: torch.device) -> list[torch.Tensor]:
    """From -1 to 1 along the longest dimension, with the same step along the others."""
    longest = max(max(sizes) - 1, 1)
    return [
        (torch.arange(n, dtype=torch.float64, device=device) - (n - 1) / 2) * (2 / longest)
        for n in sizes
    ]


def _deviations(
    model: KroneckerGridGP, num_samples: int | None, seed: int, progress: bool
) -> np.ndarray:
    """Standard deviations of new observations at cells that are missing in any channel."""
    sizes = [x.size(0) for x in model.coordinates]
    cells = model.missing.reshape(-1, *sizes).any(0)
    if num_samples is None and int(cells.sum()) > _EXACT_CELLS:
        num_samples = _SAMPLES
    _, variance = model.predict(
        cells, observation_noise=True, num_samples=num_samples, seed=seed, progress=progress
    )
    whole = variance.new_zeros(*model.batch_shape, *sizes)
    whole[..., cells] = variance.sqrt()
    return whole.cpu().numpy()


def _check(
    image: ArrayLike, mask: ArrayLike | None, channel_axis: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Values and missing cells, channels in front."""
    values: np.ndarray = np.ma.getdata(np.ma.asarray(image))
    if values.dtype.kind not in "fiub":
        raise TypeError(f"image must hold real numbers, got an array of {values.dtype}.")
    values = values.astype(float)
    if values.ndim < 2 + (channel_axis is not None) or values.size == 0:
        raise ValueError(
            "image must have at least two dimensions besides that of the channels, got shape "
            f"{values.shape}; for one there are NKNForecaster and KroneckerGridGP."
        )
    missing = np.isnan(values) | np.ma.getmaskarray(np.ma.asarray(image))
    if channel_axis is not None:
        channel_axis = operator.index(channel_axis)
        if not -values.ndim <= channel_axis < values.ndim:
            raise ValueError(
                f"channel_axis must be a dimension of shape {values.shape}, got {channel_axis}."
            )
        values, missing = (np.moveaxis(a, channel_axis, 0) for a in (values, missing))
    if mask is not None:
        own: np.ndarray = np.ma.filled(np.ma.asarray(mask), 1)
        if own.dtype.kind not in "fiub" or not np.isfinite(own.astype(float)).all():
            raise TypeError(f"mask must hold booleans or finite numbers, got {own.dtype}.")
        gone = own != 0
        plain = values.shape if channel_axis is None else values.shape[1:]
        if gone.shape not in (np.shape(image), plain):
            raise ValueError(
                f"mask must have the shape of the image {np.shape(image)}"
                + (f", or {plain}" if plain != values.shape else "")
                + (", or channel_axis=-1 for colours" if gone.ndim == values.ndim - 1 else "")
                + f"; got {gone.shape}."
            )
        if channel_axis is not None and gone.shape == np.shape(image):
            gone = np.moveaxis(gone, channel_axis, 0)
        missing = missing | gone
    values = np.where(missing, np.nan, values)
    if np.isinf(values).any():
        raise ValueError("image must be finite, or NaN where missing; got infinite values.")
    return values, missing


def _kernels(structure: str | Sequence[Kernel], num_dims: int) -> list[Kernel]:
    if isinstance(structure, str):
        check_word(structure, STRUCTURES, "kernels")
        named = [named_kernel(structure, 1, priors=False) for _ in range(num_dims)]
        scaled = structure in ("periodic", "rbf")  # others have variances of their own
        return [ScaleKernel(kernel) if scaled else kernel for kernel in named]
    if isinstance(structure, Kernel):
        raise TypeError(
            f"structure must be a name or one kernel for each of the {num_dims} dimensions, got "
            f"one {type(structure).__name__}."
        )
    kernels = deepcopy(list(structure))  # together: what they share stays shared
    strange = [type(kernel).__name__ for kernel in kernels if not isinstance(kernel, Kernel)]
    if strange or len(kernels) != num_dims:
        raise ValueError(
            f"structure must be one kernel for each of the {num_dims} dimensions, got "
            f"{strange or len(kernels)}."
        )
    return kernels
