import json
import sys

import numpy as np
import pytest

from gpytorch_nkn import grids
from gpytorch_nkn.cli import main
from gpytorch_nkn.grids import InpaintResult

Image = pytest.importorskip("PIL.Image", reason="needs Pillow")

HOLE = np.s_[3:9, 5:12]


class FakeInpaint:
    """Records its arguments; fills with 0.5, standard deviation 0.1, and more in column 5."""

    def __init__(self):
        self.image = self.mask = self.options = self.error = None

    def __call__(
        self,
        image,
        mask=None,
        *,
        structure="texture",
        channel_axis=None,
        budget=None,
        seed=0,
        progress=False,
    ):
        self.options = {k: v for k, v in locals().items() if k not in ("self", "image", "mask")}
        self.image, self.mask = image, mask
        if self.error is not None:
            raise self.error
        over = mask[..., None] if image.ndim == 3 else mask
        mean = np.where(over, 0.5, image)
        std = np.where(over, 0.1, np.zeros(image.shape))
        std[HOLE[0], 5] = 0.2
        return InpaintResult(mean, std, mean, mask, None, None)


@pytest.fixture
def inpaint(monkeypatch):
    fake = FakeInpaint()
    monkeypatch.setattr(grids, "inpaint", fake)
    return fake


def draw(*shape, top=256, dtype=np.uint8):
    return np.random.default_rng(0).integers(top, size=shape).astype(dtype)


def a_mask():
    mask = np.zeros((20, 16), dtype=bool)
    mask[HOLE] = True
    return mask


@pytest.fixture
def save(tmp_path):
    """Write an image into a temporary folder and return its path."""

    def write(name, pixels, **options):
        Image.fromarray(pixels).save(tmp_path / name, **options)
        return tmp_path / name

    return write


@pytest.fixture
def mask_file(save):
    return save("mask.png", np.uint8(255 * a_mask()))


@pytest.fixture
def run(tmp_path, capsys):
    """Call the command; its exit code, what it printed, and its folder."""

    def call(*argv):
        code = main(["inpaint", *map(str, argv), "--out", str(tmp_path / "out")])
        return code, capsys.readouterr(), tmp_path / "out"

    return call


@pytest.mark.parametrize(
    ("pixels", "mode"),
    [(draw(20, 16, 4), "RGBA"), (draw(20, 16, top=2**16, dtype="u2"), "I;16")],
    ids=["colour with opacity", "16 bits of gray"],
)
def test_only_missing_pixels_change(run, save, inpaint, mask_file, pixels, mode):
    path = save("wall.png", pixels)
    code, printed, out = run(path, "--mask", mask_file, "--seed", "3")
    assert code == 0, printed.err
    mask, white = a_mask(), 65535 if mode == "I;16" else 255
    colors = pixels[..., :3] if mode == "RGBA" else pixels
    np.testing.assert_array_equal(inpaint.image, colors / white)
    np.testing.assert_array_equal(inpaint.mask, mask)
    options = {"structure": "texture", "budget": None, "seed": 3}
    options |= {"channel_axis": -1 if colors.ndim == 3 else None, "progress": True}
    assert inpaint.options == options
    with Image.open(out / "filled.png") as file:
        assert file.mode == mode
        filled = np.asarray(file)
    np.testing.assert_array_equal(filled[~mask], pixels[~mask])
    new = filled[mask][..., :3] if colors.ndim == 3 else filled[mask]
    assert np.unique(new) == round(white / 2)
    with np.load(out / "inpaint.npz") as numbers:
        np.testing.assert_array_equal(numbers["mask"], mask)
        assert numbers["mean"].shape == numbers["std"].shape == colors.shape
        assert (numbers["mean"][mask] == 0.5).all() and (numbers["std"][~mask] == 0).all()
    summary = json.loads((out / "summary.json").read_text())
    assert summary["image"] == {
        "file": str(path),
        "width": 16,
        "height": 20,
        "channels": 1 if colors.ndim == 2 else 3,
        "bits": 16 if white == 65535 else 8,
    }
    assert summary["missing"] == 42 and summary["seed"] == summary["settings"]["seed"] == 3
    typical = np.sqrt((6 * 0.2**2 + 36 * 0.1**2) / 42)
    assert summary["std"] == pytest.approx({"typical": typical, "largest": 0.2})
    assert {"gpytorch_nkn", "python", "torch", "pillow"} <= set(summary["versions"])
    assert summary["seconds"]["total"] >= summary["seconds"]["inpaint"] >= 0
    assert "wall: 16 x 20 pixels, 42 of them missing (13.1%)" in printed.out
    assert f"standard deviation is {typical:.1%} of the range" in printed.out
    assert printed.out.splitlines()[-1] == f"The filled image is at {out / 'filled.png'}"
    assert (out / "uncertainty.png").read_bytes().startswith(b"\x89PNG")


