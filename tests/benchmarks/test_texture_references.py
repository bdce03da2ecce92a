import numpy as np
import pytest

from benchmarks.texture_references import harmonic_fill, main, mean_fill, smse


def test_linear_images_are_harmonic():
    rows, columns = np.meshgrid(np.arange(12.0), np.arange(15.0), indexing="ij")
    image = 0.3 + 0.02 * rows - 0.01 * columns
    mask = np.zeros(image.shape, dtype=bool)
    mask[3:8, 2:9] = mask[10, 12] = True
    hidden = np.where(mask, np.nan, image)
    np.testing.assert_allclose(harmonic_fill(hidden, mask), image, atol=1e-12)


def test_each_missing_pixel_is_the_mean_of_its_neighbours():
    rng = np.random.default_rng(0)
    image, mask = rng.random((9, 11)), rng.random((9, 11)) < 0.5
    mask[0, :4] = mask[-3:, -2:] = True  # at the border, where there are fewer
    filled = harmonic_fill(image, mask)
    np.testing.assert_array_equal(filled[~mask], image[~mask])
    for row, column in np.argwhere(mask):
        near = [
            filled[r, c]
            for r, c in [
                (row + 1, column),
                (row - 1, column),
                (row, column + 1),
                (row, column - 1),
            ]
            if 0 <= r < 9 and 0 <= c < 11
        ]
        assert filled[row, column] == pytest.approx(np.mean(near))


def test_error_is_in_units_of_the_variance_in_the_hole():
    truth = np.array([[1.0, 3.0, 100.0], [5.0, 7.0, -50.0]])
    mask = np.array([[True, True, False], [True, True, False]])
    filled = truth + np.array([[1.0, -1.0, 9.0], [2.0, 0.0, 9.0]])
    assert smse(truth, filled, mask) == pytest.approx((1 + 1 + 4 + 0) / 4 / 5)
    assert smse(truth, np.where(mask, 4.0, truth), mask) == pytest.approx(1)
    assert np.unique(mean_fill(truth, mask)[mask]) == 25


def test_the_table_has_a_row_for_each_texture(capsys):
    pytest.importorskip("skimage")
    assert main(["--textures", "brick", "gravel"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| brick", "| gravel"]
    assert 0.5 < float(lines[2].split(" | ")[2]) < 1
