import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from benchmarks.paper_grid import (
    PaperGrid,
    latent_kronecker_loss,
    standardized_grid,
    start_kernels,
)


@pytest.fixture
def small():
    """A wave of 9 x 8 cells with a hole, kernels, and dense matrices of the whole grid."""
    rows, columns = np.meshgrid(np.arange(9), np.arange(8), indexing="ij")
    image = np.sin(rows) + np.cos(0.7 * columns) + 0.1 * rows * columns
    mask = np.zeros((9, 8), dtype=bool)
    mask[3:6, 2:5] = True
    grid = standardized_grid(image, mask)
    kernels = [ScaleKernel(RBFKernel()).double(), RBFKernel().double()]
    kernels[0].outputscale, kernels[0].base_kernel.lengthscale = 1.7, 0.8
    kernels[1].lengthscale = 0.6
    return grid, kernels


def dense(grid, kernels):
    """Covariance of all cells and which of them are observed, in the order of the grid."""
    factors = [kernel(x).to_dense() for kernel, x in zip(kernels, grid[0], strict=True)]
    return torch.kron(*factors), ~grid[2].flatten()


def test_grid_of_an_image_is_standardized_by_its_known_pixels():
    image = np.array([[2.0, 4.0, 6.0], [8.0, 1000.0, 4.0]])
    mask = np.array([[False, False, False], [False, True, False]])
    (rows, columns), targets, missing = standardized_grid(image, mask)
    np.testing.assert_allclose(rows.flatten(), [-1, 1])
    np.testing.assert_allclose(columns.flatten(), [-math.sqrt(1.5), 0, math.sqrt(1.5)])
    known = np.array([2.0, 4, 6, 8, 4])
    np.testing.assert_allclose(targets[~missing], (known - known.mean()) / known.std())
    assert missing.tolist() == mask.tolist()


def test_start_kernels_have_the_period_of_the_complete_lines():
    rows, columns = np.meshgrid(np.arange(60), np.arange(48), indexing="ij")
    image = np.sin(2 * np.pi * rows / 12) + np.cos(2 * np.pi * columns / 8)
    mask = np.zeros(image.shape, dtype=bool)
    mask[20:30, 5:15] = True
    image[mask] = 1e6
    grid = standardized_grid(image, mask)
    for network, x, period in zip(start_kernels(*grid), grid[0], (12, 8), strict=True):
        step = float(x[1] - x[0])
        (found,) = (p.period_length for p in network.primitives if hasattr(p, "period_length"))
        assert found.item() / step == pytest.approx(period)


def test_paper_formulation_is_near_the_exact_one_with_enough_iterations(small):
    grid, kernels = small
    model = PaperGrid(*grid, kernels, noise=0.05, max_iterations=2000, tolerance=1e-9)
    value = model()
    assert 0 < model.iterations < 2000 and model.residual <= 1e-9
    covariance, observed = dense(grid, kernels)
    y = grid[1].flatten()[observed]
    noisy = covariance[observed][:, observed] + 0.05 * torch.eye(63)
    weights = torch.linalg.solve(noisy, y)
    largest = torch.linalg.eigvalsh(covariance).flip(0)[:63]  # equation 39
    log_det = torch.log(63 / 72 * largest + 0.05).sum()
    expected = (y @ weights + log_det + 63 * math.log(2 * math.pi)) / 126
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)
    mean = (covariance[:, observed] @ weights).view(9, 8)
    torch.testing.assert_close(model.predict(), mean, rtol=1e-4, atol=1e-4)


def test_gradients_of_the_paper_formulation_against_differences(small):
    grid, kernels = small
    model = PaperGrid(*grid, kernels, noise=0.05, max_iterations=2000, tolerance=1e-10)
    model().backward()
    for parameter in model.parameters():
        values = []
        for step in (1e-4, -2e-4):
            parameter.data += step
            values.append(model().item())
        parameter.data += 1e-4
        difference = (values[0] - values[1]) / 2e-4
        assert parameter.grad.item() == pytest.approx(difference, rel=1e-4, abs=1e-7)


def test_cap_of_iterations_and_warm_starts(small):
    grid, kernels = small
    capped = PaperGrid(*grid, kernels, noise=0.05, max_iterations=5)
    capped()
    assert capped.iterations == 5 and capped.residual > capped.tolerance
    cold = PaperGrid(*grid, kernels, noise=0.05, max_iterations=2000)
    warm = PaperGrid(*grid, kernels, noise=0.05, max_iterations=2000, warm_start=True)
    values = [(cold().item(), warm().item()) for _ in range(2)]
    assert values[0][0] == values[0][1]
    assert warm.iterations == 0 < cold.iterations
    assert values[1][1] == pytest.approx(values[1][0], rel=1e-6)


def test_botorch_model_has_the_same_likelihood(small):
    """On so few cells BoTorch factorises; the log-determinant is then not an estimate."""
    grid, kernels = small
    loss = latent_kronecker_loss(*grid, kernels, noise=0.05)
    covariance, observed = dense(grid, kernels)
    y = grid[1].flatten()[observed]
    noisy = covariance[observed][:, observed] + 0.05 * torch.eye(63)
    normal = torch.distributions.MultivariateNormal(torch.zeros(63).double(), noisy)
    expected = -normal.log_prob(y) / 63
    expected.backward()
    gradients = [p.grad.clone() for kernel in kernels for p in kernel.parameters()]
    for kernel in kernels:
        kernel.zero_grad(set_to_none=True)
    torch.testing.assert_close(loss(), expected, rtol=1e-4, atol=1e-4)
    own = [p.grad for kernel in kernels for p in kernel.parameters()]
    torch.testing.assert_close(own, gradients, rtol=1e-3, atol=1e-3)
