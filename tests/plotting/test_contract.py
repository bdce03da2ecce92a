"""Contract of all figures: they draw into the given Axes and change nothing else."""

import copy
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, RBFKernelGrad, ScaleKernel
from matplotlib import pyplot as plt

from gpytorch_nkn import plotting
from gpytorch_nkn.kernels import NeuralKernelNetwork
from tests.global_state import unchanged

X = np.linspace(0.0, 5.0, 30)
WAVE = np.sin(X)
ROWS = np.random.default_rng(0).uniform(-1, 1, (40, 2))
KERNEL = ScaleKernel(RBFKernel())
NETWORK = NeuralKernelNetwork.additive(2)
HOLES = np.zeros((12, 16), dtype=bool)
HOLES[3:7, 4:10] = True

CURVE = SimpleNamespace(
    label="trend", x=X, mean=WAVE, lower=WAVE - 1, upper=WAVE + 1, data=(X, WAVE), boundary=4.0
)
EFFECT = SimpleNamespace(
    label="dose", names=("dose",), grid=(X,), mean=WAVE, lower=WAVE - 1, upper=WAVE + 1,
    data=(X, WAVE), share=0.4,
)  # fmt: skip
PAIR = SimpleNamespace(
    label="dose, age", names=("dose", "age"), grid=(X[:4], X[:3]), mean=np.outer(X[:4], X[:3]),
    lower=np.zeros((4, 3)), upper=np.ones((4, 3)), data=None, share=0.1,
)  # fmt: skip
FILLED = SimpleNamespace(
    filled=np.arange(192.0).reshape(12, 16), std=HOLES * X.mean(), missing=HOLES
)
SLICE = SimpleNamespace(
    name="dose", grid=X, mean=WAVE, lower=WAVE - 1, upper=WAVE + 1, acquisition=X, best=1.0,
    candidates=np.array([2.0]), best_mean=0.8, candidate_means=np.array([0.9]),
)  # fmt: skip

# The number of Axes, positional arguments and options of a call that is right.
CALLS = {
    "plot_acquisition": (2, ([SLICE, SLICE],), {"y_label": "yield"}),
    "plot_calibration": (1, ([0.5, 0.8, 0.95], [0.3, 0.8, 0.9]), {"num_points": 60}),
    "plot_components": (2, ([CURVE, CURVE],), {"y_label": "ppm"}),
    "plot_effects": (2, ([EFFECT, PAIR],), {"y_label": "quality"}),
    "plot_forecast": (1, (X + 6, WAVE, WAVE - 1, WAVE + 1), {"train": (X, WAVE), "title": "CO2"}),
    "plot_inpainting": (3, (FILLED,), {"label": "std (K)"}),
    "plot_kernel": (1, (KERNEL, X), {}),
    "plot_network": (1, (NETWORK,), {"x": ROWS}),
    "plot_one_step_ahead": (1, (WAVE,), {"num_initial": 3}),
    "plot_progress": (1, (WAVE,), {"maximize": False}),
}
BY_NAME = pytest.mark.parametrize("name", CALLS)


def test_every_function_of_the_room_is_here():
    assert sorted(CALLS) == sorted(plotting.__all__)


def draw(name, axes):
    _, arguments, options = CALLS[name]
    return getattr(plotting, name)(axes, *arguments, **options)


def own_axes(make_axes, name):
    count = CALLS[name][0]
    return make_axes(count, 1, (8, 4 * count))


@BY_NAME
def test_what_is_drawn_lies_in_the_axes_that_were_given(make_axes, no_overlap, name):
    axes = own_axes(make_axes, name)
    assert draw(name, axes) is axes
    for ax in np.ravel(axes):
        assert ax.has_data()
    no_overlap(np.ravel(axes)[0].figure)
    draw(name, axes)  # again, such as for another model


@BY_NAME
def test_all_else_stays_as_it_was(make_axes, name):
    """Neighbours, other figures, settings, random states and what is drawn."""
    count, arguments, _ = CALLS[name]
    grid = make_axes(1 + count, 1)
    settings, numbers = dict(matplotlib.rcParams), plt.get_fignums()
    kernels = [part for part in arguments if isinstance(part, torch.nn.Module)]
    before = [copy.deepcopy(kernel.state_dict()) for kernel in kernels]
    for kernel in kernels:
        kernel.eval()
    with unchanged():
        draw(name, grid[1] if count == 1 else grid[1:])
    assert not grid[0].has_data() and not grid[0].texts and grid[0].get_title(loc="left") == ""
    assert dict(matplotlib.rcParams) == settings and plt.get_fignums() == numbers
    for kernel, values in zip(kernels, before, strict=True):
        assert not kernel.training and all(p.grad is None for p in kernel.parameters())
        assert all(torch.equal(values[key], v) for key, v in kernel.state_dict().items())


# --- bad input is named ------------------------------------------------------------------------


def refuse(make_axes, name, match, *changed, error=ValueError, axes=None, **options):
    """The right call with the leading arguments and the options changed fails with a message."""
    count, arguments, right = CALLS[name]
    arguments = (*changed, *arguments[len(changed) :])
    axes = own_axes(make_axes, name) if axes is None else axes
    with pytest.raises(error, match=match):
        getattr(plotting, name)(axes, *arguments, **(right | options))


