"""Small models for the tests of fitting."""

import gpytorch
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from gpytorch_nkn.kernels import NeuralKernelNetwork


class SmallGP(gpytorch.models.ExactGP):
    def __init__(self, x, y, kernel, likelihood=None):
        super().__init__(x, y, likelihood or gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = kernel
        if x is not None:
            self.to((x[0] if isinstance(x, tuple | list) else x).device)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def seasonal_data(n=40):
    x = torch.linspace(-1.7, 1.7, n).unsqueeze(-1)
    return x, torch.sin(9 * x[:, 0]) + 0.5 * x[:, 0] + 0.1 * torch.randn(n)


def network_model(n=40, **options):
    return SmallGP(*seasonal_data(n), NeuralKernelNetwork.time_series(**options))


def rbf_model(n=40):
    return SmallGP(*seasonal_data(n), ScaleKernel(RBFKernel()))
