"""A filled image: what was missing, what was put there, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from gpytorch_nkn.plotting.style import add_bar, as_array, as_list_of_axes, draw_outline, put_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_uncertainty", "plot_inpainting"]

Given = TypeVar("Given")

_MISSING = (0.82, 0.35, 0.04)  # ORANGE
_PALE = 0.25  # contrast of the known cells below the standard deviations


def plot_inpainting(
    axes: Given,
    result: Any,
    *,
    truth: ArrayLike | None = None,
    channel_axis: int | None = None,
    frame: int | None = None,
    limits: tuple[float, float] | None = None,
    label: str = "standard deviation",
) -> Given:
    """Draw an image with its holes, the filled image and the standard deviations.

    Missing cells are orange in the first picture, or have an outline of that colour (none where
    they are scattered).

    Args:
        axes: Three Axes, four with ``truth``, as a sequence or an array of any shape.
        result: What :func:`gpytorch_nkn.grids.inpaint` gives: the image ``filled`` without holes
            (``H x W``, with a dimension of channels or one of frames), its standard deviations
            ``std`` and the booleans ``missing``, of one shape.
        truth: What was really there, of the shape of the image; drawn last.
        channel_axis: Which dimension holds the three colours; ``None`` for gray images.
        frame: Which image of a video ``T x H x W`` is drawn.
        limits: Values that are black and white. Default: the least and the largest known value;
            of colours 0 and 1, or 0 and 255 if a known value is above 1.
        label: Label of the colour bar, with its unit. It shows the root mean square of colours.

    Returns:
        The same axes.

    Raises:
        TypeError: Something in ``axes`` is not an Axes, or an array holds no numbers.
        ValueError: The number of axes is wrong, shapes do not fit, ``frame`` is needed or out of
            range, numbers are not finite, or nothing is missing.
    """
    given: list[tuple[str, ArrayLike]] = [("filled", result.filled), ("std", result.std)]
    if truth is not None:
        given.append(("truth", truth))
    flat = as_list_of_axes(axes, 1 + len(given), "picture")
    missing = np.asarray(result.missing)
    if missing.dtype != bool:
        raise TypeError(f"missing must hold booleans, got {missing.dtype}.")
    arrays = [
        as_array(name, values, ndim=missing.ndim, shape=missing.shape) for name, values in given
    ]
    (gone, filled, std, *rest) = _pictures([missing, *arrays], channel_axis, frame)
    hole = np.asarray(gone.any(-1))
    if not hole.any():
        raise ValueError("At least one cell of the image must be missing, got none.")
    low, high = _limits(filled[~gone], channel_axis is not None) if limits is None else limits
    if not low < high:
        high = low + 1.0

    def colors(values: np.ndarray) -> np.ndarray:
        shown = np.clip((values - low) / (high - low), 0, 1)
        return np.broadcast_to(shown, (*hole.shape, 3))

    whole = colors(filled)
    _draw_picture(flat[0], np.where(hole[..., None], _MISSING, whole))
    _draw_picture(flat[1], whole, hole)
    draw_uncertainty(flat[2], whole, std, hole, label, location="bottom")
    for ax, values in zip(flat[3:], rest, strict=True):
        _draw_picture(ax, colors(values), hole)
    for ax, title in zip(flat, ("with holes", "filled", "how sure", "truth"), strict=False):
        put_title(ax, title)
        ax.set_anchor("N")  # in one row, although there is a bar below one of them
    return axes


def draw_uncertainty(
    ax: Axes, whole: np.ndarray, std: np.ndarray, hole: np.ndarray, label: str, *, location: str
) -> None:
    """Draw deviations ``H x W x C`` in the holes of a pale image ``H x W x 3`` from 0 to 1."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    joint = np.sqrt(np.square(std).mean(-1))
    scale = ScalarMappable(Normalize(0.0, float(joint[hole].max()) or 1.0), "viridis")
    pale = 1 - _PALE * (1 - whole)
    _draw_picture(ax, np.where(hole[..., None], scale.to_rgba(joint)[..., :3], pale), hole)
    add_bar(ax, scale, location=location, shrink=0.9, label=label)


def _draw_picture(ax: Axes, picture: np.ndarray, hole: np.ndarray | None = None) -> None:
    """Draw an image without a frame, with an outline of its holes if they are given."""
    ax.imshow(picture)
    if hole is not None:
        draw_outline(ax, hole)
    height, width = picture.shape[:2]
    ax.set(xlim=(-0.75, width - 0.25), ylim=(height - 0.25, -0.75), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def _pictures(
    arrays: Sequence[np.ndarray], channel_axis: int | None, frame: int | None
) -> list[np.ndarray]:
    """Each as ``H x W x C`` with one or three channels."""
    shape = arrays[0].shape
    if channel_axis is not None:
        if not -len(shape) <= channel_axis < len(shape) or shape[channel_axis] != 3:
            raise ValueError(
                f"channel_axis must be a dimension of three colours, got {channel_axis} for an "
                f"image of shape {shape}."
            )
        arrays = [np.moveaxis(array, channel_axis, -1) for array in arrays]
    else:
        arrays = [array[..., None] for array in arrays]
    if frame is not None:
        if arrays[0].ndim != 4 or not -shape[0] <= frame < shape[0]:
            raise ValueError(
                f"frame must be the number of an image of a video T x H x W, got {frame} for "
                f"shape {shape}."
            )
        arrays = [array[frame] for array in arrays]
    if arrays[0].ndim != 3:
        hint = "; frame says which image of a video" if arrays[0].ndim == 4 else ""
        raise ValueError(f"An image H x W is needed, got shape {shape}{hint}.")
    return list(arrays)


def _limits(known: np.ndarray, colored: bool) -> tuple[float, float]:
    if known.size == 0:
        return 0.0, 1.0
    if colored:
        return 0.0, 255.0 if known.max() > 1 else 1.0
    return float(known.min()), float(known.max())
