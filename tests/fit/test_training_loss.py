import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Warp
from gpytorch.constraints import GreaterThan, Interval, Positive
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import PolynomialKernel, RBFKernel, RQKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean, Mean, ZeroMean
from gpytorch.priors import GammaPrior, HalfCauchyPrior, LogNormalPrior, NormalPrior
from torch import nn

from gpytorch_nkn.fit.minimize import FlatParameters, Recipe, minimize
from gpytorch_nkn.fit.objective import Objective
from gpytorch_nkn.fit.training_loss import TrainingLoss, UnknownPartError
from gpytorch_nkn.kernels import (
    CenteredLinearKernel,
    ComplexExponentialKernel,
    NeuralKernelNetwork,
    SpectralComponentKernel,
    ZeroMeanPeriodicKernel,
)
from gpytorch_nkn.layers import Activation, Linear
from gpytorch_nkn.models import StructureEnsembleGP, fit_structure_ensemble_gp
from gpytorch_nkn.settings import kernel_evaluation
from tests.fit.closed_forms import (
    assert_same,
    check_loss_and_gradient,
    has_closed_form,
    loss_and_gradient,
    make,
    small_network,
    wide,
)
from tests.fit.models import SmallGP, network_model, rbf_model, seasonal_data
from tests.kernels.contract import perturb

pytestmark = pytest.mark.usefixtures("default_evaluation")


def frozen(*names):
    model = wide(mean=perturb(ConstantMean()))
    for name in names:
        model.get_submodule(name).requires_grad_(False)
    return model


def shared():
    kernel = RBFKernel()
    other = RQKernel()
    other.raw_lengthscale = kernel.raw_lengthscale
    return wide(small_network(kernel, kernel, other))


def other_priors():
    model = wide(NeuralKernelNetwork.regression(3, priors=False))
    first, second = model.covar_module.primitives[:2]
    first.register_prior("lengthscale_prior", GammaPrior(3.0, 6.0), "lengthscale")
    second.register_prior(
        "lengthscale_prior",
        LogNormalPrior(torch.zeros(3), torch.tensor([0.5, 1, 2])),
        "lengthscale",
    )
    model.mean_module.register_prior("constant_prior", NormalPrior(0.3, 2.0), "constant")
    model.likelihood.noise_covar.register_prior("noise_prior", GammaPrior(1.1, 5.0), "noise")
    return model


def frozen_with_priors():
    model = other_priors()
    model.covar_module.primitives[0].requires_grad_(False)
    model.likelihood.requires_grad_(False)
    return model


def two_priors_on_one_parameter():
    model = other_priors()
    model.covar_module.primitives[0].register_prior(
        "second_prior", NormalPrior(1.0, 1.0), "lengthscale"
    )
    return model


def fixed_noise(learned):
    noise = 0.01 + 0.1 * torch.rand(25)
    return wide(likelihood=FixedNoiseGaussianLikelihood(noise, learn_additional_noise=learned))


def classes_with_one_kernel():
    """Outputs whose noise differs in a few rows: one inverse and updates of low rank."""
    noise = torch.full((4, 25), 2.0)
    noise[torch.arange(25) % 4, torch.arange(25)] = 0.3 * torch.rand(25) + 0.1
    mean = perturb(ConstantMean(batch_shape=noise.shape[:1]))
    model = wide(mean=mean, likelihood=FixedNoiseGaussianLikelihood(noise))
    targets = model.train_targets + noise
    model.set_train_data(targets=targets, strict=False)
    return model


def activations():
    layers = [Linear(2, 2), Activation(2, [0.1, 1.0, 0.3]), Linear(2, 1), Activation(1, "exp")]
    kernels = [RBFKernel(ard_num_dims=3), ScaleKernel(CenteredLinearKernel().requires_grad_())]
    network = NeuralKernelNetwork(kernels, layers)
    network.layers[0].weight = 0.1
    return wide(network)


def spectral():
    """Frequencies have no constraint; one has a prior, one is frozen, one is shared by columns."""
    kernels = [
        SpectralComponentKernel(ard_num_dims=3),
        SpectralComponentKernel(ard_num_dims=3),
        ScaleKernel(SpectralComponentKernel(active_dims=(2, 0))),
    ]
    kernels[0].frequency.requires_grad_(False)
    kernels[1].register_prior("frequency_prior", NormalPrior(0.0, 2.0), "frequency")
    return wide(small_network(*kernels, RBFKernel()))


