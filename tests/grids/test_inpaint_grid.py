import importlib

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.ndimage import gaussian_filter

from gpytorch_nkn.grids import inpaint
from gpytorch_nkn.grids.inpaint_grid import INTERPOLANTS


@pytest.fixture
def quick(monkeypatch):
    """Few training steps, for tests that need no accurate kernel."""
    module = importlib.import_module("gpytorch_nkn.grids.inpaint_grid")
    fit = module.fit_grid_gp
    few = {"likelihood_steps": 8, "block_steps": 2}
    monkeypatch.setattr(module, "fit_grid_gp", lambda model, **o: fit(model, **{**o, **few}))


@pytest.fixture
def one_start(monkeypatch):
    monkeypatch.setattr("gpytorch_nkn.grids.inpaint_grid._RESTARTS", 1)


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


def test_levels_and_edges_around_a_hole_are_continued(quick):
    image, mask = ramp()
    result = inpaint(image, mask, progress=False)
    error = np.abs(result.filled - image)[mask]
    assert error.mean() < 0.2 < np.abs(image - image[~mask].mean())[mask].mean()
    assert (error < 2 * result.std[mask]).mean() > 0.7
    assert sum(result.weights.values()) == pytest.approx(1)
    assert set(result.weights) == {"kernel", "harmonic", "biharmonic"}
    assert not result.interrupted and result.model is not None


def test_scratches_and_colours(quick):
    image, mask = ramp(channels=2)
    mask[:] = False
    mask[::7] = mask[:, 5::9] = True
    result = inpaint(image, mask, channel_axis=-1, progress=False)
    error = np.abs(result.filled - image)[mask]
    assert np.median(error[:, 0]) < 0.05
    assert result.model.batch_shape == (2,) and len(result.fit.restarts) == 1
    again = inpaint(image, mask, channel_axis=-1, progress=False)
    np.testing.assert_array_equal(result.filled, again.filled)


def test_known_noise_of_cells(quick, one_start):
    rows, columns = np.mgrid[0:30, 0:34]
    image, hole = np.sin(rows / 2.3) * np.cos(columns / 3.1), np.zeros((30, 34), bool)
    hole[10:17, 14:21] = True
    stds = np.where((rows > 6) & (rows < 22) & (columns > 20) & (columns < 30), 0.8, 0.05)
    noisy = image + stds * np.random.default_rng(0).standard_normal(image.shape)
    errors, zero = {}, np.ma.array(np.zeros(hole.shape, int), mask=hole)
    for name, noise in (("none", None), ("zero", zero), ("known", np.where(hole, -1, stds**2))):
        found = inpaint(noisy, hole, noise_variance=noise, structure="rbf", interpolants="kernel")
        errors[name] = float(np.square(found.mean - image).mean())
    assert errors["zero"] == errors["none"] > 2 * errors["known"]
    for wrong in (-1.0, np.nan, np.inf, np.ones(3), True):
        with pytest.raises(ValueError, match="noise_variance must be"):
            inpaint(noisy, hole, noise_variance=wrong)


def test_each_fill_alone(quick, one_start):
    image, mask = ramp()
    results = {
        name: inpaint(image, mask, interpolants=[name], progress=False)
        for name in ("kernel", "harmonic", "biharmonic")
    }
    alone = {name: result.filled for name, result in results.items()}
    around = image[6:13, 7:16]
    assert all((around.min() - 1 < f[mask]).all() for f in alone.values())
    assert len({float(f[mask].sum()) for f in alone.values()}) == 3
    mean = results["kernel"].model.grid_mean().numpy()
    np.testing.assert_array_equal(results["kernel"].mean, mean)
    named = inpaint(image, mask, interpolants="harmonic", progress=False)
    np.testing.assert_array_equal(named.filled, alone["harmonic"])


def test_a_budget_too_short_for_a_kernel_leaves_the_smooth_fills():
    image, mask = ramp()
    with pytest.warns(UserWarning, match=r"too short to learn a kernel.* \(20, 24\)") as caught:
        result = inpaint(image, mask, budget=1e-6, progress=False)
    assert caught[0].filename == __file__
    assert result.model is None and set(result.weights) == {"harmonic", "biharmonic"}
    assert np.isfinite(result.filled).all() and (result.std[mask] > 0).all()


