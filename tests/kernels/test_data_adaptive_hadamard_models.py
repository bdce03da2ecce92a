"""The kernel with a learned factor in the models and fits that take kernels."""

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.models import ExactGP
from scipy.stats import multivariate_normal, norm

from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.kernels import DataAdaptiveHadamardKernel
from gpytorch_nkn.models import (
    SparseNKNGP,
    VariationalNKNGP,
    fit_sparse_gp,
    fit_variational_gp,
)
from tests.kernels.contract import perturb

SHORT = Recipe(adam_steps=5, lbfgs_iterations=15)


class GP(ExactGP):
    def __init__(self, x, y, kernel):
        super().__init__(x, y, GaussianLikelihood())
        self.mean_module = ZeroMean()
        self.covar_module = kernel

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def data(n=40):
    """A wave whose amplitude is large on the right."""
    x = torch.linspace(-2, 2, n)[:, None]
    return x, (8 * x + 0.3).sin().squeeze(-1) * (2 * x.squeeze(-1)).exp() / 10


def adaptive(x, num_anchors=6, **options):
    return DataAdaptiveHadamardKernel.from_data(RBFKernel(), x, num_anchors, **options)


def test_best_of_maximizes_the_marginal_likelihood_and_the_prior():
    x, y = data()
    kernel = ScaleKernel(adaptive(x, weight_prior=0.7))
    model = GP(x, y, kernel)
    result = fit_best_of(model, restarts=2, recipe=SHORT, progress=False)
    assert [record.status for record in result.restarts] == ["ok", "ok"]
    with torch.no_grad():
        covar = kernel(x).to_dense() + model.likelihood.noise * torch.eye(len(x))
        weights = kernel.base_kernel.weights.numpy()
    density = multivariate_normal(np.zeros(len(x)), covar.numpy()).logpdf(y.numpy())
    expected = -density - norm(scale=0.7).logpdf(weights).sum()
    assert result.restarts[result.best].loss == pytest.approx(expected, rel=1e-6)
    factors = kernel.base_kernel.factors(x).square().sum(-1).detach()
    assert factors[-10:].mean() > 2 * factors[:10].mean()  # the amplitude that the data have


def test_fit_from_a_trained_base_kernel_starts_there_and_improves_on_it():
    x, y = data()
    plain = fit_best_of(GP(x, y, ScaleKernel(RBFKernel())), recipe=SHORT, progress=False).model
    kernel = DataAdaptiveHadamardKernel.from_data(plain.covar_module, x, 6, weight_prior=None)
    with torch.no_grad():
        weights = kernel.weights.clone()
        kernel.initialize(weights=torch.zeros_like(weights))
        close = kernel(x).to_dense()
        torch.testing.assert_close(close, plain.covar_module(x).to_dense())
    kernel.initialize(weights=weights)
    before = fit_best_of(
        plain, restarts=1, initialize=None, recipe=Recipe(0, lbfgs_iterations=0), progress=False
    )
    model = GP(x, y, kernel)
    model.likelihood = plain.likelihood
    after = fit_best_of(model, restarts=1, initialize=None, recipe=SHORT, progress=False)
    assert after.restarts[0].loss < before.restarts[0].loss - 5


def test_sparse_gp_with_all_points_is_the_exact_gp():
    x, y = data(20)
    kernel = ScaleKernel(perturb(adaptive(x)))
    sparse = SparseNKNGP(x, y[:, None], structure=kernel, inducing_points=20)
    sparse.likelihood.noise = 0.05
    exact = SingleTaskGP(x, y[:, None], covar_module=kernel, likelihood=sparse.likelihood)
    exact.mean_module = sparse.mean_module
    new = x[:5] + 0.03
    with torch.no_grad():
        first, second = (model.eval().posterior(new) for model in (sparse, exact))
        torch.testing.assert_close(first.mean, second.mean, atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(first.variance, second.variance, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("model_class", [SparseNKNGP, VariationalNKNGP])
def test_sparse_and_variational_gps_train_the_weights(model_class):
    x, y = data(60)
    model = model_class(x, y[:, None], structure=ScaleKernel(adaptive(x)), inducing_points=12)
    (kernel,) = (m for m in model.modules() if isinstance(m, DataAdaptiveHadamardKernel))
    start = kernel.weights.detach().clone()
    if model_class is SparseNKNGP:
        fit_sparse_gp(model, restarts=1, max_iterations=5)
    else:
        fit_variational_gp(model, epochs=5, batch_size=20, start=None, progress=False)
    assert (kernel.weights - start).abs().max() > 0.01
    assert (model.posterior(x[:3]).variance > 0).all()
