"""A network of kernels, drawn with the kernel of every unit."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gpytorch.kernels import Kernel, ScaleKernel
from scipy.signal import find_peaks
from torch import Tensor

from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.evaluation import unwrap_scales
from gpytorch_nkn.layers import Activation, Layer, Linear, Product
from gpytorch_nkn.plotting.inputs import as_inputs, check_kernel
from gpytorch_nkn.plotting.kernel_names import input_dim, kernel_name
from gpytorch_nkn.plotting.stages import Stage, choose_units, draw_stages

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_network"]

_VARIANCES = 201  # inputs over which variances are averaged
_POINTS = 401  # of a thumbnail
_SWINGS = 12  # that a thumbnail shows at most
_ORIGIN = 0.35  # place of x0 within a thumbnail
_FINE, _FINEST = 2_000, 20_000  # points by which swings are counted


def plot_network(
    ax: Axes,
    network: NeuralKernelNetwork | ScaleKernel,
    *,
    x: Any = None,
    max_units: int = 16,
    names: Sequence[str] | None = None,
) -> Axes:
    """Draw a network from the primitives at the left to the output at the right.

    Every unit is a thumbnail of its kernel ``k(x, x0)``, scaled to its own largest value (the real
    part of complex units); a thin line marks zero where there are negative values. All thumbnails
    show the same even grid over the range of ``x``, or, where a unit that counts swings more than
    12 times over the range, a window of it in which it swings 12 times. The origin ``x0`` lies at
    35 % of the way, not in the middle: of data around zero the middle is where linear kernels
    vanish. Lines into a sum are as strong as their contribution, which is the weight
    times the mean variance ``k(x, x)`` of the unit that comes in, relative to the largest of the
    sum; what is below 2 % is left out. A short line from below into a sum, marked ``c``, is its
    constant, where that is above 10 %. Units that contribute less than 2 % to the output are
    pale, and so is what leads into them. Lines into a product are thin and alike, and a
    multiplication sign joins them. Of a network with a skip connection the lines from the
    primitives to the last layer run below the layers between. Sums whose weights and constant sum
    to one are headed ``simplex``.

    Args:
        ax: Axes to draw on; its frame and ticks are removed. About 0.6 inches of height per unit
            of the widest layer look good.
        network: A network without batch dimensions and with one output per input. One in a
            ScaleKernel looks the same: thumbnails show no scales.
        x: Inputs ``N x D`` (or ``N`` for one column) in any order, such as the training inputs.
            Variances are averaged over them, and thumbnails run over their range: along the
            line on which they lie, or else through all columns together, from the smallest to
            the largest values. By default all columns run from -2 to 2 together.
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
    network = _without_scales(network)
    check_kernel(network)
    if max_units < 1:
        raise ValueError(f"max_units must be at least 1, got {max_units}.")
    path = _path(network, x)
    columns = path.inputs.size(1)
    if names is not None and len(names) < columns:
        raise ValueError(f"A name per input column is needed, {columns}, got {len(names)}.")
    stages = _stages(network, path.inputs)
    choose_units(stages, max_units)
    _add_thumbnails(network, stages, path)
    draw_stages(ax, stages, _labels(network, names))
    return ax


def _without_scales(kernel: Any) -> NeuralKernelNetwork:
    """The network within ScaleKernels, which sees their columns."""
    network, scales = unwrap_scales(kernel)
    if not isinstance(network, NeuralKernelNetwork):
        raise TypeError(f"plot_network draws a NeuralKernelNetwork, got {type(network).__name__}.")
    for scale in scales:
        check_kernel(scale)
    if scales and network.active_dims is None and scales[0].active_dims is not None:
        network = deepcopy(network)
        network.active_dims = scales[0].active_dims
    return network


def _labels(network: NeuralKernelNetwork, names: Sequence[str] | None) -> list[str]:
    """Short names of the primitives, whose columns count within those of the network."""
    outer = None if network.active_dims is None else network.active_dims.tolist()

    def column_name(column: int) -> str:
        column = column if outer is None else outer[column]
        return str(column) if names is None else str(names[column])

    primitives: list[Kernel] = list(network.primitives)
    return [kernel_name(kernel, column_name) for kernel in primitives]


@dataclass(frozen=True, eq=False)
class _Path:
    """A straight line through the inputs.

    Attributes:
        inputs: Inputs ``N x D``, at most 201 of those that came in.
        start, end: Ends of the line ``D``.
        step: Distance of neighbouring inputs, as a fraction of the line.
    """

    inputs: Tensor
    start: Tensor
    end: Tensor
    step: float

    def window(self, width: float, count: int) -> Tensor:
        """An even grid ``count x D`` of which ``x0`` lies where it lies on the whole line."""
        low = _ORIGIN * (1 - width)
        places = torch.linspace(low, low + width, count, dtype=torch.float64).unsqueeze(-1)
        start, end = self.start.double().cpu(), self.end.double().cpu()
        return (start + places * (end - start)).to(self.inputs)


