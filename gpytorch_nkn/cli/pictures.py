"""The picture of uncertainty that ``gpytorch-nkn inpaint`` writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_uncertainty"]

_PALE = 0.25  # contrast of the known pixels
_INCHES = 5.0  # of the longer side


def draw_uncertainty(
    path: Path, filled: np.ndarray, std: np.ndarray, mask: np.ndarray, name: str
) -> bool:
    """Draw the deviation of the missing pixels over the pale image; False without matplotlib.

    Args:
        path: The file.
        filled: Image ``H x W`` or ``H x W x C`` from 0 to 1.
        std: Standard deviations of the same shape.
        mask: Booleans ``H x W``, true where a pixel is missing.
        name: What the image is called.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    from gpytorch_nkn.plotting import put_title

    height, width = mask.shape
    scale = _INCHES / max(height, width)
    beside = _has_bar_beside(mask)
    size = (
        max(width * scale, 3.0) + 1.2 * beside,
        max(height * scale, 3.0 * beside) + (0.6 if beside else 1.2),
    )
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    ax = figure.add_subplot()
    _draw(ax, filled, std, mask)
    put_title(ax, f"Uncertainty of the filled pixels of {name}".replace("$", r"\$"))
    figure.savefig(path)
    return True


def _draw(ax: Axes, filled: np.ndarray, std: np.ndarray, mask: np.ndarray) -> Axes:
    from gpytorch_nkn.plotting import draw_outline

    colors = np.clip(filled if filled.ndim == 3 else np.repeat(filled[..., None], 3, -1), 0, 1)
    ax.imshow(1 - _PALE * (1 - colors))
    joint = std if std.ndim == 2 else np.sqrt(np.square(std).mean(-1))
    largest = float(joint[mask].max())
    shown = ax.imshow(
        np.ma.masked_array(joint, ~mask), cmap="viridis", vmin=0.0, vmax=largest or 1.0
    )
    draw_outline(ax, mask)
    ax.set(xlim=(-0.75, mask.shape[1] - 0.25), ylim=(mask.shape[0] - 0.25, -0.75))
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    location = "right" if _has_bar_beside(mask) else "bottom"
    bar = ax.figure.colorbar(shown, ax=ax, shrink=0.9, location=location)
    bar.outline.set_visible(False)
    bar.set_label("standard deviation (0 black, 1 white)")
    return ax


def _has_bar_beside(mask: np.ndarray) -> bool:
    """False for wide images, which are not high enough for the words at a bar beside them."""
    return mask.shape[1] < 1.6 * mask.shape[0]
