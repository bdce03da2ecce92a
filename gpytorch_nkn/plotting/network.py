"""A network of kernels, drawn with the kernel of every unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import Activation, Layer, Linear, Product
from gpytorch_nkn.plotting.inputs import as_inputs, check_kernel
from gpytorch_nkn.plotting.kernel_names import input_dim, kernel_name
from gpytorch_nkn.plotting.stages import Stage, choose_units, draw_stages

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_network"]

_MAX_POINTS = 201  # of a thumbnail


def plot_network(
    ax: Axes,
    network: NeuralKernelNetwork,
    *,
    x: Any = None,
    max_units: int = 16,
    names: Sequence[str] | None = None,
) -> Axes:
    """Draw a network from the primitives at the left to the output at the right.

    Every unit is a thumbnail of its kernel ``k(x, x0)``, ``x0`` in the middle of ``x``, scaled to
    its own largest value (the real part of complex units); a thin line marks zero where there are
    negative values. Lines into a sum are as strong as their contribution, which is the weight
    times the mean variance ``k(x, x)`` of the unit that comes in, relative to the largest of the
    sum; what is below 2 % is left out. A short line from below into a sum, marked ``c``, is its
    constant, where that is above 10 %. Units that contribute less than 2 % to the output are
    pale. Lines into a product are thin and alike, and a multiplication sign joins them.

    Args:
        ax: Axes to draw on; its frame and ticks are removed. About 0.6 inches of height per unit
            of the widest layer look good.
        network: A network without batch dimensions and with one output per input.
        x: Inputs ``N x D`` (or ``N`` for one column), which are sorted along the first column
            that varies; they should lie on a line, or the thumbnails are ragged. By default all
            columns run from -2 to 2 together, so that kernels of every column show.
        max_units: Largest number of units drawn in a layer. Of wider layers those are drawn that
            contribute most to the output, and the number of the others is told.
        names: Names of the input columns, for primitives that see some of them only; the column
            numbers, from 0, by default.

    Returns:
        The same axes.

    Raises:
        TypeError: ``network`` is not a NeuralKernelNetwork, or ``x`` does not hold numbers.
        ValueError: The network has a batch shape or several outputs per input, ``x`` has fewer
            columns than the network needs, no column of it varies, or an entry is not finite;
            ``max_units`` is below 1; or there are fewer names than columns.
    """
    if not isinstance(network, NeuralKernelNetwork):
        raise TypeError(f"plot_network draws a NeuralKernelNetwork, got {type(network).__name__}.")
    check_kernel(network)
    if max_units < 1:
        raise ValueError(f"max_units must be at least 1, got {max_units}.")
    line = _inputs(network, x)
    if names is not None and len(names) < line.size(1):
        raise ValueError(f"A name per input column is needed, {line.size(1)}, got {len(names)}.")
    stages = _stages(network, line)
    choose_units(stages, max_units)
    draw_stages(ax, stages, _labels(network, names))
    return ax


def _labels(network: NeuralKernelNetwork, names: Sequence[str] | None) -> list[str]:
    """Short names of the primitives, whose columns count within those of the network."""
    outer = None if network.active_dims is None else network.active_dims.tolist()

    def column_name(column: int) -> str:
        column = column if outer is None else outer[column]
        return str(column) if names is None else str(names[column])

    primitives: list[Kernel] = list(network.primitives)
    return [kernel_name(kernel, column_name) for kernel in primitives]


def _inputs(network: NeuralKernelNetwork, x: Any) -> Tensor:
    columns = input_dim(network)
    if x is None:
        like = next(network.parameters(), torch.empty(0)).detach()
        ramp = torch.linspace(-2, 2, _MAX_POINTS).to(like)
        return ramp.unsqueeze(-1).repeat(1, columns)
    line = as_inputs(network, x)
    if line.size(1) < columns:
        raise ValueError(
            f"The network needs {columns} input columns, got x of shape {tuple(line.shape)}."
        )
    varies = (line != line[0]).any(0)
    if not bool(varies.any()):
        raise ValueError(f"A column of x must vary, got {len(line)} equal inputs.")
    line = line[line[:, int(varies.int().argmax())].argsort(stable=True)]
    if len(line) > _MAX_POINTS:
        line = line[torch.linspace(0, len(line) - 1, _MAX_POINTS).round().long()]
    return line


def _stages(network: NeuralKernelNetwork, line: Tensor) -> list[Stage]:
    with torch.no_grad():
        values = [v.real if v.is_complex() else v for v in network.unit_values(line)]
    if values[0].shape[-2:] != (len(line), len(line)):
        raise ValueError(
            "A network with one output per input is needed, got values of shape "
            f"{tuple(values[0].shape[-2:])} for {len(line)} inputs."
        )
    if not all(bool(v.isfinite().all()) for v in values):
        raise ValueError("The values of all units must be finite, got NaN or infinite ones.")
    slices = [v[..., len(line) // 2].double().cpu().numpy() for v in values]
    variances = [v.diagonal(dim1=-2, dim2=-1).mean(-1).double().cpu().numpy() for v in values]
    none = np.zeros(len(slices[0]))
    stages = [Stage("primitives", slices[0], np.zeros((len(none), 0)), none)]
    layers: list[Layer] = list(network.layers)  # type: ignore[arg-type]
    for number, layer in enumerate(layers):
        shares, constants = _shares(layer, variances[number])
        head = type(layer).__name__
        if isinstance(layer, Activation):
            head = "exp" if layer.coefficients == "exp" else "polynomial"
        joins = isinstance(layer, Product)
        stages.append(Stage(head, slices[number + 1], shares, constants, is_product=joins))
    return stages


def _shares(layer: Layer, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Contributions ``O x C`` of the incoming units, and ``O`` of the constant, that sum to 1."""
    out, incoming = layer.out_features, layer.in_features
    constants = np.zeros(out)
    if isinstance(layer, Linear):
        shares = layer.weight.detach().double().cpu().numpy() * variances
        if layer.bias is not None:
            constants = layer.bias.detach().double().cpu().numpy()
    elif isinstance(layer, Product):
        shares = np.kron(np.eye(out), np.ones((1, incoming // out)))
    elif isinstance(layer, Activation):
        shares = np.eye(out)
    else:
        shares = np.ones((out, incoming))
    total = shares.sum(1) + constants
    total[total == 0] = 1
    return shares / total[:, None], constants / total
