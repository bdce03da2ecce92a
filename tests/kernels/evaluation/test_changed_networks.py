"""Networks that were changed after they were made: plain evaluation's values, or its error."""

import types

import pytest
import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.evaluation import native
from gpytorch_nkn.layers import Linear, Product
from gpytorch_nkn.settings import kernel_evaluation
from tests.kernels.evaluation.networks import PATHS


def make():
    return NeuralKernelNetwork(
        [RBFKernel(), PeriodicKernel(), RBFKernel(), MaternKernel(nu=1.5)],
        [Linear(4, 4), Product(4, 2), Linear(2, 1, seed=1)],
    )


def wider_lengthscale(network):
    network.primitives[0].raw_lengthscale = nn.Parameter(torch.zeros(1, 2))


def batch_of_lengthscales(network):
    network.primitives[0].raw_lengthscale = nn.Parameter(torch.zeros(3, 1, 1))


def single_precision_layers(network):
    network.layers.float()


def forward_of_a_kernel(network):
    def forward(self, x1, x2, diag=False, **params):
        return 2 + 0 * RBFKernel.forward(self, x1, x2, diag=diag, **params)

    network.primitives[0].forward = types.MethodType(forward, network.primitives[0])


def forward_of_a_layer(network):
    layer = network.layers[2]
    layer.forward = types.MethodType(lambda self, values: Linear.forward(self, values) + 3, layer)


CHANGES = {
    "a primitive less": lambda n: n.primitives.__delitem__(3),
    "another layer": lambda n: n.layers.__setitem__(2, Linear(3, 1)),
    "unknown nu": lambda n: setattr(n.primitives[3], "nu", 3.5),
    "wider lengthscale": wider_lengthscale,
    "batch of lengthscales": batch_of_lengthscales,
    "layers in float32": single_precision_layers,
    "forward of a kernel": forward_of_a_kernel,
    "forward of a layer": forward_of_a_layer,
}


def outcome(network, path, x, diag=False):
    with kernel_evaluation(path):
        try:
            values = network(x, diag=diag)
            return (values if diag else values.to_dense()).detach()
        except Exception as error:
            return type(error)


@pytest.mark.parametrize("path", ["auto", *PATHS])
@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_network(name, path):
    network, x = make(), torch.randn(20, 1)
    outcome(network, path, x)
    CHANGES[name](network)
    for diag in (False, True):
        expected, actual = outcome(network, "plain", x, diag), outcome(network, path, x, diag)
        if isinstance(expected, type):
            assert actual is expected
        else:
            torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("path", ["auto", *PATHS])
def test_columns_that_occur_twice(path):
    network = NeuralKernelNetwork([RBFKernel(active_dims=(0, 0), ard_num_dims=2)], [Linear(1, 1)])
    gradients = []
    for way in (path, "plain"):
        x = torch.linspace(0, 1, 5).view(5, 1).requires_grad_()
        y = torch.linspace(0.3, 2, 4).view(4, 1)
        with kernel_evaluation(way):
            gradients += torch.autograd.grad(network(x, y).to_dense().sum(), x)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("path", PATHS)
def test_dispatch_modes_see_ordinary_operations(path, ran):
    network = make()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, kernel_evaluation(path):
        x = mode.from_tensor(torch.randn(6, 1))
        try:
            network.plain_values(x, x)
        except Exception:  # GPyTorch's own kernels look at values, which a fake has none of
            with pytest.raises(Exception):  # noqa: B017
                network.forward(x, x)
        else:
            network.forward(x, x)
    assert ran == []


def test_a_library_of_other_sources_is_not_used(monkeypatch):
    if native._library() is None:
        pytest.skip("the package was installed without a compiler")
    monkeypatch.setattr(native.zlib, "crc32", lambda content: 1)
    native._library.cache_clear()
    try:
        assert native._library() is None
    finally:
        monkeypatch.undo()
        native._library.cache_clear()
    assert native._library() is not None
