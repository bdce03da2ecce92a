from contextlib import contextmanager, nullcontext
from copy import deepcopy
from unittest import mock

import gpytorch
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import (
    GridInterpolationKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.models import ExactGP
from linear_operator.operators import (
    InterpolatedLinearOperator,
)

from gpytorch_nkn.kernels import (
    CenteredLinearKernel,
    NeuralKernelNetwork,
    SeparableGridInterpolationKernel,
)
from gpytorch_nkn.layers import Linear, Product
from tests.kernels.contract import perturb
from tests.kernels.registry import NO_BATCH

BOUNDS = [(0.0, 1.0), (-2.0, 3.0), (0.0, 2.0), (-1.0, 1.0)]
SIZES = [16, 20, 18, 12]
LENGTHSCALES = [0.3, 0.9, 0.5, 1.0]


def points(n, dims, dtype=torch.float64):
    low, high = torch.tensor(BOUNDS[:dims], dtype=dtype).unbind(-1)
    return low + (high - low) * torch.rand(n, dims, dtype=dtype)


@contextmanager
def as_operator():
    """No matrix is small enough to be given as a tensor."""
    with (
        mock.patch.object(SeparableGridInterpolationKernel, "_is_small", return_value=False),
        gpytorch.settings.max_cholesky_size(1),
    ):
        yield


def rbf(dims):
    kernel = RBFKernel(ard_num_dims=dims)
    kernel.lengthscale = torch.tensor(LENGTHSCALES[:dims])
    return kernel


@pytest.mark.parametrize("dims", [1, 2, 3, 4])
def test_values_match_the_kernel_where_gpytorchs_are_not(dims):
    x1, x2 = points(30, dims), points(20, dims)
    expected = rbf(dims)(x1, x2).to_dense()
    parts = [RBFKernel().initialize(lengthscale=scale) for scale in LENGTHSCALES[:dims]]
    kernel = SeparableGridInterpolationKernel(parts, SIZES[:dims], BOUNDS[:dims])
    dense = kernel(x1, x2).to_dense()
    assert (dense - expected).abs().max() < 0.005
    assert (kernel(x1, diag=True) - 1).abs().max() < 0.005
    with as_operator():
        operator = kernel(x1, x2).evaluate_kernel()
    assert isinstance(operator, InterpolatedLinearOperator)
    torch.testing.assert_close(operator.to_dense(), dense)
    vector = torch.randn(20, 2)
    torch.testing.assert_close(operator @ vector, dense @ vector)
    theirs = GridInterpolationKernel(
        rbf(dims), grid_size=SIZES[:dims], grid_bounds=tuple(BOUNDS[:dims])
    )
    error = (theirs(x1, x2).to_dense() - expected).abs().max()
    assert error < 0.005 if dims == 1 else error > 0.1


def test_kernels_without_stationarity_or_smoothness():
    parts = [
        NeuralKernelNetwork.time_series(wiring="Linear4-Product2-Linear1", priors=False),
        LinearKernel(),
        MaternKernel(nu=2.5).initialize(lengthscale=0.7),
    ]
    x1, x2 = points(40, 3), points(30, 3)
    expected = torch.ones(40, 30)
    for d, part in enumerate(parts):
        expected = expected * part(x1[:, [d]], x2[:, [d]]).to_dense()
    kernel = SeparableGridInterpolationKernel(parts, [80, 20, 40], BOUNDS[:3])
    scale = expected.abs().max()
    assert scale > 1 and (kernel(x1, x2).to_dense() - expected).abs().max() < 0.01 * scale


def test_parabolas_are_interpolated_up_to_the_ends_of_the_grid():
    kernel = SeparableGridInterpolationKernel([LinearKernel()], 9, [(-1.0, 1.0)])
    x = torch.linspace(-1, 1, 101)
    ((indices, weights),) = kernel._weights(x[:, None])
    for power in (0, 1, 2):
        values = ((kernel.grid[0] ** power)[indices] * weights).sum(-1)
        torch.testing.assert_close(values, x**power)


def test_batch_of_operators_is_that_of_tensors():
    shape = torch.Size([3, 1])
    parts = [
        RBFKernel(batch_shape=shape),
        ScaleKernel(PeriodicKernel(batch_shape=shape), batch_shape=shape),
    ]
    kernel = perturb(SeparableGridInterpolationKernel(parts, [20, 30], BOUNDS[:2]))
    x1, x2 = torch.stack([points(15, 2) for _ in range(2)]), points(12, 2)
    weights = torch.randn(3, 2, 15, 12)
    results = []
    for context in (as_operator(), nullcontext()):
        with context:
            lazy = kernel(x1, x2)
            assert lazy.shape == (3, 2, 15, 12)
            picked = lazy[1, 1].to_dense()
            dense = lazy.to_dense()
            torch.testing.assert_close(picked, dense[1, 1])
        gradients = torch.autograd.grad((dense * weights).sum(), list(kernel.parameters()))
        results.append((dense, *gradients))
    for first, second in zip(*results, strict=True):
        torch.testing.assert_close(first, second)


class Model(ExactGP):
    def __init__(self, x, y, kernel):
        super().__init__(x, y, GaussianLikelihood(batch_shape=y.shape[:-1]))
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=y.shape[:-1])
        self.covar_module = kernel
        self.likelihood.noise = 0.05
        self.double()

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def network(b=NO_BATCH):
    return NeuralKernelNetwork(
        [
            RBFKernel(batch_shape=b),
            PeriodicKernel(batch_shape=b),
            CenteredLinearKernel(batch_shape=b),
        ],
        [Linear(3, 4, batch_shape=b), Product(4, 2), Linear(2, 1, batch_shape=b)],
    )