def _path(network: NeuralKernelNetwork, x: Any) -> _Path:
    columns = input_dim(network)
    if x is None:
        like = next(network.parameters(), torch.empty(0)).detach()
        ramp = torch.linspace(-2, 2, _VARIANCES).to(like).unsqueeze(-1).repeat(1, columns)
        return _Path(ramp, ramp[0], ramp[-1], 1 / _VARIANCES)
    inputs = as_inputs(network, x)
    if inputs.size(1) < columns:
        raise ValueError(
            f"The network needs {columns} input columns, got x of shape {tuple(inputs.shape)}."
        )
    varies = (inputs != inputs[0]).any(0)
    if not bool(varies.any()):
        raise ValueError(f"A column of x must vary, got {len(inputs)} equal inputs.")
    first = int(varies.int().argmax())
    inputs = inputs[inputs[:, first].argsort(stable=True)]
    start, end = inputs[0], inputs[-1]
    low, high = inputs.min(0).values, inputs.max(0).values
    places = (inputs[:, first] - start[first]) / (end[first] - start[first])
    line = start + places.unsqueeze(-1) * (end - start)
    if not bool(((inputs - line).abs() <= 1e-4 * (high - low)).all()):
        start, end = low, high
    step = float(places.double().unique().diff().median())
    if len(inputs) > _VARIANCES:
        inputs = inputs[torch.linspace(0, len(inputs) - 1, _VARIANCES).round().long()]
    return _Path(inputs, start, end, step)


def _unit_values(network: NeuralKernelNetwork, x1: Tensor, x2: Tensor) -> list[Tensor]:
    """Real values ``U x N x M`` of every stage, in float64 on the CPU."""
    with torch.no_grad():
        values = [v.real if v.is_complex() else v for v in network.unit_values(x1, x2)]
    if values[0].shape[-2:] != (len(x1), len(x2)):
        raise ValueError(
            "A network with one output per input is needed, got values of shape "
            f"{tuple(values[0].shape[-2:])} for {len(x1)} and {len(x2)} inputs."
        )
    if not all(bool(v.isfinite().all()) for v in values):
        raise ValueError("The values of all units must be finite, got NaN or infinite ones.")
    return [v.double().cpu() for v in values]


def _stages(network: NeuralKernelNetwork, inputs: Tensor) -> list[Stage]:
    values = _unit_values(network, inputs, inputs)
    variances = [v.diagonal(dim1=-2, dim2=-1).mean(-1).numpy() for v in values]
    none = np.zeros(len(variances[0]))
    stages = [Stage("primitives", np.zeros((len(none), 0)), none)]
    layers: list[Layer] = list(network.layers)  # type: ignore[arg-type]
    for number, layer in enumerate(layers):
        incoming = variances[number]
        before = len(incoming)
        if network.skip and number == len(layers) - 1:
            incoming = np.concatenate([incoming, variances[0]])
        shares, constants = _shares(layer, incoming)
        is_product = isinstance(layer, Product)
        stages.append(
            Stage(_head(layer), shares[:, :before], constants, shares[:, before:], is_product)
        )
    return stages


def _head(layer: Layer) -> str:
    if isinstance(layer, Activation):
        return "exp" if layer.coefficients == "exp" else "polynomial"
    name = type(layer).__name__
    return f"{name}\nsimplex" if isinstance(layer, Linear) and layer.is_simplex else name


def _add_thumbnails(network: NeuralKernelNetwork, stages: list[Stage], path: _Path) -> None:
    """Slices of all units, over a window narrow enough for the fastest of those that count."""
    origin = path.start + _ORIGIN * (path.end - path.start)

    def slices(width: float, count: int) -> list[np.ndarray]:
        values = _unit_values(network, path.window(width, count), origin.unsqueeze(0))
        return [v[..., 0].numpy() for v in values]

    step = min(path.step / 4, 1 / _FINE)
    count = min(round(1 / step), _FINEST)
    width = min(1.0, count * step)
    window = width
    for stage, values in zip(stages, slices(width, count), strict=True):
        for unit in values[~stage.is_pale]:
            window = min(window, _SWINGS * _period(unit) * width / (count - 1))
    for stage, values in zip(stages, slices(window, _POINTS), strict=True):
        stage.slices = values


def _period(values: np.ndarray) -> float:
    """Points from peak to peak; infinite where there are so few peaks that all can be shown."""
    least = max(0.05 * np.ptp(values), 1e-6 * np.abs(values).max())
    peaks = find_peaks(values, prominence=least)[0]
    return float(np.diff(peaks).mean()) if len(peaks) > _SWINGS else np.inf


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