@pytest.mark.parametrize("name", ["plot_kernel", "plot_network"])
def test_one_kernel_is_needed(make_axes, name):
    refuse(make_axes, name, "Kernel(Network)?, got int", 3, error=TypeError)
    batches = {"plot_network": NeuralKernelNetwork.additive(2, batch_shape=torch.Size([3]))}
    batch = batches.get(name, RBFKernel(batch_shape=torch.Size([3])))
    refuse(make_axes, name, r"batch of shape \(3,\); index it first", batch)


def test_inputs_lie_on_a_line(make_axes):
    name = "plot_kernel"
    for x, match in (
        (np.column_stack([X, X]), r"must vary, got 2 of 2 .*shape \(30, 2\)"),
        (np.ones(4), "must vary, got 0 of 1"),
        ([0.0, np.nan], "x must be finite, got NaN or infinite values: 1"),
        (np.zeros((2, 2, 2)), r"got shape \(2, 2, 2\)"),
    ):
        refuse(make_axes, name, match, KERNEL, x)
    dates = np.array(["2001", "2002"], dtype="datetime64[Y]")
    refuse(make_axes, name, "got dates", KERNEL, dates, error=TypeError)
    for scale in (0.0, -1.0, np.inf, np.nan):
        match = f"x_scale must be (positive|finite), got {scale}"
        refuse(make_axes, name, match, x_scale=scale)
    refuse(make_axes, name, "x_offset must be finite, got nan", x_offset=np.nan)


def test_values_of_kernels_are_finite_and_one_per_pair(make_axes):
    name = "plot_kernel"
    match = "RBFKernelGrad models derivatives"
    refuse(make_axes, name, match, RBFKernelGrad(), error=NotImplementedError)
    kernel = RBFKernel()
    kernel.raw_lengthscale.data.fill_(np.nan)
    refuse(make_axes, name, "values must be finite", kernel)


@pytest.mark.parametrize(
    ("name", "what"),
    [("plot_components", "component"), ("plot_effects", "effect"), ("plot_inpainting", "picture")],
)
def test_axes_are_counted(make_axes, name, what):
    match = f"axes must hold one Axes per {what}, . in all, got 5"
    refuse(make_axes, name, match, axes=make_axes(5, 1))
    if what != "picture":
        refuse(make_axes, name, f"{what} is needed, got none", [], axes=[])


def curve(**changes):
    return [SimpleNamespace(**(vars(CURVE) | changes))] * 2


def first_effect(**changes):
    return [SimpleNamespace(**(vars(EFFECT) | changes)), PAIR]


def second_effect(**changes):
    return [EFFECT, SimpleNamespace(**(vars(PAIR) | changes))]


def filled(**changes):
    return SimpleNamespace(**(vars(FILLED) | changes))


VIDEO = np.zeros((5, 12, 16))
MOVIE = filled(filled=VIDEO, std=VIDEO, missing=np.broadcast_to(HOLES, VIDEO.shape))

FAULTS = [
    ("plot_calibration", ([0.1, 0.9], [0, 95]), {}, "coverage must lie .* 1, got 0 to 95"),
    ("plot_calibration", (), {"num_points": 0}, "at least 1, got 0"),
    ("plot_components", (curve(lower=np.ones(3)),), {}, r"lower \(3,\)"),
    ("plot_effects", (first_effect(names=("a", "b", "c")),), {}, "one or two columns .* and 1"),
    ("plot_effects", (first_effect(mean=np.zeros(3)),), {}, r"mean \(3,\)"),
    ("plot_effects", (second_effect(mean=np.zeros((3, 4))),), {}, r"\(4, 3\), got \(3, 4\)"),
    ("plot_effects", (second_effect(grid=(X, [1.0])),), {}, "at least two .* of 30 and 1"),
    ("plot_forecast", (), {"level": 95}, "between 0 and 1, got 95"),
    ("plot_forecast", (X, X, X[:2], X), {}, r"shapes \(30,\), \(30,\), \(1, 2\) and \(1, 30\)"),
    ("plot_inpainting", (MOVIE,), {}, r"H x W x 3, got shape \(5, 12, 16\)"),
    ("plot_inpainting", (filled(std=X),), {}, r"std must have the shape \(12, 16\), got \(30,\)"),
    ("plot_inpainting", (filled(filled=VIDEO[0] + np.nan),), {}, "filled must be finite"),
    ("plot_inpainting", (filled(missing=HOLES & False),), {}, "must be missing, got none"),
    ("plot_kernel", (), {"origins": [np.inf]}, "origins must be finite"),
    ("plot_network", (), {"x": np.ones((4, 2))}, "column of x must vary, got 4 equal inputs"),
]


@pytest.mark.parametrize(("name", "changed", "options", "match"), FAULTS)
def test_faults_are_named(make_axes, name, changed, options, match):
    refuse(make_axes, name, match, *changed, **options)


@pytest.mark.parametrize(
    ("name", "changed", "match"),
    [
        ("plot_inpainting", filled(missing=1.0 * HOLES), "must hold booleans, got float64"),
        ("plot_network", ScaleKernel(RBFKernel()), "NeuralKernelNetwork, got RBFKernel"),
        ("plot_forecast", ["a", "b"], "x must hold real numbers or dates"),
    ],
)
def test_arguments_of_a_wrong_type_are_named(make_axes, name, changed, match):
    refuse(make_axes, name, match, changed, error=TypeError)


def test_truth_has_the_shape_of_the_image(make_axes):
    match, axes = r"truth must have the shape \(12, 16\)", make_axes(1, 4)
    refuse(make_axes, "plot_inpainting", match, truth=np.zeros((3, 3)), axes=axes)
    refuse(make_axes, "plot_inpainting", "4 in all, got 3", truth=FILLED.filled)
