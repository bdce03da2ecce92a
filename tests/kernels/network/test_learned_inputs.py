"""Presets train from their start values where their inputs are the output of another layer."""

import gpytorch
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean
from gpytorch.mlls import DeepApproximateMLL, VariationalELBO
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

from gpytorch_nkn.kernels import NeuralKernelNetwork

X = torch.linspace(-2, 2, 60).unsqueeze(-1)
Y = torch.sin(3 * X[:, 0])


class Layer(DeepGPLayer):
    def __init__(self, kernel, *shape):
        posterior = CholeskyVariationalDistribution(15, torch.Size(shape))
        inducing = torch.randn(*shape, 15, 1)
        super().__init__(VariationalStrategy(self, inducing, posterior), 1, *(shape or (None,)))
        self.mean, self.kernel = LinearMean(1) if shape else ConstantMean(), kernel

    def forward(self, x):
        return MultivariateNormal(self.mean(x), self.kernel(x))


class TwoLayers(DeepGP):
    def __init__(self, make):
        super().__init__()
        self.layers = torch.nn.Sequential(Layer(make(torch.Size([1])), 1), Layer(make(None)))

    def forward(self, x):
        return self.layers(x)


def trained_error(make):
    torch.manual_seed(0)
    model = TwoLayers(make)
    mll = DeepApproximateMLL(VariationalELBO(GaussianLikelihood(), model, len(Y)))
    optimizer = torch.optim.Adam(mll.parameters(), lr=0.05)
    with gpytorch.settings.num_likelihood_samples(4):
        for _ in range(60):
            optimizer.zero_grad()
            (-mll(model(X), Y)).backward()
            optimizer.step()
        error = model.eval()(X).mean.mean(0) - Y
        return error.square().mean().sqrt().item()


@pytest.mark.parametrize(
    "make",
    [
        lambda shape: NeuralKernelNetwork.time_series(batch_shape=shape),
        lambda shape: NeuralKernelNetwork.regression(1, batch_shape=shape),
    ],
    ids=["time_series", "regression"],
)
def test_a_deep_gp_learns(make):
    assert trained_error(make) < 0.35  # 0.1 to 0.2, as with an RBF kernel, of a deviation of 0.7
