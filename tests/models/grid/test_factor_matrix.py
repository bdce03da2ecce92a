"""Covariances over one dimension of a grid, in float32 too, and predictions of float32 models."""

import copy

import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from linear_operator.utils.warnings import NumericalWarning

from gpytorch_nkn.kernels import NeuralKernelNetwork, variances_of
from gpytorch_nkn.models import KroneckerGridGP
from gpytorch_nkn.models.grid.kronecker_grid_gp import factor_matrix


class Warped(Kernel):
    """Has a lengthscale, so that GPyTorch takes it for stationary, and is not."""

    has_lengthscale = True

    def forward(self, x1, x2, diag=False, **params):
        first, second = x1.square() / self.lengthscale, x2.square() / self.lengthscale
        return self.covar_dist(first, second, square_dist=True, diag=diag).neg().exp()


@pytest.mark.parametrize("make", [RBFKernel, Warped, NeuralKernelNetwork.texture])
def test_equals_the_kernel_where_it_calls_itself_stationary(make):
    kernel, x = make().double(), torch.linspace(-1, 1, 41, dtype=torch.float64).unsqueeze(-1)
    expected = kernel(x).to_dense()
    torch.testing.assert_close(factor_matrix(kernel, x), expected)


@pytest.mark.parametrize("scaled", [False, True])
def test_a_float32_network_has_the_values_and_gradients_of_float64(scaled):
    kernel = NeuralKernelNetwork.texture()
    kernel = (ScaleKernel(kernel) if scaled else kernel).float()
    double = copy.deepcopy(kernel).double()
    x = torch.linspace(-1, 1, 60).unsqueeze(-1)
    weights = torch.randn(60, 60, generator=torch.Generator().manual_seed(0))
    weights = weights + weights.mT
    found = factor_matrix(kernel, x.float())
    assert found.dtype == torch.float32
    expected = double(x.double()).to_dense()
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)
    (found * weights.float()).sum().backward()
    (expected * weights.double()).sum().backward()
    for own, other in zip(kernel.parameters(), double.parameters(), strict=True):
        if own.requires_grad:
            torch.testing.assert_close(own.grad.double(), other.grad, rtol=1e-3, atol=1e-3)


def test_the_diagonal_of_a_batch_as_large_as_the_grid():
    kernel = ScaleKernel(RBFKernel(batch_shape=[3]), batch_shape=[3])
    kernel.outputscale = torch.tensor([1.0, 2.0, 3.0])
    x = torch.linspace(0, 1, 3).unsqueeze(-1)
    expected = torch.tensor([1.0, 2.0, 3.0]).unsqueeze(-1).expand(3, 3)
    torch.testing.assert_close(variances_of(kernel, x), expected)


def test_a_float32_model_predicts_as_its_float64_copy_where_noise_is_tiny():
    rows = torch.linspace(0, 1, 24, dtype=torch.float64)
    image = torch.sin(7 * rows)[:, None] * torch.cos(5 * rows)
    image[8:14, 9:16] = torch.nan
    models = []
    for dtype in (torch.float32, torch.float64):
        kernels = [MaternKernel(), MaternKernel()]
        model = KroneckerGridGP([rows.to(dtype)] * 2, image.to(dtype), kernels)
        for kernel in model.kernels:
            kernel.lengthscale = 0.5
        model.likelihood.noise = 2e-6
        models.append(model.eval())
    (mean, variance), (expected, exact) = (model.predict() for model in models)
    assert mean.dtype == variance.dtype == torch.float32
    torch.testing.assert_close(mean.double(), expected, rtol=0, atol=1e-4)
    torch.testing.assert_close(variance.double(), exact, rtol=1e-2, atol=1e-7)
    posterior = models[0].posterior(torch.rand(3, 2))
    assert posterior.mean.dtype == posterior.variance.dtype == torch.float32
    models[0].likelihood.noise = 0.5  # in eval mode: the copy must follow
    assert not torch.allclose(models[0].predict()[0], mean, atol=1e-3)
    models[0].max_iterations = 1
    with pytest.warns(NumericalWarning, match="After 1 conjugate gradient"):
        models[0].predict()