@pytest.mark.filterwarnings("error::linear_operator.utils.warnings.NumericalWarning")
def test_a_budget_does_not_limit_later_predictions(quick, one_start, monkeypatch):
    monkeypatch.setattr("gpytorch_nkn.grids.inpaint_grid._SOLVING", 0)  # few iterations
    model = inpaint(*ramp(), interpolants="kernel", budget=60).model
    assert (model.max_iterations, model.max_residual) == (1000, 10)
    alone = {"interpolants": "kernel"}
    without_limit = (inpaint(*ramp(), budget=one, **alone).filled for one in (np.inf, None))
    np.testing.assert_array_equal(*without_limit)


@pytest.mark.parametrize(
    "axis, message", [(4, "channel_axis must be"), (-3, "channel_axis must be"), (0, "besides the")]
)
def test_the_argument_that_does_not_fit_is_named(axis, message):
    with pytest.raises(ValueError, match=message):
        inpaint(np.eye(5), channel_axis=axis)


@pytest.mark.parametrize("interpolants", [(), None, ("plate",), ("kernel", 3)])
def test_unknown_interpolants_are_named(interpolants):
    with pytest.raises(ValueError, match="interpolants must be one or more of .*harmonic"):
        inpaint(*ramp(), interpolants=interpolants)


@pytest.mark.parametrize("mask", [None, np.zeros((8, 9), dtype=bool)])
def test_a_warning_says_that_nothing_is_missing(mask):
    image = np.random.default_rng(0).random((8, 9))
    with pytest.warns(UserWarning, match="Nothing is missing: image has no NaN"):
        result = inpaint(image, mask, interpolants="harmonic")
    np.testing.assert_array_equal(result.filled, image)


