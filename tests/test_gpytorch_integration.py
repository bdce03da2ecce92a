"""The network in GPyTorch's models: exact, variational, sparse, batched, sampled parameters."""

import pytest
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood

from gpytorch_nkn.kernels import (
    BivariateComplexExponentialKernel,
    ComplexExponentialKernel,
    NeuralKernelNetwork,
)
from gpytorch_nkn.layers import Linear, Product
from tests.fit.models import SmallGP


def complex_network(batch_shape=None):
    batch_shape = batch_shape or torch.Size()
    return NeuralKernelNetwork(
        [
            ComplexExponentialKernel(batch_shape=batch_shape),
            BivariateComplexExponentialKernel(batch_shape=batch_shape),
            RBFKernel(batch_shape=batch_shape),
        ],
        [
            Linear(3, 4, batch_shape=batch_shape),
            Product(4, 2),
            Linear(2, 1, batch_shape=batch_shape),
        ],
    )


NETWORKS = {
    "time_series": lambda **options: NeuralKernelNetwork.time_series(**options),
    "regression": lambda **options: NeuralKernelNetwork.regression(1, **options),
    "complex": complex_network,
}


def exact_gp(x, y, kernel):
    return SmallGP(x, y, kernel, GaussianLikelihood().initialize(noise=0.05))


@pytest.fixture
def data():
    x = torch.sort(torch.rand(14) * 3 - 1.5).values.unsqueeze(-1)
    return x, torch.sin(4 * x).squeeze(-1) + 0.5 * x.squeeze(-1)


def exact_posterior(kernel, x, y, noise, test_x):
    """Mean and covariance of f(test_x), written out with zero mean."""
    covariance = kernel(x).to_dense() + noise * torch.eye(len(x))
    cross = kernel(test_x, x).to_dense()
    mean = cross @ torch.linalg.solve(covariance, y)
    return mean, kernel(test_x).to_dense() - cross @ torch.linalg.solve(covariance, cross.mT)


@pytest.mark.parametrize("name", NETWORKS)
def test_exact_posterior_equals_the_formulas(name, data):
    kernel, test_x = NETWORKS[name](), torch.linspace(-2, 3, 9).unsqueeze(-1)
    model = exact_gp(*data, kernel).eval()
    posterior = model(test_x)
    mean, covariance = exact_posterior(kernel, *data, 0.05, test_x)
    assert mean.abs().max() > 0.1
    torch.testing.assert_close(posterior.mean, mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(posterior.covariance_matrix, covariance, rtol=1e-4, atol=1e-5)
    loss = ExactMarginalLogLikelihood(model.likelihood, model)
    model.train()
    expected = torch.distributions.MultivariateNormal(
        torch.zeros(14), kernel(data[0]).to_dense() + 0.05 * torch.eye(14)
    ).log_prob(data[1])
    log_priors = sum(
        prior.log_prob(closure(module)).sum()
        for _, module, prior, closure, _ in model.named_priors()
    )
    value = loss(model(data[0]), data[1])
    torch.testing.assert_close(value, (expected + log_priors) / 14, rtol=1e-6, atol=1e-6)


def samples_of_priors(module, num_samples):
    torch.manual_seed(1)
    samples = {}
    for name, owner, prior, closure, _ in module.named_priors():
        samples[name] = prior.sample((num_samples, *closure(owner).shape)).clamp(0.05, 5.0)
    return samples


@pytest.mark.parametrize(
    ("name", "batch_shape"), [("time_series", (2,)), ("regression", ()), ("regression", (2,))]
)
def test_samples_of_all_parameters_can_be_loaded(name, batch_shape):
    """What Pyro's samplers call: every parameter gets a batch of samples."""
    kernel = NETWORKS[name](batch_shape=torch.Size(batch_shape))
    samples = samples_of_priors(kernel, 4)
    x = torch.randn(5, 1)
    expected = []
    for i in range(4):
        single = NETWORKS[name](batch_shape=torch.Size(batch_shape))
        for key, owner, _, _, setting_closure in single.named_priors():
            setting_closure(owner, samples[key][i])
        expected.append(single(x).to_dense())
    kernel.pyro_load_from_samples(samples)
    assert kernel.batch_shape == (4, *batch_shape)
    matrix = kernel(x.expand(4, *[1] * len(batch_shape), 5, 1)).to_dense()
    torch.testing.assert_close(matrix, torch.stack(expected), rtol=1e-5, atol=1e-6)
    diagonal = kernel(x, diag=True)
    torch.testing.assert_close(diagonal, matrix.diagonal(dim1=-1, dim2=-2), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(kernel[2](x).to_dense(), matrix[2])
