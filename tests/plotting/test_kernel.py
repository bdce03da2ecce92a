import numpy as np
import torch
from gpytorch.kernels import LinearKernel, RBFKernel

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


def test_inputs_are_in_units_of_ones_own(ax):
    """A lengthscale of 1.5 in the kernel's units is one of 15 years."""
    kernel = RBFKernel()
    kernel.lengthscale = 1.5
    years = np.arange(1960.0, 2000.0)
    plot_kernel(ax, kernel, years, origins=[1970.0], x_offset=1975.0, x_scale=10.0)
    line = labelled(ax)["$x_0$ = 1970"]
    np.testing.assert_array_equal(line.get_xdata(), years)
    np.testing.assert_allclose(line.get_ydata(), np.exp(-((years - 1970) ** 2) / (2 * 15**2)))
