import importlib

import numpy as np
import pytest

from gpytorch_nkn.grids import inpaint


@pytest.fixture
def quick(monkeypatch):
    """Few steps of the kernel, where no test asks how good it gets."""
    module = importlib.import_module("gpytorch_nkn.grids.inpaint")
    fit = module.fit_grid_gp
    few = {"likelihood_steps": 16, "block_steps": 4}
    monkeypatch.setattr(module, "fit_grid_gp", lambda model, **o: fit(model, **{**o, **few}))


@pytest.mark.parametrize("kind", [bool, np.uint8, float])
@pytest.mark.parametrize("per_channel", [False, True])
def test_what_the_mask_marks_is_missing_and_the_rest_stays(kind, per_channel):
    mask = np.zeros((6, 5), dtype=bool)
    mask[2:4, 1:3] = True
    image = np.full((6, 5, 3), 0.25)
    image[mask] = 9.0  # must not be seen
    over = np.repeat(mask[..., None], 3, 2)
    given = (over if per_channel else mask).astype(kind)
    result = inpaint(image, given, channel_axis=-1, progress=False)
    assert np.array_equal(np.broadcast_to(result.missing, over.shape), over)
    assert np.array_equal(result.filled, np.full_like(image, 0.25))


def ramp(channels=None):
    rows, columns = np.mgrid[:20, :24]
    image = rows / 8 + (columns > 11) + 0.02 * np.random.default_rng(0).normal(size=rows.shape)
    mask = np.zeros(image.shape, dtype=bool)
    mask[7:12, 8:15] = True
    if channels:
        image = np.stack([image * (1 + k) for k in range(channels)], -1)
    return image, mask


def test_levels_and_edges_around_a_hole_are_continued():
    image, mask = ramp()
    result = inpaint(image, mask, restarts=1, progress=False)
    error = np.abs(result.filled - image)[mask]
    assert error.mean() < 0.2 < np.abs(image - image[~mask].mean())[mask].mean()
    assert (error < 2 * result.std[mask]).mean() > 0.7
    assert sum(result.weights.values()) == pytest.approx(1)
    assert set(result.weights) == {"kernel", "harmonic", "biharmonic"}
    assert not result.interrupted and result.model is not None


def test_scratches_and_colours():
    image, mask = ramp(channels=2)
    mask[:] = False
    mask[::7] = mask[:, 5::9] = True
    result = inpaint(image, mask, channel_axis=-1, progress=False)
    error = np.abs(result.filled - image)[mask]
    assert np.median(error[:, 0]) < 0.05
    assert result.model.batch_shape == (2,) and len(result.fit.restarts) == 1
    again = inpaint(image, mask, channel_axis=-1, progress=False)
    np.testing.assert_array_equal(result.filled, again.filled)


@pytest.mark.parametrize("share", [0.02, 1.0])
def test_a_kernel_that_is_far_too_sure_is_not_believed(request, monkeypatch, share):
    """Where it fills a hole alone its own deviations count unless blocks belie them."""
    rows, columns = np.mgrid[:22, :24]
    noise = np.random.default_rng(0).normal(size=rows.shape)
    image = np.sin(1.3 * rows) * np.cos(1.1 * columns) + 0.1 * noise
    mask = np.zeros(image.shape, dtype=bool)
    mask[8:14, 9:15] = True
    if share == 1.0:
        request.getfixturevalue("quick")
    module = importlib.import_module("gpytorch_nkn.grids.inpaint")
    true, own = module._deviations, []
    monkeypatch.setattr(
        module, "_deviations", lambda *a: own.append(share * true(*a)[0]) or own[0][None]
    )
    result = inpaint(image, mask, restarts=1, progress=False)
    assert result.weights["kernel"] == 1
    error = np.abs(result.mean - image)[mask]
    assert (error < 1.96 * result.std[mask]).mean() > 0.8
    assert np.allclose(result.std[mask], own[0][mask]) == (share == 1)


def test_each_fill_alone(quick):
    image, mask = ramp()
    results = {
        name: inpaint(image, mask, fills=[name], restarts=1, progress=False)
        for name in ("kernel", "harmonic", "biharmonic")
    }
    alone = {name: result.filled for name, result in results.items()}
    around = image[6:13, 7:16]
    assert all((around.min() - 1 < f[mask]).all() for f in alone.values())
    assert len({float(f[mask].sum()) for f in alone.values()}) == 3
    mean = results["kernel"].model.grid_mean().numpy()
    np.testing.assert_array_equal(results["kernel"].mean, mean)
    named = inpaint(image, mask, fills="harmonic", progress=False)
    np.testing.assert_array_equal(named.filled, alone["harmonic"])


def test_a_budget_too_short_for_a_kernel_leaves_the_smooth_fills():
    image, mask = ramp()
    with pytest.warns(UserWarning, match=r"too short to learn a kernel.* \(20, 24\)") as caught:
        result = inpaint(image, mask, budget=1e-6, progress=False)
    assert caught[0].filename == __file__
    assert result.model is None and set(result.weights) == {"harmonic", "biharmonic"}
    assert np.isfinite(result.filled).all() and (result.std[mask] > 0).all()


@pytest.mark.parametrize("fills", [(), ("plate",), ("kernel", 3)])
def test_unknown_fills_are_named(fills):
    with pytest.raises(ValueError, match="fills must be some of .*harmonic"):
        inpaint(*ramp(), fills=fills)


@pytest.mark.parametrize("mask", [None, np.zeros((8, 9), dtype=bool)])
def test_a_warning_says_that_nothing_is_missing(mask):
    image = np.random.default_rng(0).random((8, 9))
    with pytest.warns(UserWarning, match="Nothing is missing: image has no NaN"):
        result = inpaint(image, mask, fills="harmonic")
    np.testing.assert_array_equal(result.filled, image)