def extreme():
    """Raw values beyond which softplus is the identity, and where it is nearly zero."""
    model = wide()
    model.covar_module.primitives[0].raw_lengthscale.data.copy_(torch.tensor([25.0, 19.5, 40.0]))
    model.covar_module.layers[0].raw_weight.data[0] = -40.0
    return model


def frozen_linear_mean():
    model = wide(mean=perturb(LinearMean(3)))
    model.mean_module.weights.requires_grad_(False)
    return model


KNOWN = {
    "zero-mean periodic": lambda: wide(
        small_network(ZeroMeanPeriodicKernel(active_dims=(0,)), RBFKernel())
    ),
    "priors": network_model,
    "active dims": lambda: wide(
        small_network(RBFKernel(active_dims=(1,)), RQKernel(), active_dims=(2, 0))
    ),
    "activations": activations,
    "fixed center": lambda: wide(small_network(RBFKernel(), CenteredLinearKernel())),
    "spectral components": spectral,
    "zero mean": lambda: wide(mean=ZeroMean()),
    "fixed and learned noise": lambda: fixed_noise(True),
    "classes with one kernel": classes_with_one_kernel,
    "frozen kernel": lambda: frozen("covar_module"),
    "frozen primitive": lambda: frozen("covar_module.primitives.1", "covar_module.layers.2"),
    "frozen noise and mean": lambda: frozen("likelihood", "mean_module"),
    "frozen linear mean": frozen_linear_mean,
    "positive mean": lambda: wide(mean=ConstantMean(constant_constraint=Positive())),
    "shared modules": shared,
    "priors on what is frozen": frozen_with_priors,
    "two priors on one parameter": two_priors_on_one_parameter,
    "extreme values": extreme,
}


@pytest.mark.parametrize("name", KNOWN)
def test_loss_and_gradient_equal_the_objectives(name):
    model = make(KNOWN, name)
    check_loss_and_gradient(model)


class CubicMean(Mean):
    def __init__(self):
        super().__init__()
        self.register_parameter("factor", nn.Parameter(torch.ones(())))

    def forward(self, x):
        return self.factor * x[..., 0] ** 3


def with_prior(prior, closure):
    model = wide(NeuralKernelNetwork.regression(3, priors=False))
    model.covar_module.primitives[-1].register_prior("alpha_prior", prior, closure)
    return model


def constrained(constraint):
    return wide(small_network(RBFKernel(lengthscale_constraint=constraint), RQKernel()))


def prior_on_shares():
    layer = Linear(1, 1, weights="simplex")
    layer.register_prior("share_prior", NormalPrior(0.3, 0.1), lambda module: module.weight)
    return wide(NeuralKernelNetwork([RBFKernel()], [layer]))


