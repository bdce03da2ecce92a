"""Scratches, text and holes in the photographs of scikit-image, filled by several methods.

Twelve images are squares of 256 x 256 grey pixels. The masks are scratches (twelve lines of
``numpy.random.default_rng(0)``, one to three pixels wide), scratches and a blob of 13 x 13 pixels,
five lines of text, a hole of 60 x 60 pixels in the middle or at the left edge, the left quarter, a
corner of 96 x 96 pixels, or all but 3 % of the pixels. The defaults were chosen on six of the
images; the others are reported separately.
"""

from __future__ import annotations

import numpy as np

from benchmarks.report import Table
from benchmarks.runner import Axis, Benchmark, timed
from gpytorch_nkn.grids import inpaint

__all__ = ["BENCHMARK", "MASKS", "mask_of", "photograph", "psnr"]

_SEEN = ("camera", "coffee", "rocket", "grass", "page", "moon")
_UNSEEN = ("astronaut", "chelsea", "brick", "gravel", "coins", "text")
MASKS = ("scratches", "text", "hole", "edge", "blob", "side", "corner", "sparse")
_SIDE = 256
_LINES = ("Inpainting by a", "Gaussian process", "of learned kernels", "0123456789", "and the rest")


def photograph(name: str) -> np.ndarray:
    """Return the central square of an image of scikit-image, grey, from 0 to 1."""
    from skimage import color, data, transform

    image = getattr(data, name)()
    image = color.rgb2gray(image) if image.ndim == 3 else image / 255
    size = min(image.shape)
    top, left = ((n - size) // 2 for n in image.shape)
    square = image[top : top + size, left : left + size]
    return transform.resize(square, (_SIDE, _SIDE), anti_aliasing=True)


def mask_of(kind: str) -> np.ndarray:
    """Return the mask ``256 x 256`` of missing pixels."""
    mask = np.zeros((_SIDE, _SIDE), dtype=bool)
    if kind == "hole":
        mask[98:158, 98:158] = True
    elif kind == "edge":
        mask[120:180, :60] = True
    elif kind == "side":
        mask[:, :64] = True
    elif kind == "corner":
        mask[:96, :96] = True
    elif kind == "sparse":
        mask = np.random.default_rng(0).random(mask.shape) > 0.03
    elif kind in ("scratches", "blob"):
        mask[100:113, 60:73] = kind == "blob"
        rng = np.random.default_rng(0)
        for _ in range(12):
            begin, end = rng.uniform(0, _SIDE, 2), rng.uniform(0, _SIDE, 2)
            width = rng.integers(1, 4)
            for t in np.linspace(0, 1, 4 * _SIDE):
                row, column = (begin + (end - begin) * t).astype(int)
                mask[row : row + width, column : column + width] = True
    else:
        from PIL import Image, ImageDraw, ImageFont

        drawn = Image.new("L", mask.shape)
        for number, line in enumerate(_LINES):
            place = (4, 8 + 50 * number)
            ImageDraw.Draw(drawn).text(place, line, 255, ImageFont.load_default(size=28))
        mask = np.asarray(drawn) > 127
    return mask


def _peers(image: np.ndarray, mask: np.ndarray) -> dict[str, np.ndarray]:
    """Return results of other installed methods."""
    from skimage.restoration import inpaint_biharmonic

    fills = {"biharmonic": inpaint_biharmonic(np.where(mask, 0, image), mask)}
    try:
        import cv2
    except ImportError:
        return fills
    levels = np.where(mask, 0, np.round(255 * image)).astype(np.uint8)
    for name, method in (("Telea", cv2.INPAINT_TELEA), ("Navier-Stokes", cv2.INPAINT_NS)):
        fills[name] = cv2.inpaint(levels, mask.astype(np.uint8), 3, method) / 255
    return fills


def psnr(truth: np.ndarray, filled: np.ndarray, mask: np.ndarray) -> float:
    """Return the peak signal-to-noise ratio of missing pixels in decibels, for grey from 0 to 1."""
    return float(-10 * np.log10(np.square(filled - truth)[mask].mean()))


def run(image: str, missing: str, seed: int, budget: float) -> dict:
    """Return decibels of every method, and the coverage of our intervals."""
    truth, mask = photograph(image), mask_of(missing)
    given = np.where(mask, np.nan, truth)
    limit = budget or None
    result, seconds = timed(lambda: inpaint(given, budget=limit, seed=seed, progress=False))
    fills = {"dB": result.filled} | _peers(truth, mask)
    inside = (np.abs(result.mean - truth) < 1.96 * result.std)[mask]
    return {
        "fills": {name: psnr(truth, filled, mask) for name, filled in fills.items()},
        "covered": float(inside.mean()),
        "seconds": seconds,
        "weights": {name: float(value) for name, value in result.weights.items()},
    }


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return a row for each image and mask."""
    by_table: dict[str, list[dict]] = {}
    for row in sorted(rows, key=lambda row: MASKS.index(row["missing"])):
        ours, *others = row["fills"].values()
        name = "photographs_seen" if row["image"] in _SEEN else "photographs_unseen"
        name = name if row["missing"] in MASKS[:4] else "photographs_extrapolated"
        by_table.setdefault(name, []).append(
            {
                "image": row["image"],
                "missing": row["missing"],
                **{fill: f"{value:.1f}" for fill, value in row["fills"].items()},
                "to the best": f"{ours - max(others):+.1f}",
                "95 % coverage": f"{row['covered']:.0%}",
                "CPU s": f"{row['seconds']:.1f}",
                "weights": ", ".join(f"{k} {v:.2f}" for k, v in row["weights"].items()),
            }
        )
    return {name: Table.of(lines) for name, lines in by_table.items()}


BENCHMARK = Benchmark(
    {"image": Axis([*_SEEN, *_UNSEEN]), "missing": Axis(MASKS, MASKS[:4])},
    run,
    tables,
    settings={"seed": 0, "budget": 0.0},
    warm_up=lambda method: inpaint(np.eye(20), np.eye(20) > 0, progress=False),
)

if __name__ == "__main__":
    BENCHMARK.command()
