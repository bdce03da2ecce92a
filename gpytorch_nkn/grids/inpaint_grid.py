"""Inpainting of an image, a video or any other regular grid."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel, ScaleKernel
from numpy.typing import ArrayLike
from scipy.ndimage import distance_transform_edt

from gpytorch_nkn._devices import on_cpu
from gpytorch_nkn.fit import Session, warn_of_size, warn_user
from gpytorch_nkn.grids.fill import SmoothInterpolants
from gpytorch_nkn.grids.mixture import Mixture
from gpytorch_nkn.kernels.network import kernel_values, named_kernel
from gpytorch_nkn.linalg import kronecker_multiply
from gpytorch_nkn.models import GridFit, KroneckerGridGP, fit_grid_gp, hole_blocks

__all__ = ["INTERPOLANTS", "STRUCTURES", "InpaintResult", "inpaint"]

#: Names of the interpolants that :func:`inpaint` can mix.
INTERPOLANTS = ("kernel", "harmonic", "biharmonic")

#: Names of the kernels that :func:`inpaint` can learn along each dimension.
STRUCTURES = ("texture", "spectral_mixture", "periodic", "rbf")

_MAX_THIN_DEPTH = 4.0  # largest distance in cells from thin parts of holes to known cells
_MIN_THIN_FRACTION = 0.05  # fraction of the missing cells below which thin parts count as wide
_MAX_PREFILLED = 0.02  # largest fraction of wide holes that are interpolated before training
_MAX_PREFILLED_ERROR = 0.5  # largest squared error of thin holes interpolated before training
_BLOCKS, _THIN_BLOCKS = 12, 3  # numbers of held-out blocks
_RESTARTS = 3  # number of starts if cells are missing in training
_PARAMETERS = 4  # effective number of parameters of the kernel of a dimension
_TRAINING_DTYPE = torch.float32  # training in float64 finds the same kernels, but takes longer
_MAX_UNWARNED = 300_000  # largest grid without a warning
_SMOOTH_TIME = 0.2  # fraction of the budget for the smooth interpolants
_TRAINING_TIME = 0.5  # fraction of the remaining time for training
_SOLVING = 0.3  # fraction of the remaining time for the mean, and again for the blocks
_PRODUCTS = 6  # time of a conjugate gradient iteration, in products with the covariance
_LEAST_ITERATIONS = 40  # a kernel is learned if half of the time suffices for them
_MIN_ITERATIONS = 3  # smallest number of conjugate gradient iterations
_SCORED_ITERATIONS, _SCORED_TOLERANCE = 200, 1e-3  # conjugate gradients for a block


@dataclass(frozen=True, eq=False)
class InpaintResult:
    """Result of :func:`inpaint`.

    Attributes:
        mean: Predicted mean, of the image's shape: the mixture at missing cells, the posterior mean
            of the Gaussian process elsewhere (without a kernel, the image).
        std: Standard deviation of an observation at missing cells; zero at others.
        filled: Image with the mean at missing cells.
        missing: Mask of the missing cells.
        model: Trained model in float64; None without a kernel. Cell i of n has the coordinate
            ``(2 * i - n + 1) / (L - 1)``, with L cells along the longest dimension.
        fit: Result of the training; None without a kernel. Block errors are NaN if the hole is too
            large for blocks, or if all holes were interpolated before training.
        weights: Mean weight of each interpolant; empty if nothing is missing.
    """

    mean: np.ndarray
    std: np.ndarray
    filled: np.ndarray
    missing: np.ndarray
    model: KroneckerGridGP | None
    fit: GridFit | None
    weights: dict[str, float] = field(default_factory=dict)

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


@on_cpu()
def inpaint(
    image: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    noise_variance: ArrayLike | None = None,
    structure: str = "texture",
    interpolants: Sequence[str] = INTERPOLANTS,
    channel_axis: int | None = None,
    budget: float | None = None,
    device: str | torch.device | None = None,
    seed: int = 0,
    progress: bool = True,
) -> InpaintResult:
    """Fill the missing cells of an image, a video or any other regular grid.

    The result is a mixture of up to three interpolants. A Gaussian process with a learned kernel
    for each dimension (:class:`gpytorch_nkn.models.KroneckerGridGP`) continues repeated patterns. A
    harmonic and a biharmonic interpolant continue levels and slopes from the edge of a hole. Each
    interpolant predicts held-out blocks of known cells with the hole's shape. The errors determine
    the weights and the standard deviations. Standard deviations depend on the posterior
    variance, the contrast around the hole and the disagreement of the interpolants. Thin parts of
    the holes (within 4 cells of a known cell) and wide parts have separate weights.

    Use it for scratches, text, gaps in scans and sensors, and holes in textures. The content of a
    large hole in a photograph cannot be inferred. The time of a training step is cubic in the side
    lengths. Values are not clipped.

    Args:
        image: Numbers ``n_1 x ... x n_P`` with P of 2 (image), 3 (video) or more. Missing cells are
            NaN, or masked in a masked array.
        mask: True (or nonzero) at missing cells, as in scikit-image and OpenCV, with the image's
            shape or without the channels. None if NaN marks all missing cells.
        noise_variance: Known noise variances in squared units of the image: one number, or one per
            cell, with the image's shape or without the channels. Additional noise is learned.
            Values at missing cells are ignored. The Gaussian process uses the variances in training
            and prediction; the smooth interpolants do not. Returned standard deviations include
            noise.
        structure: Kernel of each dimension: ``"texture"``, ``"spectral_mixture"`` (ten components),
            ``"periodic"`` or ``"rbf"``. A texture is a network of linear, RBF, rational quadratic
            and periodic kernels.
        interpolants: One or more of ``"kernel"``, ``"harmonic"`` and ``"biharmonic"`` to mix.
        channel_axis: Dimension of channels, such as colours; None without channels. Channels share
            kernels and noise. If the same cells are missing in all channels, training uses their
            first principal component.
        budget: Wall time of the call in seconds.
        device: Torch device; ``None`` for the CPU, independent of PyTorch's default device.
        seed: Determines all random draws; the global random state does not change.
        progress: Show a progress bar if standard error is a terminal.

    Returns:
        Mean, standard deviation and filled image as float64 arrays of the image's shape, and the
        model. Constant channels are filled with their value and a standard deviation of zero.

    A warning is issued if nothing is missing or the budget is too short for a kernel. Without a
    budget, a grid of more than 300,000 cells also gives a warning.

    Raises:
        TypeError: The image or the mask does not hold real numbers.
        ValueError: Shapes do not fit, an option is unknown, or numbers are infinite. A channel has
            fewer than two observed cells, or a variance is negative or not finite.

    Reference: Sun et al. (2018), section 5.4; Damelin and Hoang (2018) for biharmonic functions.

    Example:
        >>> rows, columns = np.mgrid[0:40, 0:50]
        >>> image = np.sin(rows / 2) * np.cos(columns / 3)
        >>> hole = np.zeros(image.shape, dtype=bool)
        >>> hole[15:25, 20:32] = True
        >>> result = inpaint(image, hole)
        >>> round(float(np.abs(result.filled - image)[hole].max()), 1)
        0.0
    """
    values, missing = _check(image, mask, channel_axis)  # C x n_1 x ...
    noise = _check_noise(noise_variance, values, missing, channel_axis)
    if not missing.any():
        warn_user(
            "Nothing is missing: image has no NaN"
            + ("" if mask is None else ", and mask is False everywhere (True is missing)")
            + "; filled is the image itself."
        )
    axes = tuple(range(1, values.ndim))
    counts = (~missing).sum(axes)
    if np.min(counts) < 2:
        raise ValueError(
            f"At least 2 cells of each channel must be observed, got {counts}; the mask must be "
            "True where cells are missing."
        )
    session = Session(budget=budget, seed=seed, progress=progress)
    kernels = _kernels(structure, values.ndim - 1)
    names = [interpolants] if isinstance(interpolants, str) else list(interpolants or ())
    if not names or not set(names) <= set(INTERPOLANTS):
        raise ValueError(f"interpolants must be one or more of {INTERPOLANTS}, got {interpolants}.")
    names = [*dict.fromkeys(names)]
    center, scale = _location(values, axes)
    mean, std = np.broadcast_to(center, values.shape).copy(), np.zeros(values.shape)
    learned = scale.ravel() > 0  # other channels are constant
    model, fit, weights = None, None, {}
    if learned.any():
        channels = _Channels(
            values[learned],
            missing[learned],
            center[learned],
            scale[learned],
            None if noise is None else noise[learned],
            names,
            kernels,
            channel_axis is not None,
            torch.device("cpu" if device is None else device),
            session,
        )
        channels.fill()
        mean[learned], std[learned] = channels.mean, channels.std
        model, fit, weights = channels.model, channels.fit, channels.weights

    def back(array: np.ndarray) -> np.ndarray:
        return array[0] if channel_axis is None else np.moveaxis(array, 0, channel_axis)

    std, filled = np.where(missing, std, 0.0), np.where(missing, mean, values)
    return InpaintResult(back(mean), back(std), back(filled), back(missing), model, fit, weights)


@dataclass
class _Channels:
    """Channels ``C x n_1 x ...`` with missing cells, and their predictions."""

    values: np.ndarray
    missing: np.ndarray
    center: np.ndarray  # means of the channels, C x 1 x ...
    scale: np.ndarray  # standard deviations of the channels
    noise: np.ndarray | None  # known noise variances of the cells
    names: Sequence[str]  # interpolants of the mixture
    kernels: Sequence[Kernel]
    has_channels: bool  # whether the image has a channel axis
    device: torch.device
    session: Session
    model: KroneckerGridGP | None = None
    fit: GridFit | None = None
    weights: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.standard = (self.values - self.center) / self.scale
        self.anywhere = np.logical_or.reduce(self.missing)
        self.mixtures: list[Mixture] = []
        self.mean, self.std = self.values.copy(), np.zeros(self.values.shape)

    def iteration_seconds(self) -> float:
        """Estimate the time of one conjugate gradient iteration in float64."""
        array = torch.ones(self.anywhere.shape, dtype=torch.float64)
        factors = [torch.ones(n, n, dtype=torch.float64) for n in array.shape]
        times = []
        for _ in range(4):  # the first product takes longer
            begin = time.perf_counter()
            kronecker_multiply(factors, array)
            times.append(time.perf_counter() - begin)
        return _PRODUCTS * len(self.values) * min(times)

    def fill(self) -> None:
        """Compute the interpolants and the mixture."""
        session, smooth = self.session, [name for name in self.names if name != "kernel"]
        learns = len(smooth) < len(self.names)
        if learns and session.budget is None:
            warn_of_size(
                "inpaint",
                self.anywhere.size,
                _MAX_UNWARNED,
                'each training step takes seconds; pass interpolants=("harmonic", "biharmonic") '
                "to skip the kernel, or set a budget.",
                unit="cells",
            )
        self.smoother = SmoothInterpolants(self.anywhere.shape)
        thin, wide = _split_holes(self.anywhere)
        end = session.end - (1 - _SMOOTH_TIME) * (session.budget or 0.0)
        for holes, count in ((thin, _THIN_BLOCKS), (wide, _BLOCKS)):
            if holes.any():
                blocks = hole_blocks(
                    self.anywhere, count, pattern=holes, near=True, seed=session.seed
                )
                data = self.standard, self.missing, blocks, self.smoother, smooth
                self.mixtures.append(Mixture(*data, cells=holes, end=end))
        fillable = np.zeros_like(wide)  # cells that are interpolated before training
        if smooth and wide.mean() <= _MAX_PREFILLED:
            fillable |= wide
        if smooth and thin.any() and self.mixtures[0].least_error() < _MAX_PREFILLED_ERROR:
            fillable |= thin
        if learns:
            self._learn(fillable, is_needed=not smooth)
        for mixture in self.mixtures:
            cells = mixture.cells
            mean, variance, weights = mixture.fill()
            self.mean[cells] = (self.center + self.scale * mean)[cells]
            self.std[cells] = (self.scale * np.sqrt(variance))[cells]
            share = float(cells.sum() / self.missing.sum())
            for name, weight in weights.items():
                self.weights[name] = self.weights.get(name, 0.0) + share * weight

    def _learn(self, fillable: np.ndarray, is_needed: bool) -> None:
        """Train the GP, and add its predictions of holes and blocks to the mixtures.

        ``fillable`` cells are interpolated before training. Unless the GP ``is_needed``, the budget
        must suffice for it.
        """
        session, device = self.session, self.device
        iteration = self.iteration_seconds()
        if not is_needed and _LEAST_ITERATIONS * iteration > 0.5 * session.seconds_left:
            warn_user(
                f"A budget of {session.budget:g} seconds is too short to learn a kernel on a "
                f"grid of {self.anywhere.shape}; only smooth interpolants fill the holes."
            )
            return
        learned, noise = self.standard, None if self.noise is None else self.noise / self.scale**2
        coordinates = _coordinates(self.anywhere.shape, device)
        if fillable.any():
            pairs = zip(learned, self.missing, strict=True)
            smooth = np.stack([self.smoother.biharmonic(channel, gone) for channel, gone in pairs])
            gone, dims = np.logical_and.reduce(self.missing), set(range(self.anywhere.ndim))
            rows = [gone.all(tuple(dims - {dim}), keepdims=True) for dim in dims]  # dropped
            learned = np.where(fillable & ~reduce(np.logical_or, rows), smooth, learned)
        complete = bool(self.mixtures) and not np.isnan(learned[:, ~fillable]).any()
        if complete or bool((self.missing == self.missing[0]).all()):
            learned, weights = _first_component(learned)
            noise = None if noise is None else np.tensordot(weights**2, noise, 1)

        def iterations(solves: int, most: int) -> int:
            if session.budget is None:
                return most
            return min(
                max(int(_SOLVING * session.seconds_left / (solves * iteration)), _MIN_ITERATIONS),
                most,
            )

        trained = KroneckerGridGP(
            [x.to(_TRAINING_DTYPE) for x in coordinates],
            torch.as_tensor(learned, dtype=_TRAINING_DTYPE, device=device),
            [kernel.to(device=device, dtype=_TRAINING_DTYPE) for kernel in self.kernels],
            outcome_transform=None,
            train_Yvar=None if noise is None else torch.as_tensor(noise, dtype=_TRAINING_DTYPE),
        )
        trained.max_residual = math.inf  # no warnings, as block errors include inexact solves
        self.fit = fit_grid_gp(
            trained,
            restarts=1 if complete else _RESTARTS,
            budget=session.part(_TRAINING_TIME) or math.inf,  # inpaint has warned of the size
            seed=session.seed,
            progress=session.progress,
            blocks=0 if complete else _BLOCKS,
        )
        values, known = self.values, self.noise
        if not self.has_channels:
            values, known = values[0], None if known is None else known[0]
        self.model = self.fit.model = model = KroneckerGridGP(
            coordinates,
            torch.as_tensor(values, device=device),
            train_Yvar=None if known is None else torch.as_tensor(known),
            kernels=list(trained.kernels.double()),
            likelihood=trained.likelihood.double(),
            mean_module=trained.mean_module.double(),
        ).eval()
        most = model.max_iterations
        model.max_iterations, model.max_residual = iterations(1, most), math.inf
        self.mean = model.grid_mean().cpu().numpy().reshape(self.values.shape).copy()
        scored = deepcopy(model).to(_TRAINING_DTYPE)
        model.max_iterations = most
        del model.max_residual
        scored.tolerance = _SCORED_TOLERANCE
        solves = sum(len(mixture.blocks) for mixture in self.mixtures) or 1
        scored.max_iterations = iterations(solves, _SCORED_ITERATIONS)
        fill = (self.mean - self.center) / self.scale
        pairs = zip(model.kernels, coordinates, strict=True)
        covariances = [kernel_values(k, x, x).detach().cpu().numpy() for k, x in pairs]
        gp = covariances, float(model.noise_variance().detach())
        for mixture in self.mixtures:
            means = scored.block_means(torch.as_tensor(mixture.blocks, device=device))
            in_blocks = (mean.double().cpu().numpy().reshape(fill.shape) for mean in means)
            mixture.add("kernel", fill, in_blocks, _PARAMETERS * fill[0].ndim, gp)


def _split_holes(missing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split holes into masks of thin parts, such as scratches, and of wide parts with edges."""
    core = distance_transform_edt(missing) > _MAX_THIN_DEPTH
    if not core.any():
        return missing, core
    wide = missing & (
        distance_transform_edt(~core) <= math.sqrt(missing.ndim) * _MAX_THIN_DEPTH + 1
    )
    scattered = 2 * missing.sum() > missing.size  # known cells are isolated points in one hole
    thin = missing & ~wide
    if scattered or thin.sum() < _MIN_THIN_FRACTION * missing.sum():
        return np.zeros_like(missing), missing
    return thin, wide


