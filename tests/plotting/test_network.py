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
from gpytorch_nkn.layers import Activation, Linear, Product
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


def lines(ax):
    """Points, width and opacity of every line that leads into a unit."""
    found = [item for item in ax.collections if isinstance(item, LineCollection)]
    return [
        (np.asarray(points), width, color[3])
        for item in found
        for points, width, color in zip(
            item.get_segments(), item.get_linewidths(), item.get_colors(), strict=True
        )
    ]


def connections(ax):
    """Straight lines between layers: ``(from layer, y start, y end, width, opacity)``."""
    return [
        (points[0, 0], points[0, 1], points[1, 1], width, opacity)
        for points, width, opacity in lines(ax)
        if len(points) == 2
    ]


def skips(ax):
    """Curves past the layers, in the order of their start: ``(points, width, opacity)``."""
    return sorted([line for line in lines(ax) if len(line[0]) > 2], key=lambda c: c[0][0, 1])


def texts(ax):
    return [text.get_text() for text in ax.texts if text.get_text()]


@pytest.mark.parametrize(
    ("network", "widths"),
    [
        (NeuralKernelNetwork.time_series, [8, 8, 4, 4, 2, 1]),
        (lambda: NeuralKernelNetwork.additive(10), [10, 8, 4, 4, 2, 1]),
    ],
)
def test_presets_are_drawn_layer_by_layer(make_axes, no_overlap, network, widths):
    ax = make_axes(size=(10, 6))
    assert plot_network(ax, network()) is ax
    columns = boxes(ax)
    assert [len(column) for column in columns] == widths
    for column in columns:  # thumbnails do not touch
        for (_, _, one), (_, _, other) in zip(column[:-1], column[1:], strict=True):
            assert one.get_y() + one.get_height() < other.get_y()
    words = [text for text in texts(ax) if text != "c"]  # constants of sums
    assert words[:3] == ["primitives", "Linear", "Product"]
    no_overlap(ax.figure)


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


def test_inputs_are_sorted_along_the_first_column_that_varies(ax):
    x = np.column_stack([np.ones(5), [2.0, 0.0, 1.0, 4.0, 3.0]])
    kernel = LinearKernel(active_dims=[1])
    plot_network(ax, NeuralKernelNetwork([kernel], []), x=x)
    drawn = curve_in(ax, boxes(ax)[0][0])
    assert (np.diff(drawn) < 0).all()  # upwards, from left to right


def swinging(period, count):
    """A wave of the period and a linear kernel, to be drawn over ``count`` months from -5."""
    wave = ComplexExponentialKernel()
    wave.frequency.data.fill_(2 * np.pi / period)
    layer = Linear(2, 1, bias=False)
    layer.weight = torch.tensor([[1.0, 1e-6]])
    return NeuralKernelNetwork([wave, LinearKernel()], [layer]), np.arange(count) / 12 - 5


@pytest.mark.parametrize(
    ("period", "count", "every"),
    [(1, 61, 1), (1, 401, 1), (0.5, 401, 1), (1.03, 5000, 1), (1, 601, 600), (0.19, 5000, 1)],
)
def test_periods_of_few_points_are_resolved(make_axes, period, count, every):
    """Every thumbnail is the wave over the whole range or, if that is long, over 12 periods."""
    ax = make_axes()
    network, x = swinging(period, count)
    plot_network(ax, network, x=np.random.default_rng(0).permutation(x[::every]))
    drawn = -curve_in(ax, boxes(ax)[0][0])
    drawn = 2 * (drawn - drawn.min()) / np.ptp(drawn) - 1
    width = min(np.ptp(x), 12 * period)
    places = width * (np.linspace(0, 1, 401) - 0.35)
    np.testing.assert_allclose(drawn, np.cos(2 * np.pi * places / period), atol=0.05)


def test_units_that_do_not_count_leave_the_window_alone(ax):
    network, x = swinging(0.5, 401)
    network.layers[0].weight = torch.tensor([[1e-4, 1.0]])
    plot_network(ax, network, x=x)
    swings = -curve_in(ax, boxes(ax)[0][0])
    peaks = (swings[1:-1] > swings[:-2]) & (swings[1:-1] > swings[2:])
    assert peaks.sum() == round(2 * np.ptp(x))


