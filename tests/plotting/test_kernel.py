import warnings

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, PeriodicKernel, RBFKernel, ScaleKernel

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
