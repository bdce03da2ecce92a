import warnings

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, PeriodicKernel, RBFKernel, ScaleKernel

from gpytorch_nkn.kernels import ComplexExponentialKernel, NeuralKernelNetwork
from gpytorch_nkn.plotting import plot_kernel

X = np.linspace(0, 8, 9)


def labelled(ax):
    return {line.get_label(): line for line in ax.get_lines() if line.get_label()[0] != "_"}


def test_slices_are_the_formula_written_out(ax):
    kernel = RBFKernel()
    kernel.lengthscale = 1.5
    assert plot_kernel(ax, kernel, X[::-1].copy(), x_label="time (years)") is ax
    lines = labelled(ax)
    assert list(lines) == ["$x_0$ = 2", "$x_0$ = 4", "$x_0$ = 6"]  # quarter points
    for origin, line in zip((2, 4, 6), lines.values(), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), X)
        np.testing.assert_allclose(line.get_ydata(), np.exp(-((X - origin) ** 2) / 4.5))
    assert ax.get_xlabel() == "time (years)"


def test_origins_are_marked_at_their_variance(ax):
    kernel = LinearKernel()
    kernel.variance = 2.0
    plot_kernel(ax, kernel, torch.as_tensor(X), origins=[-1.0, 3.0])
    marks = [line.get_xydata()[0] for line in ax.get_lines() if line.get_label() == "_x0"]
    np.testing.assert_allclose(marks, [(-1, 2), (3, 18)])
    np.testing.assert_allclose(labelled(ax)["$x_0$ = 3"].get_ydata(), 6 * X)


def test_only_the_varying_column_is_moved(ax):
    kernel = RBFKernel(ard_num_dims=2)
    kernel.lengthscale = torch.tensor([1.0, 3.0])
    inputs = np.column_stack([np.full(9, 5.0), X])
    plot_kernel(ax, kernel, inputs, origins=[4.0])
    expected = np.exp(-((X - 4) ** 2) / 18)
    np.testing.assert_allclose(labelled(ax)["$x_0$ = 4"].get_ydata(), expected)


@pytest.mark.parametrize(
    ("origins", "names"),
    [
        (np.array([1975.25, 1982.5, 1989.75]), ["1975", "1982", "1990"]),
        (np.array([1989.6, 1990.4]), ["1989.6", "1990.4"]),
        (np.array([7305.25, 7305.26]), ["7305.25", "7305.26"]),
        (np.array([-1 / 3, 1e-17, 1 / 3]), ["-0.333", "0", "0.333"]),
        (np.array([1e9, 1e9 + 5]), ["1000000000", "1000000005"]),
        (np.array([2.0, 2.0]), ["2", "2"]),
        (np.array([0.0]), ["0"]),
    ],
)
def test_origins_have_as_many_digits_as_tell_them_apart(ax, origins, names):
    plot_kernel(ax, RBFKernel(), origins.mean() + X, origins=origins)
    drawn = [line.get_label() for line in ax.get_lines() if line.get_label()[0] != "_"]
    assert drawn == [f"$x_0$ = {name}" for name in names]


def test_inputs_are_in_units_of_ones_own(make_axes):
    """A lengthscale of 1.5 in the kernel's units is one of 15 years."""
    kernel = RBFKernel()
    kernel.lengthscale = 1.5
    years = np.arange(1960.0, 2000.0)
    slices, samples, alike = make_axes(1, 3)
    units = {"x_offset": 1975.0, "x_scale": 10.0}
    plot_kernel(slices, kernel, years, origins=[1970.0], **units)
    line = labelled(slices)["$x_0$ = 1970"]
    np.testing.assert_array_equal(line.get_xdata(), years)
    np.testing.assert_allclose(line.get_ydata(), np.exp(-((years - 1970) ** 2) / (2 * 15**2)))
    plot_kernel(samples, kernel, years, show="samples", **units)
    plot_kernel(alike, kernel, (years - 1975) / 10, show="samples")
    for one, other in zip(samples.get_lines(), alike.get_lines(), strict=True):
        np.testing.assert_array_equal(one.get_xdata(), years)
        np.testing.assert_array_equal(one.get_ydata(), other.get_ydata())


def test_units_change_the_column_that_varies_only_and_keep_precision(ax):
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2)).float()
    days = 20_000 + np.arange(9) / 1440  # minutes, which days since 1970 in float32 do not tell
    inputs = np.column_stack([np.full(9, 5.0), days])
    plot_kernel(ax, kernel, inputs, origins=days[:1], x_offset=20_000, x_scale=4 / 1440)
    (line,) = labelled(ax).values()
    scale, length = kernel.outputscale.item(), kernel.base_kernel.lengthscale[0, 1].item()
    expected = scale * np.exp(-((np.arange(9) / 4) ** 2) / (2 * length**2))
    np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-5)


def test_samples_have_the_covariance_of_the_kernel(make_axes):
    kernel = ScaleKernel(PeriodicKernel()) + ScaleKernel(LinearKernel())
    ax = make_axes()
    plot_kernel(ax, kernel, X[:4], show="samples", samples=1000)
    draws = np.array([line.get_ydata() for line in ax.get_lines()])
    expected = kernel(torch.as_tensor(X[:4])).to_dense().detach().numpy()
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    np.testing.assert_allclose(np.cov(draws.T, bias=True) / scale, expected / scale, atol=0.12)


def test_samples_depend_on_the_seed_and_leave_global_state_alone(make_axes):
    axes = make_axes(1, 3)
    state, training = torch.get_rng_state(), RBFKernel().training
    kernel = RBFKernel()
    for ax, seed in zip(axes, (0, 0, 1), strict=True):
        plot_kernel(ax, kernel, X, show="samples", seed=seed)
    paths = [[line.get_ydata() for line in ax.get_lines()] for ax in axes]
    assert len(paths[0]) == 3
    np.testing.assert_array_equal(paths[0], paths[1])
    assert np.abs(np.array(paths[0]) - paths[2]).min() > 0
    assert torch.equal(torch.get_rng_state(), state) and kernel.training is training
    assert all(p.grad is None for p in kernel.parameters())


@pytest.mark.parametrize("show", ["slices", "samples"])
def test_a_kernel_of_rank_one_and_large_scale_is_drawn_without_warnings(ax, no_overlap, show):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_kernel(ax, LinearKernel() + LinearKernel(), 1e4 * X, show=show)
    slopes = [line.get_ydata()[1:] / line.get_xdata()[1:] for line in ax.get_lines()[:3]]
    if show == "samples":  # jitter of a millionth of the variance
        np.testing.assert_allclose(
            slopes, np.mean(slopes, 1, keepdims=True).repeat(8, 1), atol=0.02
        )
    no_overlap(ax.figure)


def test_networks_and_complex_kernels_are_drawn_by_their_real_part(make_axes):
    wave = ComplexExponentialKernel()
    wave.frequency.data.fill_(0.7)
    axes = make_axes(1, 2)
    for ax, kernel in zip(axes, (wave, NeuralKernelNetwork([wave], [])), strict=True):
        plot_kernel(ax, kernel, X, origins=[0.0])
        line = labelled(ax)["$x_0$ = 0"]
        expected = wave(torch.as_tensor(X), torch.zeros(1)).to_dense().detach().numpy()[:, 0]
        np.testing.assert_allclose(line.get_ydata(), expected, atol=1e-12)
        assert np.ptp(expected) > 1


def test_single_precision_is_kept(ax):
    plot_kernel(ax, RBFKernel().float(), X, show="samples")
    plot_kernel(ax, RBFKernel().float(), X)
