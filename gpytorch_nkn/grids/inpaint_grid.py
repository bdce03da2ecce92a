"""Filling the holes of an image, a video or any other grid of numbers."""

from __future__ import annotations

import math
import operator
import time
import warnings
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np
import torch
from gpytorch.kernels import Kernel, ScaleKernel
from linear_operator.utils.warnings import NumericalWarning
from numpy.typing import ArrayLike
from torch import Tensor

from gpytorch_nkn._devices import on_cpu
from gpytorch_nkn.fit import Session, SizeWarning, warn_of_size, warn_user
from gpytorch_nkn.grids.fill import SmoothFills, distances
from gpytorch_nkn.grids.mixture import Mixture
from gpytorch_nkn.kernels.network import check_word, named_kernel
from gpytorch_nkn.linalg import kronecker_multiply
from gpytorch_nkn.models import GridFit, KroneckerGridGP, fit_grid_gp, hole_blocks

__all__ = ["FILLS", "STRUCTURES", "InpaintResult", "inpaint"]

#: Names of the fills that :func:`inpaint` may mix.
FILLS = ("kernel", "harmonic", "biharmonic")

#: Names of the kernels of a dimension that :func:`inpaint` may learn.
STRUCTURES = ("texture", "spectral_mixture", "periodic", "rbf")

