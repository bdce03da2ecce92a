import math

import gpytorch
import pytest
import torch
from gpytorch.constraints import Interval, LessThan
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood

from gpytorch_nkn.initialization import (
    initialize_from_data,
    initialize_model,
    median_distances,
    start_from_structure,
)
from gpytorch_nkn.initialization.assign import assign
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import Linear, Product, parse_wiring
from tests.fit.models import SmallGP

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


def test_factors_of_products_begin_as_a_mixture_and_constants():
    network = start_from_structure(NeuralKernelNetwork.optimization(3), "additive")
    bias = network.layers[0].bias
    assert network.layers[1].in_features == 2 * network.layers[1].out_features
    torch.testing.assert_close(bias[0::2], torch.full((4,), 0.05))
    assert (bias[1::2] > 0.9).all()


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


def test_the_columns_of_a_joint_kernel_count_without_separate_lengthscales():
    shape = MANY
    layers = parse_wiring("Linear2-Linear1", 2, weights="simplex", skip=True, batch_shape=shape)
    kernels = [
        RBFKernel(active_dims=(0,), batch_shape=shape),
        MaternKernel(active_dims=(0, 1, 2), batch_shape=shape),
    ]
    network = start_from_structure(NeuralKernelNetwork(kernels, layers, skip=True), "joint")
    mean = network.primitives[1].lengthscale.log().mean().item()
    assert mean == pytest.approx(math.log(0.3 * math.sqrt(3)), abs=0.06)


def test_seeds_determine_the_draws_and_the_random_state_is_left_alone():
    before = torch.get_rng_state()
    first = values(start_from_structure(NeuralKernelNetwork.optimization(3), "additive", seed=1))
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    again = values(start_from_structure(NeuralKernelNetwork.optimization(3), "additive", seed=1))
    other = values(start_from_structure(NeuralKernelNetwork.optimization(3), "additive", seed=2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_batch_entries_start_apart():
    network = NeuralKernelNetwork.optimization(3, batch_shape=torch.Size([2, 2]))
    start_from_structure(network, "additive")
    for parameter in network.parameters():
        entries = parameter.detach().flatten(0, 1)
        assert len({tuple(entry.flatten().tolist()) for entry in entries}) == 4


def test_a_layer_that_a_batch_shares_gets_one_draw():
    shape = torch.Size([2])
    kernels = [RBFKernel(active_dims=(0,), batch_shape=shape), MaternKernel(batch_shape=shape)]
    layers = parse_wiring("Linear2-Linear1", 2, weights="simplex", skip=True)
    network = start_from_structure(NeuralKernelNetwork(kernels, layers, skip=True), "additive")
    assert network.layers[0].weight.shape == (2, 2)


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


def test_lengthscales_keep_to_their_bounds():
    network = convex(
        [RBFKernel(active_dims=(0,), lengthscale_constraint=Interval(0.01, 0.02)), MaternKernel()]
    )
    start_from_structure(network, "additive")
    assert 0.01 < network.primitives[0].lengthscale.item() < 0.02


def test_single_precision_stays():
    network = start_from_structure(NeuralKernelNetwork.optimization(2).float(), "joint")
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}


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
def test_networks_of_another_form_are_refused(make, match):
    network = make()
    before = values(network)
    with pytest.raises(ValueError, match=match):
        start_from_structure(network, "additive")
    assert all(torch.equal(a, b) for a, b in zip(before, values(network), strict=True))


def test_a_last_layer_without_shares_is_refused():
    layers = [Linear(2, 2, weights="simplex"), Product(4, 1)]
    network = NeuralKernelNetwork([RBFKernel(), MaternKernel()], layers, skip=True)
    with pytest.raises(ValueError, match="the last layer Product"):
        start_from_structure(network, "additive")


def test_other_structures_and_other_kernels_are_refused():
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


def test_shares_without_a_skip_connection_are_drawn_anew():
    x, y = data()
    network = convex([RBFKernel(), MaternKernel()], skip=False)
    drawn = []
    for restart in range(2):
        initialize_from_data(network, x, y, restart=restart)
        weight, bias = network.layers[0].weight, network.layers[0].bias
        torch.testing.assert_close(weight.sum(-1) + bias, torch.ones(4))
        drawn.append(weight.detach().clone())
    assert not torch.isclose(*drawn).any()
    assert (0.2 < drawn[0]).all() and (drawn[0] < 0.8).all()  # halves, up to jitter


@pytest.mark.parametrize("skip", [False, True])
def test_an_output_scale_takes_the_variance_of_the_targets(skip):
    x, y = data()
    kernel = ScaleKernel(ScaleKernel(convex([RBFKernel(active_dims=(0,))], skip=skip)))
    initialize_from_data(kernel, x, y)
    assert kernel.outputscale.item() == pytest.approx(y.var().item())
    assert kernel.base_kernel.outputscale.item() == pytest.approx(1.0)
    assert kernel(x, diag=True)[0].item() == pytest.approx(y.var().item())


def test_other_output_scales_stay_one():
    x, y = data()
    inner = convex([ScaleKernel(RBFKernel())], skip=False)
    softplus = ScaleKernel(NeuralKernelNetwork.regression(3))
    for kernel in (initialize_from_data(k, x, y) for k in (inner.primitives[0], inner, softplus)):
        for module in kernel.modules():
            if isinstance(module, ScaleKernel):
                assert module.outputscale.item() == pytest.approx(1.0)
    constant = initialize_from_data(ScaleKernel(inner), x, torch.ones(40))
    assert constant.outputscale.item() == pytest.approx(1.0)


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


def test_a_model_of_convex_combinations_starts_with_the_variance_of_its_targets():
    x, y = data()
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = SmallGP(x, y, ScaleKernel(NeuralKernelNetwork.optimization(3)), likelihood)
    initialize_model(model)
    assert model.covar_module.outputscale.item() == pytest.approx(y.var().item())
    assert model.likelihood.noise.item() == pytest.approx(0.01 * y.var().item())


def test_start_values_keep_below_a_bound_without_another():
    likelihood = GaussianLikelihood(noise_constraint=LessThan(1e-2)).double()
    assign(likelihood.noise_covar, "noise", torch.tensor([0.5], dtype=torch.float64))
    assert 0.9e-2 < likelihood.noise.item() < 1e-2
    assign(likelihood.noise_covar, "noise", torch.tensor([1e-3], dtype=torch.float64))
    assert likelihood.noise.item() == pytest.approx(1e-3)