def results(model, test_x, *, dense):
    """Loss, gradients, and predictive means and variances, with exact solves or with none."""
    with (
        gpytorch.settings.max_cholesky_size(10**6) if dense else as_operator(),
        gpytorch.settings.cg_tolerance(1e-5),
        gpytorch.settings.eval_cg_tolerance(1e-5),
        gpytorch.settings.max_cg_iterations(300),
        gpytorch.settings.num_trace_samples(60),
        gpytorch.settings.max_root_decomposition_size(200),
    ):
        model.train()
        loss = -ExactMarginalLogLikelihood(model.likelihood, model)(
            model(*model.train_inputs), model.train_targets
        ).sum()
        parameters = [p for p in model.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(loss, parameters)
        model.eval()
        with torch.no_grad():
            plain = model(test_x)
            exact = (plain.mean, plain.variance)
            model.train()
            model.eval()
            with gpytorch.settings.fast_pred_var():
                fast = model(test_x)
                exact += (fast.mean, fast.variance)
    return loss.detach(), gradients, exact


@pytest.mark.parametrize("scaled", [False, True])
def test_exact_gp_with_a_network_is_that_of_the_dense_kernel(scaled):
    x, test_x = points(50, 2), points(8, 2)
    y = (6 * x[:, 0]).sin() * (2 * x[:, 1]).cos() + 0.2 * torch.randn(50)
    parts = [network(), RBFKernel().initialize(lengthscale=0.8)]
    kernel = SeparableGridInterpolationKernel(parts, [50, 40], BOUNDS[:2])
    plain = deepcopy(parts)
    plain[0].active_dims, plain[1].active_dims = torch.tensor([0]), torch.tensor([1])
    reference = ProductKernel(*plain)
    if scaled:
        kernel, reference = ScaleKernel(kernel), ScaleKernel(reference)
    expected = results(Model(x, y, reference), test_x, dense=True)
    assert expected[2][1].max() > 3 * expected[2][1].min() > 0
    model = Model(x, y, kernel)
    for dense in (True, False):  # by Cholesky of a tensor, by conjugate gradients of an operator
        loss, gradients, predictions = results(model, test_x, dense=dense)
        noise = 2e-3 if dense else 0.05  # the log-determinant is estimated
        torch.testing.assert_close(loss, expected[0], rtol=0, atol=noise)
        scale = max(gradient.abs().max() for gradient in expected[1])
        for gradient, right in zip(gradients, expected[1], strict=True):
            torch.testing.assert_close(gradient, right, rtol=0, atol=5 * noise * scale)
        for value, right in zip(predictions, expected[2], strict=True):
            torch.testing.assert_close(value, right, rtol=2e-3, atol=2e-3)


def test_from_data_holds_the_data_with_a_margin():
    x = torch.tensor([[0.0, 5.0, 2.0], [10.0, 5.0, -2.0], [3.0, 5.0, 0.0]])
    kernel = SeparableGridInterpolationKernel.from_data([RBFKernel()] * 3, x, margin=0.2)
    ends = [(axis[0].item(), axis[-1].item()) for axis in kernel.grid]
    assert ends == [(-2.0, 12.0), (4.5, 5.5), pytest.approx((-2.8, 2.8))]
    assert [len(axis) for axis in kernel.grid] == [8, 8, 8]
    kernel(x).to_dense()
    many = SeparableGridInterpolationKernel.from_data([RBFKernel()], torch.rand(2000, 1))
    assert len(many.grid[0]) == 512
    square = SeparableGridInterpolationKernel.from_data([RBFKernel()] * 2, torch.rand(5, 80, 2))
    assert [len(axis) for axis in square.grid] == [20, 20]
    one = SeparableGridInterpolationKernel.from_data(
        [RBFKernel()], x, grid_sizes=[9], margin=0.0, active_dims=(2,)
    )
    torch.testing.assert_close(one.grid[0], torch.linspace(-2.0, 2.0, 9))
    assert one(x).shape == (3, 3)


@pytest.mark.parametrize("value, shown", [(1.01, "1.01"), (-0.01, "-0.01"), (float("nan"), "nan")])
def test_inputs_outside_of_the_grid_are_rejected(value, shown):
    kernel = SeparableGridInterpolationKernel([RBFKernel()] * 2, 10, [(0.0, 1.0), (0.0, 1.0)])
    x = torch.rand(4, 2)
    kernel(torch.tensor([[0.0, 1.0], [1.0, 0.0]])).to_dense()
    x[2, 1] = value
    for x1, x2 in ((x, x), (torch.rand(3, 2), x)):
        with pytest.raises(
            ValueError, match=f"column 1 has values .*{shown}.*axis goes from 0 to 1"
        ):
            kernel(x1, x2).to_dense()
        with pytest.raises(ValueError, match="on the grid"):
            kernel(x1[:3], x2[:3], diag=True)


@pytest.mark.parametrize(
    "kernels, sizes, bounds, error, message",
    [
        ([RBFKernel()], [10, 10], [(0, 1)], ValueError, r"one entry per axis, got \[10, 10\]"),
        ([], [], [], ValueError, "one entry per axis"),
        ([RBFKernel()], 3, [(0, 1)], ValueError, r"at least 4, got \[3\]"),
        ([RBFKernel()], [7.5], [(0, 1)], ValueError, r"integers .*7.5"),
        ([RBFKernel()], 10, [(1, 1)], ValueError, r"increase, got \[\(1.0, 1.0\)\]"),
        ([RBFKernel()], 10, [(0, float("nan"))], ValueError, "finite and increase"),
        ([RBFKernel()], 10, [(0, float("inf"))], ValueError, "finite and increase"),
        ([RBFKernel()], 10, [(0, 1), (0, 1)], ValueError, "each of 2 groups.*got 1"),
        (
            [RBFKernel(active_dims=(1,))] * 2,
            10,
            [(0, 1)] * 2,
            ValueError,
            r"active_dims .* got \(1,\)",
        ),
        (["rbf"], 10, [(0, 1)], TypeError, "got 'rbf'"),
        (
            RBFKernel(),
            10,
            [(0, 1)] * 2,
            TypeError,
            "each of 2 groups of columns, got one RBFKernel",
        ),
    ],
)
def test_wrong_arguments(kernels, sizes, bounds, error, message):
    with pytest.raises(error, match=message):
        SeparableGridInterpolationKernel(kernels, sizes, bounds)


def test_wrong_inputs():
    kernel = SeparableGridInterpolationKernel([RBFKernel()] * 2, 10, BOUNDS[:2])
    with pytest.raises(ValueError, match=r"2 column\(s\), one per kernel, got 3"):
        kernel(torch.rand(4, 3)).to_dense()
    for x in (torch.rand(3), torch.tensor([[float("nan")]]), torch.rand(0, 1)):
        with pytest.raises(ValueError, match="finite inputs .*shape"):
            SeparableGridInterpolationKernel.from_data([RBFKernel()], x)
    with pytest.raises(ValueError, match="margin must not be negative, got -1"):
        SeparableGridInterpolationKernel.from_data([RBFKernel()], torch.rand(3, 1), margin=-1)
