import subprocess
import sys

import numpy as np
import pytest

from gpytorch_nkn.datasets import (
    load_co2,
    load_texture,
    texture_with_hole,
)


def test_co2_is_monthly_and_holds_out_its_last_ten_years():
    series = load_co2()
    assert series.y.size == 521 and not np.isnan(series.y).any()
    assert series.test.sum() == 120 and series.x[series.test][0] == np.datetime64("1992-01-01")
    assert series.y[0] == pytest.approx(316.1)  # the only weekly value of March 1958
    steps = np.diff(series.x.astype("datetime64[M]").astype(int))
    assert set(steps) == {1, 2, 4}  # five months have no data


def test_co2_without_statsmodels_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "statsmodels.datasets", None)
    with pytest.raises(ImportError, match=r"pip install 'gpytorch_nkn\[demo\]'"):
        load_co2()


@pytest.mark.parametrize(("name", "darkest"), [("brick", 63), ("grass", 0), ("gravel", 0)])
def test_textures_of_scikit_image_are_the_centres_of_its_pictures(name, darkest):
    data = pytest.importorskip("skimage.data")
    picture = getattr(data, name)()
    texture = load_texture(name)
    assert texture.image.shape == texture.mask.shape == (224, 224)
    assert texture.image.dtype == np.float64 and name in texture.source
    assert texture.image[0, 0] == picture[144, 144] / 255
    assert texture.image[223, 223] == picture[367, 367] / 255
    assert texture.image[10, 200] == picture[154, 344] / 255
    assert darkest / 255 <= texture.image.min() < 0.35 < texture.image.max() <= 1


def test_the_hole_of_a_texture_is_that_of_the_paper_or_another_one():
    pytest.importorskip("skimage")
    rows, columns = np.nonzero(load_texture("brick").mask)
    assert rows.size == 4800
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (60, 119, 80, 159)
    mask = load_texture("brick", hole=((0, 2), (221, 224))).mask
    assert np.argwhere(mask).tolist() == [[r, c] for r in (0, 1) for c in (221, 222, 223)]


@pytest.mark.parametrize(
    ("hole", "message"),
    [
        (((1, 3), (2, 6)), r"within an image of 6 x 5, got \(\(1, 3\), \(2, 6\)\)"),
        (((-1, 3), (2, 4)), "below its ends, .* got"),
        (((3, 3), (2, 4)), "below its ends, .* got"),
        (((0, 6), (0, 5)), "which is all of it"),
        ((1, 3, 2, 4), r"in whole numbers, got \(1, 3, 2, 4\)"),
        (((1.0, 3.0), (2.0, 4.0)), "in whole numbers, got"),
    ],
)
def test_holes_that_no_texture_can_have_are_refused(hole, message):
    with pytest.raises(ValueError, match=message):
        texture_with_hole("toy", np.zeros((6, 5)), "made up", hole=hole)


def test_textures_name_what_they_lack(monkeypatch):
    with pytest.raises(ValueError, match="one of brick, grass, gravel, got 'plate'"):
        load_texture("plate")
    monkeypatch.setitem(sys.modules, "skimage", None)
    with pytest.raises(ImportError, match="'brick' comes with scikit-image: pip install"):
        load_texture("brick")


def test_importing_the_datasets_loads_no_library_of_images():
    code = "import sys, gpytorch_nkn.datasets; print(*{'skimage', 'PIL'}.intersection(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == ""
