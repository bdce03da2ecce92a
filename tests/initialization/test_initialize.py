import math

import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood

from gpytorch_nkn.initialization import initialize_from_data, initialize_model, median_distances
from gpytorch_nkn.kernels import (
    DataAdaptiveHadamardKernel,
    NeuralKernelNetwork,
    NonStationarySpectralKernel,
    SpectralComponentKernel,
)
from tests.fit.models import SmallGP
from tests.kernels.registry import REGISTRY


def seasonal_series():
    x = torch.linspace(-1.7, 1.7, 120).unsqueeze(-1)
    return x, torch.sin(2 * math.pi * x[:, 0] / 0.4) + 0.5 * x[:, 0]


def parameters(kernel):
    return [parameter.detach().clone() for parameter in kernel.parameters()]


def test_first_restart_takes_the_strongest_period():
    x, y = seasonal_series()
    kernel = initialize_from_data(NeuralKernelNetwork.time_series(), x, y)
    periods = [k.period_length.item() for k in kernel.primitives if hasattr(k, "period_length")]
    assert min(abs(p - 0.4) for p in periods) < 0.01


def test_equal_seeds_give_equal_values_and_leave_the_random_state_alone():
    x, y = seasonal_series()
    before = torch.get_rng_state()
    first = initialize_from_data(NeuralKernelNetwork.time_series(), x, y, seed=3, restart=2)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    second = initialize_from_data(NeuralKernelNetwork.time_series(), x, y, seed=3, restart=2)
    assert all(
        torch.equal(a, b) for a, b in zip(parameters(first), parameters(second), strict=True)
    )


def test_lengthscales_follow_the_columns_that_a_part_sees():
    x = torch.rand(50, 3) * torch.tensor([1.0, 100.0, 1e4])
    y = torch.randn(50)
    inner = ScaleKernel(RBFKernel(active_dims=(1,)))  # counts within the columns of the network
    kernel = RBFKernel(active_dims=(0,)) + inner
    kernel.active_dims = torch.tensor([0, 2])
    initialize_from_data(kernel, x, y)
    typical = median_distances(x)
    for part, column in ((kernel.kernels[0], 0), (inner.base_kernel, 2)):
        assert 0.01 < part.lengthscale.item() / typical[column].item() < 100


class Leading(Kernel):
    """Gives its base kernel the leading columns, as LinearTruncatedFidelityKernel does."""

    def __init__(self, base, count):
        super().__init__()
        self.base_kernel, self.count = base, count

    def forward(self, one, two, diag=False, **params):
        return self.base_kernel(one[..., : self.count], two[..., : self.count], diag=diag)


@pytest.mark.parametrize("entry", REGISTRY, ids=lambda entry: entry.name)
def test_a_part_may_see_other_columns_than_its_outer_kernel(entry):
    x = torch.rand(9, entry.dims + 2)
    kernel = Leading(entry.make(batch_shape=torch.Size()), entry.dims)
    initialize_from_data(kernel, x, torch.sin(9 * x[:, 0]), restart=1)
    assert kernel(x).to_dense().isfinite().all()


def test_frequencies_of_spectral_components_scale_with_their_column():
    x = torch.rand(50, 3) * torch.tensor([1.0, 100.0, 1e4])
    kernel = SpectralComponentKernel(
        ard_num_dims=2, batch_shape=torch.Size([2000]), active_dims=(2, 1)
    )
    initialize_from_data(kernel, x, torch.randn(50))
    turns = kernel.frequency.squeeze(-2) * median_distances(x)[[2, 1]]  # radians
    torch.testing.assert_close(turns.std(0), torch.full((2,), 0.3), rtol=0.08, atol=0)
    assert turns.mean(0).abs().max() < 0.03 and len(turns.unique()) == 4000


def test_bad_shapes_are_named():
    with pytest.raises(ValueError, match=r"got shapes \(5, 1\) and \(4,\)"):
        initialize_from_data(LinearKernel(), torch.rand(5, 1), torch.rand(4))


def test_model_noise_starts_at_a_share_of_the_variance():
    x, y = seasonal_series()
    known = FixedNoiseGaussianLikelihood(0 * y + 1, True)
    for likelihood, name in ((known, "second_noise"), (GaussianLikelihood(), "noise")):
        model = SmallGP(x, y, NeuralKernelNetwork.time_series(), likelihood)
        initialize_model(model)
        found = getattr(likelihood, name).item()
        assert found == pytest.approx(0.01 * y.var().item(), rel=1e-6)
    for restart in range(1, 4):
        initialize_model(model, restart=restart)
        assert 0.001 < model.likelihood.noise.item() / y.var().item() < 0.1


def test_spectral_kernels_start_from_the_place_and_the_spread_of_the_inputs():
    x = torch.randn(200, 2) * torch.tensor([1.0, 10.0]) + torch.tensor([5.0, -30.0])
    y = x.sum(-1)
    pairs = NonStationarySpectralKernel(6, 2)
    frequencies = pairs.frequencies.clone()
    initialize_from_data(pairs, x, y)
    torch.testing.assert_close(pairs.center, x.mean(0, keepdim=True))
    torch.testing.assert_close(pairs.frequencies, frequencies)  # of a prior's centre


def test_learned_factors_start_near_one_and_apart():
    x = torch.randn(60, 4) * torch.tensor([1.0, 10.0, 1.0, 1.0])
    y = x.sum(-1)

    def start(restart):
        kernel = DataAdaptiveHadamardKernel.from_data(LinearKernel(), x, 20)
        anchors = kernel.anchors.clone()
        initialize_from_data(kernel, x, y, restart=restart)
        assert torch.equal(kernel.anchors, anchors)
        return kernel

    first, second = start(0), start(1)
    assert torch.equal(first.weights, start(0).weights)
    assert not torch.isclose(first.weights, second.weights).any()
    for kernel in (first, second):
        assert 0.05 < kernel.weights.std() < 0.2
    assert torch.equal(first.factor_kernel.lengthscale, second.factor_kernel.lengthscale)  # frozen
