import gpytorch
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import GammaPrior

from gpytorch_nkn.fit.objective import Objective, check_model, log_prior
from gpytorch_nkn.kernels import NeuralKernelNetwork
from tests.fit.models import SmallGP, network_model, seasonal_data
from tests.multitask_models import KINDS, make_multitask


def gpytorch_loss(model):
    """GPyTorch's own, which divides by the number of points."""
    model.train()
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    with gpytorch.settings.fast_computations(False, False, False):
        value = mll(model(*model.train_inputs), model.train_targets, *model.train_inputs)
    return -value.sum() * model.train_targets.size(-1)


def another_prior():
    model = network_model()
    model.covar_module.primitives[0].register_prior(
        "lengthscale_prior", GammaPrior(3.0, 6.0), lambda k: k.lengthscale
    )
    return model


def fixed_noise():
    likelihood = FixedNoiseGaussianLikelihood(0.01 + 0.1 * torch.rand(40))
    return SmallGP(*seasonal_data(), NeuralKernelNetwork.time_series(), likelihood)


def botorch(*powers):
    x, y = seasonal_data()
    return SingleTaskGP(100 * x, torch.stack([y**power for power in powers], -1))


MODELS = {
    "priors": network_model,
    "another prior": another_prior,
    "fixed noise": fixed_noise,
    "BoTorch": lambda: botorch(1),
    "outputs": lambda: botorch(1, 2),
}


@pytest.mark.parametrize("name", MODELS)
def test_value_and_gradient_equal_gpytorchs(name):
    model = MODELS[name]()
    expected = gpytorch_loss(model)
    got = Objective(model)()
    torch.testing.assert_close(got.sum(), expected)
    parameters = [p for p in model.parameters() if p.requires_grad]
    torch.testing.assert_close(
        torch.autograd.grad(got.sum(), parameters),
        torch.autograd.grad(expected, parameters),
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_have_the_density_of_gpytorch(kind):
    model = make_multitask(kind).train()
    inputs = list(model.train_inputs)
    output = model.likelihood(model.forward(*inputs), inputs)
    expected = -output.log_prob(model.train_targets) - log_prior(model, model.train_targets)
    torch.testing.assert_close(Objective(model)(), expected)


@pytest.mark.parametrize("kind", ["module", "likelihood"])
def test_other_models_are_rejected(kind):
    model = torch.nn.Linear(1, 1)
    if kind == "likelihood":
        model = network_model()
        model.likelihood = gpytorch.likelihoods.StudentTLikelihood()
    with pytest.raises(TypeError, match="got (Linear|StudentTLikelihood)"):
        check_model(model)


def test_bad_data_are_rejected():
    model = network_model()
    model.set_train_data(targets=model.train_targets.clone().fill_(torch.nan))
    with pytest.raises(ValueError, match="training targets must be finite"):
        check_model(model)
    model.set_train_data(None, None, strict=False)
    model.train_inputs = None
    with pytest.raises(ValueError, match="no training data"):
        check_model(model)
