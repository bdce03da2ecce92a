"""Textures of scikit-image with a hole to fill."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["BUNDLED_TEXTURES", "Hole", "Texture", "load_texture", "texture_with_hole"]

BUNDLED_TEXTURES = ("brick", "grass", "gravel")

Hole = tuple[tuple[int, int], tuple[int, int]]

_HOLE: Hole = ((60, 120), (80, 160))
_CENTER = slice(144, 368)  # of 512 x 512


@dataclass(frozen=True, eq=False)
class Texture:
    """A gray image and the pixels of it that are held out.

    Args:
        name: Name of the texture.
        image: Complete image ``H x W`` from 0 (black) to 1 (white), including the held-out pixels.
        mask: Mask ``H x W`` of the held-out pixels.
        source: Origin of the image, in words.
    """

    name: str
    image: np.ndarray
    mask: np.ndarray
    source: str


def load_texture(name: str, *, hole: Hole = _HOLE) -> Texture:
    """An image of 224 x 224 pixels with a rectangular hole, by default that of the paper.

    Args:
        name: ``"brick"``, ``"grass"`` or ``"gravel"``, which come with scikit-image (no download):
            rows and columns 144 to 367 of 512, the centre.
        hole: First row and the row after the last one, and the same of the columns.

    Raises:
        ImportError: scikit-image is not installed.
        ValueError: There is no such texture, or the hole is empty, reaches beyond the image, or is
            all of it.

    Reference: Sun et al. (2018), section 5.4, after Wilson et al. (2014).
    """
    if name not in BUNDLED_TEXTURES:
        raise ValueError(f"name must be one of {', '.join(BUNDLED_TEXTURES)}, got {name!r}.")
    try:
        from skimage import data
    except ImportError as error:
        raise ImportError(
            f"The texture {name!r} comes with scikit-image: pip install scikit-image."
        ) from error
    image = getattr(data, name)()[_CENTER, _CENTER] / 255.0
    return texture_with_hole(
        name, image, f"scikit-image's {name}, rows and columns 144 to 367", hole=hole
    )


def texture_with_hole(name: str, image: np.ndarray, source: str, *, hole: Hole = _HOLE) -> Texture:
    """Any gray image with a rectangular hole; arguments as of :class:`Texture`."""
    return Texture(name, image, _mask(image.shape, hole), source)


def _mask(shape: tuple[int, ...], hole: Hole) -> np.ndarray:
    sides = np.asarray(hole)
    if sides.shape != (2, 2) or sides.dtype.kind not in "iu":
        raise ValueError(
            f"hole must be ((row, row), (column, column)) in whole numbers, got {hole}."
        )
    for (first, end), size in zip(sides.tolist(), shape, strict=True):
        if not 0 <= first < end <= size:
            raise ValueError(
                f"hole must have a first row and column below its ends, within an image of "
                f"{shape[0]} x {shape[1]}, got {hole}."
            )
    mask = np.zeros(shape, dtype=bool)
    mask[tuple(slice(*side) for side in sides.tolist())] = True
    if mask.all():
        raise ValueError(f"hole must leave pixels of the image, got {hole}, which is all of it.")
    return mask