_THIN = 4.0  # distance to known cells up to which holes are thin, such as scratches and text
_LEAST_THIN = 0.05  # fraction of the missing cells below which thin parts count as wide
_SMALL = 0.02  # fraction of the grid up to which a kernel may learn from a filled wide hole
_PLAIN = 0.5  # mean squared error up to which a kernel may learn from smooth interpolants
_BLOCKS, _THIN_BLOCKS = 12, 3  # held-out blocks that score the interpolants
_RESTARTS = 3
_TRAINED = torch.float32  # learns the same kernels as float64 in less time
_USUAL_CELLS = 300_000
_COARSE, _TRAINING = 0.2, 0.5  # fractions of the budget, and of the time left after the first
_SOLVING = 0.3  # fraction of the remaining time for each kind of solve
_PRODUCTS = 6  # duration of an iteration, in products with the covariance
_LEAST_ITERATIONS = 40  # iterations for which half the budget must suffice
_FEWEST, _SCORED_ITERATIONS = 3, 200  # iterations of conjugate gradients: least, and for a block
_SCORED_TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class InpaintResult:
    """Result of :func:`inpaint`.

    Attributes:
        mean: Mean of the underlying function, of the image's shape: the mixture at missing cells,
            the posterior mean of the kernel at the others (the image if there is no kernel).
        std: Standard deviation of an observation at missing cells; zero at the others.
        filled: The image, with the mean at missing cells.
        missing: Which cells were missing.
        model: The trained model, in float64; cell i of n is at ``(2 * i - n + 1) / (L - 1)``, with
            L cells along the longest dimension. None without a kernel.
        fit: The record of the training; None without a kernel. Block errors are NaN if blocks of
            the hole's shape had no room, or there were only scratches.
        weights: Mean weight of each interpolant in the mixture; empty if nothing is missing.
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
    structure: str | Sequence[Kernel] = "texture",
    fills: Sequence[str] = FILLS,
    channel_axis: int | None = None,
    restarts: int | None = None,
    budget: float | None = None,
    device: str | torch.device | None = None,
    seed: int = 0,
    progress: bool = True,
) -> InpaintResult:
    """Fill the missing cells of an image, a video or any other regular grid.

    The fill is a mixture of up to three interpolants. A Gaussian process with a learned kernel for
    each dimension (:class:`gpytorch_nkn.models.KroneckerGridGP`, trained by
    :func:`gpytorch_nkn.models.fit_grid_gp`) continues patterns that repeat. A harmonic and a
    biharmonic interpolant continue levels and slopes from the rim of a hole. Each interpolant fills
    held-out blocks of known cells that have the hole's shape. The weights minimise the errors in
    these blocks. The standard deviations are fitted to the errors too; they depend on the distance
    to known cells, the contrast around the hole and the disagreement of the interpolants. Thin
    parts of the holes (within 4 cells of a known one) and wide parts have separate weights.

    Use it for scratches, text, gaps in scans and sensors, and holes in textures; the content of a
    large hole in a photograph cannot be inferred. A grid of 256 x 256 cells takes 2 to 10 seconds
    on one core. Most of it is training, whose cost per step is cubic in the sides. Beyond 300,000
    cells a warning says so; a ``budget`` or ``fills=("harmonic", "biharmonic")`` fills these in
    seconds. Values are not clipped.

    Args:
        image: Numbers, ``n_1 x ... x n_P`` with P of 2 (image), 3 (video) or more; NaN, or
            masked in a masked array, where missing.
        mask: True (or not zero) where missing, as in scikit-image and OpenCV; of the image's
            shape, or without the channels. None if NaN marks all missing cells.
        structure: The kernel of each dimension: ``"texture"`` (a Neural Kernel Network of linear,
            RBF, rational quadratic and periodic kernels), ``"spectral_mixture"`` (ten components),
            ``"periodic"``, ``"rbf"``; or one kernel per dimension, on coordinates from -1 to 1
            along the longest dimension. The function trains copies.
        fills: Which of ``"kernel"``, ``"harmonic"`` and ``"biharmonic"`` are mixed.
        channel_axis: Which dimension holds channels, such as colours; None for none. Channels share
            their kernels and noise, learned from the first principal component if all channels
            lack the same cells.
        restarts: Starts of the training; default: 3 for a texture with holes, 1 for others and
            where wide holes cover at most 2 % of the image: a kernel then learns from the image
            with a coarse fill.
        budget: Wall time of the call in seconds. Smooth interpolants come first; half of the
            remaining time goes to training, the rest to solves. A warning says if the budget is too
            short for a kernel.
        device: Where to compute; ``None`` is the CPU, whatever PyTorch's default device is.
        seed: Determines everything random; the global random state is left alone.
        progress: Show a progress bar, if standard error is a terminal.

    Returns:
        Mean, standard deviation and filled image as float64 arrays of the image's shape, with the
        model. Constant channels are filled with their value, with a standard deviation of zero.

    Raises:
        TypeError: The image does not hold real numbers, ``structure`` is a single kernel.
        ValueError: Shapes do not fit, ``structure`` or ``fills`` are unknown, numbers are infinite,
            or fewer than two cells of a channel are observed.

    Reference: Sun et al. (2018), section 5.4; Damelin and Hoang (2018) for biharmonic fills.

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
    if not missing.any():
        warn_user(
            "Nothing is missing: image has no NaN"
            + ("" if mask is None else ", and mask is False everywhere (True is missing)")
            + "; filled is the image itself."
        )
    counts = (~missing).sum(axis=tuple(range(-num_dims, 0)))
    if np.min(counts) < 2:
        raise ValueError(
            f"At least 2 cells of each channel must be observed, got {counts}; the mask must be "
            "True where cells are missing."
        )
    session = Session(budget=budget, seed=seed, progress=progress)
    kernels = _kernels(structure, num_dims)
    if restarts is None and structure != "texture":
        restarts = 1
    if not 0 <= operator.index(seed) < 2**32:
        raise ValueError(f"seed must be from 0 to 2^32 - 1, got {seed}.")
    fills = tuple(dict.fromkeys([fills] if isinstance(fills, str) else fills))
    if not fills or not set(fills) <= set(FILLS):
        raise ValueError(f"fills must be some of {FILLS}, got {fills}.")
    flat = values.reshape(-1, *values.shape[-num_dims:])  # C x ...
    gone = missing.reshape(flat.shape)
    center, scale = _location(flat)
    mean = np.broadcast_to(center, flat.shape).copy()
    std = np.zeros(flat.shape)
    learned = scale.reshape(-1) > 0  # other channels are constant
    found = _Found()
    if not np.isfinite(scale).all() or (scale > 1e150).any() or (scale[learned] < 1e-150).any():
        raise ValueError(
            "The values of image must have standard deviations from 1e-150 to 1e150, got "
            f"{scale.reshape(-1)}."
        )
    if learned.any():
        center, scale = center[learned], scale[learned]
        where = torch.device("cpu" if device is None else device)
        options = channel_axis is not None, fills, kernels, restarts, where
        grid = _Grid(flat[learned], gone[learned], center, scale, *options)
        found = _fill(grid, session)
        mean[learned], std[learned] = found.mean, found.std
    mean, std = mean.reshape(values.shape), std.reshape(values.shape)

    def back(array: np.ndarray) -> np.ndarray:
        return array if channel_axis is None else np.moveaxis(array, 0, channel_axis)

    return InpaintResult(
        back(mean),
        back(np.where(missing, std, 0.0)),
        back(np.where(missing, mean, values)),
        back(missing),
        found.model,
        found.fit,
        found.weights,
    )


