"""Networks whose last layer sees the primitives, against a computation by hand."""

import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from torch.nn.functional import softplus

from gpytorch_nkn.kernels import ComplexExponentialKernel, NeuralKernelNetwork
from gpytorch_nkn.layers import Linear, Product
from gpytorch_nkn.settings import kernel_evaluation
from tests.kernels.contract import perturb
from tests.kernels.evaluation.networks import PATHS, assert_same, evaluate, rough_inputs


def make(simplex, batch_shape=()):
    """Two kernels of one column each and one of both; pairs of sums of them, and a scale."""
    b = torch.Size(batch_shape)
    weights = "simplex" if simplex else "softplus"
    primitives = [
        RBFKernel(batch_shape=b, active_dims=(0,)),
        ScaleKernel(RBFKernel(batch_shape=b, active_dims=(1,)), batch_shape=b),
        MaternKernel(nu=2.5, ard_num_dims=2, batch_shape=b),
    ]
    layers = [
        Linear(3, 4, batch_shape=b, weights=weights),
        Product(4, 2),
        Linear(5, 1, batch_shape=b, weights=weights),
    ]
    network = NeuralKernelNetwork(primitives, layers, skip=True)
    return perturb(ScaleKernel(network, batch_shape=b))


def by_hand(raw, simplex, x, y):
    """The matrix ``N x M`` of one element, from raw parameters by name."""

    def positive(name):
        return softplus(raw[name])

    def weight_and_bias(layer):
        weight, bias = raw[f"{layer}.raw_weight"], raw[f"{layer}.raw_bias"]
        if not simplex:
            return softplus(weight), softplus(bias)
        powers, power = weight.exp(), bias.exp()
        total = powers.sum(-1) + power
        return powers / total[:, None], power / total

    prefix = "base_kernel"
    kernels = f"{prefix}.primitives"
    difference = x[:, None] - y[None]
    first = positive(f"{kernels}.0.raw_lengthscale").reshape(())
    second = positive(f"{kernels}.1.base_kernel.raw_lengthscale").reshape(())
    k1 = (-0.5 * (difference[..., 0] / first) ** 2).exp()
    k2 = (-0.5 * (difference[..., 1] / second) ** 2).exp()
    k2 = k2 * positive(f"{kernels}.1.raw_outputscale")
    lengthscales = positive(f"{kernels}.2.raw_lengthscale").reshape(2)
    r = math.sqrt(5) * ((difference / lengthscales) ** 2).sum(-1).sqrt()
    k3 = (1 + r + r**2 / 3) * (-r).exp()
    weight, bias = weight_and_bias(f"{prefix}.layers.0")
    u = [w[0] * k1 + w[1] * k2 + w[2] * k3 + c for w, c in zip(weight, bias, strict=True)]
    weight, bias = weight_and_bias(f"{prefix}.layers.2")
    w = weight[0]
    total = w[0] * u[0] * u[1] + w[1] * u[2] * u[3] + w[2] * k1 + w[3] * k2 + w[4] * k3 + bias[0]
    return total * positive("raw_outputscale").reshape(())


def expected(kernel, simplex, x, y):
    """Values, and gradients of their sum weighted as in :func:`evaluate`."""
    raw = {n: p.detach().clone().requires_grad_() for n, p in kernel.named_parameters()}
    x, y = (t.detach().clone().requires_grad_() for t in (x, y))
    if kernel.batch_shape:
        values = torch.stack(
            [by_hand({n: p[i] for n, p in raw.items()}, simplex, x[i], y[i]) for i in range(len(x))]
        )
    elif x.dim() == 3:
        values = torch.stack([by_hand(raw, simplex, *pair) for pair in zip(x, y, strict=True)])
    else:
        values = by_hand(raw, simplex, x, y)
    weights = torch.arange(values.numel()).to(values).sin().view(values.shape)
    sources = {**raw, "x1": x, "x2": y}
    gradients = torch.autograd.grad((values * weights).sum(), sources.values())
    return {"values": values.detach(), **dict(zip(sources, gradients, strict=True))}


@pytest.mark.parametrize("path", ["plain", "auto", *PATHS])
@pytest.mark.parametrize("simplex", [False, True])
def test_values_and_gradients(simplex, path):
    kernel = make(simplex)
    x, y = rough_inputs(6, 2).requires_grad_(), (rough_inputs(5, 2) - 0.3).requires_grad_()
    found = expected(kernel, simplex, x, y)
    assert found["values"].std() > 0.05
    assert all(gradient.abs().max() > 1e-4 for gradient in found.values())
    assert_same(evaluate(path, kernel, x, y), found)


@pytest.mark.parametrize("path", ["plain", "auto", *PATHS])
@pytest.mark.parametrize("of_network", [(3,), ()])
@pytest.mark.parametrize("simplex", [False, True])
def test_batches(simplex, of_network, path):
    kernel = make(simplex, of_network)
    x, y = rough_inputs(3, 1, 2).requires_grad_(), (rough_inputs(3, 70, 2) - 0.3).requires_grad_()
    assert_same(evaluate(path, kernel, x, y), expected(kernel, simplex, x, y))


@pytest.mark.parametrize("path", ["plain", *PATHS])
def test_a_skip_connection_sees_complex_primitives(path):
    wave = ComplexExponentialKernel().initialize(frequency=2.0)
    network = NeuralKernelNetwork([wave, RBFKernel()], [Product(2, 1), Linear(3, 1)], skip=True)
    x, y = torch.randn(6, 1), torch.randn(5, 1)
    k2 = (-0.5 * ((x - y.mT) / network.primitives[1].lengthscale.item()) ** 2).exp()
    k1 = torch.cos(2.0 * (x - y.mT))
    weight, bias = network.layers[1].weight[0].tolist(), network.layers[1].bias.item()
    with kernel_evaluation(path):
        values = network(x, y).to_dense()
    torch.testing.assert_close(values, weight[0] * k1 * k2 + weight[1] * k1 + weight[2] * k2 + bias)