def kinds_of_holes(*shape):
    """Masks whose cells are mostly extrapolated or far from known ones."""
    masks = {name: np.zeros(shape, dtype=bool) for name in ("side", "corners")}
    masks["side"][:, -shape[1] // 4 :] = True
    for end in (slice(0, shape[0] // 4), slice(-shape[0] // 4, None)):
        masks["corners"][(end,) * len(shape)] = True
    masks["all but a row"] = np.indices(shape)[0] != 5
    masks["lattice"] = (np.indices(shape) % 3 > 0).any(0)
    return masks | {"scattered": np.random.default_rng(4).random(shape) > 0.05}


@pytest.mark.parametrize(("first", "shape"), [(1, (8, 8, 8)), (0, (24, 24))])
def test_intervals_cover_what_is_extrapolated(quick, one_start, first, shape):
    covered = {}
    for kind, mask in kinds_of_holes(*shape).items():
        rng = np.random.default_rng(0)
        image = gaussian_filter(rng.normal(size=shape), 3 if len(shape) == 2 else 2)
        image = image / image.std() + 0.05 * rng.normal(size=shape)
        given, names = np.where(mask, np.nan, image), INTERPOLANTS[first:]
        result = inpaint(given, interpolants=names, progress=False)
        covered[kind] = (np.abs(result.mean - image) < 1.96 * result.std)[mask].mean()
        assert result.std[mask].mean() < 2 * image.std()  # not covered by width alone
    assert min(covered.values()) > 0.7, covered
    assert 0.85 < np.mean(list(covered.values())) < 0.998, covered


def test_few_known_cells_are_interpolated_almost_as_well_as_with_the_true_kernel(one_start):
    shape, noise, width = (32, 34), 0.1, 2.5  # white noise, smoothed: an RBF kernel
    cells, rng = np.indices(shape).reshape(2, -1).T, np.random.default_rng(2)
    image = gaussian_filter(rng.normal(size=shape), width, mode="wrap")
    image = image * 2 * width * np.sqrt(np.pi) + noise * rng.normal(size=shape)
    known = (rng.permutation(image.size) < 0.05 * image.size).reshape(shape)
    result = inpaint(np.where(known, image, np.nan), progress=False)
    error = (result.mean - image)[~known]
    assert 0.88 < (np.abs(error) < 1.96 * result.std[~known]).mean() < 0.995
    steps = np.abs(cells[:, None] - cells[known.ravel()])
    steps = np.minimum(steps, np.array(shape) - steps)  # the smoothing wraps around
    kernel = np.exp(-np.square(steps).sum(-1) / (4 * width**2))
    own = kernel[known.ravel()] + noise**2 * np.eye(known.sum())
    best = (kernel @ np.linalg.solve(own, image[known])).reshape(shape)
    assert np.square(error).mean() < 1.3**2 * np.square(best - image)[~known].mean()


def test_every_second_column_has_intervals_of_at_least_the_noise():
    """The held-out columns are farther apart, and would shrink the noise between the others."""
    rng = np.random.default_rng(12)
    image = 10 * gaussian_filter(rng.normal(size=(28, 30)), 3)
    image += 0.02 * rng.normal(size=image.shape)
    missing = np.indices(image.shape)[1] % 2 > 0
    result = inpaint(np.where(missing, np.nan, image), progress=False)
    assert (np.abs(result.mean - image) < 1.96 * result.std)[missing].mean() > 0.9
    assert result.std[missing].mean() < 0.06


def test_intervals_of_few_known_cells_are_wide(quick, one_start):
    rng, inside = np.random.default_rng(3), []
    for few in (3, 6, 6):
        image = rng.normal(size=(6, 7))
        mask = (rng.permutation(42) >= few).reshape(image.shape)
        result = inpaint(image, mask, progress=False)
        inside.append((np.abs(result.mean - image) < 1.96 * result.std)[mask].mean())
    assert np.mean(inside) > 0.75, inside


@pytest.mark.parametrize(
    "convert",
    [
        lambda image: torch.tensor(image, requires_grad=True),
        lambda image: torch.tensor(image).bfloat16(),
        lambda image: image.astype(np.float16).tolist(),
        lambda image: np.ma.masked_invalid(image).astype(np.float32),
        lambda image: pd.DataFrame(image).astype("Float64"),  # NA where missing
        lambda image: np.asfortranarray(image)[::-1][::-1],
    ],
)
def test_arrays_and_tensors_of_any_kind(convert):
    image, mask = ramp()
    image[mask] = np.nan
    expected = inpaint(image, interpolants="harmonic").filled
    names = ["harmonic", "harmonic"]  # counts once
    result = inpaint(convert(image), interpolants=names)
    np.testing.assert_allclose(result.filled, expected, atol=0.02)
    assert result.weights == {"harmonic": 1.0} and np.array_equal(result.missing, mask)


def test_scratches_are_filled_alike_whatever_else_is_missing(quick, one_start):
    rng = np.random.default_rng(0)
    image = gaussian_filter(rng.normal(size=(54, 54)), 3)
    image = image / image.std() + 0.05 * rng.normal(size=image.shape)
    scratches = np.zeros(image.shape, dtype=bool)
    scratches[10:12] = scratches[:, 50] = scratches[46, 5:40] = True
    blob = scratches.copy()
    blob[28:41, 12:25] = True
    away = scratches & (np.arange(54)[:, None] < 20)
    alone, both = (
        inpaint(np.where(mask, np.nan, image), progress=False) for mask in (scratches, blob)
    )
    error = np.abs(alone.mean - image)[away].mean()
    assert np.abs(alone.mean - both.mean)[away].mean() < 0.2 * error
    np.testing.assert_allclose(alone.std[away], both.std[away], rtol=0.3)
    inside = blob & ~scratches
    covered = np.abs(both.mean - image)[inside] < 1.96 * both.std[inside]
    assert covered.mean() > 0.8


def test_a_small_wide_hole_does_not_change_how_the_kernel_is_trained(quick):
    """Few cells of a wide hole need one start and no held-out blocks, as scratches do."""
    rng = np.random.default_rng(1)
    image = gaussian_filter(rng.normal(size=(66, 66)), 3)
    image = image / image.std() + 0.05 * rng.normal(size=image.shape)
    image[::20] = np.nan
    small, large = image.copy(), image.copy()
    small[26:35, 30:39] = large[22:39, 30:50] = np.nan
    starts = [len(inpaint(one, progress=False).fit.restarts) for one in (small, large)]
    assert starts == [1, 3]
