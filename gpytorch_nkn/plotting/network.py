"""Plot of a network with a slice of each unit's kernel."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from scipy.signal import find_peaks
from torch import Tensor

from gpytorch_nkn.kernels import NeuralKernelNetwork, short_name
from gpytorch_nkn.kernels.evaluation import unwrap_scales
from gpytorch_nkn.layers import Activation, Layer, Linear, Product
from gpytorch_nkn.plotting.kernel import as_inputs, check_kernel, unit_values
from gpytorch_nkn.plotting.style import BLUE, GRAY, ORANGE, PALETTE, size_in_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["kernel_name", "plot_network"]

_ROWS = 201  # largest number of inputs over which variances are averaged
_POINTS = 401  # number of points in a thumbnail
_MAX_OSCILLATIONS = 12  # largest number of oscillations in a thumbnail
_ORIGIN = 0.35  # position of x0, as a fraction of the range
_COUNTING_POINTS = 4_000  # number of points at which oscillations are counted
_WIDTH, _HEIGHT = 0.5, 0.76  # size of a thumbnail; layers, and units of the widest, are 1 apart
_MIN_CONTRIBUTION = 0.02  # smallest relative contribution drawn as a line
_SKIP, _FRAME = PALETTE[2], "#9aa5b1"  # colours of skip connections and of frames


def plot_network(ax: Axes, network: NeuralKernelNetwork | ScaleKernel, *, x: Any = None) -> Axes:
    """Draw a network from the primitives at the left to the output at the right.

    Each unit is drawn as a thumbnail of the real part of ``k(x, x0)``, scaled to its largest value.
    A thin line marks zero if values are negative. Thumbnails cover the range of ``x``, or a part of
    it if a unit oscillates more than 12 times. The origin ``x0`` lies at 35 % of the range, because
    linear kernels are zero in the middle of centred data. The strength of a line into a sum shows
    its contribution, the weight times the mean variance ``k(x, x)`` of the input unit. Lines below
    2 % of the strongest are omitted. A multiplication sign joins the lines into a product. Layers
    whose weights and constant sum to one are labelled ``simplex``.

    Args:
        ax: Axes to draw on, with about 0.6 inches of height per unit of the widest layer; their
            frame and ticks are removed.
        network: A network without batch dimensions and with one output per input, possibly in
            ScaleKernels.
        x: Inputs ``N x D`` (or ``N`` for one column) in any order, such as the training inputs.
            Variances are averaged over the inputs. Thumbnails vary all columns together, from
            their smallest to their largest values; by default from -2 to 2.

    Raises:
        TypeError: ``network`` is not a NeuralKernelNetwork, or ``x`` is not numerical.
        ValueError: The network has a batch shape or several outputs, ``x`` has too few columns or
            none that varies, or a value is not finite.
    """
    check_kernel(network)
    inner, _ = unwrap_scales(network)
    if not isinstance(inner, NeuralKernelNetwork):
        raise TypeError(f"plot_network draws a NeuralKernelNetwork, got {type(inner).__name__}.")
    inputs = _inputs(inner, x)
    stages = _stages(inner, inputs)
    _add_thumbnails(inner, stages, inputs.amin(0), inputs.amax(0))
    outer = None if inner.active_dims is None else inner.active_dims.tolist()
    primitives: list[Kernel] = list(inner.primitives)
    _draw_stages(ax, stages, [kernel_name(kernel, outer) for kernel in primitives])
    return ax


def kernel_name(kernel: Kernel, outer: Sequence[int] | None = None) -> str:
    """Return a label such as ``RBF``, or ``PER (1)`` for a kernel of some ``outer`` columns."""
    name, columns = short_name(kernel), kernel.active_dims
    if isinstance(kernel, ScaleKernel):
        name = kernel_name(kernel.base_kernel, outer)
        if kernel.base_kernel.active_dims is not None:
            return name  # a ScaleKernel has the columns of its base kernel
    elif type(kernel) in (AdditiveKernel, ProductKernel):
        sign = " + " if isinstance(kernel, AdditiveKernel) else " \N{MULTIPLICATION SIGN} "
        name = sign.join(kernel_name(part, outer) for part in kernel.kernels)
        name = name if columns is None else f"[{name}]"
    if columns is None:
        return name
    numbers = [column if outer is None else outer[column] for column in columns.tolist()]
    return f"{name} ({', '.join(map(str, numbers))})"


def _input_dim(kernel: Kernel) -> int:
    """Return the smallest number of input columns that a kernel accepts."""
    if kernel.active_dims is not None:
        return int(kernel.active_dims.max()) + 1
    parts = [part for part in kernel.modules() if isinstance(part, Kernel) and part is not kernel]
    return max([kernel.ard_num_dims or 1, *(_input_dim(part) for part in parts)])


def _inputs(network: NeuralKernelNetwork, x: Any) -> Tensor:
    """Return at most 201 inputs, over which variances are averaged."""
    columns = _input_dim(network)
    if x is None:
        like = next(network.parameters(), torch.empty(0)).detach()
        return torch.linspace(-2, 2, _ROWS).to(like).unsqueeze(-1).repeat(1, columns)
    inputs = as_inputs(network, x)
    if inputs.size(1) < columns:
        raise ValueError(
            f"The network needs {columns} input columns, got x of shape {tuple(inputs.shape)}."
        )
    if bool((inputs == inputs[0]).all()):
        raise ValueError(f"A column of x must vary, got {len(inputs)} equal inputs.")
    order = inputs[:, int((inputs != inputs[0]).any(0).int().argmax())].argsort(stable=True)
    rows = torch.linspace(0, len(inputs) - 1, min(len(inputs), _ROWS), device=inputs.device)
    return inputs[order[rows.round().long()]]


@dataclass(eq=False)
class _Stage:
    """Units of one layer, with their importance and positions in the figure."""

    head: str
    # Indices of the stages with the inputs (two with a skip connection), each with the relative
    # contributions U x C of its units; for products, positive if a unit is a factor.
    inputs: list[tuple[int, np.ndarray]]
    importance: np.ndarray  # importance U, as fractions of the output
    is_product: bool = False
    values: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))  # U x N of k(x, x0)
    left: float = 0.0  # left edge and height of the thumbnails, and vertical positions U
    height: float = 0.0
    middles: np.ndarray = field(default_factory=lambda: np.empty(0))


def _stages(network: NeuralKernelNetwork, inputs: Tensor) -> list[_Stage]:
    values = unit_values(network, inputs, inputs)
    variances = [v.diagonal(dim1=-2, dim2=-1).mean(-1).numpy() for v in values]
    stages = [_Stage("primitives", [], np.zeros(len(variances[0])))]
    layers: list[Layer] = list(network.layers)  # type: ignore[arg-type]
    for number, layer in enumerate(layers):
        sources = [number]
        if network.skip and number == len(layers) - 1:
            sources.append(0)
        shares = _contributions(layer, np.concatenate([variances[n] for n in sources]))
        parts = np.split(shares, [len(variances[number])], axis=1)
        pairs = list(zip(sources, parts, strict=False))
        stages.append(
            _Stage(_head(layer), pairs, np.zeros(len(shares)), isinstance(layer, Product))
        )
    # A factor has the importance of its product, a summand its fraction of the sum's importance.
    stages[-1].importance += 1.0
    for stage in reversed(stages):
        for number, shares in stage.inputs:
            fractions = shares > 0 if stage.is_product else shares
            stages[number].importance += stage.importance @ fractions
    return stages


def _head(layer: Layer) -> str:
    if isinstance(layer, Activation):
        return "exp" if layer.coefficients == "exp" else "polynomial"
    name = type(layer).__name__
    return f"{name}\nsimplex" if isinstance(layer, Linear) and layer.is_simplex else name


def _add_thumbnails(
    network: NeuralKernelNetwork, stages: list[_Stage], low: Tensor, high: Tensor
) -> None:
    """Compute slices of all units; the window shows few oscillations of every important unit."""

    def slices(width: float, count: int) -> list[np.ndarray]:
        ramp = torch.linspace(0, 1, count, dtype=torch.float64, device="cpu")
        positions = _ORIGIN * (1 - width) + width * ramp
        path = (low.double().cpu() + positions.unsqueeze(-1) * (high - low).double().cpu()).to(low)
        origin = (low + _ORIGIN * (high - low)).unsqueeze(0)
        return [v[..., 0].numpy() for v in unit_values(network, path, origin)]

    window = 1.0
    for stage, values in zip(stages, slices(1.0, _COUNTING_POINTS), strict=True):
        for unit in values[stage.importance >= _MIN_CONTRIBUTION]:
            least = max(0.05 * np.ptp(unit), 1e-6 * np.abs(unit).max())
            peaks = find_peaks(unit, prominence=least)[0]
            if len(peaks) > _MAX_OSCILLATIONS:
                length = float(np.diff(peaks).mean()) / (_COUNTING_POINTS - 1)
                window = min(window, _MAX_OSCILLATIONS * length)
    for stage, values in zip(stages, slices(window, _POINTS), strict=True):
        stage.values = values


def _contributions(layer: Layer, variances: np.ndarray) -> np.ndarray:
    """Return contributions ``O x C`` of input units, as fractions of each sum with its constant."""
    constants = np.zeros(layer.out_features)
    if isinstance(layer, Linear):
        shares = layer.weight.detach().double().cpu().numpy() * variances
        if layer.bias is not None:
            constants = layer.bias.detach().double().cpu().numpy()
    elif isinstance(layer, Product):
        shares = np.repeat(np.eye(layer.out_features), layer.groups, axis=1)
    elif isinstance(layer, Activation):
        shares = np.eye(layer.out_features)
    else:
        shares = np.ones((layer.out_features, layer.in_features))
    total = shares.sum(1) + constants
    total[total == 0] = 1
    return shares / total[:, None]


def _draw_stages(ax: Axes, stages: list[_Stage], labels: list[str]) -> None:
    """Draw layers from left to right, and labels of the primitives."""
    rows = max(len(stage.importance) for stage in stages)
    width, height = size_in_points(ax)
    left, right = -0.6 * _WIDTH, len(stages) - 1 + 0.6 * _WIDTH
    per_column, per_row = width / (right - left), height / rows
    ax.set_axis_off()
    ax.set(xlim=(left, right), ylim=(rows, 0))
    size = float(np.clip(0.27 * per_row, 5.5, 9.0))
    beside: Any = {"textcoords": "offset points", "annotation_clip": False}
    for number, stage in enumerate(stages):
        stage.left = number - 0.5 * _WIDTH
        # thumbnails are at most as tall as wide
        stage.height = min(_HEIGHT, 0.9 * _WIDTH * per_column / per_row)
        stage.middles = (np.arange(len(stage.importance)) + 0.5) * rows / len(stage.importance)
        if stage.inputs:
            _draw_inputs(ax, stages, stage)
        _draw_units(ax, stage, ORANGE if stage is stages[-1] else BLUE)
        above: Any = beside | {"ha": "center", "va": "bottom", "fontsize": size + 1}
        ax.annotate(stage.head, (number, 0), (0, 5), **above)
    beside |= {"ha": "right", "va": "center", "fontsize": size}
    for label, middle in zip(labels, stages[0].middles, strict=True):
        label = textwrap.fill(label, 18, max_lines=2, placeholder=" ...")
        ax.annotate(label, (stages[0].left, middle), (-5, 0), **beside)


def _draw_inputs(ax: Axes, stages: list[_Stage], target: _Stage) -> None:
    """Draw lines into the units of a stage, strongest on top; skip connections are green."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    lines: list[tuple[float, Any, float, Any]] = []
    largest = np.hstack([shares for _, shares in target.inputs]).max(1)
    end = target.left - (0.11 if target.is_product else 0.0)
    for is_skip, (number, shares) in enumerate(target.inputs):
        color = _SKIP if is_skip else GRAY if target.is_product else BLUE
        strengths = shares / np.where(largest > 0, largest, 1.0)[:, None]
        for unit, other in np.argwhere(strengths >= _MIN_CONTRIBUTION):
            strength = float(strengths[unit, other])
            width, alpha = 0.3 + 2.5 * strength, 0.06 + 0.74 * strength**1.5
            if target.is_product:
                width = alpha = 0.8
            start = stages[number].left + _WIDTH, stages[number].middles[other]
            line = [start, (end, target.middles[unit])]
            lines.append((strength, line, width, to_rgba(color, alpha)))
    if target.is_product:
        ends = np.full(len(target.middles), end)
        ax.hlines(target.middles, end, target.left, color=GRAY, linewidth=0.8, zorder=1)
        ax.plot(ends, target.middles, "o", ms=8, mfc="white", mec=GRAY, mew=0.7, zorder=2)
        ax.plot(ends, target.middles, "x", ms=3.6, color=GRAY, mew=1, zorder=2.1)
    lines.sort(key=lambda line: line[0])
    _, parts, widths, colors = zip(*lines, strict=True) if lines else [()] * 4
    drawn = LineCollection(parts, linewidths=widths, colors=colors, zorder=1)
    ax.add_collection(drawn, autolim=False)


def _draw_units(ax: Axes, stage: _Stage, color: str) -> None:
    from matplotlib.patches import Rectangle

    height = stage.height
    for unit, middle in enumerate(stage.middles):
        corner = stage.left, middle - height / 2
        frame = Rectangle(corner, _WIDTH, height, fc="white", ec=_FRAME, lw=0.8, zorder=3)
        ax.add_patch(frame)
        values = stage.values[unit]
        low, high = min(values.min(), 0.0), max(values.max(), 0.0)
        scale = 0.84 * height / ((high - low) or 1.0)
        zero = middle + 0.42 * height + scale * low
        x = np.linspace(stage.left, stage.left + _WIDTH, len(values))
        curve = zero - scale * values
        alpha = 0.35 if stage.importance[unit] < _MIN_CONTRIBUTION else 1.0
        ax.fill_between(x, zero, curve, color=color, alpha=0.15 * alpha, linewidth=0, zorder=3.1)
        if low < 0:
            ax.plot(x[[0, -1]], [zero, zero], color=_FRAME, linewidth=0.5, zorder=3.2)
        ax.plot(x, curve, color=color, alpha=alpha, linewidth=1.2, zorder=3.3)
