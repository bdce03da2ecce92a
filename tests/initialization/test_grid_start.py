import math

import pytest
import torch
from gpytorch.kernels import (
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)

from gpytorch_nkn.initialization import initialize_grid_kernels
from gpytorch_nkn.kernels import NeuralKernelNetwork, SpectralComponentKernel, WienerKernel
from tests.global_state import unchanged

PERIODS = 6.2, 4.1


def grid(batch=()):
    coordinates = [torch.arange(40.0)[:, None], 0.5 * torch.arange(36.0)[:, None]]
    rows = torch.sin(2 * math.pi * coordinates[0][:, 0] / PERIODS[0])
    columns = torch.cos(2 * math.pi * coordinates[1][:, 0] / PERIODS[1])
    values = torch.outer(rows, columns)
    values = (values - values.mean()) / values.std() + 0.02 * torch.randn(*batch, 40, 36)
    observed = torch.ones(40, 36, dtype=torch.bool)
    observed[15:25, 10:20] = False
    return coordinates, values, observed


def start(kernels, **options):
    coordinates, values, observed = grid()
    initialize_grid_kernels(kernels, coordinates, values, observed, **options)
    return coordinates


def test_periods_and_frequencies_come_from_the_spectra():
    kernels = [
        ScaleKernel(PeriodicKernel() + SpectralComponentKernel()),
        ScaleKernel(PeriodicKernel() * RBFKernel()),
    ]
    start(kernels)
    first, component = kernels[0].base_kernel.kernels
    assert first.period_length.item() == pytest.approx(PERIODS[0], rel=0.02)
    frequency = component.frequency.detach().flatten()
    expected = torch.full_like(frequency, 2 * math.pi / PERIODS[0])
    torch.testing.assert_close(frequency, expected, rtol=0.02, atol=0)
    second = kernels[1].base_kernel.kernels[0]
    assert second.period_length.item() == pytest.approx(PERIODS[1], rel=0.02)


def test_walks_start_a_step_ahead_of_their_dimension():
    kernels = [ScaleKernel(WienerKernel()), NeuralKernelNetwork([WienerKernel(origin=-3.0)], [])]
    coordinates = start(kernels)
    assert kernels[0].base_kernel.origin.item() == -1.0
    assert kernels[1].primitives[0].origin.item() == -3.0
    variance = kernels[0](coordinates[0]).to_dense().diagonal()
    assert variance.min() > 0 and variance.mean().item() == pytest.approx(1.0)


def test_a_spectral_mixture_starts_at_the_peaks():
    kernels = [SpectralMixtureKernel(num_mixtures=6), SpectralMixtureKernel(num_mixtures=1)]
    start(kernels)
    means = kernels[0].mixture_means.detach().flatten()
    assert (means - 1 / PERIODS[0]).abs().min() < 0.3 / 40
    assert (kernels[0].mixture_weights > 0).all() and (kernels[0].mixture_scales > 0).all()
    assert kernels[0].mixture_weights.sum().item() == pytest.approx(1.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ScaleKernel(RBFKernel()),
        lambda: ScaleKernel(LinearKernel() + PeriodicKernel()),
        lambda: SpectralMixtureKernel(num_mixtures=3),
        lambda: NeuralKernelNetwork.texture(),
        lambda: NeuralKernelNetwork.regression(1),
    ],
)
def test_kernels_get_unit_variance_on_average(make):
    kernels = [make(), make()]
    for kernel, x in zip(kernels, start(kernels), strict=True):
        assert kernel(x, diag=True).mean().item() == pytest.approx(1.0, rel=1e-3)