def test_linear_kernels_show_where_the_data_lie_around_zero(ax):
    plot_network(ax, NeuralKernelNetwork([LinearKernel()], []), x=np.linspace(-1, 1, 21))
    _, _, patch = box = boxes(ax)[0][0]
    assert np.ptp(curve_in(ax, box)) == pytest.approx(0.84 * patch.get_height())


def test_several_columns_run_together(make_axes):
    """Points off a line are drawn over the range of every column, points on one along it."""
    rng = np.random.default_rng(0)
    t = rng.permutation(np.linspace(0, 1, 50))
    scattered = np.column_stack([t, 10 * rng.permutation(t)])
    falling = np.column_stack([t, 10 - 10 * t])
    kernel = LinearKernel(active_dims=[1])
    for ax, x, rises in zip(make_axes(1, 2), (scattered, falling), (True, False), strict=True):
        plot_network(ax, NeuralKernelNetwork([kernel], []), x=x)
        drawn = -curve_in(ax, boxes(ax)[0][0])
        expected = np.linspace(0, 1, 401) if rises else np.linspace(1, 0, 401)
        height = 0.84 * boxes(ax)[0][0][2].get_height()
        np.testing.assert_allclose((drawn - drawn.min()) / height, expected, atol=1e-12)


def test_connections_are_as_strong_as_their_contributions(ax):
    """Weight times variance: 1 x 1, 2 x 4 and 0.01 x 1."""
    parts = [RBFKernel(), ScaleKernel(RBFKernel()), RBFKernel()]
    parts[1].outputscale = 4.0
    layer = Linear(3, 1, bias=False)
    layer.weight = torch.tensor([[1.0, 2.0, 0.01]])
    plot_network(ax, NeuralKernelNetwork(parts, [layer]))
    lines = sorted(connections(ax), key=lambda line: line[1])
    assert len(lines) == 2  # the third is below 2 %
    (_, _, _, weak, pale), (_, _, _, strong, dark) = lines
    assert (weak - 0.3) / (strong - 0.3) == pytest.approx(1 / 8)
    assert pale < dark


def test_products_join_their_groups_with_a_sign(ax):
    network = NeuralKernelNetwork([RBFKernel() for _ in range(4)], [Product(4, 2), Linear(2, 1)])
    plot_network(ax, network)
    columns = boxes(ax)
    middles = [y for _, y, _ in columns[1]]
    first = [line for line in connections(ax) if line[0] < 0.5]
    ends = {round(start, 6): end for _, start, end, _, _ in first}
    assert [ends[round(y, 6)] for _, y, _ in columns[0]] == [middles[0]] * 2 + [middles[1]] * 2
    assert len({line[3] for line in first}) == 1
    signs = [line.get_ydata()[0] for line in ax.get_lines() if line.get_marker() == "x"]
    assert signs == middles


def test_a_constant_is_marked_where_it_matters(make_axes):
    axes = make_axes(1, 2)
    for ax, bias in zip(axes, (0.5, 0.01), strict=True):
        layer = Linear(1, 1)
        layer.weight, layer.bias = 1.0, bias
        plot_network(ax, NeuralKernelNetwork([RBFKernel()], [layer]))
    assert [texts(ax).count("c") for ax in axes] == [1, 0]


def test_units_without_importance_are_pale(ax):
    layer = Linear(2, 1, bias=False)
    layer.weight = torch.tensor([[1.0, 1e-3]])
    plot_network(ax, NeuralKernelNetwork([RBFKernel(), PeriodicKernel()], [layer]))
    curves = [line for line in ax.get_lines() if len(line.get_xdata()) > 2]
    assert [line.get_alpha() for line in curves] == [1.0, 0.35, 1.0]


def test_lines_into_pale_units_are_pale(ax):
    first, last = Linear(2, 2, bias=False), Linear(2, 1, bias=False)
    first.weight = torch.ones(2, 2)
    last.weight = torch.tensor([[1.0, 1e-3]])
    plot_network(ax, NeuralKernelNetwork([RBFKernel(), RBFKernel()], [first, last]))
    into = {}
    middles = [y for _, y, _ in boxes(ax)[1]]
    for start, _, end, _, opacity in connections(ax):
        if start < 0.5:
            into.setdefault(middles.index(end), []).append(opacity)
    assert into[0] == pytest.approx([0.8, 0.8])
    assert into[1] == pytest.approx([0.24, 0.24])


