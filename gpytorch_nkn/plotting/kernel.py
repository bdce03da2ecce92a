"""A kernel in pictures: its values around some points, or functions drawn from it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.warnings import NumericalWarning
from numpy.typing import ArrayLike
from torch import Tensor

from gpytorch_nkn.plotting.inputs import check_kernel, kernel_values, line_of_inputs
from gpytorch_nkn.plotting.style import GRAY, PALETTE, as_array, finish, put_legend_above

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_kernel"]

_STYLES = ("solid", (0, (5, 1.5)), (0, (1.5, 1)), (0, (6, 1.5, 1.5, 1.5)))


def plot_kernel(
    ax: Axes,
    kernel: Kernel,
    x: Any,
    *,
    show: str = "slices",
    origins: ArrayLike | None = None,
    samples: int = 3,
    seed: int = 0,
    x_label: str = "x",
) -> Axes:
    """Draw a kernel's values around some points, or functions drawn from a GP with this kernel.

    Args:
        ax: Axes to draw on.
        kernel: A kernel without batch dimensions and with one output per input.
        x: Inputs ``N``, or ``N x D`` of which one column varies, in any order.
        show: ``"slices"`` draws ``k(x, x0)`` for each origin ``x0``, ``"samples"`` functions
            drawn from the prior with mean zero.
        origins: Values of the varying column ``S``; the quarter points of its range by default.
        samples: Number of functions.
        seed: Determines the functions; the global random state is left as it was.
        x_label: Label of the horizontal axis, with its unit.

    Returns:
        The same axes.

    Raises:
        TypeError: ``kernel`` is not a kernel, or ``x`` does not hold numbers.
        ValueError: ``show`` is unknown, the kernel has a batch shape, not exactly one column of
            ``x`` varies, ``samples`` is below 1, or a value is not finite.
    """
    if show not in ("slices", "samples"):
        raise ValueError(f"show must be 'slices' or 'samples', got {show!r}.")
    check_kernel(kernel)
    line, column = line_of_inputs(kernel, x)
    if show == "slices":
        _draw_slices(ax, kernel, line, column, origins)
        finish(ax, x_label, r"$k(x, x_0)$")
        put_legend_above(ax)
    else:
        if samples < 1:
            raise ValueError(f"samples must be at least 1, got {samples}.")
        draws = _sample(kernel, line, samples, seed).numpy()
        for number in range(samples):
            color = PALETTE[number % len(PALETTE)]
            ax.plot(line[:, column].cpu(), draws[:, number], color=color, linewidth=1.3)
        finish(ax, x_label, "functions from the prior")
    ax.margins(x=0.01)
    return ax


def _draw_slices(
    ax: Axes, kernel: Kernel, line: Tensor, column: int, origins: ArrayLike | None
) -> None:
    place = line[:, column]
    if origins is None:
        origins = np.quantile([place[0].item(), place[-1].item()], [0.25, 0.5, 0.75])
    values = as_array("origins", origins)
    points = line[:1].repeat(len(values), 1)
    points[:, column] = torch.as_tensor(values).to(place)
    slices = kernel_values(kernel, line, points).cpu().numpy()
    peaks = kernel_values(kernel, points, points).diagonal().cpu().numpy()
    if slices.min() < 0:
        ax.axhline(0, color=GRAY, linewidth=0.6)
    for number, origin in enumerate(values):
        look = _look(number)
        label = f"$x_0$ = {origin:.3g}"
        ax.plot(place.cpu(), slices[:, number], linewidth=1.5, label=label, **look)
        ax.plot(
            [origin], [peaks[number]], color=look["color"], marker="o", markersize=5, label="_x0"
        )


def _look(number: int) -> dict[str, Any]:
    return {
        "color": PALETTE[number % len(PALETTE)],
        "linestyle": _STYLES[(number // len(PALETTE) + number) % len(_STYLES)],
    }


def _sample(kernel: Kernel, line: Tensor, samples: int, seed: int) -> Tensor:
    """Functions ``N x samples`` at the inputs, in float64 on the CPU."""
    covariance = kernel_values(kernel, line, line).double().cpu()
    scale = covariance.diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)  # jitter is what we want here
        factor = psd_safe_cholesky(covariance / scale, max_tries=6)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(len(line), samples, generator=generator, dtype=torch.float64)
    return scale.sqrt() * factor @ noise
