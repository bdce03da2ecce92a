import numpy as np
import pytest
from scipy.ndimage import convolve

from gpytorch_nkn.grids import fill
from gpytorch_nkn.grids.fill import SmoothInterpolants, local_variance


def hole(shape, *slices):
    missing = np.zeros(shape, dtype=bool)
    missing[slices] = True
    return missing


@pytest.mark.parametrize("quick", [True, False])
def test_harmonic_cells_are_the_mean_of_their_neighbours(monkeypatch, quick):
    if not quick:  # by conjugate gradients
        monkeypatch.setattr(fill, "_FACTORISED", {2: 0})
        monkeypatch.setattr(fill, "_TOLERANCE", 1e-12)
    missing = hole((12, 9), slice(3, 8), slice(0, 4))  # at an edge, whose slope is zero
    values = np.random.default_rng(0).normal(size=(2, 12, 9))
    filled = SmoothInterpolants(missing.shape).harmonic(np.where(missing, np.nan, values), missing)
    cross = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    count = convolve(np.ones(missing.shape), cross, mode="constant")
    for one, truth in zip(filled, values, strict=True):
        mean = convolve(one, cross, mode="constant") / count
        np.testing.assert_allclose(one[missing], mean[missing], atol=1e-9)
        np.testing.assert_array_equal(one[~missing], truth[~missing])


@pytest.mark.parametrize("dims", [2, 3])
def test_a_plate_continues_polynomials_of_the_second_degree(dims):
    rows, columns = np.mgrid[:12, :14]
    image = (3.0 + rows - 2 * columns + rows * columns - rows**2)[..., None]
    image = image + 2 * np.arange(9.0) ** 2 if dims == 3 else image[..., 0]
    missing = hole(image.shape, *[slice(4, 7)] * dims)
    makers = SmoothInterpolants(image.shape)
    filled = makers.biharmonic(np.where(missing, np.nan, image), missing)
    np.testing.assert_allclose(filled, image, rtol=1e-9)
    assert np.abs(makers.harmonic(image, missing) - image).max() > 0.1


def test_a_plate_is_cut_off_at_the_range_of_the_known_cells():
    image = np.tile(np.arange(10.0), (10, 1))
    missing = hole(image.shape, slice(None), slice(7, None))
    filled = SmoothInterpolants(image.shape).biharmonic(image, missing)
    assert filled.max() == 6.0 and filled.min() == 0.0


def test_local_variance_is_the_variance_of_known_cells_around_and_of_the_prior():
    values = np.random.default_rng(1).normal(size=(9, 8))
    missing = hole(values.shape, slice(2, 5), slice(2, 5))
    found = local_variance(np.where(missing, np.nan, values), missing, 2, 7.0)
    box = values[1:6, 3:8][~missing[1:6, 3:8]]
    assert found[3, 5] == pytest.approx((box.size * box.var() + 7) / (box.size + 1))
    prior = np.full(values.shape, 2.5)
    assert local_variance(values, missing, 1, prior)[3, 3] == pytest.approx(2.5, rel=0.34)
