import math
import re

import gpytorch
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel, ScaleKernel
from linear_operator.operators import RootLinearOperator

from gpytorch_nkn.kernels import NeuralKernelNetwork, NonStationarySpectralKernel

MANY = 60_000  # pairs, for expectations; their standard error is below 0.0042


def spread(kernel):
    """The kernel with parameters that differ, and a centre that matters."""
    for number, parameter in enumerate(kernel.parameters()):
        generator = torch.Generator().manual_seed(number)
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return kernel


def equation_5(kernel, x, y):
    """The paper's four waves of each pair, entry by entry."""
    z, v = ((t - kernel.center) / kernel.lengthscale for t in (x, y))
    values = torch.zeros(len(x), len(y))
    for first, second in zip(kernel.frequencies[0], kernel.frequencies[-1], strict=True):
        for i in range(len(x)):
            for j in range(len(y)):
                values[i, j] += (
                    math.cos(first @ z[i] - second @ v[j])
                    + math.cos(second @ z[i] - first @ v[j])
                    + math.cos(first @ (z[i] - v[j]))
                    + math.cos(second @ (z[i] - v[j]))
                )
    return kernel.outputscale * values / (4 * kernel.num_features)


@pytest.mark.parametrize("stationary", [False, True])
def test_psi_has_the_values_of_equation_5(stationary):
    kernel = spread(NonStationarySpectralKernel(7, 3, correlation=0.3, stationary=stationary))
    x, y = torch.randn(5, 3), torch.randn(4, 3)
    torch.testing.assert_close(kernel(x, y).to_dense(), equation_5(kernel, x, y))


def test_phi_has_the_values_of_equation_6_with_shared_phases():
    kernel = spread(NonStationarySpectralKernel(7, 2, features="phi", correlation=0.3))
    x = torch.randn(5, 2)
    z = (x - kernel.center) / kernel.lengthscale
    first, second = kernel.frequencies
    phi = (z @ first.T + kernel.phases).cos() + (z @ second.T + kernel.phases).cos()
    phi = phi * (kernel.outputscale / (2 * 7)).sqrt()
    torch.testing.assert_close(kernel.features(x), phi)
    torch.testing.assert_close(kernel(x).to_dense(), phi @ phi.T)


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_values_are_equation_5_integrated_over_a_gaussian_density(correlation):
    """E exp(i (w x - w' x')) = exp(-(|x|^2 + |x'|^2 - 2 r x x') / 2) for standard normal pairs."""
    kernel = NonStationarySpectralKernel(MANY, 2, correlation=correlation)
    kernel.initialize(center=torch.tensor([[0.5, -0.2]]), lengthscale=torch.tensor([[0.7, 1.9]]))
    kernel.outputscale = 1.3
    x, y = torch.randn(5, 2), torch.randn(4, 2)
    z, v = ((t - kernel.center) / kernel.lengthscale for t in (x, y))
    squares = z.square().sum(-1).unsqueeze(-1) + v.square().sum(-1)
    mixed = torch.exp(-(squares - 2 * correlation * z @ v.T) / 2)
    expected = 1.3 * (mixed + torch.exp(-(squares - 2 * z @ v.T) / 2)) / 2
    torch.testing.assert_close(kernel(x, y).to_dense(), expected, rtol=0.0, atol=0.015)
    stationary = RBFKernel(ard_num_dims=2).initialize(lengthscale=kernel.lengthscale)
    assert (1.3 * stationary(x, y).to_dense() - expected).abs().max() > 0.1


def test_pairs_can_be_set():
    kernel = NonStationarySpectralKernel(4, 2, batch_shape=torch.Size([3]))
    pairs = torch.randn(3, 2, 4, 2)
    kernel.initialize(frequencies=pairs)
    torch.testing.assert_close(kernel.frequencies, pairs)
    for wrong in (pairs.mT, pairs[0, :1], pairs[0, 0]):
        shape = re.escape(str(tuple(wrong.shape)))
        with pytest.raises(ValueError, match=rf"must be .* \(2, 4, 2\), got {shape}"):
            kernel.frequencies = wrong
    one = NonStationarySpectralKernel(4, 2, stationary=True)
    one.frequencies = pairs[0, :1].expand(2, -1, -1)
    torch.testing.assert_close(one.mean_frequencies, pairs[0, 0])
    with pytest.raises(ValueError, match="must be equal"):
        one.frequencies = pairs[0]


@pytest.mark.parametrize(
    ("error", "message", "arguments", "options"),
    [
        (TypeError, "num_features must be an integer", (2.0, 1), {}),
        (TypeError, "input_dim must be an integer", (2, True), {}),
        (ValueError, "num_features must be at least 1", (0, 1), {}),
        (ValueError, "input_dim must be at least 1, got -1", (2, -1), {}),
        (ValueError, "features must be one of", (2, 1), {"features": "cos"}),
        (ValueError, "correlation must be at least 0 and below 1", (2, 1), {"correlation": 1.0}),
        (TypeError, "correlation must be a number, got None", (2, 1), {"correlation": None}),
        (TypeError, "frequency_prior must be a", (2, 1), {"frequency_prior": "normal"}),
        (ValueError, "must be positive", (2, 1), {"frequency_prior": 0.0}),
        (
            ValueError,
            "excludes difference_prior, got 1",
            (2, 1),
            {"stationary": True, "difference_prior": 1.0},
        ),
    ],
)
def test_errors(error, message, arguments, options):
    with pytest.raises(error, match=message):
        NonStationarySpectralKernel(*arguments, **options)


