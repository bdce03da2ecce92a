"""Plot of a kernel's values, or of functions drawn from its prior."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike

from gpytorch_nkn._devices import normal
from gpytorch_nkn.linalg import check_counts, psd_root
from gpytorch_nkn.plotting.inputs import InputLine, kernel_values, line_of_inputs
from gpytorch_nkn.plotting.style import GRAY, PALETTE, as_array, finish, put_legend_above

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_kernel"]

_STYLES = ("-", "--", ":", "-.")


def plot_kernel(
    ax: Axes,
    kernel: Kernel,
    x: Any,
    *,
    show: Literal["slices", "samples"] = "slices",
    origins: ArrayLike | None = None,
    samples: int = 3,
    seed: int = 0,
    x_offset: float = 0.0,
    x_scale: float = 1.0,
    x_label: str = "x",
) -> Axes:
    """Draw a kernel's values around some points, or functions drawn from its GP prior.

    Args:
        ax: Axes to draw on.
        kernel: A kernel without batch dimensions and with one output per input.
        x: Inputs ``N``, or ``N x D`` with one varying column, in any order and in your units.
        show: ``"slices"`` for ``k(x, x0)`` with each origin ``x0``, or ``"samples"`` for functions
            drawn from the zero-mean prior.
        origins: Values ``S`` of the varying column; by default the quartiles of its range.
        samples: Number of functions.
        seed: Seed of the functions; the global random state does not change.
        x_offset: The kernel is evaluated at ``(x - x_offset) / x_scale``. For a forecaster, pass
            its ``x_offset_`` and ``x_scale_``; dates are then in days since 1970.
        x_scale: Positive scale of the inputs.
        x_label: Label of the horizontal axis, with its unit.

    Raises:
        TypeError: ``kernel`` is not a kernel, or ``x`` is not numerical.
        ValueError: The kernel has a batch shape, or not exactly one column of ``x`` varies.
            ``show``, ``samples`` or ``x_scale`` is invalid, or a value is not finite.
    """
    if show not in ("slices", "samples"):
        raise ValueError(f"show must be 'slices' or 'samples', got {show!r}.")
    line = line_of_inputs(kernel, x, x_offset, x_scale)
    if show == "slices":
        _draw_slices(ax, kernel, line, origins)
        finish(ax, x_label, r"$k(x, x_0)$")
        put_legend_above(ax)
    else:
        check_counts(1, samples=samples)
        inputs = line.at(line.x)
        noise = normal((len(inputs), samples), torch.Generator().manual_seed(seed))
        draws = (psd_root(kernel_values(kernel, inputs, inputs)) @ noise).numpy()
        for number in range(samples):
            color = PALETTE[number % len(PALETTE)]
            ax.plot(line.x, draws[:, number], color=color, linewidth=1.3)
        finish(ax, x_label, "functions from the prior")
    ax.margins(x=0.01)
    return ax


def _draw_slices(ax: Axes, kernel: Kernel, line: InputLine, origins: ArrayLike | None) -> None:
    if origins is None:
        origins = np.quantile(line.x[[0, -1]], [0.25, 0.5, 0.75])
    values = as_array("origins", origins)
    points = line.at(values)
    slices = kernel_values(kernel, line.at(line.x), points).numpy()
    peaks = kernel_values(kernel, points, points).diagonal().numpy()
    if slices.min() < 0:
        ax.axhline(0, color=GRAY, linewidth=0.6)
    step = float(np.ptp(line.x)) / 100
    for number, origin in enumerate(values):
        color = PALETTE[number % len(PALETTE)]
        label = f"$x_0$ = {np.round(origin, max(0, -math.floor(math.log10(step)))):.12g}"
        style = _STYLES[number % len(_STYLES)]
        ax.plot(line.x, slices[:, number], style, color=color, linewidth=1.5, label=label)
        ax.plot([origin], [peaks[number]], "o", color=color, markersize=5, label="_x0")
