import math

import pytest
import torch
from gpytorch.kernels import (
    AdditiveKernel,
    LinearKernel,
    Matern52KernelGrad,
    PeriodicKernel,
    PolynomialKernelGrad,
    ProductKernel,
    RBFKernel,
    RBFKernelGrad,
    RBFKernelGradGrad,
    RQKernel,
    ScaleKernel,
)

from gpytorch_nkn.kernels import ComplexExponentialKernel, NeuralKernelNetwork
from gpytorch_nkn.layers import Linear, Product
from tests.kernels.contract import dense, perturb


def rbf(lengthscale=1.0, **options):
    return RBFKernel(**options).initialize(lengthscale=lengthscale)


def complex_exponential(frequency=1.0, **options):
    return ComplexExponentialKernel(**options).initialize(frequency=frequency)


def linear(weight, bias=None):
    layer = Linear(len(weight[0]), len(weight), bias=bias is not None)
    layer.weight = torch.tensor(weight)
    if bias is not None:
        layer.bias = torch.tensor(bias)
    return layer


# values from outside the code


def test_value_equals_the_formula_written_out_for_one_pair():
    x, y = 0.9, 0.2
    network = NeuralKernelNetwork(
        [rbf(0.8), PeriodicKernel().initialize(lengthscale=0.6, period_length=1.7)],
        [linear([[0.5, 1.5], [2.0, 0.3]], [0.1, 0.7]), Product(2, 1), linear([[1.3]], [0.2])],
    )
    k1 = math.exp(-((x - y) ** 2) / (2 * 0.8**2))
    k2 = math.exp(-2 * math.sin(math.pi * (x - y) / 1.7) ** 2 / 0.6)
    expected = 1.3 * (0.5 * k1 + 1.5 * k2 + 0.1) * (2.0 * k1 + 0.3 * k2 + 0.7) + 0.2
    value = dense(network, torch.tensor([[x]]), torch.tensor([[y]])).item()
    assert expected > 1 and value == pytest.approx(expected, rel=1e-12)


def test_network_in_a_network_takes_part_with_its_real_values():
    x = torch.randn(6, 1)
    inner = NeuralKernelNetwork(
        [complex_exponential(1.0), complex_exponential(2.0)], [Product(2, 1)]
    )
    outer = NeuralKernelNetwork([inner, complex_exponential(0.5)], [Product(2, 1)])
    difference = x - x.mT
    torch.testing.assert_close(
        dense(outer, x), torch.cos(3 * difference) * torch.cos(0.5 * difference)
    )


def test_unit_values_equal_the_layers_one_after_the_other():
    x, y = torch.randn(6, 2), torch.randn(5, 2)
    network = NeuralKernelNetwork(
        [rbf(0.8), complex_exponential(2.0)], [Linear(2, 4), Product(4, 2), Linear(2, 1)]
    )
    stages = network.unit_values(x, y)
    assert [stage.shape for stage in stages] == [(n, 6, 5) for n in (2, 4, 2, 1)]
    torch.testing.assert_close(stages[0][0].real, dense(rbf(0.8), x, y))
    weighted = torch.einsum("oc,cnm->onm", network.layers[0].weight.to(stages[0].dtype), stages[0])
    torch.testing.assert_close(stages[1], weighted + network.layers[0].bias[:, None, None])
    torch.testing.assert_close(stages[2][1], stages[1][2] * stages[1][3])
    torch.testing.assert_close(stages[3][0].real, dense(network, x, y))
    torch.testing.assert_close(network.unit_values(x)[-1], network.unit_values(x, x)[-1])


@pytest.mark.filterwarnings("error::linear_operator.utils.warnings.NumericalWarning")
def test_a_skip_connection_puts_the_primitives_behind_the_last_but_one_layer():
    x, y = torch.randn(6, 2), torch.randn(5, 2)
    kernels = [rbf(0.8), complex_exponential(2.0)]
    network = NeuralKernelNetwork(
        kernels, [linear([[0.5, 1.5], [2.0, 0.3]], [0.1, 0.7]), Product(4, 1)], skip=True
    )
    k1 = dense(kernels[0], x, y)
    k2 = kernels[1].complex_values(x, y)
    expected = (0.5 * k1 + 1.5 * k2 + 0.1) * (2.0 * k1 + 0.3 * k2 + 0.7) * k1 * k2
    torch.testing.assert_close(dense(network, x, y), expected.real)
    *_, last = network.unit_values(x, y)
    torch.testing.assert_close(last, expected.unsqueeze(0))


def test_sums_with_a_linear_kernel_are_not_decomposed():
    """GPyTorch's AdditiveKernel raises NotPSDError here, in float32."""
    x = torch.linspace(-1, 1, 100).unsqueeze(-1)
    smooth = ScaleKernel(PeriodicKernel().initialize(lengthscale=10.0)).initialize(outputscale=1e4)
    summed = AdditiveKernel(smooth, LinearKernel())
    expected = dense(smooth, x) + dense(LinearKernel(), x)
    for primitive in (summed, ScaleKernel(ScaleKernel(summed)).initialize(outputscale=1.0)):
        factor = primitive.base_kernel.outputscale if primitive is not summed else 1.0
        network = NeuralKernelNetwork([primitive], [])
        torch.testing.assert_close(dense(network, x), factor * expected)
        network.float()
        values = dense(network, x.float())
        error = (values.double() - factor * expected).abs().max()
        assert values.dtype == torch.float32 and error < 1e-4 * expected.abs().max()
        network.double()


