"""Plot of an inpainted image with its holes and standard deviations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from gpytorch_nkn.plotting.style import ORANGE, add_bar, as_array, as_list_of_axes, put_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_uncertainty", "plot_inpainting"]

Given = TypeVar("Given")

_PALE = 0.25  # contrast of known cells in the plot of standard deviations
_FEW_EDGES = 100  # largest number of cell edges for which all holes have outlines


def plot_inpainting(
    axes: Given, result: Any, *, truth: ArrayLike | None = None, label: str = "standard deviation"
) -> Given:
    """Draw an image with its holes, the filled image and the standard deviations.

    Missing cells are orange in the first plot. In the others, holes have orange outlines unless
    they are scattered. Black and white are the smallest and largest known values. For colour images
    they are 0 and 1, or 0 and 255 if a known value exceeds 1.

    Args:
        axes: Three Axes, four with ``truth``, as a sequence or an array of any shape.
        result: Result of :func:`gpytorch_nkn.grids.inpaint`: the image ``filled``, its standard
            deviations ``std`` and the booleans ``missing``. All are ``H x W``, or ``H x W x 3`` in
            colour.
        truth: The image without holes, of the same shape; drawn last.
        label: Label of the colour bar, with its unit. Colours show the RMS over colour channels.

    Raises:
        TypeError: An entry of ``axes`` is not an Axes, or an array is not numerical.
        ValueError: The number of axes is wrong, shapes differ, numbers are not finite, or no cell
            is missing.
    """
    from matplotlib.colors import to_rgb

    images: list[tuple[str, ArrayLike]] = [("filled", result.filled), ("std", result.std)]
    if truth is not None:
        images.append(("truth", truth))
    flat = as_list_of_axes(axes, 1 + len(images), "picture")
    missing = np.asarray(result.missing)
    if missing.dtype != bool:
        raise TypeError(f"missing must hold booleans, got {missing.dtype}.")
    shape = missing.shape
    if shape[2:] not in ((), (3,)) or len(shape) < 2:
        raise ValueError(f"filled must be an image H x W or H x W x 3, got shape {shape}.")
    arrays = [as_array(name, values, ndim=missing.ndim, shape=shape) for name, values in images]
    cells, filled, std, *rest = (np.atleast_3d(a) for a in (missing, *arrays))
    hole = np.asarray(cells.any(-1))
    if not hole.any():
        raise ValueError("At least one cell of the image must be missing, got none.")
    known_values = filled[~cells] if not cells.all() else np.array([0.0, 1.0])
    low, high = known_values.min(), known_values.max()
    if len(shape) == 3:
        low, high = 0.0, 255.0 if high > 1 else 1.0

    def colors(values: np.ndarray) -> np.ndarray:
        shown = np.clip((values - low) / ((high - low) or 1.0), 0, 1)
        return np.broadcast_to(shown, (*hole.shape, 3))

    picture = colors(filled)
    _draw_picture(flat[0], np.where(hole[..., None], to_rgb(ORANGE), picture))
    _draw_picture(flat[1], picture, hole)
    draw_uncertainty(flat[2], picture, std, hole, label)
    for ax, values in zip(flat[3:], rest, strict=True):
        _draw_picture(ax, colors(values), hole)
    titles = "with holes", "filled", "uncertainty", "truth"
    for ax, title in zip(flat, titles, strict=False):
        put_title(ax, title)
        ax.set_anchor("N")  # align images at the top, because one has a colour bar below
    return axes


def draw_uncertainty(
    ax: Axes, whole: np.ndarray, std: np.ndarray, hole: np.ndarray, label: str
) -> None:
    """Draw standard deviations ``H x W x C`` in the holes of a pale image ``H x W x 3``."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    joint = np.sqrt(np.square(std).mean(-1))
    scale = ScalarMappable(Normalize(0.0, float(joint[hole].max()) or 1.0), "viridis")
    pale = 1 - _PALE * (1 - whole)
    _draw_picture(ax, np.where(hole[..., None], scale.to_rgba(joint)[..., :3], pale), hole)
    add_bar(ax, scale, location="bottom", shrink=0.9, label=label)


def _draw_picture(ax: Axes, picture: np.ndarray, hole: np.ndarray | None = None) -> None:
    """Draw an image without a frame, and outlines of its holes unless they are scattered."""
    ax.imshow(picture)
    if hole is not None:
        padded = np.pad(hole, 1)  # closes outlines at the borders
        edges = sum(int((padded != np.roll(padded, 1, axis)).sum()) for axis in (0, 1))
        if edges <= max(hole.sum(), _FEW_EDGES):
            rows, columns = (np.arange(-1, size + 1) for size in hole.shape)
            line: Any = {"levels": [0.5], "colors": ORANGE, "linewidths": 1.2}
            ax.contour(columns, rows, padded.astype(float), **line)
    height, width = picture.shape[:2]
    ax.set(xlim=(-0.75, width - 0.25), ylim=(height - 0.25, -0.75), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