@dataclass
class _Grid:
    """Values ``C x n_1 x ...``, missing cells, means and scales of channels, and the options."""

    values: np.ndarray
    missing: np.ndarray
    center: np.ndarray
    scale: np.ndarray
    has_channels: bool
    fills: tuple[str, ...]
    kernels: list[Kernel]
    restarts: int | None
    device: torch.device

    @property
    def standard(self) -> np.ndarray:
        return (self.values - self.center) / self.scale

    @property
    def anywhere(self) -> np.ndarray:
        return np.any(self.missing, axis=0)

    def targets(self, values: np.ndarray, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Values ``C x n_1 x ...`` for a model, without channels if the image has none."""
        return torch.as_tensor(
            values if self.has_channels else values[0], dtype=dtype, device=device
        )


@dataclass
class _Found:
    mean: np.ndarray | float = 0.0
    std: np.ndarray | float = 0.0
    model: KroneckerGridGP | None = None
    fit: GridFit | None = None
    weights: dict[str, float] = field(default_factory=dict)


def _fill(grid: _Grid, session: Session) -> _Found:
    """Compute the smooth interpolants, the kernel's, and their mixture."""
    maker = SmoothFills(grid.values.shape[1:])
    smooth = {name: getattr(maker, name) for name in grid.fills if name != "kernel"}
    found = _Found()
    if "kernel" in grid.fills and session.budget is None:
        warn_of_size(
            "inpaint",
            grid.values[0].size,
            _USUAL_CELLS,
            'each training step takes seconds; pass fills=("harmonic", "biharmonic") to do '
            "without a kernel, or a budget.",
            unit="cells",
        )
    iteration = _iteration_seconds(grid.values.shape)
    if not grid.missing.any():
        if "kernel" in grid.fills:
            _learn(grid, session, found, [], None, iteration)
        else:
            found.mean = grid.values
        return found
    thin, wide = _parts(grid.anywhere)
    end = session.end - (1 - _COARSE) * (session.budget or 0.0)
    mixtures = []
    for part, count in ((thin, _THIN_BLOCKS), (wide, _BLOCKS)):
        if part.any():
            anywhere, seed = grid.anywhere, session.seed
            blocks = hole_blocks(anywhere, count, pattern=part, near=True, seed=seed)
            mixtures.append(
                Mixture(grid.standard, grid.missing, blocks, smooth, cells=part, end=end)
            )
    fillable = np.zeros_like(wide)
    if smooth and wide.mean() <= _SMALL:
        fillable |= wide
    if smooth and thin.any() and mixtures[0].least_error() < _PLAIN:
        fillable |= thin
    if "kernel" in grid.fills:
        if smooth and _LEAST_ITERATIONS * iteration > 0.5 * session.seconds_left:
            warn_user(
                f"A budget of {session.budget:g} seconds is too short to learn a kernel on a grid "
                f"of {grid.values.shape[1:]}; only smooth interpolants fill the holes."
            )
        else:
            _learn(grid, session, found, mixtures, fillable, iteration)
    known = grid.values if found.model is None else found.mean
    found.mean, found.std = np.array(known), np.zeros(grid.values.shape)
    for mixture in mixtures:
        cells = mixture.cells
        mean, variance, weights = mixture.fill()
        found.mean[cells] = (grid.center + grid.scale * mean)[cells]
        found.std[cells] = (grid.scale * np.sqrt(variance))[cells]
        share = float(cells.sum() / grid.missing.sum())
        for name, weight in weights.items():
            found.weights[name] = found.weights.get(name, 0.0) + share * weight
    return found


def _parts(missing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return thin parts of holes, such as scratches and text, and wide parts with their rim."""
    core = distances(missing) > _THIN
    if not core.any():
        return missing, core
    wide = missing & (distances(~core) <= math.sqrt(missing.ndim) * _THIN + 1)
    scattered = 2 * missing.sum() > missing.size  # known cells are islands in one hole
    thin = missing & ~wide
    if scattered or thin.sum() < _LEAST_THIN * missing.sum():
        return np.zeros_like(missing), missing
    return thin, wide


def _learn(
    grid: _Grid,
    session: Session,
    found: _Found,
    mixtures: Sequence[Mixture],
    fillable: np.ndarray | None,
    iteration: float,
) -> None:
    """Train a kernel, and fill the holes and the blocks of the mixtures with it."""
    learned, device, restarts = grid.standard, grid.device, grid.restarts
    coordinates = _coordinates(learned.shape[1:], device)
    if fillable is not None and fillable.any():  # holes with little effect on the kernel
        maker = SmoothFills(learned.shape[1:])
        smooth = np.stack(
            [maker.biharmonic(one, gone) for one, gone in zip(learned, grid.missing, strict=True)]
        )
        learned = np.where(fillable, smooth, learned)
    complete = fillable is not None and not np.isnan(learned).any()
    alike = bool((grid.missing == grid.missing[0]).all())
    if grid.has_channels and (alike or complete):
        targets = torch.as_tensor(_first_component(learned), dtype=_TRAINED, device=device)
    else:
        targets = grid.targets(learned, _TRAINED, device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)  # errors in blocks show the effect
        warnings.simplefilter("ignore", SizeWarning)  # inpaint has warned
        trained = KroneckerGridGP(
            [x.to(_TRAINED) for x in coordinates],
            targets,
            [kernel.to(device=device, dtype=_TRAINED) for kernel in grid.kernels],
            outcome_transform=None,
        )
        found.fit = fit_grid_gp(
            trained,
            restarts=restarts if restarts is not None else 1 if complete else _RESTARTS,
            budget=session.part(_TRAINING),
            seed=session.seed,
            progress=session.progress,
            block_steps=0 if complete else None,
            blocks=0 if complete else _BLOCKS,
        )
        found.model = model = KroneckerGridGP(
            coordinates,
            grid.targets(grid.values, torch.float64, device),
            list(trained.kernels.double()),
            likelihood=trained.likelihood.double(),
            mean_module=trained.mean_module.double(),
        ).eval()
        found.fit.model = model
        model.max_iterations = _iterations(session, iteration, model.max_iterations)
        mean = model.grid_mean().cpu().numpy()
        found.mean = mean if grid.has_channels else mean[None]
        scored = deepcopy(model).to(_TRAINED)
        scored.tolerance = _SCORED_TOLERANCE
        solves = sum(len(mixture.blocks) for mixture in mixtures) or 1
        scored.max_iterations = _iterations(session, solves * iteration, _SCORED_ITERATIONS)
        for mixture in mixtures:
            means = scored.block_means(torch.as_tensor(mixture.blocks, device=device))
            mixture.add(
                "kernel",
                (found.mean - grid.center) / grid.scale,
                (one.double().cpu().numpy().reshape(learned.shape) for one in means),
            )


def _iterations(session: Session, seconds: float, most: int) -> int:
    """Return how many iterations of so many seconds there is time for, at most ``most``."""
    if session.budget is None:
        return most
    return min(max(int(_SOLVING * session.seconds_left / seconds), _FEWEST), most)


def _first_component(values: np.ndarray) -> np.ndarray:
    """The standardised first principal component of channels ``C x n_1 x ...``."""
    known = np.where(np.isnan(values).any(0), 0.0, values).reshape(len(values), -1)
    weights = np.linalg.eigh(known @ known.T)[1][:, -1]
    component = np.tensordot(weights, values, 1)
    return component / np.nanstd(component, ddof=1)


def _iteration_seconds(shape: tuple[int, ...]) -> float:
    """Measure about how many seconds an iteration of a solve in float64 takes."""
    sizes = shape[1:]
    array = torch.ones(sizes, dtype=torch.float64)
    factors = [torch.ones(n, n, dtype=torch.float64) for n in sizes]
    times = []
    for _ in range(4):  # the first product takes longer
        begin = time.perf_counter()
        kronecker_multiply(factors, array)
        times.append(time.perf_counter() - begin)
    return _PRODUCTS * shape[0] * min(times)


def _location(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means and standard deviations ``C x 1 x ...`` of channels, 0 for constant ones."""
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
            "image must have at least two dimensions besides the channels, got shape "
            f"{values.shape}; for one dimension use NKNForecaster or KroneckerGridGP."
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
        scaled = structure in ("periodic", "rbf")  # the others have their own variances
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
