"""Plot of a kernel's values around some points."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from torch import Tensor

from gpytorch_nkn.fit import check_number
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.plotting.style import GRAY, PALETTE, as_array, finish, put_legend_above

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["as_inputs", "check_kernel", "plot_kernel", "unit_values"]

_STYLES = ("-", "--", ":", "-.")


def plot_kernel(
    ax: Axes,
    kernel: Kernel,
    x: Any,
    *,
    origins: ArrayLike | None = None,
    x_offset: float = 0.0,
    x_scale: float = 1.0,
    x_label: str = "x",
) -> Axes:
    """Draw a kernel's values ``k(x, x0)`` around some points ``x0``.

    Args:
        ax: Axes to draw on.
        kernel: A kernel without batch dimensions and with one output per input.
        x: Inputs ``N``, or ``N x D`` with one varying column, in any order and in your units.
        origins: Values ``S`` of the varying column; by default the quartiles of its range.
        x_offset: The varying column of the kernel is ``(x - x_offset) / x_scale``. For a
            forecaster, pass its ``x_offset_`` and ``x_scale_``; dates are then in days since 1970.
        x_scale: Positive scale of the inputs.
        x_label: Label of the horizontal axis, with its unit.

    Raises:
        TypeError: ``kernel`` is not a kernel, or ``x`` is not numerical.
        ValueError: The kernel has a batch shape, or not exactly one column of ``x`` varies.
            ``x_scale`` is not positive, or a value is not finite.
    """
    check_kernel(kernel)
    check_number("x_offset", abs(x_offset), positive=False)
    check_number("x_scale", x_scale, positive=True)
    fixed = as_inputs(kernel, x)[:1]
    array = np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x, dtype=float)
    array = array.reshape(len(array), -1)
    (varying,) = np.nonzero((array != array[0]).any(0))
    if len(varying) != 1:
        raise ValueError(
            f"Exactly one column of x must vary, got {len(varying)} of {array.shape[1]} "
            f"(x has the shape {array.shape})."
        )
    column = int(varying[0])
    along = np.sort(array[:, column])
    if origins is None:
        origins = np.quantile(along[[0, -1]], [0.25, 0.5, 0.75])
    centers = as_array("origins", origins)
    # use a network of one unit, because GPyTorch's sums with linear kernels factorise matrices
    network = NeuralKernelNetwork([kernel], [])

    def inputs(x: np.ndarray) -> Tensor:
        rows = fixed.repeat(len(x), 1)
        # standardise in float64, because years or days leave few digits in float32
        rows[:, column] = torch.as_tensor((x - x_offset) / x_scale).to(rows)
        return rows

    points = inputs(centers)
    slices = unit_values(network, inputs(along), points)[0].squeeze(-3).numpy()
    peaks = unit_values(network, points, points)[0].squeeze(-3).diagonal().numpy()
    if slices.min() < 0:
        ax.axhline(0, color=GRAY, linewidth=0.6)
    step = float(np.ptp(along)) / 100
    for number, origin in enumerate(centers):
        color = PALETTE[number % len(PALETTE)]
        label = f"$x_0$ = {np.round(origin, max(0, -math.floor(math.log10(step)))):.12g}"
        style = _STYLES[number % len(_STYLES)]
        ax.plot(along, slices[:, number], style, color=color, linewidth=1.5, label=label)
        ax.plot([origin], [peaks[number]], "o", color=color, markersize=5, label="_x0")
    finish(ax, x_label, r"$k(x, x_0)$")
    put_legend_above(ax)
    ax.margins(x=0.01)
    return ax


def check_kernel(kernel: Kernel) -> None:
    """Raise an error unless the object is a kernel without a batch."""
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel must be a gpytorch.kernels.Kernel, got {type(kernel).__name__}.")
    if len(kernel.batch_shape):
        raise ValueError(
            "kernel must have no batch dimensions, got a batch of shape "
            f"{tuple(kernel.batch_shape)}; index it first, as in kernel[0]."
        )


def as_inputs(kernel: Kernel, x: Any) -> Tensor:
    """Convert ``N`` or ``N x D`` finite numbers to inputs ``N x D`` in the kernel's dtype."""
    array = as_array("x", x, ndim=2 if getattr(x, "ndim", None) == 2 else 1)
    if array.dtype.kind == "M":
        raise TypeError("x must hold numbers, got dates.")
    like = next(iter(kernel.parameters()), torch.empty(0))
    return torch.as_tensor(array.reshape(len(array), -1)).to(like.detach())


def unit_values(network: NeuralKernelNetwork, x1: Tensor, x2: Tensor) -> list[Tensor]:
    """Return real values ``U x N x M`` of the units of each layer, in float64 on the CPU."""
    with torch.no_grad():
        values = [v.real if v.is_complex() else v for v in network.unit_values(x1, x2)]
    if values[0].shape[-2:] != (len(x1), len(x2)):
        raise ValueError(
            f"kernel must have one output per input, got values of shape "
            f"{tuple(values[0].shape[-2:])} for {len(x1)} and {len(x2)} inputs."
        )
    if not all(bool(v.isfinite().all()) for v in values):
        raise ValueError("The kernel's values must be finite, got NaN or infinite values.")
    return [v.double().cpu() for v in values]
