"""The command ``gpytorch-nkn inpaint``."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpytorch_nkn.cli.common import (
    UserError,
    literal,
    make_folder,
    save_figure,
    say,
    user_errors,
    write_summary,
)
from gpytorch_nkn.datasets import ImageFile, read_image, read_mask

if TYPE_CHECKING:
    from gpytorch_nkn.grids import InpaintResult

__all__ = ["run_inpaint"]

_INCHES = 5.0  # length of the longer side of the figure


def run_inpaint(args: argparse.Namespace) -> None:
    """Fill an image and write its files; a UserError ends the command."""
    started = time.perf_counter()
    with user_errors("read", args.file):
        image = read_image(args.file)
    mask, notices = _missing(image, args.mask)
    make_folder(args.out)
    height, width = mask.shape
    count = int(mask.sum())
    for notice in (*image.notices, *notices):
        say(f"Note: {notice}")
    say(
        f"{image.name}: {width} x {height} pixels, {count} of them missing "
        f"({count / mask.size:.1%}); learning from the others."
    )

    training = time.perf_counter()
    result = _fill(image, mask, args)
    seconds = time.perf_counter() - training
    if result.interrupted:
        say("Note: the training was cut short; the best parameters so far are used.")
    shape = image.values.shape  # a gray image in colour has equal channels
    mean, std, filled = (
        np.broadcast_to(array[..., None] if array.ndim < len(shape) else array, shape)
        for array in (result.mean, result.std, result.filled)
    )
    with user_errors("write to", args.out):
        image.save_filled(args.out / "filled.png", filled, mask)
        np.savez_compressed(args.out / "inpaint.npz", mean=mean, std=std, mask=mask)
        figure = _draw_uncertainty(args.out / "uncertainty.png", filled, std, mask, image.name)
        typical = float(np.sqrt(np.square(std[mask]).mean()))
        channels = 1 if len(shape) == 2 else shape[-1]
        content = {
            "image": {"file": str(args.file), "width": width, "height": height}
            | {"channels": channels, "bits": image.bits},
            "missing": count,
            "notices": [*image.notices, *notices],
            "interrupted": result.interrupted,
            "std": {"typical": typical, "largest": float(std[mask].max())},
            "seconds": {
                "inpaint": round(seconds, 2),
                "total": round(time.perf_counter() - started, 2),
            },
        }
        write_summary(args, content, ["pillow"])
    say(
        f"Filled in {seconds:.1f} seconds; the RMS standard deviation is {typical:.1%} of the "
        f"range from black to white, {std[mask].max():.1%} at most."
    )
    say(f"Numbers and summary: {args.out / 'inpaint.npz'}, {args.out / 'summary.json'}")
    say(figure)
    say(f"The filled image is at {args.out / 'filled.png'}")


def _missing(image: ImageFile, path: Path | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the mask of missing pixels (some, but not all), and notices."""
    notices: tuple[str, ...] = ()
    if path is None:
        mask = image.transparent
        where = "no pixel is transparent: pass the missing pixels by --mask"
    else:
        with user_errors("read", path):
            mask, notices = read_mask(path)
        where = f"{path} is black everywhere: nothing is missing"
        if mask.shape != image.transparent.shape:
            expected, got = (
                f"{shape[1]} x {shape[0]}" for shape in (image.transparent.shape, mask.shape)
            )
            raise UserError(f"the mask must have {expected} pixels, like the image, got {got}")
        unused = int((image.transparent & ~mask).sum())
        if unused:
            notices += (f"Training uses {unused} transparent pixels, which the mask omits.",)
    if not mask.any():
        raise UserError(where)
    if mask.all():
        raise UserError(f"all {mask.size} pixels are missing: there is nothing to learn from")
    known_pixels = image.values[~mask]
    if np.ptp(known_pixels, axis=0).max() == 0:
        raise UserError(f"all {len(known_pixels)} pixels that are not missing have one colour")
    return mask, notices


def _fill(image: ImageFile, mask: np.ndarray, args: argparse.Namespace) -> InpaintResult:
    from gpytorch_nkn.grids import inpaint

    values = image.values
    if values.ndim == 3 and (values == values[..., :1]).all():
        values = values[..., 0]
    with user_errors("train"):
        return inpaint(
            values,
            mask,
            structure=args.kernel,
            channel_axis=-1 if values.ndim == 3 else None,
            budget=args.budget,
            seed=args.seed,
            progress=not args.no_progress,
        )


def _draw_uncertainty(
    path: Path, filled: np.ndarray, std: np.ndarray, mask: np.ndarray, name: str
) -> str:
    """Draw standard deviations of the missing pixels over the pale image, as in save_figure."""
    height, width = mask.shape
    scale = _INCHES / max(height, width)
    from gpytorch_nkn.plotting import draw_uncertainty, put_title

    image, deviations = (np.atleast_3d(array) for array in (filled, std))
    image = np.clip(np.broadcast_to(image, (*mask.shape, 3)), 0, 1)
    label = "standard deviation (0 black, 1 white)"

    def draw(ax: Any) -> None:
        draw_uncertainty(ax, image, deviations, mask, label)
        put_title(ax, literal(f"Uncertainty of the filled pixels of {name}"))

    return save_figure(path, (max(width * scale, 3.5), height * scale + 1.2), draw)
