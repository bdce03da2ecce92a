"""Models that do what users' models do: frozen, bounded, shared or unknown parameters, errors."""

import pytest
import torch
from gpytorch.kernels import InducingPointKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior, UniformPrior

from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.fit.objective import Objective
from tests.fit.models import SmallGP, rbf_model, seasonal_data

SHORT = Recipe(adam_steps=8, lbfgs_iterations=4)


def test_models_that_share_a_kernel_are_trained_apart_from_start_values_of_the_data():
    (x, y), kernel = seasonal_data(), ScaleKernel(RBFKernel())
    result = fit_best_of(lambda: SmallGP(x, y, kernel), restarts=3, recipe=SHORT)
    assert {record.origin for record in result.restarts} == {"data"}
    assert len({record.loss for record in result.restarts}) == 3
    for number, member in result.members.items():
        loss = Objective(member.train())().item()
        assert loss == pytest.approx(result.restarts[number].loss, rel=1e-6)


def test_added_loss_terms_count():
    x, y = seasonal_data()
    likelihood = GaussianLikelihood()
    kernel = InducingPointKernel(RBFKernel(), x[::5].clone(), likelihood)
    model = SmallGP(x, y, kernel, likelihood).train()
    mll = ExactMarginalLogLikelihood(likelihood, model)
    expected = -mll(model(x), y) * y.numel()
    torch.testing.assert_close(Objective(model)(), expected, rtol=1e-4, atol=1e-3)


def test_transformed_prior_keeps_its_transform():
    model = rbf_model().train()
    prior = LogNormalPrior(0.0, 1.0, transform=torch.square)
    model.covar_module.register_prior("p", prior, lambda kernel: kernel.outputscale)
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    expected = -mll(model(*model.train_inputs), model.train_targets) * 40
    torch.testing.assert_close(Objective(model)(), expected)


def test_leaving_the_support_of_a_prior_is_a_step_back():
    kernel = RBFKernel(lengthscale_prior=UniformPrior(0.05, 0.45))

    def start(model, seed, restart):
        model.covar_module.lengthscale = 0.3

    model = SmallGP(*seasonal_data(), kernel)
    result = fit_best_of(model, restarts=2, initialize=start, recipe=SHORT)
    assert {record.status for record in result.restarts} == {"ok"}
