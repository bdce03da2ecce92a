import numpy as np
import pytest

from benchmarks.photographs import MASKS, main, mask_of, photograph, psnr

pytest.importorskip("skimage", reason="needs scikit-image")


def test_the_scale_of_decibels():
    truth, mask = np.zeros((4, 4)), np.eye(4) > 0
    assert psnr(truth, truth + 0.1, mask) == pytest.approx(20.0)


@pytest.mark.parametrize("kind", MASKS)
def test_masks_are_the_same_in_every_call(kind):
    mask = mask_of(kind)
    assert mask.shape == (256, 256) and 0.04 < mask.mean() < (0.98 if kind == "sparse" else 0.26)
    assert np.array_equal(mask, mask_of(kind))


def test_one_image(capsys, tmp_path):
    image = photograph("page")
    assert image.shape == (256, 256) and 0 <= image.min() < image.max() <= 1
    argv = ["--images", "page", "--masks", "edge", "--budget", "1e-6", "--out", str(tmp_path)]
    with pytest.warns(UserWarning, match="too short to learn a kernel"):
        assert main(argv) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "| page | edge" in line)
    own, biharmonic = (float(cell) for cell in row.split("|")[3:5])
    assert own > biharmonic + 1
    assert (tmp_path / "page-edge.png").read_bytes().startswith(b"\x89PNG")