def test_draws_come_from_seed_and_restart_and_leave_the_global_state_alone():
    results = []
    for seed, restart in ((0, 0), (0, 0), (1, 0), (0, 1)):
        torch.manual_seed(0)
        kernels = [NeuralKernelNetwork.texture(), SpectralMixtureKernel(num_mixtures=4)]
        coordinates, values, observed = grid()
        with unchanged():
            initialize_grid_kernels(
                kernels, coordinates, values, observed, seed=seed, restart=restart
            )
        parameters = [p.detach().flatten() for k in kernels for p in k.parameters()]
        results.append(torch.cat(parameters))
    assert torch.equal(results[0], results[1])
    assert not torch.allclose(results[0], results[2])
    assert not torch.allclose(results[0], results[3])


def test_frozen_parameters_keep_their_values():
    periodic, matern = ScaleKernel(PeriodicKernel()), MaternKernel()
    periodic.base_kernel.period_length, matern.lengthscale = 9.0, 0.77
    periodic.outputscale = 5.0
    for parameter in (*periodic.parameters(), *matern.parameters()):
        parameter.requires_grad_(False)
    network = NeuralKernelNetwork.texture()
    bias = network.layers[-1].raw_bias.requires_grad_(False).clone()
    start([periodic, matern])
    start([ScaleKernel(RBFKernel()), network])
    assert torch.equal(network.layers[-1].raw_bias, bias)
    assert periodic.base_kernel.period_length.item() == pytest.approx(9.0)
    assert periodic.outputscale.item() == pytest.approx(5.0)
    assert matern.lengthscale.item() == pytest.approx(0.77)


def test_batches_of_kernels_and_values():
    coordinates, values, observed = grid((2,))
    batch = torch.Size([2])
    kernels = [
        ScaleKernel(PeriodicKernel(batch_shape=batch), batch_shape=batch),
        SpectralMixtureKernel(num_mixtures=4, batch_shape=batch),
    ]
    initialize_grid_kernels(kernels, coordinates, values, observed)
    periods = kernels[0].base_kernel.period_length.detach().flatten()
    torch.testing.assert_close(periods, torch.full((2,), PERIODS[0]), rtol=0.02, atol=0)
    for kernel, x in zip(kernels, coordinates, strict=True):
        torch.testing.assert_close(kernel(x, diag=True).mean(-1), torch.ones(2), rtol=1e-3, atol=0)


def test_as_many_rows_as_kernels_in_the_batch():
    """GPyTorch takes variances ``B x n`` for a matrix ``n x n`` where B is n."""
    coordinates, values, observed = grid()
    batch = torch.Size([2])
    kernel = ScaleKernel(LinearKernel(batch_shape=batch), batch_shape=batch)
    kernel.base_kernel.variance = torch.tensor([1.0, 9.0]).view(2, 1, 1)
    kernel.base_kernel.raw_variance.requires_grad_(False)
    coordinates[0] = torch.tensor([[1.0], [2.0]])
    initialize_grid_kernels([kernel, RBFKernel()], coordinates, values[:2], observed[:2])
    variances = kernel(coordinates[0]).to_dense().diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(variances.mean(-1), torch.ones(2), rtol=1e-3, atol=0)


@pytest.mark.parametrize("kind", ["short", "constant", "columns", "single"])
def test_without_a_spectrum_the_distances_decide(kind):
    coordinates, values, observed = grid()
    if kind == "short":
        coordinates[0], values, observed = coordinates[0][:5], values[:5], observed[:5]
    elif kind == "constant":
        values = torch.zeros_like(values)
    elif kind == "columns":
        coordinates[0] = torch.rand(40, 2)
    else:
        coordinates[0], values, observed = coordinates[0][:1], values[:1], observed[:1]
    columns = coordinates[0].size(-1)
    mixture = SpectralMixtureKernel(num_mixtures=3, ard_num_dims=columns)
    kernels = [
        ScaleKernel(RBFKernel(ard_num_dims=columns) + PeriodicKernel() + mixture),
        SpectralMixtureKernel(num_mixtures=3),
    ]
    initialize_grid_kernels(kernels, coordinates, values, observed)
    for kernel in kernels:
        assert all(p.isfinite().all() for p in kernel.parameters())
