import pytest
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import RBFKernel, ScaleKernel

from gpytorch_nkn.kernels import NeuralKernelNetwork, ZeroMeanPeriodicKernel
from gpytorch_nkn.kernels.evaluation import describe
from gpytorch_nkn.layers import Linear, Product
from tests.kernels.contract import perturb


def make(batch_shape=(), *, plain=False):
    """A network with softplus, softmax, another constraint and a derived number, in turn."""
    b = torch.Size(batch_shape)
    simplex = "softplus" if plain else "simplex"
    bounded = {} if plain else {"lengthscale_constraint": GreaterThan(0.2)}
    primitives = [RBFKernel(batch_shape=b), RBFKernel(batch_shape=b, **bounded)]
    if not plain:
        primitives.append(ZeroMeanPeriodicKernel(batch_shape=b))
    primitives.append(ScaleKernel(RBFKernel(ard_num_dims=1, batch_shape=b), batch_shape=b))
    width = len(primitives)
    layers = [
        Linear(width, 4, batch_shape=b, weights=simplex),
        Product(4, 2),
        Linear(2, 2, batch_shape=b),
        Linear(2, 2, batch_shape=b, weights=simplex, bias=False),
        Linear(2 + width, 1, batch_shape=b, weights=simplex),
    ]
    return perturb(NeuralKernelNetwork(primitives, layers, skip=True))


def one_by_one(vector):
    """The parameters, each from its module."""
    flat = []
    for part in vector.parts:
        if isinstance(part, torch.Tensor):
            flat.append(part)
            continue
        module, name = part
        value = getattr(module, name)
        number = len(vector.batch_shape)
        flat.append(value.reshape(*value.shape[:number], -1))
    return torch.cat(flat, -1)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("batch_shape", [(), (2,), (3, 1)])
def test_values_are_those_of_the_modules(batch_shape, plain):
    network = make(batch_shape, plain=plain)
    program, vector = describe(network, 1)
    theta = vector.values()
    assert theta.shape == (*batch_shape, program.num_parameters)
    torch.testing.assert_close(theta, one_by_one(vector), rtol=1e-14, atol=0)
    weights = torch.arange(theta.numel()).to(theta).sin().view(theta.shape)
    parameters = list(network.parameters())
    actual = torch.autograd.grad((theta * weights).sum(), parameters)
    again = one_by_one(describe(network, 1)[1])
    wanted = torch.autograd.grad((again * weights).sum(), parameters)
    torch.testing.assert_close(actual, wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_values_can_be_differentiated_twice(batch_shape):
    network = make(batch_shape)
    parameters = list(network.parameters())

    def second(values):
        first = torch.autograd.grad(values.exp().sum(), parameters, create_graph=True)
        return torch.autograd.grad(sum(g.sin().sum() for g in first), parameters)

    _, vector = describe(network, 1)
    actual = second(vector.values())
    wanted = second(one_by_one(describe(network, 1)[1]))
    assert max(g.abs().max() for g in wanted) > 1e-2
    torch.testing.assert_close(actual, wanted, rtol=1e-10, atol=1e-12)
