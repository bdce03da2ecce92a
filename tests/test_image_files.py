import struct
import zlib

import numpy as np
import pytest

from gpytorch_nkn.datasets.image_files import read_image, read_mask

Image = pytest.importorskip("PIL.Image", reason="needs Pillow")


def draw(*shape, top=256, dtype=np.uint8):
    return np.random.default_rng(0).integers(top, size=shape).astype(dtype)


def png_of_16_bits(pixels):
    """Bytes of a PNG, which Pillow cannot write with 16 bits of colour: PNG specification, 11.2."""
    height, width, channels = pixels.shape
    kind = {3: 2, 4: 6}[channels]
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in pixels)
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


@pytest.mark.parametrize(
    ("pixels", "mode"),
    [
        (draw(5, 7), "L"),
        (draw(5, 7, 2), "LA"),
        (draw(5, 7, 3), "RGB"),
        (draw(5, 7, 4), "RGBA"),
        (draw(5, 7, top=65536, dtype=np.uint16), "I;16"),
    ],
    ids=["gray", "gray with opacity", "colour", "colour with opacity", "16 bits"],
)
def test_pictures_keep_their_kind_and_their_known_pixels(tmp_path, pixels, mode):
    Image.fromarray(pixels).save(tmp_path / "a.png")
    image = read_image(tmp_path / "a.png")
    white = 65535 if mode == "I;16" else 255
    assert image.name == "a" and image.notices == () and image.bits == (white + 1).bit_length() - 1
    colors = pixels if pixels.ndim == 2 else pixels[..., : 1 if mode == "LA" else 3]
    expected = colors[..., 0] if mode == "LA" else colors
    np.testing.assert_array_equal(image.values, expected / white)
    mask = np.zeros((5, 7), dtype=bool)
    mask[1:3, 2:6] = True
    values = np.full(image.values.shape, 0.25)
    values[1, 2], values[1, 3] = -0.3, 1.7
    image.save_filled(tmp_path / "b.png", values, mask)
    with Image.open(tmp_path / "b.png") as file:
        assert file.mode == mode
        filled = np.asarray(file)
    np.testing.assert_array_equal(filled[~mask], pixels[~mask])
    colored = filled[..., :-1] if image.has_opacity else filled
    assert np.unique(colored[2, 2:6]) == round(0.25 * white)
    assert np.unique(colored[1, 2]) == 0 and np.unique(colored[1, 3]) == white
    if image.has_opacity:
        np.testing.assert_array_equal(image.transparent, pixels[..., -1] == 0)
        assert (filled[mask, -1] == 255).all()
    else:
        assert not image.transparent.any()


def test_palettes_and_other_modes_become_gray_or_colour(tmp_path):
    colors = draw(4, 6, 3)
    picture = Image.fromarray(colors)
    palette = picture.quantize(8)
    palette.save(tmp_path / "palette.png")
    expected = np.asarray(palette.convert("RGB")) / 255
    np.testing.assert_array_equal(read_image(tmp_path / "palette.png").values, expected)
    palette.save(tmp_path / "hole.png", transparency=3)
    transparent = read_image(tmp_path / "hole.png").transparent
    np.testing.assert_array_equal(transparent, np.asarray(palette) == 3)
    deep = np.arange(24, dtype=np.uint16).reshape(4, 6) * 1234
    Image.fromarray(deep).save(tmp_path / "deep.png", transparency=2468)
    np.testing.assert_array_equal(read_image(tmp_path / "deep.png").transparent, deep == 2468)
    bits = draw(4, 6) > 127
    Image.fromarray(bits).save(tmp_path / "bits.png")
    np.testing.assert_array_equal(read_image(tmp_path / "bits.png").values, bits)
    picture.convert("CMYK").save(tmp_path / "print.tif")
    assert read_image(tmp_path / "print.tif").values.shape == (4, 6, 3)