def test_nested_primitives_equal_their_own_values():
    """Scaled sums and products, with columns and batches of their own."""
    shape = torch.Size([3])
    summed = AdditiveKernel(
        ScaleKernel(LinearKernel(active_dims=(1,)), batch_shape=shape),
        ProductKernel(RBFKernel(batch_shape=shape), PeriodicKernel(active_dims=(0,))),
    )
    summed.active_dims = torch.tensor([2, 0])
    primitive = ScaleKernel(ScaleKernel(summed, batch_shape=shape))
    perturb(primitive)
    network, x, y = NeuralKernelNetwork([primitive], []), torch.randn(5, 3), torch.randn(4, 3)
    assert network.batch_shape == (3,)
    torch.testing.assert_close(dense(network, x, y), dense(primitive, x, y))


# batch shapes


@pytest.mark.parametrize(
    "shapes, expected",
    [
        (([2], [], []), [2]),
        (([], [], [2]), [2]),
        (([2], [3, 1], []), [3, 2]),
        (([1], [2], [3, 1]), [3, 2]),
        (([3, 1], [1, 2], [1]), [3, 2]),
    ],
)
def test_batch_shapes_of_the_parts_broadcast(shapes, expected):
    first, second, third = map(torch.Size, shapes)
    network = NeuralKernelNetwork(
        [
            ScaleKernel(RBFKernel(batch_shape=first), batch_shape=first),
            ComplexExponentialKernel(batch_shape=second),
        ],
        [Linear(2, 2, batch_shape=third), Product(2, 1)],
    )
    perturb(network)
    expected = torch.Size(expected)
    assert network.batch_shape == expected
    x, y = torch.randn(5, 1), torch.randn(4, 1)
    k1 = dense(network.primitives[0], x, y)
    k2 = network.primitives[1].complex_values(x, y)
    k1, k2 = k1.expand(*expected, 5, 4), k2.expand(*expected, 5, 4)
    weight = network.layers[0].weight.expand(*expected, 2, 2)[..., None, None]
    bias = network.layers[0].bias.expand(*expected, 2)[..., None, None]
    units = [
        weight[..., o, 0, :, :] * k1 + weight[..., o, 1, :, :] * k2 + bias[..., o, :, :]
        for o in range(2)
    ]
    matrix = dense(network, x, y)
    torch.testing.assert_close(matrix, (units[0] * units[1]).real)
    index = (2, 1) if len(expected) == 2 else 1
    indexed = network[index]
    assert indexed.batch_shape == torch.Size()
    torch.testing.assert_close(dense(indexed, x, y), matrix[index])
    expanded = network.expand_batch(4, *expected)
    torch.testing.assert_close(dense(expanded, x, y), matrix.expand(4, *matrix.shape))


# errors


TWO, THREE, FOUR = (torch.Size([n]) for n in (2, 3, 4))
WIDTHS = "must equal the previous width.*got "
LAST = "output width must be 1, got 2 primitives"
FAULTS = [
    (lambda: [rbf()] * 3, lambda: [Linear(3, 8), Product(8, 4), Linear(3, 1)], {}, ValueError,
        WIDTHS + r"3 primitives -> Linear\(3, 8\) -> Product\(8, 4\) -> Linear\(3, 1\)\."),
    (lambda: [rbf()] * 2, lambda: [Linear(3, 1)], {}, ValueError, r"2 primitives -> Linear\(3"),
    (lambda: [rbf()] * 2, lambda: [Linear(2, 2)], {}, ValueError, LAST + r" -> Linear\(2, 2\)"),
    (lambda: [rbf()] * 2, list, {}, ValueError, LAST + r"\."),
    (lambda: [rbf()] * 2, lambda: [Linear(2, 1)], {"skip": True}, ValueError,
        r"needs at least two layers, got 1\."),
    (lambda: [rbf()] * 2, lambda: [Linear(2, 3), Linear(3, 1)], {"skip": True}, ValueError,
        WIDTHS + r"2 primitives -> Linear\(2, 3\) \(\+ 2 skipped\) -> Linear\(3, 1\)\."),
    (list, list, {}, ValueError, "at least one primitive kernel, got none"),
    (lambda: ["rbf"], list, {}, TypeError, r"Primitives must be gpytorch.*Kernel, got 'rbf'"),
    (lambda: [RBFKernel], list, {}, TypeError, "Primitives must be .*got <class .*RBFKernel'>"),
    (lambda: [rbf()], lambda: [torch.nn.Linear(1, 1)], {}, TypeError,
        r"Layers must be gpytorch_nkn.layers.Layer, got Linear\(in"),
    (lambda: [RBFKernel(batch_shape=TWO), RQKernel(batch_shape=THREE)], lambda: [Linear(2, 1)], {},
        ValueError, r"must broadcast, got \[\(2,\), \(3,\), \(\)\]"),
    (lambda: [RBFKernel(batch_shape=TWO)], lambda: [Linear(1, 1, batch_shape=FOUR)], {},
        ValueError, r"must broadcast, got \[\(2,\), \(4,\)\]"),
]  # fmt: skip


@pytest.mark.parametrize(("primitives", "layers", "options", "error", "message"), FAULTS)
def test_parts_that_do_not_fit_are_shown(primitives, layers, options, error, message):
    with pytest.raises(error, match=message):
        NeuralKernelNetwork(primitives(), layers(), **options)


@pytest.mark.parametrize(
    "cls", [RBFKernelGrad, RBFKernelGradGrad, Matern52KernelGrad, PolynomialKernelGrad]
)
def test_derivative_kernels_are_rejected(cls):
    kernel = cls(power=2) if cls is PolynomialKernelGrad else cls()
    for primitive in (kernel, ScaleKernel(kernel), AdditiveKernel(rbf(), kernel)):
        with pytest.raises(NotImplementedError, match=f"{cls.__name__} models derivatives"):
            NeuralKernelNetwork([primitive], [])
