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


def models():
    x, y = seasonal_data()
    fixed = FixedNoiseGaussianLikelihood(0.01 + 0.1 * torch.rand(40))
    gamma = network_model()
    gamma.covar_module.primitives[0].register_prior(
        "lengthscale_prior", GammaPrior(3.0, 6.0), lambda k: k.lengthscale
    )
    return {
        "priors": network_model(),
        "no priors": network_model(priors=False),
        "another prior": gamma,
        "fixed noise": SmallGP(x, y, NeuralKernelNetwork.time_series(), fixed),
        "BoTorch": SingleTaskGP(100 * x, y.unsqueeze(-1)),
    }


NAMES = ["priors", "no priors", "another prior", "fixed noise", "BoTorch"]


@pytest.mark.parametrize("name", NAMES)
def test_value_and_gradient_equal_gpytorchs(name):
    assert list(models()) == NAMES
    model = models()[name]
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


def test_outputs_are_summed():
    x, y = seasonal_data()
    targets = torch.stack([y, y.square()], -1)
    model = SingleTaskGP(x, targets, outcome_transform=None)
    singles = [SingleTaskGP(x, targets[:, [i]], outcome_transform=None) for i in (0, 1)]
    for single in singles:
        for name, parameter in single.named_parameters():
            parameter.data.copy_(model.get_parameter(name).data[0].view_as(parameter))
    model.train()
    expected = sum(Objective(single.train())().sum() for single in singles)
    torch.testing.assert_close(Objective(model)().sum(), expected)


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
