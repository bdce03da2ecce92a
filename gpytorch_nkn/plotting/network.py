"""Plot of a network with a slice of each unit's kernel."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from scipy.signal import find_peaks
from torch import Tensor

from gpytorch_nkn.kernels import NeuralKernelNetwork, least_columns, short_name
from gpytorch_nkn.kernels.evaluation import unwrap_scales
from gpytorch_nkn.layers import Activation, Product
from gpytorch_nkn.plotting.kernel import as_inputs, check_kernel, unit_values
from gpytorch_nkn.plotting.style import BLUE, GRAY, ORANGE, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_network"]

_ROWS = 201  # largest number of inputs over which variances are averaged
_POINTS = 401  # number of points in a thumbnail
_MAX_OSCILLATIONS = 12  # largest number of oscillations in a thumbnail
_ORIGIN = 0.35  # position of x0, as a fraction of the range
_COUNTING_POINTS = 4_000  # number of points at which oscillations are counted
_WIDTH, _HEIGHT = 0.5, 0.76  # of a thumbnail, in distances between layers and between units
_MIN_UNITS = 6  # least height of the figure in units
_STEP = 1e-3  # relative step of numerical derivatives
_MIN_CONTRIBUTION = 0.02  # smallest relative contribution drawn as a line


def plot_network(ax: Axes, network: NeuralKernelNetwork | ScaleKernel, *, x: Any = None) -> Axes:
    """Draw a network from the primitives at the left to the output at the right.

    Each unit is drawn as a thumbnail of the real part of ``k(x, x0)``, scaled to its largest value.
    Thumbnails cover the range of ``x``, or a part of it if a unit oscillates more than 12 times.
    The origin ``x0`` lies at 35 % of the range, because linear kernels are zero in the middle of
    centred data. The strength of a line into a sum shows its contribution, the weight times the
    mean variance ``k(x, x)`` of the input unit. Lines below 2 % of the strongest are omitted, and
    units that contribute less than 2 % to the output are pale. A multiplication sign joins the
    lines into a product. Skip connections are green.

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
    inputs, layers = _inputs(inner, x), list(inner.layers)
    sample = inputs[:: -(-len(inputs) // _ROWS)]
    sizes = [
        v.diagonal(dim1=-2, dim2=-1).mean(-1).to(inputs) for v in unit_values(inner, sample, sample)
    ]
    shares = []  # contributions U x C to each layer
    for layer, size in zip(layers, sizes, strict=False):
        with_skip = inner.skip and layer is layers[-1]
        shares.append(_contributions(layer, torch.cat([size, sizes[0]]) if with_skip else size))
    importance = [np.zeros(len(size)) for size in sizes[:-1]] + [np.ones(1)]
    for k, part in reversed(list(enumerate(shares))):
        before, skipped = np.split(importance[k + 1] @ part, [len(sizes[k])])
        importance[k] += before
        if skipped.size:
            importance[0] += skipped
    curves = _slices(inner, inputs.amin(0), inputs.amax(0), importance)

    rows = max(_MIN_UNITS, *map(len, sizes))
    middles = [(np.arange(len(size)) + 0.5) * rows / len(size) for size in sizes]
    ends = [np.stack([np.full(y.size, k + _WIDTH / 2), y], -1) for k, y in enumerate(middles)]
    for k, (layer, part) in enumerate(zip(layers, shares, strict=True)):
        starts = np.concatenate([ends[k], ends[0]])[: part.shape[1]]
        colors = np.repeat([BLUE, PALETTE[2]], [len(ends[k]), len(starts) - len(ends[k])])
        _draw_lines(ax, starts, ends[k + 1] - [_WIDTH, 0], part, colors, isinstance(layer, Product))
    text: Any = {"textcoords": "offset points", "annotation_clip": False, "fontsize": 8}
    for k, head in enumerate(["primitives", *map(_head, layers)]):
        color = ORANGE if k == len(layers) else BLUE
        for middle, curve, weight in zip(middles[k], curves[k], importance[k], strict=True):
            _draw_unit(ax, k - _WIDTH / 2, middle, curve, color, bool(weight < _MIN_CONTRIBUTION))
        ax.annotate(head, (k, 0), (0, 5), ha="center", va="bottom", **text)
    outer = None if inner.active_dims is None else inner.active_dims.tolist()
    for kernel, middle in zip(inner.primitives, middles[0], strict=True):
        name = textwrap.fill(kernel_name(kernel, outer), 18, max_lines=2, placeholder=" ...")
        ax.annotate(name, (-_WIDTH / 2, middle), (-5, 0), ha="right", va="center", **text)
    ax.set_axis_off()
    ax.set(xlim=(-0.6 * _WIDTH, len(layers) + 0.6 * _WIDTH), ylim=(rows, 0))
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


def _inputs(network: NeuralKernelNetwork, x: Any) -> Tensor:
    columns = least_columns(network)
    if x is None:
        like = next(network.parameters(), torch.empty(0)).detach()
        return torch.linspace(-2, 2, _ROWS).to(like).unsqueeze(-1).repeat(1, columns)
    inputs = as_inputs(network, x)
    if inputs.size(1) < columns:
        shape = tuple(inputs.shape)
        raise ValueError(f"The network needs {columns} input columns, got x of shape {shape}.")
    if bool((inputs == inputs[0]).all()):
        raise ValueError(f"A column of x must vary, got {len(inputs)} equal inputs.")
    return inputs


def _head(layer: Any) -> str:
    if isinstance(layer, Activation):
        return "exp" if layer.coefficients == "exp" else "polynomial"
    return type(layer).__name__


def _contributions(layer: Any, sizes: Tensor) -> np.ndarray:
    r"""Return elasticities :math:`\partial \log f / \partial \log v` of a layer, ``O x C``.

    These are fractions of a sum with its constant, and one for each factor of a product.
    """

    # differences, because a caller in inference mode or a layer may not record gradients
    factors = 1 + _STEP * torch.eye(len(sizes)).to(sizes)
    with torch.no_grad():
        columns = sizes.unsqueeze(-1) * torch.cat([factors, 2 - factors], -1)
        up, down = layer(columns).double().chunk(2, -1)
        return ((up - down) / (up + down) / _STEP).nan_to_num().cpu().numpy()


def _slices(
    network: NeuralKernelNetwork, low: Tensor, high: Tensor, importance: list[np.ndarray]
) -> list[np.ndarray]:
    """Return ``k(x, x0)`` of all units along a window with few oscillations of important units."""

    def slices(width: float, count: int) -> list[np.ndarray]:
        positions = _ORIGIN * (1 - width) + width * torch.linspace(0, 1, count).to(low)
        path = low + torch.cat([positions, positions.new_tensor([_ORIGIN])]).outer(high - low)
        return [v[..., 0].numpy() for v in unit_values(network, path[:-1], path[-1:])]

    window = 1.0
    for values, sizes in zip(slices(1.0, _COUNTING_POINTS), importance, strict=True):
        for unit in values[sizes >= _MIN_CONTRIBUTION]:
            least = max(0.05 * np.ptp(unit), 1e-6 * np.abs(unit).max())
            peaks = find_peaks(unit, prominence=least)[0]
            if len(peaks) > _MAX_OSCILLATIONS:
                length = float(np.diff(peaks).mean()) / (_COUNTING_POINTS - 1)
                window = min(window, _MAX_OSCILLATIONS * length)
    return slices(window, _POINTS)


def _draw_lines(
    ax: Axes,
    starts: np.ndarray,
    ends: np.ndarray,
    shares: np.ndarray,
    colors: Any,
    is_product: bool,
) -> None:
    """Draw lines ``C x 2`` to ``O x 2`` into a layer, the strongest on top."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba_array

    strengths = shares / np.maximum(shares.max(1, keepdims=True), np.finfo(float).tiny)
    units, others = np.nonzero(strengths >= _MIN_CONTRIBUTION)
    order = strengths[units, others].argsort(kind="stable")
    units, others = units[order], others[order]
    strength = strengths[units, others]
    widths, alphas = 0.3 + 2.5 * strength, 0.06 + 0.74 * strength**1.5
    if is_product:
        widths, alphas, colors = 0.8, np.full(len(units), 0.8), np.full(len(starts), GRAY)
        for marker, size in (("o", 8), ("x", 3.6)):
            ax.plot(*ends.T, marker, ms=size, mfc="white", mec=GRAY, zorder=4)
    lines = np.stack([starts[others], ends[units]], 1)
    looks: Any = {"linewidths": widths, "colors": to_rgba_array(colors[others], alphas)}
    ax.add_collection(LineCollection(list(lines), zorder=1, **looks), autolim=False)


def _draw_unit(
    ax: Axes, left: float, middle: float, values: np.ndarray, color: str, is_pale: bool
) -> None:
    from matplotlib.patches import Rectangle

    alpha, corner = 0.35 if is_pale else 1.0, (left, middle - _HEIGHT / 2)
    ax.add_patch(Rectangle(corner, _WIDTH, _HEIGHT, fc="white", ec="#9aa5b1", lw=0.8, zorder=3))
    low, high = min(values.min(), 0.0), max(values.max(), 0.0)
    scale = 0.84 * _HEIGHT / ((high - low) or 1.0)
    zero = middle + 0.42 * _HEIGHT + scale * low  # the vertical axis points down
    x, curve = np.linspace(left, left + _WIDTH, len(values)), zero - scale * values
    ax.fill_between(x, zero, curve, color=color, alpha=0.15 * alpha, linewidth=0, zorder=3.1)
    ax.plot(x, curve, color=color, alpha=alpha, linewidth=1.2, zorder=3.3)
