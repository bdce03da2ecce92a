"""Textures with a hole to fill: one of the benchmarks, three that come with scikit-image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpytorch_nkn.datasets.data_folder import DATA_VARIABLE, data_folder

__all__ = ["Texture", "load_texture"]

Hole = tuple[tuple[int, int], tuple[int, int]]

_HOLE: Hole = ((60, 120), (80, 160))
_BUNDLED = ("brick", "grass", "gravel")
_CENTER = slice(144, 368)  # of 512 x 512


@dataclass(frozen=True, eq=False)
class Texture:
    """A gray image and the pixels of it that are held out.

    Args:
        name: What the texture is called.
        image: Complete image ``H x W`` from 0 (black) to 1 (white), the held-out pixels included.
        mask: Booleans ``H x W``, true where a pixel is held out.
        source: Where the image comes from, in words.
    """

    name: str
    image: np.ndarray
    mask: np.ndarray
    source: str


def load_texture(name: str, *, hole: Hole = _HOLE) -> Texture:
    """An image of 224 x 224 pixels with a rectangular hole, by default that of the paper.

    Args:
        name: ``"brick"``, ``"grass"`` or ``"gravel"``, which come with scikit-image (no download):
            rows and columns 144 to 367 of 512, the centre. Any other name is a file without
            ending in the folder ``textures`` of the benchmark data, such as ``"plate"``; the
            environment variable ``GPYTORCH_NKN_DATA`` names the folder of the benchmark data.
        hole: First row and the row after the last one, and the same of the columns.

    Raises:
        FileNotFoundError: The variable is not set, or there is no such file.
        ImportError: scikit-image is not installed.
        ValueError: The hole is empty, reaches beyond the image, or is all of it; or the file lacks
            the image.

    Reference: Sun et al. (2018), section 5.4, after Wilson et al. (2014).
    """
    if name in _BUNDLED:
        image, source = _bundled(name), f"scikit-image's {name}, rows and columns 144 to 367"
    else:
        image, source = _of_the_benchmarks(name), f"textures/{name}.npz of the benchmark data"
    return Texture(name, image, _mask(image.shape, hole), source)


def _bundled(name: str) -> np.ndarray:
    try:
        from skimage import data
    except ImportError as error:
        raise ImportError(
            f"The texture {name!r} comes with scikit-image: pip install scikit-image."
        ) from error
    return getattr(data, name)()[_CENTER, _CENTER] / 255.0


def _of_the_benchmarks(name: str) -> np.ndarray:
    root = data_folder()
    path = root / "textures" / f"{name}.npz"
    if not path.is_file():
        known = sorted(file.stem for file in path.parent.glob("*.npz") if "_" not in file.stem)
        raise FileNotFoundError(
            f"{DATA_VARIABLE}={root} must hold textures/{name}.npz; textures that are there: "
            f"{', '.join(known) or 'none'}; with scikit-image: {', '.join(_BUNDLED)}."
        )
    with np.load(path, allow_pickle=False) as file:
        if "gray" not in file:
            raise ValueError(f"{path} must hold gray, got {', '.join(file) or 'nothing'}.")
        return file["gray"].astype(float)


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
