import pytest
import torch
from gpytorch.kernels import LinearKernel, PeriodicKernel, RBFKernel

from gpytorch_nkn.interpretation import expand
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import Layer, Linear, Operation, Product, operation, register_layer
from gpytorch_nkn.models import spectral_features
from tests.kernels.evaluation.networks import PATHS, assert_same, evaluate


class Square(Layer):
    """Every kernel times itself."""

    coefficients = (0.0, 0.0, 1.0)

    def __init__(self, width):
        super().__init__(width, width)

    def forward(self, values):
        return values.square()


class Total(Layer):
    """The sum of all kernels, which has no parameter."""

    bias = None

    def __init__(self, width):
        super().__init__(width, 1)

    @property
    def weight(self):
        return torch.ones(1, self.in_features)

    def forward(self, values):
        return values.sum(-2, keepdim=True)


@pytest.fixture(autouse=True)
def known(monkeypatch):
    monkeypatch.setattr(operation, "_OPERATIONS", dict(operation._OPERATIONS))
    register_layer(Square, Operation.SERIES)
    register_layer(Total, Operation.SUMS)


def network():
    primitives = [RBFKernel(), PeriodicKernel(), RBFKernel().initialize(lengthscale=0.3)]
    return NeuralKernelNetwork(primitives, [Linear(3, 4), Square(4), Product(4, 2), Total(2)])


@pytest.mark.parametrize("path", PATHS)
def test_values_and_gradients(path):
    x = torch.rand(30, 1).requires_grad_(True)
    assert_same(evaluate(path, network(), x), evaluate("plain", network(), x))


def test_expansion_and_random_features():
    x = torch.rand(8, 1)
    kernel = network()
    expected = kernel(x).to_dense().detach()
    torch.testing.assert_close(expand(kernel, x).evaluate(x), expected)
    features = spectral_features(kernel, num_inputs=1, num_outputs=40_000)(x)
    scale = float(expected.max())
    torch.testing.assert_close(features @ features.mT, expected, atol=0.05 * scale, rtol=0)


def test_a_subclass_with_values_of_its_own_is_not_known():
    class Half(Square):
        def forward(self, values):
            return values.square() / 2

    kernel = NeuralKernelNetwork([LinearKernel()], [Half(1)])
    with pytest.raises(NotImplementedError, match="type Half cannot be expanded"):
        expand(kernel, torch.rand(3, 1))
    with pytest.raises(NotImplementedError, match="layer Half"):
        spectral_features(kernel, num_inputs=1, num_outputs=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((int, Operation.SUMS), "subclass of .*got <class 'int'>"),
        (("Square", Operation.SUMS), "subclass of .*got 'Square'"),
        ((Square, "sums"), "got 'sums'"),
    ],
)
def test_what_is_no_row_is_named(arguments, message):
    with pytest.raises(TypeError, match=message):
        register_layer(*arguments)
