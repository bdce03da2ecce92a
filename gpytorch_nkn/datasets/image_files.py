"""Image files: pixels, masks, and filled copies."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpytorch_nkn._optional import needs

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["ImageFile", "read_image", "read_mask"]

_MODES = ("L", "LA", "RGB", "RGBA")  # other modes are converted to one of these
_LOSSY = ("JPEG", "MPO", "WEBP")


@dataclass(frozen=True, eq=False)
class ImageFile:
    """Pixels of an image file.

    Args:
        name: Name of the file without its extension.
        pixels: Integers of the file, ``H x W`` or ``H x W x C``.
        has_opacity: Whether the last channel is the opacity.
        notices: Information that was lost while reading, one sentence each.
        clear: Value of the fully transparent pixels of a gray image without opacity, if any.
    """

    name: str
    pixels: np.ndarray
    has_opacity: bool = False
    notices: tuple[str, ...] = ()
    clear: int | None = None

    @property
    def bits(self) -> int:
        """Bits of each channel, 8 or 16."""
        return 8 * self.pixels.dtype.itemsize

    @property
    def values(self) -> np.ndarray:
        """Gray ``H x W`` or colour ``H x W x 3`` from 0 (black) to 1 (white), in float64."""
        colors = self.pixels[..., :-1] if self.has_opacity else self.pixels
        if colors.ndim == 3 and colors.shape[-1] == 1:
            colors = colors[..., 0]
        return colors / np.iinfo(self.pixels.dtype).max

    @property
    def transparent(self) -> np.ndarray:
        """Booleans ``H x W``, true where a pixel is fully transparent."""
        if self.has_opacity:
            return self.pixels[..., -1] == 0
        if self.clear is not None:
            return self.pixels == self.clear
        return np.zeros(self.pixels.shape[:2], dtype=bool)

    def save_filled(self, path: str | os.PathLike, values: np.ndarray, mask: np.ndarray) -> None:
        """Write a PNG with the same channels and depth, and opaque values of the missing pixels.

        Args:
            path: The file.
            values: Values with the shape of :attr:`values`; clipped to 0 and 1 and rounded to the
                depth of the file.
            mask: Booleans ``H x W``, true where a pixel is missing; other pixels stay the same.
        """
        white = np.iinfo(self.pixels.dtype).max
        filled = np.rint(np.clip(values, 0, 1) * white)
        if self.has_opacity:
            opaque = np.full((*mask.shape, 1), white)
            filled = np.concatenate([np.reshape(filled, (*mask.shape, -1)), opaque], -1)
        pixels = self.pixels.copy()
        pixels[mask] = filled.reshape(pixels.shape)[mask]
        from PIL import Image

        Image.fromarray(pixels).save(path, format="PNG")


def read_image(path: str | os.PathLike) -> ImageFile:
    """Read an image that Pillow knows: gray or colour, with or without opacity, 8 or 16 bits.

    An orientation in the file is applied. Palettes, black-and-white images and other colour spaces
    become gray or RGB. Pillow reads 16 bits of colour images as 8; a notice states this.
    """
    path = Path(path)
    return _as_integers(path, *_open(path))


def read_mask(path: str | os.PathLike) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the mask ``H x W`` of missing pixels, those that are not black, and notices.

    Fully transparent pixels are not missing. Lossy compression (JPEG) makes black inexact; in such
    files missing pixels are brighter than half of the range.
    """
    path = Path(path)
    image, notices = _open(path)
    file = _as_integers(path, image, notices)
    brightness = file.values.reshape(*file.pixels.shape[:2], -1).max(-1)
    lossy = image.format in _LOSSY
    if lossy:
        notices += (f"{path.name} has lossy compression: bright pixels count as missing.",)
    return (brightness > (0.5 if lossy else 0.0)) & ~file.transparent, notices


def _as_integers(path: Path, image: Image.Image, notices: tuple[str, ...]) -> ImageFile:
    if image.mode == "F":
        raise ValueError(f"{path} must hold whole numbers, got floating-point ones.")
    if image.mode.startswith("I"):  # I;16, or I for some PNGs of 16 bits
        numbers = np.asarray(image)
        if numbers.min() < 0 or numbers.max() > 65535:
            raise ValueError(f"{path} must have 8 or 16 bits per channel, got 32.")
        clear = image.info.get("transparency")
        return ImageFile(path.stem, numbers.astype(np.uint16), False, notices, clear)
    if image.mode not in _MODES or (image.has_transparency_data and "A" not in image.mode):
        gray = image.mode in ("1", "L")
        image = image.convert(("L" if gray else "RGB") + "A" * image.has_transparency_data)
    return ImageFile(path.stem, np.asarray(image), "A" in image.mode, notices)


def _open(path: Path) -> tuple[Image.Image, tuple[str, ...]]:
    with needs("gpytorch_nkn.datasets.read_image"):
        from PIL import Image, ImageOps, UnidentifiedImageError
    with path.open("rb") as file:
        try:
            image = Image.open(file)
            notices = []
            tiles = getattr(image, "tile", [])  # encoding of the file
            if not image.mode.startswith("I") and any("16" in str(tile[3]) for tile in tiles):
                notices.append(f"{path.name} has 16 bits of colour or opacity; only 8 are read.")
            if (frames := getattr(image, "n_frames", 1)) > 1:
                notices.append(f"{path.name} holds {frames} pictures; the first is read.")
            image.load()
        except UnidentifiedImageError:
            raise ValueError(
                f"Pillow cannot read {path} as an image; gpytorch_nkn.grids.inpaint fills arrays."
            ) from None
        except (OSError, SyntaxError, EOFError) as error:
            raise ValueError(f"{path} is a damaged image: {error}.") from None
        except Image.DecompressionBombError as error:
            raise ValueError(f"{path} is too large: {error}") from None
    upright = ImageOps.exif_transpose(image)
    upright.format = image.format
    return upright, tuple(notices)
