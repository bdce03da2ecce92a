import numpy as np
import pytest
import torch
from gpytorch.kernels import (
    ConstantKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    ScaleKernel,
)
from matplotlib.collections import LineCollection
from matplotlib.patches import Rectangle

from gpytorch_nkn.kernels import ComplexExponentialKernel, NeuralKernelNetwork
from gpytorch_nkn.layers import Activation, Linear
from gpytorch_nkn.plotting import plot_network


def boxes(ax):
    """Thumbnails in columns from left to right: ``(middle x, middle y, patch)``."""
    found = {}
    for patch in ax.patches:
        if isinstance(patch, Rectangle):
            x, y = (patch.get_x() + patch.get_width() / 2, patch.get_y() + patch.get_height() / 2)
            found.setdefault(round(x), []).append((x, y, patch))
    return [sorted(found[place], key=lambda box: box[1]) for place in sorted(found)]


def curve_in(ax, box):
    """Values of the curve in a thumbnail, from 0 to 1 between its zero and its largest value."""
    _, _, patch = box
    for line in ax.get_lines():
        x, y = line.get_xdata(), line.get_ydata()
        inside = patch.get_y() <= min(y) and max(y) <= patch.get_y() + patch.get_height()
        if len(x) > 2 and x[0] == pytest.approx(patch.get_x()) and inside:
            return np.asarray(y)
    raise AssertionError("no curve in the thumbnail")


def connections(ax):
    """Straight lines between layers: ``(from layer, y start, y end, width, opacity)``."""
    found = [item for item in ax.collections if isinstance(item, LineCollection)]
    parts = [(c.get_segments(), c.get_linewidths(), c.get_colors()) for c in found]
    return [
        (*points[0], points[1][1], width, color[3])
        for part in parts
        for points, width, color in zip(*part, strict=True)
        if len(points) == 2
    ]


def texts(ax):
    return [text.get_text() for text in ax.texts if text.get_text()]


def test_thumbnails_are_slices_of_every_unit(ax):
    rbf, linear = RBFKernel(), LinearKernel()
    layer = Linear(2, 1, bias=False)
    layer.weight = torch.tensor([[2.0, 0.5]])
    plot_network(ax, NeuralKernelNetwork([rbf, linear], [layer]), x=np.linspace(-1, 3, 9))
    x, origin = np.linspace(-1, 3, 401), 0.4  # at 35 % of the range, however few the inputs
    smooth = np.exp(-((x - origin) ** 2) / (2 * rbf.lengthscale.item() ** 2))
    line = linear.variance.item() * origin * x
    expected = [[smooth, line], [2 * smooth + 0.5 * line]]
    for column, units in zip(boxes(ax), expected, strict=True):
        for box, values in zip(column, units, strict=True):
            drawn = -curve_in(ax, box)  # the vertical axis points down
            slope = np.ptp(drawn) / np.ptp(values)
            np.testing.assert_allclose(drawn - drawn[0], slope * (values - values[0]), atol=1e-12)
            assert slope > 0


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_connections_are_as_strong_as_their_contributions(ax, mode):
    """Weight times variance: 1 x 1, 2 x 4 and 0.01 x 1."""
    parts = [RBFKernel(), ScaleKernel(RBFKernel()), RBFKernel()]
    parts[1].outputscale = 4.0
    layer = Linear(3, 1, bias=False)
    layer.weight = torch.tensor([[1.0, 2.0, 0.01]])
    with mode():
        plot_network(ax, NeuralKernelNetwork(parts, [layer]))
    lines = sorted(connections(ax), key=lambda line: line[1])
    assert len(lines) == 2  # the third is below 2 %
    (_, _, _, weak, pale), (_, _, _, strong, dark) = lines
    assert (weak - 0.3) / (strong - 0.3) == pytest.approx(1 / 8)
    assert pale < dark


def test_primitives_have_short_names_and_their_columns(ax):
    primitives = [
        RBFKernel(active_dims=[0]),
        ScaleKernel(MaternKernel(1.5, active_dims=[1, 2])),
        ComplexExponentialKernel(),
        PolynomialKernel(2) * ConstantKernel(),
        ScaleKernel(PeriodicKernel()) + LinearKernel(active_dims=[2]),
    ]
    network = NeuralKernelNetwork(primitives, [Activation(5, "exp"), Linear(5, 1)])
    plot_network(ax, network)
    labels = [text.replace("\n", " ") for text in texts(ax)]
    assert labels[-5:] == [
        "RBF (0)",
        "MATERN3/2 (1, 2)",
        "COS",
        "POLY2 \N{MULTIPLICATION SIGN} CONST",
        "PER + LIN (2)",
    ]
    assert labels[:3] == ["primitives", "exp", "Linear"]


def test_one_network_of_a_batch_and_faults_of_values(ax):
    network = NeuralKernelNetwork.time_series(batch_shape=torch.Size([3]))[0]
    plot_network(ax, network)
    network.layers[0].raw_weight.data.fill_(np.nan)
    with pytest.raises(ValueError, match="values must be finite"):
        plot_network(ax, network)
