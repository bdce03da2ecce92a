import math

import pytest
import torch
from gpytorch.constraints import LessThan
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood

from gpytorch_nkn.initialization import (
    initialize_from_data,
    median_distances,
    start_from_structure,
)
from gpytorch_nkn.initialization.assign import assign
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import Linear, parse_wiring

MANY = torch.Size([1500])  # draws enough for a mean within a few hundredths


def values(network):
    return [parameter.detach().clone() for parameter in network.parameters()]


def convex(primitives, wiring="Linear4-Product2-Linear1", weights="simplex", skip=True):
    layers = parse_wiring(wiring, len(primitives), weights=weights, skip=skip)
    return NeuralKernelNetwork(primitives, layers, skip=skip)


def small():
    return convex([RBFKernel(active_dims=(0,)), MaternKernel(ard_num_dims=2)])


@pytest.mark.parametrize(
    ("structure", "single", "joint"), [("additive", 0.7, 0.05), ("joint", 0.1, 0.65)]
)
def test_most_of_the_variance_is_that_of_the_structure(structure, single, joint):
    network = NeuralKernelNetwork.optimization(4)
    assert start_from_structure(network, structure, seed=5) is network
    shares = network.layers[-1].weight[0]
    torch.testing.assert_close(shares[-5:-1], torch.full((4,), single / 4))
    assert shares[-1].item() == pytest.approx(joint)
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
    start_from_structure(network, "joint")
    assert total.weight[0, 0] > 0.3 and total.weight[0, 1:].sum().item() == pytest.approx(0.1)
    torch.testing.assert_close(sums.bias, torch.full((2,), 1 / 3))
    share = total.weight[0, 0].item()
    start_from_structure(network, "joint", seed=1)
    assert total.weight[0, 0].item() == pytest.approx(share)  # the rest is the constant
    start_from_structure(network, "additive")
    assert total.weight[0, 0] < 0.4 and total.weight[0, 1:].sum().item() == pytest.approx(0.7)
    assert sums.bias[0] < 0.1 and sums.bias[1] > 0.9


def test_logarithms_of_lengthscales_are_normal():
    network = NeuralKernelNetwork.optimization(4, batch_shape=MANY)
    start_from_structure(network, "joint")
    for kernel, columns in zip(network.primitives, [1, 1, 1, 1, 4], strict=True):
        logs = kernel.lengthscale.log()
        assert logs.mean().item() == pytest.approx(math.log(0.3 * math.sqrt(columns)), abs=0.06)
        assert logs.std().item() == pytest.approx(0.5, abs=0.04)
    first, second = (network.primitives[i].lengthscale.log().squeeze() for i in (0, 1))
    assert torch.corrcoef(torch.stack([first, second]))[0, 1].abs() < 0.1


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_what_is_frozen_stays(name):
    network = NeuralKernelNetwork.optimization(3)
    lengthscale = network.primitives[1].raw_lengthscale.requires_grad_(False)
    frozen = getattr(network.layers[0], f"raw_{name}").requires_grad_(False)
    other = network.layers[0].raw_bias if name == "weight" else network.layers[0].raw_weight
    kept, before = [lengthscale.clone(), frozen.clone()], other.detach().clone()
    start_from_structure(network, "joint")
    assert torch.equal(lengthscale, kept[0]) and torch.equal(frozen, kept[1])
    assert torch.equal(other, before) == (name == "weight")  # without weights no share is set
    assert network.primitives[0].lengthscale.item() != pytest.approx(0.3)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: NeuralKernelNetwork.regression(2), "skip=False"),
        (lambda: convex([RBFKernel()], weights="softplus"), r"weights=\['softplus', 'softplus'\]"),
        (lambda: convex([RBFKernel()], skip=False), "skip=False"),
        (lambda: convex([RBFKernel(active_dims=(0,)), PeriodicKernel()]), "a PeriodicKernel"),
        (lambda: convex([ScaleKernel(RBFKernel())]), "a ScaleKernel"),
        (lambda: convex([MaternKernel(), RBFKernel(active_dims=(0,))]), "behind others"),
    ],
)
def test_networks_of_another_form_are_rejected(make, match):
    network = make()
    before = values(network)
    with pytest.raises(ValueError, match=match):
        start_from_structure(network, "additive")
    assert all(torch.equal(a, b) for a, b in zip(before, values(network), strict=True))


def test_other_structures_and_other_kernels_are_rejected():
    with pytest.raises(ValueError, match="'additive', 'joint'.*got 'sum'"):
        start_from_structure(small(), "sum")
    with pytest.raises(TypeError, match="got RBFKernel"):
        start_from_structure(RBFKernel(), "additive")


def data(dim=3):
    x = torch.rand(40, dim)
    return x, 5 * torch.sin(6 * x[:, 0]) + 0.1 * torch.randn(40)


@pytest.mark.parametrize(("restart", "share"), [(0, 0.7), (1, 0.1), (2, 0.7)])
def test_restarts_from_data_begin_near_both_structures(restart, share):
    network = initialize_from_data(NeuralKernelNetwork.optimization(3), *data(), restart=restart)
    assert network.layers[-1].weight[0, -4:-1].sum().item() == pytest.approx(share)


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
