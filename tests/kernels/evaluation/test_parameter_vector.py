import pytest
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import RBFKernel, ScaleKernel

from gpytorch_nkn.kernels import NeuralKernelNetwork, ZeroMeanPeriodicKernel
from gpytorch_nkn.kernels.evaluation import describe, parameter_vector
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


def test_one_softplus_for_all_parameters_and_one_softmax_for_each_simplex(monkeypatch):
    counts = {"softplus": 0, "softmax": 0}
    softplus, softmax = parameter_vector.softplus, torch.Tensor.softmax

    def counted(name, function):
        def call(*args, **kwargs):
            counts[name] += 1
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(parameter_vector, "softplus", counted("softplus", softplus))
    monkeypatch.setattr(torch.Tensor, "softmax", counted("softmax", softmax))
    describe(make(), 1)[1].values()
    assert counts == {"softplus": 1, "softmax": 3}
    describe(make(plain=True), 1)[1].values()
    assert counts["softplus"] == 2


def test_raw_values_of_a_simplex_may_be_tensors_that_are_computed():
    network = make()
    layer = network.layers[0]
    source = layer._parameters.pop("raw_weight").detach().requires_grad_()
    object.__setattr__(layer, "raw_weight", 2 * source)
    theta = describe(network, 1)[1].values()
    shares = torch.cat([2 * source, layer.raw_bias.unsqueeze(-1)], -1).softmax(-1)
    program, _ = describe(network, 1)
    torch.testing.assert_close(program.layers[0].weight.of(theta), shares[:, :-1].flatten())
    (gradient,) = torch.autograd.grad((theta**2).sum(), source)
    assert gradient.abs().max() > 1e-3


@pytest.mark.parametrize("part", ["primitives", "layers"])
def test_parameters_of_two_dtypes_have_no_vector(part):
    network = make()
    getattr(network, part)[0].float()
    assert describe(network, 1)[1].values() is None


@pytest.mark.parametrize("name", ["raw_weight", "raw_bias"])
def test_raw_values_of_another_size_have_no_vector(name):
    network = make()
    layer = network.layers[4]
    raw = getattr(layer, name)
    setattr(layer, name, torch.nn.Parameter(torch.zeros(2, *raw.shape[1:])))
    if name == "raw_weight":
        layer.raw_bias = torch.nn.Parameter(torch.zeros(2))
        assert describe(network, 1)[1].values() is None
    else:
        with pytest.raises(RuntimeError, match="[Ss]izes of tensors must match"):
            describe(network, 1)[1].values()