def data(outputs=1, rows=40):
    x = 3 * torch.rand(rows, 3, generator=torch.Generator().manual_seed(0)) + 1
    y = torch.stack([x.sum(-1).sin(), 3 * x[:, 0], x[:, 1].cos()], -1)[:, :outputs]
    return x, y + 0.1 * torch.randn(y.shape, generator=torch.Generator().manual_seed(1))


def models():
    x, y = data()
    two, b = data(2)[1], torch.Size([2])
    kernel = NonStationarySpectralKernel
    yield "few", SingleTaskGP(x, y, covar_module=spread(kernel(6, 3)))
    yield "many", SingleTaskGP(x, y, covar_module=spread(kernel(60, 3)))
    phi = spread(kernel(20, 3, features="phi", correlation=0.3))
    yield "fixed noise", SingleTaskGP(x, y, 0.01 + 0.1 * y.square(), covar_module=phi)
    part = ScaleKernel(spread(kernel(6, 2, active_dims=(2, 0))))
    yield "scaled", SingleTaskGP(x, y, covar_module=part)
    yield "outputs", SingleTaskGP(x, two, covar_module=spread(kernel(6, 3, batch_shape=b)))
    scaled = ScaleKernel(spread(kernel(6, 3, batch_shape=b)), batch_shape=b)
    yield "scaled outputs", SingleTaskGP(x, two, covar_module=scaled)


MODELS = pytest.mark.parametrize("name", [name for name, _ in models()])


@MODELS
def test_predictions_match_dense_algebra(name):
    model = dict(models())[name].eval()
    for noise in model.likelihood.parameters():
        noise.data += 0.1
    x, targets = model.train_inputs[0], model.train_targets
    test = 3 * torch.rand(7, 3) + 1
    n = x.size(-2)
    joint = torch.cat([x.reshape(-1, n, 3)[0], test])
    covariance = model.covar_module(joint).to_dense()
    noisy = covariance[..., :n, :n] + torch.diag_embed(model.likelihood.noise.expand(targets.shape))
    gain = torch.linalg.solve(noisy, covariance[..., :n, n:]).mT
    center = model.mean_module(joint)
    mean = center[..., n:] + (gain @ (targets - center[..., :n]).unsqueeze(-1)).squeeze(-1)
    rest = covariance[..., n:, n:] - gain @ covariance[..., :n, n:]
    found = model(test.expand(*targets.shape[:-1], 7, 3))
    torch.testing.assert_close(found.mean, mean)
    torch.testing.assert_close(found.covariance_matrix, rest)
    with gpytorch.settings.max_cholesky_size(3):
        many = model(test.expand(*targets.shape[:-1], 7, 3)).lazy_covariance_matrix
    assert isinstance(many, RootLinearOperator)  # draws take the time of features, not of a factor
    torch.testing.assert_close(many.to_dense(), rest)


@pytest.mark.parametrize("policy", ["mask", "fill"])
@pytest.mark.parametrize("network", [False, True])
def test_missing_observations_are_omitted(policy, network):
    (x, y), b = data(2), torch.Size([2])
    kernel = NonStationarySpectralKernel(6, 3, batch_shape=b)
    kernel = spread(NeuralKernelNetwork.additive(3, batch_shape=b) if network else kernel)
    full = SingleTaskGP(x, y, covar_module=kernel, outcome_transform=None).eval()
    full.train_targets[1, [3, 17]] = torch.nan
    kept = [i for i in range(40) if i not in (3, 17)]
    fewer = SingleTaskGP(x[kept], y[kept], covar_module=kernel, outcome_transform=None).eval()
    test = torch.rand(5, 3) + 1
    with gpytorch.settings.observation_nan_policy(policy):
        posterior = full.posterior(test)
        mean, variance = posterior.mean, posterior.variance
    torch.testing.assert_close(mean[:, 1], fewer.posterior(test).mean[:, 1])
    torch.testing.assert_close(variance[:, 1], fewer.posterior(test).variance[:, 1])
    assert (variance[:, 0] < fewer.posterior(test).variance[:, 0] + 1e-9).all()


def test_gradients_flow_through_what_is_kept_if_they_are_to():
    model = dict(models())["scaled outputs"].eval()
    test = torch.rand(2, 5, 3) + 1
    expected = model(test)
    expected.mean.sum().backward()
    noise = model.likelihood.noise_covar.raw_noise
    assert noise.grad is None
    model.train().eval()  # forgets
    with gpytorch.settings.detach_test_caches(False):
        found = model(test)
        found.mean.sum().backward()
    torch.testing.assert_close(found.mean, expected.mean)
    torch.testing.assert_close(found.covariance_matrix, expected.covariance_matrix)
    step = 1e-6
    means = []
    for sign in (1, -1):
        noise.data += sign * step
        means.append(model.train().eval()(test).mean.sum((-2, -1)))
        noise.data -= sign * step
    torch.testing.assert_close(
        noise.grad.sum(), (means[0] - means[1]) / (2 * step), rtol=1e-4, atol=0
    )
