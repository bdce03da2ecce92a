"""Scratches, text and holes in the photographs of scikit-image, filled by us and by others.

``python -m benchmarks.photographs`` cuts twelve images of scikit-image to squares of 256 x 256 grey
pixels, takes away scratches (twelve lines of ``numpy.random.default_rng(0)``, one to three pixels
wide), these and a blob of 13 x 13 pixels, five lines of text, a hole of 60 x 60 pixels in the
middle or at the left edge, the left quarter, a corner of 96 x 96 pixels, or all but 3 % of them,
and compares :func:`gpytorch_nkn.grids.inpaint` with the biharmonic fill of scikit-image and, where
``opencv-python-headless`` is installed, OpenCV's Telea and Navier-Stokes (radius 3).
Six of the images were looked at while the defaults were chosen; the others are reported apart.
``--out`` names a folder for pictures of the fills.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy and torch read them

import argparse  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402

from gpytorch_nkn.grids import inpaint  # noqa: E402

__all__ = ["LOOKED_AT", "MASKS", "UNSEEN", "main", "mask_of", "peers", "photograph", "psnr"]

LOOKED_AT = ("camera", "coffee", "rocket", "grass", "page", "moon")
UNSEEN = ("astronaut", "chelsea", "brick", "gravel", "coins", "text")
MASKS = ("scratches", "blob", "text", "hole", "edge", "side", "corner", "sparse")
_SIDE = 256
_LINES = ("Inpainting by a", "Gaussian process", "of learned kernels", "0123456789", "and the rest")


def photograph(name: str) -> np.ndarray:
    """The square in the middle of an image of scikit-image, grey, from 0 to 1."""
    from skimage import color, data, transform

    image = getattr(data, name)()
    image = color.rgb2gray(image) if image.ndim == 3 else image / 255
    side = min(image.shape)
    top, left = ((n - side) // 2 for n in image.shape)
    square = image[top : top + side, left : left + side]
    return transform.resize(square, (_SIDE, _SIDE), anti_aliasing=True)


def mask_of(kind: str) -> np.ndarray:
    """Booleans ``256 x 256``, true where a pixel is missing."""
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


def peers(image: np.ndarray, mask: np.ndarray) -> dict[str, np.ndarray]:
    """What others make of it; those that are not installed are left out."""
    from skimage.restoration import inpaint_biharmonic

    found = {"biharmonic": inpaint_biharmonic(np.where(mask, 0, image), mask)}
    try:
        import cv2
    except ImportError:
        return found
    levels = np.where(mask, 0, np.round(255 * image)).astype(np.uint8)
    for name, method in (("Telea", cv2.INPAINT_TELEA), ("Navier-Stokes", cv2.INPAINT_NS)):
        found[name] = cv2.inpaint(levels, mask.astype(np.uint8), 3, method) / 255
    return found


def psnr(truth: np.ndarray, filled: np.ndarray, mask: np.ndarray) -> float:
    """Peak signal-to-noise ratio of the missing pixels in decibels, for gray from 0 to 1."""
    return float(-10 * np.log10(np.square(filled - truth)[mask].mean()))


def main(argv: Sequence[str] | None = None) -> int:
    """Print a row for each image and mask, the mean of each group after it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.photographs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--images", nargs="+", default=LOOKED_AT + UNSEEN, metavar="NAME")
    parser.add_argument("--masks", nargs="+", choices=MASKS, default=MASKS)
    parser.add_argument("--budget", type=float, metavar="S", help="of each fill; default: none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="of pictures")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    inpaint(np.eye(20), np.eye(20) > 0, progress=False)  # imports are not what is measured
    others = list(peers(np.eye(20), np.eye(20) > 0))
    heads = ["image", "missing", "dB", *others, "to the best", "95 % coverage", "CPU s", "wall s"]
    for group in (LOOKED_AT, UNSEEN):
        names = [name for name in args.images if name in group]
        if not names:
            continue
        print(f"\n{'Looked at' if group is LOOKED_AT else 'Unseen'}:\n")
        print("| " + " | ".join([*heads, "weights"]) + " |\n|" + " --- |" * (len(heads) + 1))
        rows = []
        for kind in args.masks:
            for name in names:
                row, weights = _row(name, kind, args)
                rows.append(row)
                print(_line([name, kind], row, weights), flush=True)
        print(_line(["mean", ""], np.mean(rows, 0), ""))
        print(_line(["least", ""], np.min(rows, 0), ""))
    return 0


def _row(name: str, kind: str, args: argparse.Namespace) -> tuple[list[float], str]:
    truth, mask = photograph(name), mask_of(kind)
    given = np.where(mask, np.nan, truth)
    start = time.process_time(), time.perf_counter()
    result = inpaint(given, budget=args.budget, seed=args.seed, progress=False)
    cpu, wall = time.process_time() - start[0], time.perf_counter() - start[1]
    fills = {"NKN": result.filled} | peers(truth, mask)
    own, *scores = (psnr(truth, filled, mask) for filled in fills.values())
    covered = (np.abs(result.mean - truth) < 1.96 * result.std)[mask].mean()
    if args.out is not None:
        _draw(args.out / f"{name}-{kind}.png", truth, given, fills, result.std)
    weights = ", ".join(f"{key} {value:.2f}" for key, value in result.weights.items())
    return [own, *scores, own - max(scores), 100 * covered, cpu, wall], weights


def _line(names: Sequence[str], row: Sequence[float], weights: str) -> str:
    *scores, gap, covered, cpu, wall = row
    cells = [*names, *(f"{s:.1f}" for s in scores), f"{gap:+.1f}", f"{covered:.0f}%"]
    return "| " + " | ".join([*cells, f"{cpu:.1f}", f"{wall:.1f}", weights]) + " |"


def _draw(
    path: Path,
    truth: np.ndarray,
    given: np.ndarray,
    fills: dict[str, np.ndarray],
    std: np.ndarray,
) -> None:
    from matplotlib.figure import Figure

    path.parent.mkdir(parents=True, exist_ok=True)
    pictures = {"given": given, **fills, "truth": truth}
    axes = Figure(figsize=(3 * (len(pictures) + 1), 3.3), layout="constrained").subplots(
        1, len(pictures) + 1
    )
    for ax, (title, picture) in zip(axes, pictures.items(), strict=False):
        ax.imshow(picture, cmap="gray", vmin=0, vmax=1)
        ax.set_title(title)
    axes[-1].imshow(std)
    axes[-1].set_title("standard deviation")
    for ax in axes:
        ax.set_axis_off()
    axes[0].figure.savefig(path, dpi=80)


if __name__ == "__main__":
    sys.exit(main())
