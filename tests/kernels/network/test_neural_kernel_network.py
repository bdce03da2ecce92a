import math

import gpytorch
import pytest
import torch
from gpytorch.kernels import (
    AdditiveKernel,
    LinearKernel,
    Matern52KernelGrad,
    MaternKernel,
    MultitaskKernel,
    PeriodicKernel,
    PolynomialKernelGrad,
    ProductKernel,
    RBFKernel,
    RBFKernelGrad,
    RBFKernelGradGrad,
    RQKernel,
    ScaleKernel,
)
from torch.autograd import gradcheck, gradgradcheck

from gpytorch_nkn.kernels import (
    BivariateComplexExponentialKernel,
    CenteredLinearKernel,
    ComplexExponentialKernel,
    NeuralKernelNetwork,
    ZeroMeanPeriodicKernel,
)
from gpytorch_nkn.layers import Activation, Linear, Product
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


def test_equals_the_composition_in_gpytorchs_own_kernels():
    x, y = torch.randn(7, 2), torch.randn(5, 2)
    k1, k2, k3 = rbf(0.8), MaternKernel(nu=1.5), LinearKernel().initialize(variance=0.4)
    weight = [[0.5, 1.5, 0.2], [2.0, 0.3, 0.9], [0.4, 0.6, 1.1], [0.7, 0.8, 0.1]]
    network = NeuralKernelNetwork(
        [k1, k2, k3], [linear(weight), Product(4, 2), linear([[1.3, 0.6]])]
    )

    def scaled(kernel, scale):
        return ScaleKernel(kernel).initialize(outputscale=scale)

    sums = [AdditiveKernel(*map(scaled, (k1, k2, k3), row)) for row in weight]
    products = [ProductKernel(*sums[:2]), ProductKernel(*sums[2:])]
    by_hand = AdditiveKernel(scaled(products[0], 1.3), scaled(products[1], 0.6))
    torch.testing.assert_close(dense(network, x, y), dense(by_hand, x, y), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(dense(network, x), dense(by_hand, x), rtol=1e-6, atol=1e-6)


def test_bias_equals_a_constant_kernel_and_activation_a_power_series():
    x, y = torch.randn(6, 1), torch.randn(4, 1)
    k1, k2 = dense(rbf(0.8), x, y), dense(RQKernel(), x, y)
    network = NeuralKernelNetwork(
        [rbf(0.8), RQKernel()],
        [
            linear([[0.5, 1.5], [2.0, 0.3]], [0.1, 0.7]),
            Activation(2, [0.2, 0.0, 3.0]),
            Product(2, 1),
            Activation(1, "exp"),
        ],
    )
    first, second = 0.5 * k1 + 1.5 * k2 + 0.1, 2.0 * k1 + 0.3 * k2 + 0.7
    expected = torch.exp((0.2 + 3 * first**2) * (0.2 + 3 * second**2))
    torch.testing.assert_close(dense(network, x, y), expected)


def test_without_layers_a_network_is_its_primitive():
    x, y = torch.randn(6, 1), torch.randn(4, 1)
    torch.testing.assert_close(
        dense(NeuralKernelNetwork([rbf(0.8)], []), x, y), dense(rbf(0.8), x, y)
    )
    network = NeuralKernelNetwork([complex_exponential(2.0)], [])
    torch.testing.assert_close(dense(network, x, y), torch.cos(2 * (x - y.mT)))


def test_weights_of_exactly_zero_prune_a_primitive():
    x = torch.randn(6, 1)
    network = NeuralKernelNetwork(
        [rbf(0.8), complex_exponential(3.0), LinearKernel()],
        [linear([[1.0, 0.0, 0.0], [0.5, 0.0, 0.0]], [0.0, 0.0]), Product(2, 1)],
    )
    torch.testing.assert_close(dense(network, x), 0.5 * dense(rbf(0.8), x) ** 2)
    dense(network, x).sum().backward()
    assert network.primitives[1].frequency.grad.abs().max() == 0
    assert all(p.grad.isfinite().all() for p in network.parameters())


def test_primitives_see_the_columns_of_their_active_dims():
    x, y = torch.randn(6, 4), torch.randn(5, 4)
    network = NeuralKernelNetwork(
        [rbf(0.8, active_dims=(1,)), complex_exponential(2.0, active_dims=(0,))],
        [Product(2, 1)],
        active_dims=(3, 2),
    )
    expected = dense(rbf(0.8), x[:, [2]], y[:, [2]]) * torch.cos(2 * (x[:, [3]] - y[:, [3]].mT))
    torch.testing.assert_close(dense(network, x, y), expected)
    units = network.unit_values(x, y)
    torch.testing.assert_close(units[0][0].real, dense(rbf(0.8), x[:, [2]], y[:, [2]]))


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


def test_unit_values_with_batches_of_parameters_and_of_inputs():
    network = perturb(NeuralKernelNetwork.time_series(batch_shape=torch.Size([3]), priors=False))
    x = torch.randn(2, 1, 5, 1)
    stages = network.unit_values(x)
    assert [stage.shape for stage in stages] == [(2, 3, n, 5, 5) for n in (8, 8, 4, 4, 2, 1)]
    torch.testing.assert_close(stages[-1].squeeze(-3), dense(network, x))


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


def test_a_skip_connection_of_batches_of_parameters_and_of_inputs():
    x = torch.randn(2, 1, 6, 1)
    shape = torch.Size([3])
    network = NeuralKernelNetwork(
        [RBFKernel(), LinearKernel(batch_shape=shape)], [Product(2, 1), Linear(3, 1)], skip=True
    )
    perturb(network)
    k1, k2 = dense(network.primitives[0], x), dense(network.primitives[1], x)
    weight, bias = network.layers[1].weight[0], network.layers[1].bias
    expected = weight[0] * k1 * k2 + weight[1] * k1 + weight[2] * k2 + bias
    assert expected.shape == (2, 3, 6, 6)
    torch.testing.assert_close(dense(network, x), expected)
    diagonal = network(x, diag=True)
    torch.testing.assert_close(diagonal, expected.diagonal(dim1=-1, dim2=-2))


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
    diagonal = network(x, diag=True)
    torch.testing.assert_close(diagonal, dense(primitive, x).diagonal(dim1=-1, dim2=-2))


def test_several_outputs_per_input():
    tasks = MultitaskKernel(rbf(0.7), num_tasks=2, rank=1)
    other = MultitaskKernel(RQKernel(), num_tasks=2, rank=1)
    network = NeuralKernelNetwork([tasks, other], [linear([[0.5, 2.0]], [0.1])])
    x, y = torch.randn(4, 1), torch.randn(3, 1)
    assert network.num_outputs_per_input(x, y) == 2 and network(x, y).shape == (8, 6)
    expected = 0.5 * dense(tasks, x, y) + 2.0 * dense(other, x, y) + 0.1
    torch.testing.assert_close(dense(network, x, y), expected)
    diagonal = network(x, diag=True)
    torch.testing.assert_close(diagonal, dense(network, x).diagonal())
    torch.testing.assert_close(network(x, y)[2:6, 0:2].to_dense(), expected[2:6, 0:2])


def test_primitives_of_different_numbers_of_outputs_are_refused():
    network = NeuralKernelNetwork([MultitaskKernel(rbf(), num_tasks=2), rbf()], [Linear(2, 1)])
    with pytest.raises(ValueError, match=r"agree in their outputs per input, got \[2, 1\]"):
        network(torch.randn(4, 1)).shape  # noqa: B018, a lazy matrix
    with pytest.raises(ValueError, match=r"values of one shape, got \[\(8, 8\), \(4, 4\)\]"):
        dense(network, torch.randn(4, 1))


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
    torch.testing.assert_close(dense(network[..., 1], x, y), matrix[..., 1, :, :])
    expanded = network.expand_batch(4, *expected)
    assert {p.batch_shape for p in (*expanded.primitives, *expanded.layers)} == {
        expanded.batch_shape
    }
    torch.testing.assert_close(dense(expanded, x, y), matrix.expand(4, *matrix.shape))
    assert network.batch_shape == expected


def test_expanded_parts_of_nested_kernels_carry_the_batch_shape():
    nested = ScaleKernel(
        AdditiveKernel(RBFKernel(active_dims=(1,)), ProductKernel(RQKernel(), rbf()))
    )
    expanded = NeuralKernelNetwork([nested], []).expand_batch(3)
    assert all(p.shape[0] == 3 for p in expanded.parameters())
    assert nested.batch_shape == torch.Size()
    assert expanded.primitives[0].base_kernel.kernels[0].active_dims.tolist() == [1]


def test_index_that_does_not_fit_is_refused():
    network = NeuralKernelNetwork.texture(batch_shape=torch.Size([2]))
    with pytest.raises(IndexError, match="index 2 is out of bounds"):
        network[2]
    with pytest.raises(IndexError, match="too many indices"):
        network[0, 0]


def test_a_network_can_be_iterated_over_its_batch():
    network = perturb(NeuralKernelNetwork.texture(batch_shape=torch.Size([3])))
    x = torch.randn(4, 1)
    matrices = [dense(network[i], x) for i in range(3)]
    torch.testing.assert_close(torch.stack(matrices), dense(network, x))


# stationarity


def test_is_stationary_is_the_conjunction_over_the_primitives():
    stationary = [rbf(), complex_exponential(), ZeroMeanPeriodicKernel()]
    layers = [Linear(3, 1)]
    assert NeuralKernelNetwork(stationary, layers).is_stationary
    for other in (LinearKernel(), CenteredLinearKernel(), BivariateComplexExponentialKernel()):
        network = NeuralKernelNetwork([*stationary[:2], other], layers)
        assert not network.is_stationary
        assert not NeuralKernelNetwork([rbf(), network], [Product(2, 1)]).is_stationary


# derivatives


def smooth_network():
    network = NeuralKernelNetwork(
        [
            ScaleKernel(RBFKernel(ard_num_dims=2)),
            LinearKernel(),
            ComplexExponentialKernel(ard_num_dims=2),
            BivariateComplexExponentialKernel(),
            CenteredLinearKernel(active_dims=(1,), learn_center=True),
            ZeroMeanPeriodicKernel(ard_num_dims=2),
            RQKernel(active_dims=(0,)),
        ],
        [Linear(7, 4), Product(4, 2), Activation(2, [0.1, 1.0, 0.2]), Linear(2, 1)],
    )
    return perturb(network)


@pytest.mark.parametrize("coincident", [False, True])
def test_gradcheck_of_inputs(coincident):
    network = smooth_network()
    x, y = torch.randn(3, 2), torch.randn(2, 2)
    if coincident:
        x[1], y[0] = x[0], x[0]
    inputs = (x.requires_grad_(), y.requires_grad_())
    assert gradcheck(lambda x, y: dense(network, x, y), inputs)
    assert gradcheck(lambda x: network(x, diag=True), inputs[:1])
    assert gradcheck(lambda x: dense(network, x), inputs[:1])


@pytest.mark.parametrize("coincident", [False, True])
def test_gradcheck_of_parameters(coincident):
    network = smooth_network()
    x, y = torch.randn(3, 2), torch.randn(2, 2)
    if coincident:
        x[1], y[0] = x[0], x[0]
    parameters = dict(network.named_parameters())

    def function(*values):
        replaced = dict(zip(parameters, values, strict=True))
        with gpytorch.settings.lazily_evaluate_kernels(False):  # while the values are in place
            return torch.func.functional_call(network, replaced, (x, y)).to_dense()

    assert len(parameters) == 15
    assert gradcheck(function, tuple(parameters.values()))


def test_gradgradcheck_of_inputs():
    network = NeuralKernelNetwork(
        [complex_exponential(1.3), CenteredLinearKernel(), BivariateComplexExponentialKernel()],
        [Linear(3, 2), Product(2, 1), Activation(1, "exp")],
    )
    x, y = torch.randn(2, 1).requires_grad_(), torch.randn(2, 1).requires_grad_()
    assert gradgradcheck(lambda x, y: dense(network, x, y), (x, y))
    same = torch.zeros(2, 1).requires_grad_()
    assert gradgradcheck(
        lambda x, y: dense(network, x, y), (same, same.detach().clone().requires_grad_())
    )


def test_second_derivatives_with_an_rbf_primitive():
    network = NeuralKernelNetwork([rbf(0.7), complex_exponential(1.3)], [Product(2, 1)])
    x, y = torch.randn(2, 1).requires_grad_(), torch.randn(2, 1).requires_grad_()
    assert gradgradcheck(lambda x, y: dense(network, x, y), (x, y))


# errors


def test_chain_of_widths_is_shown():
    layers = [Linear(3, 8), Product(8, 4), Linear(3, 1)]
    chain = r"3 primitives -> Linear\(3, 8\) -> Product\(8, 4\) -> Linear\(3, 1\)\."
    with pytest.raises(ValueError, match=f"must take the width that comes in.*got {chain}"):
        NeuralKernelNetwork([rbf(), rbf(), rbf()], layers)
    with pytest.raises(ValueError, match=r"got 2 primitives -> Linear\(3, 1\)"):
        NeuralKernelNetwork([rbf(), rbf()], [Linear(3, 1)])


def test_a_skip_connection_needs_a_layer_before_it_and_room_for_the_primitives():
    with pytest.raises(ValueError, match=r"needs at least two layers, got 1\."):
        NeuralKernelNetwork([rbf(), rbf()], [Linear(2, 1)], skip=True)
    chain = r"2 primitives -> Linear\(2, 3\) \(\+ 2 skipped\) -> Linear\(3, 1\)\."
    with pytest.raises(ValueError, match=f"must take the width that comes in.*got {chain}"):
        NeuralKernelNetwork([rbf(), rbf()], [Linear(2, 3), Linear(3, 1)], skip=True)


def test_last_width_must_be_one():
    with pytest.raises(
        ValueError, match=r"last one must give 1; got 2 primitives -> Linear\(2, 2\)"
    ):
        NeuralKernelNetwork([rbf(), rbf()], [Linear(2, 2)])
    with pytest.raises(ValueError, match=r"last one must give 1; got 2 primitives\."):
        NeuralKernelNetwork([rbf(), rbf()], [])


def test_parts_of_the_wrong_type_are_shown():
    with pytest.raises(ValueError, match="at least one primitive kernel, got none"):
        NeuralKernelNetwork([], [])
    with pytest.raises(TypeError, match=r"Primitives must be gpytorch.kernels.Kernel, got 'rbf'"):
        NeuralKernelNetwork(["rbf"], [])
    with pytest.raises(TypeError, match=r"Primitives must be .*got <class .*RBFKernel'>"):
        NeuralKernelNetwork([RBFKernel], [])
    with pytest.raises(
        TypeError, match=r"Layers must be gpytorch_nkn.layers.Layer, got Linear\(in"
    ):
        NeuralKernelNetwork([rbf()], [torch.nn.Linear(1, 1)])


def test_batch_shapes_that_do_not_broadcast_are_shown():
    shape = torch.Size
    with pytest.raises(ValueError, match=r"do not broadcast: \[\(2,\), \(3,\), \(\)\]"):
        NeuralKernelNetwork(
            [RBFKernel(batch_shape=shape([2])), RQKernel(batch_shape=shape([3]))], [Linear(2, 1)]
        )
    with pytest.raises(ValueError, match=r"do not broadcast: \[\(2,\), \(4,\)\]"):
        NeuralKernelNetwork(
            [RBFKernel(batch_shape=shape([2]))], [Linear(1, 1, batch_shape=shape([4]))]
        )


@pytest.mark.parametrize(
    "cls", [RBFKernelGrad, RBFKernelGradGrad, Matern52KernelGrad, PolynomialKernelGrad]
)
def test_derivative_kernels_are_refused(cls):
    kernel = cls(power=2) if cls is PolynomialKernelGrad else cls()
    for primitive in (kernel, ScaleKernel(kernel), AdditiveKernel(rbf(), kernel)):
        with pytest.raises(NotImplementedError, match=f"{cls.__name__} models derivatives"):
            NeuralKernelNetwork([primitive], [])


def test_expand_batch_to_a_smaller_shape_is_refused():
    network = NeuralKernelNetwork.texture(batch_shape=torch.Size([3]))
    with pytest.raises(RuntimeError, match=r"Cannot expand .* \(3,\) to \(2,\)"):
        network.expand_batch(2)
    with pytest.raises(RuntimeError, match=r"Cannot expand .* \(3,\) to \(\)"):
        network.expand_batch(torch.Size())


def test_inputs_of_different_numbers_of_columns_are_refused():
    network = NeuralKernelNetwork.texture()
    with pytest.raises(RuntimeError, match="must have the same number of dimensions"):
        dense(network, torch.randn(3, 1), torch.randn(3, 2))


def test_one_dimensional_inputs_are_a_column():
    network, x = NeuralKernelNetwork.texture(), torch.randn(4)
    torch.testing.assert_close(dense(network, x), dense(network, x.unsqueeze(-1)))


def test_unit_values_of_one_dimensional_inputs():
    network = NeuralKernelNetwork([complex_exponential(2.0), rbf()], [Linear(2, 1)])
    x = torch.randn(4)
    stages = network.unit_values(x)
    torch.testing.assert_close(stages[0][0].real, torch.cos(2 * (x[:, None] - x)))
    torch.testing.assert_close(stages[-1][0].real, dense(network, x))


def test_no_rows():
    network = NeuralKernelNetwork.time_series()
    assert dense(network, torch.randn(0, 1), torch.randn(3, 1)).shape == (0, 3)
    assert dense(network, torch.randn(3, 1), torch.randn(0, 1)).shape == (3, 0)


def test_a_part_outside_of_a_list_is_refused():
    with pytest.raises(TypeError, match="primitives must be a sequence, got RBFKernel"):
        NeuralKernelNetwork(RBFKernel(), [Linear(1, 1)])
    with pytest.raises(TypeError, match="layers must be a sequence, got Linear"):
        NeuralKernelNetwork([RBFKernel()], Linear(1, 1))


def test_mixed_precision_is_named():
    kernel = NeuralKernelNetwork([RBFKernel()], [Linear(1, 1)]).float()
    with pytest.raises(ValueError, match=r"network is in torch.float32.*gave torch.float64"):
        kernel(torch.rand(3, 1, dtype=torch.float64)).to_dense()
