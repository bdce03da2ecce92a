import math
import pickle

import pytest
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import RBFKernel, SpectralMixtureKernel
from gpytorch.priors import GammaPrior, NormalPrior

from gpytorch_nkn.kernels import NeuralKernelNetwork, SpectralComponentKernel
from tests.kernels.evaluation.networks import PATHS, evaluate

LENGTHSCALE = torch.tensor([[0.8, 2.0, 1.3]], dtype=torch.float64)
FREQUENCY = torch.tensor([[1.5, -0.7, 2.4]], dtype=torch.float64)


def component(columns=3, **options):
    kernel = SpectralComponentKernel(ard_num_dims=columns, **options)
    kernel.lengthscale = LENGTHSCALE[:, :columns]
    return kernel.initialize(frequency=FREQUENCY[:, :columns])


def written_out(lengthscale, frequency, x, y):
    """The formula, entry by entry."""
    difference = x.unsqueeze(-2) - y.unsqueeze(-3)
    squared = (difference / lengthscale).square().sum(-1)
    return torch.exp(-squared / 2) * torch.cos((difference * frequency).sum(-1))


def test_value_equals_the_formula_written_out_for_one_pair():
    x, y = torch.tensor([[0.2, 1.0, -0.3]]), torch.tensor([[0.5, -0.4, 0.4]])
    squared = (0.3 / 0.8) ** 2 + (1.4 / 2.0) ** 2 + (0.7 / 1.3) ** 2
    expected = math.exp(-squared / 2) * math.cos(1.5 * -0.3 - 0.7 * 1.4 + 2.4 * -0.7)
    assert abs(expected) > 0.1
    assert component()(x, y).to_dense().item() == pytest.approx(expected, rel=1e-12)


def test_one_of_each_is_shared_among_columns_without_ard():
    kernel = SpectralComponentKernel().initialize(lengthscale=1.2, frequency=-0.9)
    x, y = torch.randn(4, 3), torch.randn(5, 3)
    torch.testing.assert_close(kernel(x, y).to_dense(), written_out(1.2, -0.9, x, y))


def test_equals_gpytorchs_spectral_mixture_in_one_dimension():
    """There exp(-2 pi^2 s^2 t^2) cos(2 pi m t)."""
    mixture = SpectralMixtureKernel(num_mixtures=1, ard_num_dims=1)
    mixture.mixture_weights = 1.0
    mixture.mixture_scales = (1 / (2 * math.pi * LENGTHSCALE[:, :1])).unsqueeze(0)
    mixture.mixture_means = (FREQUENCY[:, :1] / (2 * math.pi)).unsqueeze(0)
    x, y = torch.randn(6, 1), torch.randn(5, 1)
    expected = mixture(x, y).to_dense()
    assert expected.min() < -0.05 and expected.max() > 0.5
    torch.testing.assert_close(component(1)(x, y).to_dense(), expected)


def test_values_are_means_of_waves_with_frequencies_from_the_spectral_density():
    x, y = 0.4 * torch.randn(5, 3), 0.4 * torch.randn(4, 3)
    draws = FREQUENCY + torch.randn(200_000, 3) / LENGTHSCALE
    draws[::2] *= -1
    waves = torch.cos((x.unsqueeze(1) - y).flatten(0, 1) @ draws.mT)
    values = component()(x, y).to_dense().flatten()
    assert values.min() < -0.1 and values.max() > 0.5
    torch.testing.assert_close(waves.mean(-1), values, rtol=0, atol=0.01)


def test_frequencies_across_columns_see_a_direction():
    kernel = SpectralComponentKernel(ard_num_dims=2)
    kernel.initialize(lengthscale=100.0, frequency=torch.tensor([[2.0, 2.0]]))
    along = torch.linspace(0, 3, 7).unsqueeze(-1) * torch.tensor([[1.0, 1.0]])
    across = along * torch.tensor([[1.0, -1.0]])
    values = kernel(along, torch.zeros(1, 2)).to_dense()
    assert values.min() < -0.5
    torch.testing.assert_close(values, torch.cos(4 * along[:, :1]), atol=2e-3, rtol=0)
    values = kernel(across, torch.zeros(1, 2)).to_dense()
    torch.testing.assert_close(values, torch.ones(7, 1), atol=2e-3, rtol=0)


