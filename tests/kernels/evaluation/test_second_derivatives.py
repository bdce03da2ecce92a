from functools import partial

import pytest
import torch
from gpytorch.kernels import (
    CosineKernel,
    GridInterpolationKernel,
    InducingPointKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    RFFKernel,
    RQKernel,
    ScaleKernel,
    SpectralDeltaKernel,
)
from gpytorch.likelihoods import GaussianLikelihood

from gpytorch_nkn.kernels import NeuralKernelNetwork, WienerKernel
from gpytorch_nkn.settings import kernel_evaluation
from tests.kernels.contract import assert_near, differences_of_pair, hessian_of_pair, perturb
from tests.kernels.evaluation.networks import CASES, PATHS, PATHS_HERE, make_network, rough_inputs

# Stock kernels by the name of their formula, for networks without layers.
STOCK = {
    "rbf": RBFKernel,
    "matern52": partial(MaternKernel, nu=2.5),
    "matern32": partial(MaternKernel, nu=1.5),
    "rq": RQKernel,
    "periodic": PeriodicKernel,
    "linear": LinearKernel,
    "cosine": CosineKernel,
    "own": type("OwnKernel", (RBFKernel,), {}),  # without a formula
}


def second_derivatives(path, kernel, x1, x2):
    """Gradient of a gradient times a vector, with regard to all sources and the weights."""
    sources = [*(p for p in kernel.parameters() if p.requires_grad), x1]
    sources += [] if x2 is None else [x2]
    with kernel_evaluation(path):
        values = kernel(x1, x2).to_dense()
        weights = torch.arange(values.numel()).to(values).sin().view(values.shape).requires_grad_()
        first = torch.autograd.grad(
            (values * weights).sum(), sources, create_graph=True, materialize_grads=True
        )
        product = sum((g * _direction(g)).sum() for g in first)
        return torch.autograd.grad(product, [*sources, weights], materialize_grads=True)


def _direction(gradient):
    return torch.arange(gradient.numel()).to(gradient).add(1).cos().view(gradient.shape)


def assert_close(actual, expected, tolerance=1e-9):
    most = max(float(tensor.abs().max()) for tensor in expected)
    assert most > 1e-2  # nothing is compared otherwise
    for one, other in zip(actual, expected, strict=True):
        assert float((one - other).abs().max()) <= tolerance * most


@pytest.mark.parametrize("dims", [1, 3])
@pytest.mark.parametrize("name", STOCK)
def test_at_equal_inputs(name, dims):
    network = perturb(NeuralKernelNetwork([STOCK[name]()], []))
    x = rough_inputs(3, dims)
    for one, other in (x[[0, 0]], x[[1, 1]], x[[1, 2]]):
        expected = differences_of_pair(network, one, other)
        assert expected.abs().max() > 1e-3
        for path in ("plain", *PATHS_HERE):
            with kernel_evaluation(path):
                found = hessian_of_pair(network, one.clone(), other.clone())
                assert_near(found, expected, path, 2e-3)


@pytest.mark.parametrize("diag", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: RFFKernel(20, num_dims=2),
        lambda: ScaleKernel(RFFKernel(20, num_dims=2)),
        lambda: RBFKernel() * SpectralDeltaKernel(2, 20),
        lambda: GridInterpolationKernel(RBFKernel(), 20, num_dims=2, grid_bounds=[(-2.0, 2.0)] * 2),
    ],
)
def test_at_equal_inputs_of_kernels_that_use_only_one_of_them(make, diag):
    network, x = NeuralKernelNetwork([make()], []), torch.tensor([0.3, 0.4])
    expected = differences_of_pair(network, x, x)
    assert_near(hessian_of_pair(network, x, x.clone(), diag), expected, "plain", 2e-3)


def test_values_do_not_depend_on_gradients():
    """The variances of an InducingPointKernel are exact only if it receives equal inputs."""
    base = InducingPointKernel(RBFKernel(), rough_inputs(3, 2), GaussianLikelihood())
    kernel, x = NeuralKernelNetwork([base], []).eval(), rough_inputs(5, 2)
    values = kernel(x, x.clone().requires_grad_()).to_dense()
    torch.testing.assert_close(values.diagonal(), torch.ones(5, dtype=values.dtype))


@pytest.mark.parametrize("path", ["plain", *PATHS])
@pytest.mark.parametrize("name", ["rbf", "matern52", "matern32", "rq", "own"])
def test_at_many_equal_inputs(name, path):
    """Squared distances of several columns, where rounding is on either side of zero."""
    network = perturb(NeuralKernelNetwork([STOCK[name]()], []))
    x = torch.randn(5, 5)
    one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    with kernel_evaluation(path):
        values = network(one, other).to_dense()
        first = torch.autograd.grad(values.diagonal().sum(), one, create_graph=True)[0]
        found = torch.autograd.grad(first[:, 1].sum(), other)[0]
        expected = [hessian_of_pair(network, row, row.clone())[1, 5:] for row in x]
    torch.testing.assert_close(found, torch.stack(expected))


@pytest.mark.parametrize("path", ["plain", *PATHS])
@pytest.mark.parametrize("make", [partial(MaternKernel, nu=0.5), WienerKernel])
def test_infinite_for_functions_without_a_derivative(make, path):
    kernel = make()
    kernel.requires_grad_(True)
    network, x = NeuralKernelNetwork([kernel], []), torch.tensor([0.4, 0.9])
    with kernel_evaluation(path):
        found = hessian_of_pair(network, x[:1], x[:1].clone())
        assert found[0, 1] == found[1, 0] == torch.inf
        assert hessian_of_pair(network, x[:1], x[1:]).isfinite().all()
        # that of a parameter is finite, and that of the variance at one and the same input zero
        point = x.view(-1, 1).clone().requires_grad_()
        values = network(point).to_dense()
        sources = [point, *network.parameters()]
        first = torch.autograd.grad(values.sum(), sources, create_graph=True)
        second = torch.autograd.grad(sum(g.sum() for g in first), sources, allow_unused=True)
    assert all(g is None or g.isfinite().all() for g in second)


@pytest.mark.parametrize("name", CASES)
def test_equal_to_plain_autograd(name):
    network, dims = make_network(name), CASES[name].dims
    x1, x2 = rough_inputs(4, dims).requires_grad_(), (rough_inputs(3, dims) - 0.3).requires_grad_()
    expected = second_derivatives("plain", network, x1, x2)
    for path in PATHS_HERE:
        assert_close(second_derivatives(path, network, x1, x2), expected)
