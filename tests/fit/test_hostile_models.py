"""Models that do what users' models do: frozen, bounded, shared or unknown parameters, errors."""

import threading

import gpytorch
import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.constraints import Interval
from gpytorch.kernels import InducingPointKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior, UniformPrior

from gpytorch_nkn.fit import Recipe, best_of, fit_best_of
from gpytorch_nkn.fit.objective import Objective
from gpytorch_nkn.kernels import NeuralKernelNetwork
from tests.fit.models import SmallGP, network_model, rbf_model, seasonal_data

SHORT = Recipe(adam_steps=8, lbfgs_iterations=4)


class WithOffset(SmallGP):
    """A parameter that the model itself holds, which a batch of restarts cannot know of."""

    def __init__(self, *args):
        super().__init__(*args)
        self.offset = torch.nn.Parameter(torch.zeros(2))

    def forward(self, x):
        output = super().forward(x)
        return gpytorch.distributions.MultivariateNormal(
            output.mean + self.offset.sum(), output.lazy_covariance_matrix
        )


def check_losses_are_those_of_the_members(result):
    for number, member in result.members.items():
        loss = Objective(member.train())().item()
        assert loss == pytest.approx(result.restarts[number].loss, rel=1e-6)


def test_unknown_parameters_are_trained_per_restart():
    x, y = seasonal_data()
    result = fit_best_of(WithOffset(x, y + 5, RBFKernel()), restarts=3, recipe=SHORT)
    check_losses_are_those_of_the_members(result)


def test_models_that_share_a_kernel_are_trained_apart():
    (x, y), kernel = seasonal_data(), ScaleKernel(RBFKernel())
    result = fit_best_of(lambda: SmallGP(x, y, kernel), restarts=3, recipe=SHORT, initialize="data")
    check_losses_are_those_of_the_members(result)


def test_frozen_parameters_stay():
    model = rbf_model()
    model.likelihood.noise = 1e-3
    model.covar_module.base_kernel.lengthscale = 0.123
    for parameter in (
        model.likelihood.noise_covar.raw_noise,
        model.covar_module.base_kernel.raw_lengthscale,
    ):
        parameter.requires_grad_(False)
    fit_best_of(model, restarts=2, recipe=SHORT)
    assert model.likelihood.noise.item() == pytest.approx(1e-3)
    assert model.covar_module.base_kernel.lengthscale.item() == pytest.approx(0.123)


def test_start_values_keep_to_their_bounds():
    likelihood = GaussianLikelihood(noise_constraint=Interval(1e-6, 1e-3))
    kernel = ScaleKernel(RBFKernel(lengthscale_constraint=Interval(0.01, 0.2)))
    result = fit_best_of(SmallGP(*seasonal_data(), kernel, likelihood), restarts=3, recipe=SHORT)
    assert {record.status for record in result.restarts} == {"ok"}
    assert 1e-6 < likelihood.noise.item() < 1e-3 and 0.01 < kernel.base_kernel.lengthscale < 0.2


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


@pytest.mark.parametrize("error", [TypeError, IndexError, AssertionError])
def test_any_error_of_a_model_is_its_own(error):
    class Broken(SmallGP):
        def forward(self, x):
            if self.training and self.likelihood.noise.item() > 0.5:
                raise error("on purpose")
            return super().forward(x)

    def start(model, seed, restart):
        model.likelihood.noise = 0.6 if restart == 0 else 0.01

    result = fit_best_of(
        Broken(*seasonal_data(), RBFKernel()),
        restarts=2,
        initialize=start,
        recipe=Recipe(3, lbfgs_iterations=0),
    )
    assert error.__name__ in result.restarts[0].status and result.best == 1


def test_several_inputs_are_named_in_the_failure():
    x, y = seasonal_data()
    with pytest.raises(RuntimeError, match="one training input, got 2"):
        fit_best_of(SmallGP((x, x), y, RBFKernel()), restarts=1)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_in_the_criterion_costs_one_restart(monkeypatch, error):
    original, calls = best_of.evaluate_criterion, []

    def sometimes(*args):
        calls.append(args)
        if len(calls) == 2:
            raise error("on purpose")
        return original(*args)

    monkeypatch.setattr(best_of, "evaluate_criterion", sometimes)
    result = fit_best_of(network_model(), restarts=3, recipe=SHORT, criterion="loo")
    assert sorted(result.members) == [0, 2]


def test_an_interruption_before_the_first_step_is_an_interruption(monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Objective, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit_best_of(network_model(), restarts=2, recipe=SHORT)


def test_known_noise_is_in_every_prediction():
    x, y = seasonal_data()
    likelihood = FixedNoiseGaussianLikelihood(torch.full((40,), 0.25))
    model = SmallGP(x, y, ScaleKernel(RBFKernel()), likelihood)
    result = fit_best_of(model, restarts=1, recipe=SHORT)
    some, all_of_them = result.predict(x[:7])[1], result.predict(x)[1]
    torch.testing.assert_close(some, all_of_them[:7])
    with torch.no_grad():
        torch.testing.assert_close(some, model(x[:7]).variance + 0.25)


def test_predictions_in_threads_leave_the_settings_alone():
    result = fit_best_of(network_model(), restarts=2, recipe=SHORT)
    before = gpytorch.settings.max_cholesky_size.value()

    def predict():
        for _ in range(8):
            result.member_prediction(0, torch.zeros(1, 1))

    threads = [threading.Thread(target=predict) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gpytorch.settings.max_cholesky_size.value() == before
    assert gpytorch.settings.fast_computations.log_prob.on() == (
        gpytorch.settings.fast_computations.log_prob._default
    )


def test_bounds_without_a_transform_are_kept():
    """BoTorch constrains its noise so: the raw value is the noise, and optimisers keep it up."""
    x = torch.rand(24, 2)
    y = (10 * x[:, :1]).sin() + x[:, 1:]
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2))
    model = SingleTaskGP(x, y, covar_module=kernel)
    result = fit_best_of(model, restarts=2, recipe=Recipe(adam_steps=0))
    lowest = model.likelihood.noise_covar.raw_noise_constraint.lower_bound.item()
    for member in result.members.values():
        assert member.likelihood.noise.item() >= lowest
    reference = SingleTaskGP(x, y, covar_module=ScaleKernel(RBFKernel(ard_num_dims=2)))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(reference.likelihood, reference))
    bar = Objective(reference.train())().item()
    assert any(record.loss < bar + 0.1 for record in result.restarts)


def test_a_function_whose_models_start_alike_gets_start_values_from_data():
    x, y = seasonal_data()

    def make_model():
        return SmallGP(x, y, NeuralKernelNetwork.time_series())

    result = fit_best_of(make_model, restarts=3, recipe=SHORT)
    assert {record.origin for record in result.restarts} == {"data"}
    assert len({record.loss for record in result.restarts}) == 3
    with pytest.raises(ValueError, match="3 restarts would all start alike"):
        fit_best_of(make_model, restarts=3, initialize=None)


def test_priors_of_a_preset_survive_an_underflow():
    model = network_model().train()
    for name, parameter in model.covar_module.named_parameters():
        if "lengthscale" in name or "weight" in name:
            parameter.data.fill_(-1e4)
    priors = [(prior, get(module)) for _, module, prior, get, _ in model.named_priors()]
    assert priors and all(prior.log_prob(value).isfinite().all() for prior, value in priors)