UNKNOWN = {
    "another kernel": rbf_model,
    "another primitive": lambda: wide(small_network(RBFKernel(), PolynomialKernel(2))),
    "a complex primitive": lambda: wide(small_network(RBFKernel(), ComplexExponentialKernel())),
    "another mean": lambda: wide(mean=CubicMean()),
    "another prior": lambda: with_prior(HalfCauchyPrior(1.0), lambda k: k.alpha),
    "a transformed prior": lambda: with_prior(
        NormalPrior(0.0, 1.0, transform=torch.log), lambda k: k.alpha
    ),
    "a prior on a square": lambda: with_prior(GammaPrior(2.0, 3.0), lambda k: k.alpha**2),
    "a prior on a raw value": lambda: with_prior(NormalPrior(0.0, 1.0), lambda k: k.raw_alpha),
    "a prior on a part": lambda: with_prior(GammaPrior(2.0, 3.0), lambda k: k.lengthscale[..., :2]),
    "a prior on shares": prior_on_shares,
    "an interval": lambda: constrained(Interval(0.1, 5.0)),
    "another transform": lambda: constrained(
        GreaterThan(0.1, transform=torch.exp, inv_transform=torch.log)
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_parts_are_rejected_and_evaluated_by_autograd(name):
    objective = Objective(make(UNKNOWN, name))
    flat = FlatParameters(objective.model)
    before = flat.values.clone()
    with pytest.raises(UnknownPartError):
        TrainingLoss(objective.model, flat.values)
    assert torch.equal(flat.values, before)
    for _ in range(2):
        losses = flat.evaluate()
        assert_same((losses, flat.gradients), loss_and_gradient(objective))
        flat.values += 0.1
    assert not has_closed_form(objective.model)


def test_other_paths_are_not_overruled():
    objective = Objective(make(KNOWN, "priors"))
    flat = FlatParameters(objective.model)
    with kernel_evaluation("plain"):
        with pytest.raises(UnknownPartError, match="another evaluation setting"):
            TrainingLoss(objective.model, flat.values)
        assert_same((flat.evaluate(), flat.gradients), loss_and_gradient(objective))
        assert not has_closed_form(objective.model)


class UnusualGP(SmallGP):
    """A known model with a forward of its own."""

    def __init__(self, forward, **parameters):
        base = wide(mean=LinearMean(3))
        super().__init__(base.train_inputs[0], base.train_targets, base.covar_module)
        self.mean_module = base.mean_module
        self.own_forward = forward
        for name, value in parameters.items():
            self.register_parameter(name, nn.Parameter(torch.tensor(value)))

    def forward(self, x):
        return MultivariateNormal(*self.own_forward(self, x))


def warped():
    x = torch.rand(25, 3)
    warp = Warp(d=3, indices=[0, 1], bounds=torch.tensor([[0.0] * 3, [1.0] * 3]))
    kernel = NeuralKernelNetwork.regression(3)
    y = torch.sin(6 * x[:, :1])
    return SingleTaskGP(x, y, covar_module=kernel, input_transform=warp)


UNUSUAL = {
    "two inputs": lambda: UnusualGP(lambda m, x: (m.mean_module(x**2), m.covar_module(x))),
    "a scaled covariance": lambda: UnusualGP(
        lambda m, x: (m.mean_module(x), 2 * m.covar_module(x))
    ),
    "learned inputs": lambda: UnusualGP(
        lambda m, x: (m.mean_module(x), m.covar_module(x * m.scale)), scale=1.5
    ),
    "a shift that starts at zero": lambda: UnusualGP(
        lambda m, x: (m.mean_module(x) + m.shift * x[..., 0] ** 2, m.covar_module(x)), shift=0.0
    ),
    "a warp that is learned": warped,
    "no use of the mean": lambda: UnusualGP(lambda m, x: (0 * x[..., 0], m.covar_module(x))),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_models_are_not_trained_with_a_wrong_loss(name):
    objective = Objective(make(UNUSUAL, name))
    flat = FlatParameters(objective.model)
    for _ in range(2):
        losses = flat.evaluate()
        assert_same((losses, flat.gradients), loss_and_gradient(objective))
        flat.values += 0.2


class ClampedMean(SmallGP):
    """The prior mean stops at a bound that lies away from the start."""

    def forward(self, x):
        mean = self.mean_module(x).clamp(-0.5, 0.5)
        return MultivariateNormal(mean, self.covar_module(x))


class NoLittleNoise(SmallGP):
    error = ValueError

    def forward(self, x):
        if self.likelihood.noise.item() < 0.3:
            raise self.error("too little noise")
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class AnotherError(NoLittleNoise):
    error = TypeError


@pytest.mark.parametrize("make", [NoLittleNoise, AnotherError])
def test_a_model_that_fails_at_the_end_goes_back_to_where_it_did_not(make):
    x, y = seasonal_data(40)
    model = make(x, y, NeuralKernelNetwork.time_series(priors=False)).train()
    flat = FlatParameters(model)
    first = flat.evaluate()
    flat.values -= 1.0
    flat.evaluate()
    flat.best_loss, flat.best_values = flat.best_loss - 1, flat.values.clone()
    flat.release()
    assert flat.best_loss == pytest.approx(first)
    assert Objective(model)().item() == pytest.approx(first)


@pytest.mark.parametrize("make", [ClampedMean, NoLittleNoise])
def test_a_model_that_changes_on_the_way_is_trained_by_its_own_loss(make):
    x, y = seasonal_data(40)
    model = make(x, y + 3, NeuralKernelNetwork.time_series(priors=False)).train()
    flat = FlatParameters(model)
    flat.evaluate()
    assert flat.closed_form is not None
    minimize(flat, Recipe(100, 0.05, False, 0), lambda: None)
    flat.release()
    assert flat.best_loss == pytest.approx(Objective(model)().item(), rel=1e-6)


@pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")
def test_training_in_single_precision_keeps_its_best_point():
    """Rounding errors of the loss of almost noise-free data are not a wrong closed form."""
    x = torch.rand(14, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    y = 0.1 * (10 * x[:, :1]).sin() - (x - 0.3).square().sum(-1, keepdim=True)
    found = []
    for dtype in (torch.float64, torch.float32):
        model = StructureEnsembleGP(x.to(dtype), y.to(dtype), structures=("matern", "rbf"))
        fit_structure_ensemble_gp(model)
        found.append(model.posterior(x[:5].to(dtype) + 0.05).mixture_mean.detach().double())
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0.05 * float(y.std()))
