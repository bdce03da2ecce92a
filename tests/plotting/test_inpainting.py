from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from gpytorch_nkn.plotting import plot_inpainting

ORANGE = "#d1580b"


def filled(shape=(12, 16), **changes):
    """Values from 2 to 6; the cells of a rectangle are missing, with deviations from 0 to 1."""
    rng = np.random.default_rng(0)
    missing = np.zeros(shape, dtype=bool)
    missing[..., 3:7, 4:10] = True
    image = rng.uniform(2, 6, shape)
    fields = {
        "filled": image,
        "std": np.where(missing, rng.uniform(0, 1, shape), 0.0),
        "missing": missing,
    }
    return SimpleNamespace(**(fields | changes))


def picture(ax):
    (shown,) = ax.get_images()
    return np.asarray(shown.get_array())


def titles(axes):
    return [ax.get_title(loc="left") for ax in axes]


def test_holes_fill_deviations_and_truth_are_drawn_in_one_scale(make_axes, no_overlap):
    axes, result = make_axes(1, 4, (12, 4)), filled()
    truth = result.filled + np.where(result.missing, 10.0, 0.0)
    assert plot_inpainting(axes, result, truth=truth, label="std (K)") is axes
    assert titles(axes) == ["with holes", "filled", "uncertainty", "truth"]
    known = result.filled[~result.missing]
    gray = np.clip((result.filled - known.min()) / np.ptp(known), 0, 1)[..., None].repeat(3, -1)
    holes, whole, uncertain, true = (picture(ax) for ax in axes)
    np.testing.assert_allclose(whole, gray)
    np.testing.assert_allclose(holes[~result.missing], gray[~result.missing])
    np.testing.assert_allclose(holes[result.missing], np.tile(to_rgb(ORANGE), (24, 1)), atol=0.005)
    np.testing.assert_allclose(true[result.missing], 1.0)  # above the range of known values
    np.testing.assert_allclose(uncertain[~result.missing], 1 - 0.25 * (1 - gray[~result.missing]))
    largest = np.unravel_index(result.std.argmax(), result.std.shape)
    np.testing.assert_allclose(uncertain[largest], (0.993, 0.906, 0.144), atol=0.005)  # viridis
    (bar,) = [ax for ax in axes[0].figure.axes if ax not in axes]
    assert bar.get_xlabel() == "std (K)"
    assert bar.get_xlim() == pytest.approx((0, result.std.max()))
    no_overlap(axes[0].figure)
    assert np.ptp([ax.get_window_extent().y1 for ax in axes]) < 1  # in one row


@pytest.mark.parametrize(("top", "white"), [(0.9, 1.0), (200.0, 255.0)])
def test_colours_keep_their_scale(make_axes, top, white):
    result = filled((12, 16))
    colors = top * np.random.default_rng(1).random((12, 16, 3))
    deviations = np.stack([result.std, 2 * result.std, 2 * result.std], axis=-1)
    missing = np.broadcast_to(result.missing[..., None], colors.shape)
    result = filled(filled=colors, std=deviations, missing=missing)
    axes = make_axes(2, 2)
    plot_inpainting(axes, result, truth=colors)
    np.testing.assert_allclose(picture(axes[0, 1]), colors / white)
    (bar,) = [ax for ax in axes[0, 0].figure.axes if ax not in axes.ravel()]
    largest = np.sqrt(3) * filled().std.max()  # of the root mean square of 1, 2 and 2
    assert bar.get_xlim() == pytest.approx((0, largest))
