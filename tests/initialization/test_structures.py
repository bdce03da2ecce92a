import math

import pytest
import torch
from gpytorch.constraints import GreaterThan, LessThan, Positive
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood

from gpytorch_nkn.initialization import initialize_from_data, initialize_model, median_distances
from gpytorch_nkn.initialization.assign import assign
from gpytorch_nkn.kernels import NeuralKernelNetwork, StepKernel
from gpytorch_nkn.layers import Linear, parse_wiring
from tests.fit.models import SmallGP

MANY = torch.Size([1500])  # draws enough for a mean within a few hundredths


def convex(primitives, wiring="Linear4-Product2-Linear1", weights="simplex", skip=True):
    layers = parse_wiring(wiring, len(primitives), weights=weights, skip=skip)
    return NeuralKernelNetwork(primitives, layers, skip=skip)


def data(dim=3):
    x = torch.rand(40, dim)
    return x, 5 * torch.sin(6 * x[:, 0]) + 0.1 * torch.randn(40)


@pytest.mark.parametrize(("restart", "single", "joint"), [(0, 0.7, 0.05), (1, 0.1, 0.65)])
def test_most_of_the_variance_is_that_of_the_structure(restart, single, joint):
    network = NeuralKernelNetwork.optimization(4)
    assert initialize_from_data(network, *data(4), seed=1, restart=restart) is network
    shares = network.layers[-1].weight[0]
    torch.testing.assert_close(shares[-5:-1], torch.full((4,), single / 4), rtol=0.1, atol=0)
    assert shares[-1].item() == pytest.approx(joint, rel=0.1)
    assert 0.05 < shares[:-5].sum() < 0.35  # hidden units, half to one and a half times 0.2
    for layer in network.layers:
        if isinstance(layer, Linear):
            torch.testing.assert_close(
                layer.weight.sum(-1) + layer.bias, torch.ones(layer.out_features)
            )
    x = torch.rand(6, 4)
    torch.testing.assert_close(network(x, diag=True), torch.ones(6))


def test_products_begin_as_such_where_there_is_no_joint_kernel():
    network = NeuralKernelNetwork.pairs(3)
    sums, total = network.layers[0], network.layers[-1]
    initialize_from_data(network, *data(), restart=1)
    assert total.weight[0, 0] > 0.3 and total.weight[0, 1:].sum().item() == pytest.approx(0.1)
    torch.testing.assert_close(sums.bias, torch.full((2,), 1 / 3))
    share = total.weight[0, 0].item()
    initialize_from_data(network, *data(), seed=1, restart=1)
    assert total.weight[0, 0].item() == pytest.approx(share)  # the rest is the constant
    initialize_from_data(network, *data())
    assert total.weight[0, 0] < 0.4 and total.weight[0, 1:].sum().item() == pytest.approx(0.7)
    assert sums.bias[0] < 0.1 and sums.bias[1] > 0.9


@pytest.mark.parametrize(
    "network",
    [
        lambda: NeuralKernelNetwork.regression(2),
        lambda: convex([RBFKernel()], weights="softplus"),
        lambda: convex([RBFKernel()], skip=False),
        lambda: convex([RBFKernel(active_dims=(0,)), PeriodicKernel()]),
        lambda: convex([MaternKernel(), RBFKernel(active_dims=(0,))]),
    ],
)
def test_weights_of_networks_of_another_form_are_random(network):
    seeds = [initialize_from_data(network(), *data(2), seed=seed) for seed in (0, 1)]
    first, second = (network.layers[-1].weight for network in seeds)
    assert not torch.allclose(first, second)


def test_lengthscales_from_data_grow_with_the_columns_of_the_joint_kernel():
    x, y = data()
    x = x * torch.tensor([1.0, 10.0, 100.0])
    network = NeuralKernelNetwork.optimization(3, batch_shape=MANY)
    initialize_from_data(network, x, y)
    typical = (0.6 * median_distances(x)).log()
    for column in range(3):
        logs = network.primitives[column].lengthscale.log()
        assert logs.mean().item() == pytest.approx(typical[column].item(), abs=0.1)
    joint = network.primitives[3].lengthscale.log().mean((0, 1))
    torch.testing.assert_close(joint, typical + 0.5 * math.log(3), atol=0.1, rtol=0)


@pytest.mark.parametrize("skip", [False, True])
def test_an_output_scale_takes_the_variance_of_the_targets(skip):
    x, y = data()
    kernel = ScaleKernel(ScaleKernel(convex([RBFKernel(active_dims=(0,))], skip=skip)))
    initialize_from_data(kernel, x, y)
    assert kernel.outputscale.item() == pytest.approx(y.var().item())
    assert kernel.base_kernel.outputscale.item() == pytest.approx(1.0)
    assert kernel(x, diag=True)[0].item() == pytest.approx(y.var().item())


@pytest.mark.parametrize("weights", ["softplus", "simplex"])
def test_frozen_weights_and_biases_keep_their_values_from_data(weights):
    x, y = data()
    network = convex([RBFKernel(), MaternKernel()], weights=weights, skip=False)
    first, last = network.layers[0], network.layers[-1]
    frozen = [first.raw_bias, last.raw_weight]
    kept = [parameter.requires_grad_(False).clone() for parameter in frozen]
    moved = [first.raw_weight.detach().clone(), last.raw_bias.detach().clone()]
    initialize_from_data(network, x, y)
    assert all(torch.equal(a, b) for a, b in zip(frozen, kept, strict=True))
    assert not torch.equal(first.raw_weight, moved[0])
    assert torch.equal(last.raw_bias, moved[1])


def test_start_values_keep_below_a_bound_without_another():
    likelihood = GaussianLikelihood(noise_constraint=LessThan(1e-2)).double()
    assign(likelihood.noise_covar, "noise", torch.tensor([0.5], dtype=torch.float64))
    assert 0.9e-2 < likelihood.noise.item() < 1e-2
    assign(likelihood.noise_covar, "noise", torch.tensor([1e-3], dtype=torch.float64))
    assert likelihood.noise.item() == pytest.approx(1e-3)
    step = StepKernel()
    step.register_constraint("raw_location", GreaterThan(-100.0))
    for value, expected in ((-30.0, -30.0), (-200.0, -99.9)):
        assign(step, "location", torch.full((1, 1), value))
        assert step.location.item() == pytest.approx(expected)


def test_constant_targets_get_positive_noise():
    likelihood = GaussianLikelihood(noise_constraint=Positive())
    model = SmallGP(torch.rand(9, 1), torch.ones(9), RBFKernel(), likelihood)
    assert 0 < initialize_model(model).likelihood.noise.item() < 1