def test_primitives_have_short_names_and_their_columns(ax):
    primitives = [
        RBFKernel(active_dims=[0]),
        ScaleKernel(MaternKernel(1.5, active_dims=[1, 2])),
        ComplexExponentialKernel(),
        PolynomialKernel(2) * ConstantKernel(),
        ScaleKernel(PeriodicKernel()) + LinearKernel(active_dims=[2]),
    ]
    network = NeuralKernelNetwork(primitives, [Activation(5, "exp"), Linear(5, 1)])
    plot_network(ax, network, names=["time", "depth", "salt"])
    labels = [text.replace("\n", " ") for text in texts(ax)]
    assert labels[-5:] == [
        "RBF (time)",
        "MATERN3/2 (depth, salt)",
        "COS",
        "POLY2 \N{MULTIPLICATION SIGN} CONST",
        "PER + LIN (salt)",
    ]
    assert labels[:3] == ["primitives", "exp", "Linear"]


def test_columns_count_within_those_of_the_network(ax):
    network = NeuralKernelNetwork([RBFKernel(active_dims=[1])], [], active_dims=[0, 3])
    plot_network(ax, network)
    assert "RBF (3)" in texts(ax)
    with pytest.raises(ValueError, match=r"needs 4 input columns, got x of shape \(5, 2\)"):
        plot_network(ax, network, x=np.random.randn(5, 2))


def test_wide_layers_are_cut_to_what_matters_most(make_axes, no_overlap):
    first = Linear(6, 4, bias=False)
    first.weight = torch.tensor([[1.0, 0.9, 0.8, 1e-3, 1e-3, 1e-3]]).repeat(4, 1)
    last = Linear(2, 1, bias=False)
    last.weight = torch.tensor([[1e-3, 1.0]])
    primitives = [RBFKernel(active_dims=[d]) for d in range(6)]
    network = NeuralKernelNetwork(primitives, [first, Product(4, 2), last])
    ax = make_axes()
    plot_network(ax, network, max_units=3)
    assert [len(column) for column in boxes(ax)] == [3, 2, 2, 1]  # factors stay together
    shown = texts(ax)
    assert [name for name in shown if name[:3] == "RBF"] == ["RBF (0)", "RBF (1)", "RBF (2)"]
    assert "and 3 more" in shown and "and 2 more" in shown
    signs = [line.get_ydata()[0] for line in ax.get_lines() if line.get_marker() == "x"]
    assert signs == [boxes(ax)[2][1][1]]  # of the product whose factors are there
    no_overlap(ax.figure)


def test_a_network_in_single_precision_and_many_inputs_are_taken(ax):
    network = NeuralKernelNetwork.regression(3).float()
    plot_network(ax, network, x=np.random.randn(5000, 3))


def test_one_network_of_a_batch_and_faults_of_values(ax):
    network = NeuralKernelNetwork.time_series(batch_shape=torch.Size([3]))[0]
    plot_network(ax, network)
    network.layers[0].raw_weight.data.fill_(np.nan)
    with pytest.raises(ValueError, match="values of all units must be finite"):
        plot_network(ax, network)


# --- skip connections and convex combinations ---------------------------------------------------


@pytest.mark.parametrize("dim", [1, 3, 10])
def test_the_preset_for_optimisation_is_drawn_with_its_skip_connection(make_axes, no_overlap, dim):
    ax = make_axes(size=(10, 7))
    plot_network(ax, NeuralKernelNetwork.optimization(dim), x=torch.rand(40, dim))
    columns = boxes(ax)
    assert [len(column) for column in columns] == [dim + 1, 8, 4, 4, 2, 1]
    heads = [text for text in texts(ax) if text.startswith(("Lin", "Prod"))]
    assert heads == ["Linear\nsimplex", "Product", "Linear\nsimplex", "Product", "Linear\nsimplex"]
    assert "skip connection" in texts(ax)
    lowest = max(patch.get_y() + patch.get_height() for c in columns for _, _, patch in c)
    (_, output, last) = columns[-1][0]
    curves = skips(ax)
    assert len(curves) == dim + 1
    for (points, _, _), (_, middle, patch) in zip(curves, columns[0], strict=True):
        assert points[0] == pytest.approx([patch.get_x() + patch.get_width(), middle])
        assert points[-1] == pytest.approx([last.get_x(), output])
        for column in columns[1:-1]:  # below every layer between, and within the axes
            inside = np.abs(points[:, 0] - column[0][0]) < 0.2
            values = np.interp(column[0][0], points[:, 0], points[:, 1])
            assert (points[inside, 1] > lowest).all() and lowest < values < ax.get_ylim()[0]
    no_overlap(ax.figure)


