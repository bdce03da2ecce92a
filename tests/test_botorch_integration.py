"""The network in BoTorch: fitting, acquisition, several outputs, fantasies."""

import warnings
from copy import deepcopy

import pytest
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.optim.core import OptimizationResult, OptimizationStatus
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.utils.errors import NotPSDError

from gpytorch_nkn.kernels import NeuralKernelNetwork

FEW_STEPS = {"optimizer_kwargs": {"options": {"maxiter": 8}}}


@pytest.fixture
def data():
    x = torch.rand(12, 2)
    return x, (torch.sin(6 * x[:, :1]) + x[:, 1:]) / 2


def network(batch_shape=None, **options):
    return NeuralKernelNetwork.regression(
        2, wiring="Linear4-Product2-Linear1", batch_shape=batch_shape, **options
    )


def single_task(x, y, **options):
    options = {"covar_module": network(), "outcome_transform": None, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # data that are not standardised
        return SingleTaskGP(x, y, **options)


def fit(model, **options):
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations do not converge
        fit_gpytorch_mll(
            mll, **FEW_STEPS, max_attempts=1, warning_handler=lambda w: True, **options
        )
    return model


def loss_of(model):
    mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
    with torch.no_grad():
        return -mll(model(*model.train_inputs), model.train_targets).sum().item()


def test_fit_lowers_the_loss(data):
    model = single_task(*data)
    before = loss_of(model)
    fit(model)
    assert not model.training and loss_of(model) < before - 0.1
    posterior = model.eval().posterior(torch.rand(5, 2))
    assert posterior.mean.isfinite().all() and (posterior.variance > 0).all()


def test_bayesian_optimisation_step(data):
    x, y = data
    model = fit(single_task(x, y, input_transform=Normalize(2), outcome_transform=Standardize(1)))
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    acquisition = LogExpectedImprovement(model, best_f=y.max())
    candidate, value = optimize_acqf(
        acquisition, bounds, q=1, num_restarts=2, raw_samples=16, options={"maxiter": 10}
    )
    assert candidate.shape == (1, 2) and value.isfinite()
    assert (candidate >= 0).all() and (candidate <= 1).all()
    random_values = acquisition(torch.rand(16, 1, 2))
    assert value >= random_values.max() - 0.5


def two_outputs(data):
    """A model of two outputs whose parameters differ between them."""
    x, y = data
    both = torch.cat([y, torch.cos(5 * x[:, 1:])], -1)
    model = single_task(x, both, covar_module=network(torch.Size([2])))
    with torch.no_grad():
        for parameter in model.covar_module.parameters():
            parameter += 0.4 * torch.rand_like(parameter)
        model.likelihood.noise = torch.tensor([[0.01], [0.05]])
        model.mean_module.constant.copy_(torch.tensor([0.1, -0.3]))
    return model, both


def single_of(model, data, both, i):
    single = single_task(data[0], both[:, [i]], covar_module=model.covar_module[i])
    single.likelihood.noise = model.likelihood.noise[i]
    single.mean_module.initialize(constant=model.mean_module.constant[i].item())
    return single.eval()


def test_two_outputs_equal_two_models(data):
    model, both = two_outputs(data)
    x = torch.rand(5, 2)
    posterior = model.eval().posterior(x)
    assert posterior.mean.shape == (5, 2)
    for i in range(2):
        single = single_of(model, data, both, i).posterior(x)
        assert single.mean.abs().max() > 0.05
        torch.testing.assert_close(posterior.mean[:, [i]], single.mean, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(
            posterior.variance[:, [i]], single.variance, rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize("outputs", [1, 2])
def test_condition_on_observations_equals_a_model_on_the_joined_data(data, outputs):
    if outputs == 2:
        model, y = two_outputs(data)
    else:
        model, y = single_task(*data), data[1]
    x = data[0]
    test_x, new_x, new_y = torch.rand(5, 2), torch.rand(3, 2), torch.rand(3, outputs)
    model.eval().posterior(test_x)
    conditioned = model.condition_on_observations(new_x, new_y)
    joined = single_task(
        torch.cat([x, new_x]), torch.cat([y, new_y]), covar_module=deepcopy(model.covar_module)
    )
    joined.likelihood.load_state_dict(model.likelihood.state_dict())
    joined.mean_module.load_state_dict(model.mean_module.state_dict())
    actual, expected = conditioned.posterior(test_x), joined.eval().posterior(test_x)
    torch.testing.assert_close(actual.mean, expected.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(actual.variance, expected.variance, rtol=1e-3, atol=1e-5)


def test_fantasies_of_a_batch_equal_those_of_one(data):
    model = single_task(*data).eval()
    candidates, new_y = torch.rand(4, 2, 2), torch.rand(4, 2, 1)
    test_x = torch.rand(5, 2)
    model.posterior(test_x)
    together = model.condition_on_observations(candidates, new_y).posterior(test_x)
    alone = model.condition_on_observations(candidates[2], new_y[2]).posterior(test_x)
    torch.testing.assert_close(together.mean[2], alone.mean, rtol=1e-5, atol=1e-6)


def test_gradient_of_the_posterior_with_respect_to_x(data):
    model = single_task(*data).eval()
    model.requires_grad_(False)
    x = torch.rand(2, 2)
    model.posterior(x)

    def mean_and_variance(x):
        posterior = model.posterior(x)
        return posterior.mean, posterior.variance

    assert torch.autograd.gradcheck(mean_and_variance, (x.requires_grad_(),), atol=1e-4)


@pytest.mark.parametrize("outputs", [1, 2])
def test_refit_after_a_failure_samples_every_prior(data, outputs):
    model = two_outputs(data)[0] if outputs == 2 else single_task(*data)
    starts = []

    def fails_twice(mll, closure=None, **options):
        starts.append({n: p.detach().clone() for n, p in model.named_parameters()})
        if len(starts) < 3:
            raise NotPSDError("on purpose")
        with torch.no_grad():
            assert closure is None or closure()[0].isfinite().all()
        return OptimizationResult(fval=0.0, step=1, status=OptimizationStatus.SUCCESS, message="")

    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit_gpytorch_mll(mll, optimizer=fails_twice, max_attempts=3)
    assert len(starts) == 3
    for name, start in starts[0].items():
        if name.startswith("covar_module") and model.get_parameter(name).requires_grad:
            assert (start != starts[1][name]).all() and (starts[1][name] != starts[2][name]).all()
            flat = starts[1][name].flatten()
            assert flat.unique().numel() == flat.numel(), f"{name}: units start alike"
    assert model.posterior(torch.rand(3, 2)).mean.isfinite().all()


def test_samples_of_parameters_make_a_batch_of_models(data):
    """As fully Bayesian models do: a batch of samples next to expanded inputs."""
    x, y = data
    kernel = network()
    samples = {
        name: prior.sample((3, *closure(owner).shape)).clamp(0.05, 3.0)
        for name, owner, prior, closure, _ in kernel.named_priors()
    }
    singles = []
    for i in range(3):
        single = network()
        for name, owner, _, _, setting_closure in single.named_priors():
            setting_closure(owner, samples[name][i])
        singles.append(single)
    kernel.pyro_load_from_samples(samples)
    batched = single_task(x.expand(3, 12, 2), y.expand(3, 12, 1), covar_module=kernel).eval()
    batched.likelihood.noise = 0.1
    test_x = torch.rand(4, 2)
    posterior = batched.posterior(test_x)
    assert posterior.mean.shape == (3, 4, 1)
    for i, single in enumerate(singles):
        model = single_task(x, y, covar_module=single).eval()
        model.likelihood.noise = 0.1
        expected = model.posterior(test_x)
        torch.testing.assert_close(posterior.mean[i], expected.mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(posterior.variance[i], expected.variance, rtol=1e-3, atol=1e-5)