def test_options_reach_the_function(run, save, inpaint, mask_file):
    path = save("wall.jpg", draw(20, 16, 3))
    options = ["--kernel", "rbf", "--budget", "2.5"]
    code, printed, out = run(path, "--mask", mask_file, *options, "--no-progress")
    assert code == 0, printed.err
    expected = {"structure": "rbf", "budget": 2.5}
    assert inpaint.options == expected | {"channel_axis": -1, "seed": 0, "progress": False}
    settings = json.loads((out / "summary.json").read_text())["settings"]
    assert settings["kernel"] == "rbf"
    assert settings["mask"] == str(mask_file)


def test_transparent_pixels_are_missing_without_a_mask(run, save, inpaint, mask_file):
    pixels = draw(20, 16, 4)
    pixels[..., 3] = 255
    pixels[0, 0, 3] = 1  # all but transparent
    pixels[HOLE][..., 3] = 0
    path = save("cut.png", pixels)
    code, printed, out = run(path)
    assert code == 0, printed.err
    np.testing.assert_array_equal(inpaint.mask, a_mask())
    filled = np.asarray(Image.open(out / "filled.png"))
    assert (filled[a_mask(), 3] == 255).all() and filled[0, 0, 3] == 1
    other = np.zeros((20, 16), np.uint8)
    other[0] = other[3] = 9
    code, printed, _ = run(path, "--mask", save("other.png", other))
    assert code == 0 and inpaint.mask.sum() == 32
    expected = "Note: Training uses 35 transparent pixels, which the mask omits."
    assert expected in printed.out.splitlines()


def test_without_matplotlib_everything_else_is_written(run, save, inpaint, mask_file, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, printed, out = run(save("a.png", draw(20, 16)), "--mask", mask_file)
    assert code == 0 and (out / "filled.png").exists() and (out / "summary.json").exists()
    assert not (out / "uncertainty.png").exists()
    assert "pip install 'gpytorch_nkn[plot]'" in printed.out


def bad_inputs(save, tmp_path):
    """Arguments and what the error says."""
    gray = save("gray.png", draw(20, 16))
    flat = draw(20, 16)
    flat[~a_mask()] = 7
    mask = tmp_path / "mask.png"
    small = save("small.png", np.full((16, 20), 9, np.uint8))
    black, white = (save(f"{v}.png", np.full((20, 16), v, np.uint8)) for v in (0, 255))
    return [
        (["nowhere.png", "--mask", mask], "cannot read nowhere.png: No such file"),
        ([gray, "--mask", small], "must have 16 x 20 pixels, like the image, got 20 x 16"),
        ([gray], "no pixel is transparent: pass the missing pixels by --mask"),
        ([gray, "--mask", black], "0.png is black everywhere: nothing is"),
        ([gray, "--mask", white], "all 320 pixels are missing"),
        ([save("flat.png", flat), "--mask", mask], "278 pixels that are not missing have one"),
        ([gray, "--mask", mask, "--budget", "-1"], "positive number, got '-1'"),
    ]


def test_faults_end_in_one_line_and_code_2_before_the_training(
    run, save, inpaint, mask_file, tmp_path
):
    for argv, message in bad_inputs(save, tmp_path):
        code, printed, out = run(*argv)
        assert code == 2 and inpaint.options is None
        assert printed.err.startswith("gpytorch-nkn: error: ") and message in printed.err
        assert printed.err.count("\n") == 1 and not (out / "filled.png").exists()


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("structure must be known."), 2, "structure must be known."),
        (RuntimeError("not positive\ndefinite"), 1, "training failed: not positive definite"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_what_ends_the_training_has_a_code(run, save, inpaint, mask_file, error, code, message):
    inpaint.error = error
    got, printed, out = run(save("a.png", draw(20, 16)), "--mask", mask_file)
    assert got == code and message in printed.err and printed.err.count("\n") == 1
    assert not (out / "filled.png").exists()


def test_a_pattern_is_continued_into_the_hole(run, save):
    rows, columns = np.mgrid[0:26, 0:28]
    pattern = 127 + 60 * np.sin(rows / 1.5) + 60 * np.cos(columns / 2)
    pixels = np.round(pattern).astype(np.uint8)
    hole = np.zeros(pixels.shape, dtype=np.uint8)
    hole[9:16, 10:17] = 255
    path, mask = save("waves.png", pixels), save("hole.png", hole)
    code, printed, out = run(path, "--mask", mask)
    assert code == 0, printed.err
    filled = np.asarray(Image.open(out / "filled.png")).astype(float)
    error = (filled - pixels)[hole > 0]
    assert np.square(error).mean() < 0.02 * pixels[hole > 0].var()
    assert not json.loads((out / "summary.json").read_text())["interrupted"]