def _first_component(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the standardised first principal component of channels, and channel weights ``C``."""
    known = np.where(np.isnan(values).any(0), 0.0, values).reshape(len(values), -1)
    weights = np.linalg.eigh(known @ known.T)[1][:, -1]
    component = np.tensordot(weights, values, 1)
    scale = np.nanstd(component, ddof=1)
    return component / scale, weights / scale


def _location(values: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return means and standard deviations ``C x 1 x ...`` of channels; 0 if constant."""
    largest = np.nanmax(np.abs(values), axis=axes, keepdims=True)
    unit = np.where(largest > 0, largest, 1.0)
    center = unit * np.nanmean(values / unit, axis=axes, keepdims=True)
    scale = unit * np.nanstd(values / unit, axis=axes, keepdims=True, ddof=1)
    scale = np.where(scale <= 8 * np.finfo(float).eps * unit, 0.0, scale)
    if not ((scale == 0) | ((1e-150 < scale) & (scale < 1e150))).all():
        raise ValueError(
            "The values of image must have standard deviations from 1e-150 to 1e150, got "
            f"{scale.ravel()}."
        )
    return center, scale


def _coordinates(sizes: tuple[int, ...], device: torch.device) -> list[torch.Tensor]:
    """Return coordinates from -1 to 1 along the longest dimension, all with the same step."""
    longest = max(max(sizes) - 1, 1)
    return [
        (torch.arange(n, dtype=torch.float64, device=device) - (n - 1) / 2) * (2 / longest)
        for n in sizes
    ]


def _check(
    image: ArrayLike, mask: ArrayLike | None, channel_axis: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return values and missing cells ``C x n_1 x ...``; C is 1 without channels."""
    given = _array(image)
    values: np.ndarray = np.ma.getdata(given, subok=False)
    if values.dtype.kind not in "fiub":
        raise TypeError(f"image must hold real numbers, got an array of {values.dtype}.")
    values, shape = values.astype(float), values.shape
    if channel_axis is not None and not -len(shape) <= operator.index(channel_axis) < len(shape):
        raise ValueError(f"channel_axis must be a dimension of shape {shape}, got {channel_axis}.")
    if values.ndim < 2 + (channel_axis is not None) or values.size == 0:
        raise ValueError(
            f"image must have at least two dimensions besides the channels, got shape {shape}; "
            "for one dimension use NKNForecaster or KroneckerGridGP."
        )

    def front(array: np.ndarray) -> np.ndarray:
        return array[None] if channel_axis is None else np.moveaxis(array, channel_axis, 0)

    missing = front(np.isnan(values) | np.ma.getmaskarray(given))
    values = front(values)
    if mask is not None:
        array: np.ndarray = np.ma.filled(_array(mask), 1)
        if array.dtype.kind not in "fiub" or not np.isfinite(array.astype(float)).all():
            raise TypeError(f"mask must hold booleans or finite numbers, got {array.dtype}.")
        if array.shape not in (shape, values.shape[1:]):
            raise ValueError(
                f"mask must have the shape of the image {shape}"
                + (f", or {values.shape[1:]}" if channel_axis is not None else "")
                + f", got {array.shape}"
                + ("; for colours set channel_axis=-1." if array.ndim == values.ndim - 2 else ".")
            )
        missing = missing | (front(array != 0) if array.shape == shape else array != 0)
    values = np.where(missing, np.nan, values)
    if np.isinf(values).any():
        raise ValueError("image must be finite, or NaN where missing; got infinite values.")
    return values, missing


def _array(values: Any) -> np.ma.MaskedArray:
    """Return an array of any array, tensor (without gradients) or data frame."""
    if hasattr(values, "columns") and all(dtype.kind in "fiub" for dtype in values.dtypes):
        values = values.to_numpy(float, na_value=np.nan)
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()  # NumPy has no bfloat16
        values = values.double() if values.is_floating_point() else values
    return np.ma.asarray(values)


def _check_noise(
    noise_variance: ArrayLike | None,
    values: np.ndarray,
    missing: np.ndarray,
    channel_axis: int | None,
) -> np.ndarray | None:
    """Return known noise variances ``C x n_1 x ...``, 0 at missing cells; None if all are 0."""
    if noise_variance is None:
        return None
    given = _array(noise_variance)
    noise: np.ndarray = np.ma.filled(
        given.astype(float) if given.dtype.kind in "iu" else given, np.nan
    )
    if channel_axis is not None and noise.ndim == values.ndim:
        noise = np.moveaxis(noise, channel_axis, 0)
    if noise.dtype.kind not in "fiu" or noise.shape not in ((), values.shape, values.shape[1:]):
        raise ValueError(
            "noise_variance must be a number, or numbers of the shape "
            f"{values.shape[1:]} of the cells, got {noise.dtype} of shape {noise.shape}."
        )
    noise = np.where(missing, 0.0, np.broadcast_to(noise, values.shape).astype(float))
    wrong = ~(np.isfinite(noise) & (noise >= 0))
    if wrong.any():
        raise ValueError(
            "noise_variance must be at least 0 and finite at observed cells, got "
            f"{noise[wrong][0]:g} at cell {tuple(np.argwhere(wrong)[0, 1:].tolist())}."
        )
    return noise if noise.any() else None


def _kernels(structure: str, num_dims: int) -> list[Kernel]:
    if structure not in STRUCTURES:
        raise ValueError(f"structure must be one of {STRUCTURES}, got {structure!r}.")
    named = [named_kernel(structure, 1, priors=False) for _ in range(num_dims)]
    scaled = structure in ("periodic", "rbf")  # the others already have variances
    return [ScaleKernel(kernel) if scaled else kernel for kernel in named]
