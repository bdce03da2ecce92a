"""The kernel with a learned factor in the models and fits that take kernels."""

import numpy as np
import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import InducingPointKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood, VariationalELBO
from gpytorch.models import ApproximateGP, ExactGP
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from scipy.stats import lognorm, multivariate_normal, norm

from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.kernels import DataAdaptiveHadamardKernel, NeuralKernelNetwork
from gpytorch_nkn.layers import Linear, Product
from gpytorch_nkn.models import (
    NKNSingleTaskGP,
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
    kernel = ScaleKernel(adaptive(x, weight_prior=0.7, learn_lengthscale=True))
    model = GP(x, y, kernel)
    result = fit_best_of(model, restarts=2, recipe=SHORT, progress=False)
    assert [record.status for record in result.restarts] == ["ok", "ok"]
    with torch.no_grad():
        covar = kernel(x).to_dense() + model.likelihood.noise * torch.eye(len(x))
        weights = kernel.base_kernel.weights.numpy()
    density = multivariate_normal(np.zeros(len(x)), covar.numpy()).logpdf(y.numpy())
    factor_kernel = kernel.base_kernel.factor_kernel
    spread = kernel.base_kernel.anchors.std(correction=0).item()
    expected = -density - norm(scale=0.7).logpdf(weights).sum()
    expected -= lognorm(0.5, scale=spread).logpdf(factor_kernel.lengthscale.item())
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


def test_inducing_points_give_the_nystrom_approximation():
    x, y = data()
    kernel = perturb(adaptive(x))
    points = x[::5]
    sparse = InducingPointKernel(kernel, points.clone(), GaussianLikelihood())
    with torch.no_grad(), settings.sgpr_diagonal_correction(False):
        cross, middle = kernel(x, points).to_dense(), kernel(points).to_dense()
        expected = cross @ torch.linalg.solve(middle, cross.T)
        sparse.eval()
        torch.testing.assert_close(sparse(x).to_dense(), expected, atol=1e-3, rtol=1e-3)
    model = GP(x, y, InducingPointKernel(adaptive(x), points.clone(), GaussianLikelihood()))
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    model.train()
    (-mll(model(x), y)).backward()
    gradient = model.covar_module.base_kernel.weights.grad
    assert gradient.isfinite().all() and (gradient != 0).any()


def test_variational_gp_trains_the_weights():
    x, y = data()

    class SVGP(ApproximateGP):
        def __init__(self):
            points = x[::5].clone()
            distribution = CholeskyVariationalDistribution(len(points))
            super().__init__(VariationalStrategy(self, points, distribution))
            self.mean_module, self.covar_module = ConstantMean(), ScaleKernel(adaptive(x))

        def forward(self, x):
            return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model, likelihood = SVGP(), GaussianLikelihood()
    elbo = VariationalELBO(likelihood, model, len(x))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.1)
    start, losses = model.covar_module.base_kernel.weights.detach().clone(), []
    for _ in range(15):
        optimizer.zero_grad()
        loss = -elbo(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.05
    assert (model.covar_module.base_kernel.weights - start).abs().max() > 0.1


@pytest.mark.parametrize("outputs", [1, 2])
def test_botorch_fits_a_single_task_gp(outputs):
    x, y = data()
    targets = torch.stack([y, y.flip(0)], -1)[:, :outputs]
    batch_shape = torch.Size([2] if outputs == 2 else [])
    base = RBFKernel(batch_shape=batch_shape).initialize(lengthscale=0.2)
    kernel = ScaleKernel(DataAdaptiveHadamardKernel.from_data(base, x, 6), batch_shape=batch_shape)
    model = SingleTaskGP(x, targets, covar_module=kernel)
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    model.train()
    before = mll(model(*model.train_inputs), model.train_targets).sum().item()
    fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 30}})
    model.train()
    assert mll(model(*model.train_inputs), model.train_targets).sum().item() > before + 0.1
    model.eval()
    posterior = model.posterior(x[::4] + 0.01)
    assert posterior.mean.shape == (10, outputs) and (posterior.variance > 0).all()
    assert (posterior.mean - targets[::4]).abs().mean() < 0.3 * targets.std()


def test_primitive_of_a_network():
    x = torch.randn(5, 2)
    kernel = perturb(DataAdaptiveHadamardKernel(RBFKernel(), torch.randn(4, 2)))
    other = RBFKernel(active_dims=(1,))
    network = NeuralKernelNetwork([kernel, other], [Linear(2, 2), Product(2, 1), Linear(1, 1)])
    first, second = network.layers[0], network.layers[2]
    values = torch.stack([kernel(x).to_dense(), other(x).to_dense()], -1)
    hidden = values @ first.weight.T + first.bias
    expected = hidden.prod(-1) * second.weight.squeeze() + second.bias
    torch.testing.assert_close(network(x).to_dense(), expected)
    model = NKNSingleTaskGP(x, x.sum(-1, keepdim=True), structure=network)
    result = fit_best_of(model, restarts=2, recipe=SHORT, progress=False)
    assert all(record.status == "ok" for record in result.restarts)


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