def test_frequency_zero_is_an_rbf_kernel():
    kernel, rbf = component(), RBFKernel(ard_num_dims=3)
    kernel.initialize(frequency=0.0)
    rbf.lengthscale = LENGTHSCALE
    x, y = torch.randn(5, 3), torch.randn(4, 3)
    torch.testing.assert_close(kernel(x, y).to_dense(), rbf(x, y).to_dense())


@pytest.mark.parametrize("path", ["plain", *PATHS])
@pytest.mark.parametrize("columns", [1, 3])
def test_gradients_equal_those_of_the_formula_written_out(columns, path):
    x, y = torch.randn(6, columns).requires_grad_(), torch.randn(5, columns).requires_grad_()
    weights = torch.randn(6, 5)
    network = NeuralKernelNetwork([component(columns)], [])
    found = evaluate(path, network, x, y, weights)
    raw = network.primitives[0].raw_lengthscale
    frequency = FREQUENCY[:, :columns].clone().requires_grad_()
    values = written_out(torch.nn.functional.softplus(raw), frequency, x, y)
    assert values.min() < -0.05
    torch.testing.assert_close(found["values"], values.detach())
    expected = torch.autograd.grad((weights * values).sum(), [raw, frequency, x, y])
    names = ["primitives.0.raw_lengthscale", "primitives.0.frequency", "x1", "x2"]
    for name, gradient in zip(names, expected, strict=True):
        assert gradient.abs().max() > 0.1
        torch.testing.assert_close(found[name], gradient, msg=name)


@pytest.mark.parametrize("path", ["plain", *PATHS])
def test_coincident_inputs_have_finite_gradients(path):
    x = torch.randn(3, 2).repeat(2, 1).requires_grad_()
    found = evaluate(path, NeuralKernelNetwork([component(2)], []), x)
    torch.testing.assert_close(found["values"][:3, 3:].diagonal(), torch.ones(3))
    assert all(tensor.isfinite().all() for tensor in found.values())


def test_start_frequencies_differ_and_have_gradients():
    kernel = SpectralComponentKernel(ard_num_dims=4, batch_shape=torch.Size([2]))
    assert kernel.frequency.shape == (2, 1, 4)
    assert len(kernel.frequency[0].unique()) == 4 and kernel.frequency.abs().min() > 0
    assert torch.equal(kernel.frequency[0], kernel.frequency[1])
    x, y = torch.randn(6, 4), torch.randn(5, 4)
    (kernel(x, y).to_dense() * torch.randn(6, 5)).sum().backward()
    assert kernel.frequency.grad.abs().min() > 1e-4


def test_single_precision_far_from_the_origin():
    x = torch.linspace(0, 3, 7).unsqueeze(-1)
    expected = component(1)(x).to_dense()
    far = component(1).float()((x + 4096).float()).to_dense()
    torch.testing.assert_close(far.double(), expected, atol=2e-3, rtol=0)


def test_priors_constraint_and_pickle():
    kernel = SpectralComponentKernel(
        ard_num_dims=2,
        lengthscale_prior=GammaPrior(3.0, 6.0),
        lengthscale_constraint=Interval(0.01, 100.0),
        frequency_prior=NormalPrior(0.0, 3.0),
    )
    before = kernel.frequency.clone()
    for name in ("lengthscale_prior", "frequency_prior"):
        kernel.sample_from_prior(name)
    assert (kernel.frequency != before).all() and kernel.frequency.shape == (1, 2)
    assert isinstance(kernel.raw_lengthscale_constraint, Interval)
    copy, x = pickle.loads(pickle.dumps(kernel)), torch.randn(4, 2)
    torch.testing.assert_close(copy(x).to_dense(), kernel(x).to_dense())
    closures = [(closure, module) for _, module, _, closure, _ in copy.named_priors()]
    values = [closure(module).view(1, 2) for closure, module in closures]
    assert any(torch.equal(value, copy.frequency) for value in values)


def test_prior_of_the_wrong_type_is_shown():
    with pytest.raises(
        TypeError, match=r"frequency_prior must be a gpytorch.priors.Prior, got 1\.0"
    ):
        SpectralComponentKernel(frequency_prior=1.0)


def test_wrong_number_of_columns_is_shown():
    with pytest.raises(RuntimeError, match=r"ard_num_dims argument\). Got 3"):
        SpectralComponentKernel(ard_num_dims=2)(torch.randn(4, 3)).to_dense()
