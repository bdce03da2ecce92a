"""Small models for the tests of reports, with short or no training."""

import math

import numpy as np
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import LinearKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean

from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.kernels import NeuralKernelNetwork, ZeroMeanPeriodicKernel
from gpytorch_nkn.layers import Linear, Product
from tests.fit.models import SmallGP

STEPS = Recipe(adam_steps=5, lbfgs_iterations=0)
COLUMNS = ("dose", "age", "noise")


def season(n, period=12.0):
    """A rising line, a sine and noise."""
    rng = np.random.default_rng(0)
    time = np.arange(n)
    return 10 + 0.05 * time + np.sin(2 * np.pi * time / period) + 0.1 * rng.standard_normal(n)


def forecaster(x, y, structure=None, **options):
    """By default a network of three kernels with ten monomials.

    It does not look for outliers, which takes another training.
    """
    if structure is None:
        kernels = [RBFKernel(), PeriodicKernel(), LinearKernel()]
        structure = NeuralKernelNetwork(kernels, [Linear(3, 2), Product(2, 1), Linear(1, 1)])
    options = {"transform": "identity", "outliers": "keep", **options}
    model = NKNForecaster(structure, restarts=1, recipe=STEPS, random_state=0, **options)
    return model.fit(x, y)


class GP(SmallGP):
    """Exact GP with a constant mean, and with batches."""

    def __init__(self, x, y, kernel, likelihood=None, batch_shape=torch.Size()):  # noqa: B008
        likelihood = likelihood or GaussianLikelihood(batch_shape=batch_shape)
        super().__init__(x, y, kernel, likelihood)
        self.mean_module = ConstantMean(batch_shape=batch_shape)


def perturbed(kernel, seed=0, spread=0.4):
    """Parameters as after training: none of them at its default."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in kernel.parameters():
            shift = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter += spread * shift.to(parameter)
    return kernel


def seasonal_gp(n=48, period=12.0, lengthscale=5.0):
    """Of a line of slope 0.05 and a sine of amplitude 1, with parameters set by hand."""
    x = torch.arange(n, dtype=torch.float64).unsqueeze(-1)
    y = 0.05 * x[:, 0] + torch.sin(2 * math.pi * x[:, 0] / period)
    trend, cycle = ScaleKernel(RBFKernel()), ScaleKernel(ZeroMeanPeriodicKernel())
    trend.base_kernel.lengthscale = float(x.max() - x.min())
    cycle.base_kernel.period_length, cycle.base_kernel.lengthscale = period, lengthscale
    trend.outputscale, cycle.outputscale = 4.0, 1.0
    model = GP(x, y, trend + cycle).double().eval()
    model.likelihood.noise = 0.01
    return model


def columns_gp(dim=3, *, noise=None, kernel=None):
    """A SingleTaskGP over several columns; the targets do not depend on the last."""
    if kernel is None:
        kernel = NeuralKernelNetwork.additive(dim, priors=False)
    x = torch.rand(30, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = 50 * x[:, :1] + 20 * x[:, 1:2].square()
    x[:, 0] *= 10
    model = SingleTaskGP(
        x,
        y,
        train_Yvar=None if noise is None else torch.full_like(y, noise),
        covar_module=kernel.double(),
        input_transform=Normalize(dim),
        outcome_transform=Standardize(1),
    )
    return model.eval()