def test_orientation_of_a_photograph_is_applied(tmp_path):
    gray = np.zeros((4, 6), dtype=np.uint8)
    gray[:, :3] = 200
    exif = Image.Exif()
    exif[0x0112] = 6  # the first row is the right side
    Image.fromarray(gray).save(tmp_path / "a.jpg", exif=exif, quality=100)
    values = read_image(tmp_path / "a.jpg").values
    assert values.shape == (6, 4)
    assert values[:3].min() > 0.7 and values[3:].max() < 0.1


@pytest.mark.parametrize("channels", [3, 4])
def test_colour_of_16_bits_is_read_with_8_and_says_so(tmp_path, channels):
    pixels = draw(3, 4, channels, top=65536, dtype=np.uint16)
    (tmp_path / "deep.png").write_bytes(png_of_16_bits(pixels))
    image = read_image(tmp_path / "deep.png")
    assert np.abs(image.values - pixels[..., :3] / 65535).max() < 1 / 255
    assert image.bits == 8
    assert image.notices == ("deep.png has 16 bits of colour or opacity; only 8 are read.",)


def test_the_first_of_several_pictures_is_read(tmp_path):
    first, second = Image.fromarray(draw(3, 4)), Image.new("L", (4, 3))
    first.save(tmp_path / "a.tif", save_all=True, append_images=[second])
    image = read_image(tmp_path / "a.tif")
    np.testing.assert_array_equal(image.pixels, draw(3, 4))
    assert image.notices == ("a.tif holds 2 pictures; the first is read.",)


def test_files_that_are_no_pictures_are_rejected(tmp_path):
    (tmp_path / "a.png").write_text("no picture")
    with pytest.raises(ValueError, match=r"Pillow cannot read .*a\.png as an image"):
        read_image(tmp_path / "a.png")
    Image.fromarray(draw(40, 50)).save(tmp_path / "whole.png")
    (tmp_path / "half.png").write_bytes((tmp_path / "whole.png").read_bytes()[:900])
    with pytest.raises(ValueError, match=r"half\.png is a damaged image: "):
        read_image(tmp_path / "half.png")
    Image.fromarray(np.ones((2, 2), dtype=np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(ValueError, match="whole numbers, got floating-point ones"):
        read_image(tmp_path / "a.tif")
    Image.fromarray(np.array([[0, 70000]], dtype=np.int32)).save(tmp_path / "b.tif")
    with pytest.raises(ValueError, match="8 or 16 bits per channel, got 32"):
        read_image(tmp_path / "b.tif")
    with pytest.raises(FileNotFoundError):
        read_image(tmp_path / "nothing.png")


def test_masks_are_what_is_not_black(tmp_path):
    gray = np.array([[0, 1, 128], [255, 0, 0]], dtype=np.uint8)
    expected = [[False, True, True], [True, False, False]]
    color = np.zeros((2, 3, 3), dtype=np.uint8)
    color[..., 2] = gray
    opaque = np.concatenate([color, np.full((2, 3, 1), 255, np.uint8)], axis=-1)
    clear = opaque.copy()
    clear[0, 1, 3] = 0
    for name, pixels in {
        "gray": gray,
        "bits": gray > 0,
        "deep": gray.astype(np.uint16),
        "color": color,
        "opaque": opaque,
    }.items():
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
        mask, notices = read_mask(tmp_path / f"{name}.png")
        assert mask.tolist() == expected and notices == (), name
    Image.fromarray(clear).save(tmp_path / "clear.png")
    mask, _ = read_mask(tmp_path / "clear.png")
    assert mask.tolist() == [[False, False, True], [True, False, False]]


def test_masks_of_lossy_compression_are_what_is_bright(tmp_path):
    truth = np.zeros((30, 40), dtype=bool)
    truth[7:20, 11:29] = True
    Image.fromarray(np.uint8(255 * truth)).save(tmp_path / "m.jpg", quality=60)
    assert (np.asarray(Image.open(tmp_path / "m.jpg")) > 0).sum() > truth.sum()  # the trouble
    mask, notices = read_mask(tmp_path / "m.jpg")
    np.testing.assert_array_equal(mask, truth)
    assert notices == ("m.jpg has lossy compression: bright pixels count as missing.",)