def skipping(primitives, last_weight):
    """Every primitive through a sum and a product of one, and past them."""
    count = len(primitives)
    first, last = Linear(count, 1, bias=False), Linear(1 + count, 1, bias=False)
    first.weight, last.weight = torch.ones(1, count), torch.tensor([last_weight])
    return NeuralKernelNetwork(primitives, [first, Product(1, 1), last], skip=True)


@pytest.mark.parametrize(("weight", "strongest"), [(2.0, 6.0), (0.5, 3.0)])
def test_skipped_connections_are_as_strong_as_their_contributions(ax, weight, strongest):
    """The product has the variance 3; past it come 1 x 1, 3 x 1 and 0.01 x 1."""
    network = skipping([RBFKernel() for _ in range(3)], [weight, 1.0, 3.0, 0.01])
    plot_network(ax, network)
    (_, weak, pale), (_, strong, dark) = skips(ax)  # the third is below 2 % of the strongest
    assert (weak - 0.3) / 2.5 == pytest.approx(1 / strongest)
    assert (strong - 0.3) / 2.5 == pytest.approx(3 / strongest)
    assert pale < dark
    (through,) = [line[3] for line in connections(ax) if line[0] > 2]
    assert (through - 0.3) / 2.5 == pytest.approx(3 * weight / strongest)


def test_what_counts_past_the_layers_is_not_pale(ax):
    network = skipping([RBFKernel(), RBFKernel(), RBFKernel()], [1e-4, 0.7, 0.3, 0.0])
    plot_network(ax, network)
    curves = [line for line in ax.get_lines() if len(line.get_xdata()) > 2]
    assert [line.get_alpha() for line in curves] == [1.0, 1.0, 0.35, 0.35, 0.35, 1.0]


def test_units_that_count_past_the_layers_are_drawn_first(make_axes, no_overlap):
    primitives = [RBFKernel(active_dims=[d]) for d in range(6)]
    network = skipping(primitives, [0.1, 0.0, 0.0, 0.0, 1.0, 0.0, 2.0])
    ax = make_axes()
    plot_network(ax, network, max_units=2)
    assert [text for text in texts(ax) if text[:3] == "RBF"] == ["RBF (3)", "RBF (5)"]
    assert len(skips(ax)) == 2 and "and 4 more" in texts(ax)
    no_overlap(ax.figure)


def test_a_skip_connection_without_weight_is_not_drawn(ax):
    plot_network(ax, skipping([RBFKernel(), RBFKernel()], [1.0, 0.0, 0.0]))
    assert not skips(ax) and "skip connection" not in texts(ax)
    assert ax.get_ylim() == (2, 0)


def test_a_skip_connection_into_a_product(ax):
    parts = [Linear(2, 1), Product(3, 1)]
    plot_network(ax, NeuralKernelNetwork([RBFKernel(), PeriodicKernel()], parts, skip=True))
    (sign,) = [line for line in ax.get_lines() if line.get_marker() == "x"]
    curves = skips(ax)
    assert len(curves) == 2 and {width for _, width, _ in curves} == {0.8}
    for points, _, _ in curves:
        assert points[-1] == pytest.approx([sign.get_xdata()[0], sign.get_ydata()[0]])


def test_scales_around_a_network_do_not_show(make_axes):
    network = NeuralKernelNetwork.optimization(2)
    scaled = ScaleKernel(ScaleKernel(network))
    scaled.outputscale = 7.0
    images = []
    for kernel in (network, scaled):
        ax = make_axes()
        plot_network(ax, kernel, x=np.random.default_rng(0).random((20, 2)))
        ax.figure.canvas.draw()
        images.append(np.asarray(ax.figure.canvas.buffer_rgba()))
    np.testing.assert_array_equal(*images)


def test_columns_of_a_scale_are_those_of_its_network(ax):
    network = NeuralKernelNetwork.additive(2)
    plot_network(ax, ScaleKernel(network, active_dims=(2, 0)), names=["a", "b", "c"])
    assert {"RBF (c)", "RBF (a)"} <= set(texts(ax))
    assert network.active_dims is None
    with pytest.raises(ValueError, match=r"batch of shape \(3,\)"):
        plot_network(ax, ScaleKernel(network, batch_shape=torch.Size([3])))
