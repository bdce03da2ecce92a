"""What textures are compared with: fills that learn nothing, and the error that all are judged by.

``python -m benchmarks.texture_references`` prints the errors of both fills on every texture, and
that of the published fill of the metal plate. The environment variable GPYTORCH_NKN_DATA names the
folder of the data.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.linalg import spsolve

from benchmarks.data import data_folder, load_texture

__all__ = ["harmonic_fill", "main", "mean_fill", "published_fill", "smse"]

TEXTURES = ("plate", "brick", "grass", "gravel")


def harmonic_fill(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Fill the missing pixels so that each is the mean of its neighbours (Laplace's equation).

    A pixel at the border of the image has fewer neighbours, which is a slope of zero across it.

    Args:
        image: Values ``H x W``; those of missing pixels are not used and may be NaN.
        mask: Booleans ``H x W``, true where a pixel is missing; at least one is not.

    Returns:
        The filled image ``H x W``.
    """
    height, width = mask.shape
    missing = np.flatnonzero(mask)
    number = np.full(mask.size, -1)
    number[missing] = np.arange(missing.size)
    rows, columns = np.divmod(missing, width)
    known = np.where(mask, 0.0, image).ravel()
    right_side = np.zeros(missing.size)
    degree = np.zeros(missing.size)
    entries: list[np.ndarray] = []
    for down, across in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        row, column = rows + down, columns + across
        inside = np.flatnonzero((row >= 0) & (row < height) & (column >= 0) & (column < width))
        neighbour = row[inside] * width + column[inside]
        degree[inside] += 1
        right_side[inside] += known[neighbour]
        unknown = number[neighbour] >= 0
        entries.append(np.stack([inside[unknown], number[neighbour[unknown]]]))
    off = np.concatenate(entries, axis=1)
    diagonal = np.arange(missing.size)
    indices = np.concatenate([off, np.stack([diagonal, diagonal])], axis=1)
    values = np.concatenate([-np.ones(off.shape[1]), degree])
    laplacian = coo_array((values, tuple(indices)), shape=(missing.size,) * 2).tocsc()
    filled = np.array(image, dtype=float)
    filled[mask] = spsolve(laplacian, right_side)
    return filled


def mean_fill(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Fill the missing pixels with the mean of the others."""
    return np.where(mask, image[~mask].mean(), image)


def published_fill() -> np.ndarray:
    """The metal plate ``224 x 224`` with its hole as Sun et al. (2018) filled it."""
    texture = load_texture("plate")
    with np.load(data_folder() / "textures" / "plate_nkn_reference.npz") as file:
        filled = texture.image.copy()
        filled[texture.mask] = file["pred_hole"].ravel()
    return filled


def smse(truth: np.ndarray, filled: np.ndarray, mask: np.ndarray) -> float:
    """Mean squared error in the hole, in units of the variance of the truth there."""
    return float(np.square(filled - truth)[mask].mean() / truth[mask].var())


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table of the errors."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.texture_references", description=__doc__
    )
    parser.add_argument("--textures", nargs="+", default=TEXTURES, metavar="NAME")
    args = parser.parse_args(argv)
    print("| texture | SMSE, mean fill | SMSE, harmonic fill | SMSE, published fill | seconds |")
    print("| --- | --- | --- | --- | --- |")
    for name in args.textures:
        texture = load_texture(name)
        image, mask = texture.image, texture.mask
        start = time.perf_counter()
        harmonic = smse(image, harmonic_fill(image, mask), mask)
        seconds = time.perf_counter() - start
        mean = smse(image, mean_fill(image, mask), mask)
        published = f"{smse(image, published_fill(), mask):.3f}" if name == "plate" else ""
        print(f"| {name} | {mean:.3f} | {harmonic:.3f} | {published} | {seconds:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
