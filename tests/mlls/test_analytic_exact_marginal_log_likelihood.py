import math

import gpytorch
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import InducingPointKernel, Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.models import ExactGP
from gpytorch.priors import GammaPrior, NormalPrior
from linear_operator.utils.errors import NotPSDError

from gpytorch_nkn.kernels import NeuralKernelNetwork, NonStationarySpectralKernel
from gpytorch_nkn.layers import Linear
from gpytorch_nkn.mlls import AnalyticExactMarginalLogLikelihood, exact_log_density
from gpytorch_nkn.settings import kernel_evaluation
from tests.fit.models import SmallGP
from tests.kernels.contract import perturb
from tests.kernels.evaluation import networks

PATHS = ["auto", "plain", *networks.PATHS]
PATHS_HERE = ["auto", "plain", *networks.PATHS_HERE]


def data(n=12, dims=2):
    x = torch.randn(n, dims)
    return x, torch.sin(2 * x[:, 0]) + 0.3 * x[:, -1] + 0.1 * torch.randn(n)


def small(kernel, likelihood=None, mean=None, n=12):
    model = SmallGP(*data(n), perturb(kernel.double()), likelihood)
    if mean is not None:
        model.mean_module = mean
    return model


def regression(**options):
    return NeuralKernelNetwork.regression(2, **options)


def pairs(num_features=3, input_dim=2, **options):
    return NonStationarySpectralKernel(num_features, input_dim, correlation=0.3, **options)


def with_priors():
    model = small(regression())
    model.likelihood.register_prior(
        "noise_prior", GammaPrior(1.1, 0.05), lambda m: m.noise, lambda m, v: m._set_noise(v)
    )
    model.mean_module.register_prior("constant_prior", NormalPrior(0.0, 1.0), "constant")
    return model


def batch_model(shape, kernel=None):
    b = torch.Size(shape)
    x, y = torch.randn(*b, 9, 2), torch.randn(*b, 9)
    likelihood = GaussianLikelihood(batch_shape=b)
    kernel = regression(batch_shape=b) if kernel is None else kernel.double()
    model = SmallGP(x, y, perturb(kernel), likelihood)
    model.mean_module = gpytorch.means.ConstantMean(batch_shape=b)
    return model


def botorch(outputs, **options):
    x, y = data()
    targets = torch.stack([y + i * x[:, 0] for i in range(outputs)], -1)
    batch_shape = torch.Size([outputs]) if outputs > 1 else torch.Size()
    kernel = regression(batch_shape=batch_shape)
    return SingleTaskGP(
        x, (targets - targets.mean(0)) / targets.std(0), covar_module=kernel, **options
    )


def fixed_noise(learned, kernel=None):
    noise = 0.01 + 0.1 * torch.rand(12)
    likelihood = FixedNoiseGaussianLikelihood(noise, learn_additional_noise=learned)
    return small(regression() if kernel is None else kernel, likelihood)


MODELS = {
    "network": lambda: small(regression(priors=False)),
    "scaled": lambda: small(ScaleKernel(ScaleKernel(regression()))),
    "pairs": lambda: small(pairs()),
    "scaled pairs": lambda: small(ScaleKernel(pairs(features="phi"))),
    "more pairs than points": lambda: small(pairs(num_features=9)),
    "pairs of columns": lambda: small(pairs(input_dim=1, active_dims=(1,))),
    "pairs, linear mean": lambda: small(pairs(), mean=LinearMean(2)),
    "pairs, fixed and learned noise": lambda: fixed_noise(True, pairs()),
    "pairs, batch": lambda: batch_model([3], pairs(num_features=2, batch_shape=torch.Size([3]))),
    "sum": lambda: small(regression() + RBFKernel()),
    "product": lambda: small(regression() * RBFKernel()),
    "columns": lambda: small(NeuralKernelNetwork.time_series(active_dims=(1,))),
    "rbf": lambda: small(RBFKernel()),
    "priors": with_priors,
    "linear mean": lambda: small(regression(), mean=LinearMean(2)),
    "fixed noise": lambda: fixed_noise(False),
    "fixed and learned noise": lambda: fixed_noise(True),
    "batch": lambda: batch_model([3]),
    "batch of batches": lambda: batch_model([2, 1]),
    "SingleTaskGP": lambda: botorch(1),
    "SingleTaskGP with noise": lambda: botorch(2, train_Yvar=torch.full((12, 2), 0.04)),
    "one point": lambda: small(regression(), n=1),
    "300 points": lambda: small(regression(), n=300),
    "inducing points": lambda: small(
        InducingPointKernel(RBFKernel(), torch.randn(4, 2), GaussianLikelihood())
    ),
}
# How a network is evaluated does not depend on what is around it.
ON_EVERY_PATH = ["network", "sum", "columns", "batch"]


def value_and_gradients(cls, model, path="auto", inputs=()):
    model.train()
    mll = cls(model.likelihood, model)
    exactly = gpytorch.settings.fast_computations(False, False, False)
    with exactly, gpytorch.settings.cholesky_jitter(0.0, 0.0), kernel_evaluation(path):
        value = mll(model(*model.train_inputs), model.train_targets, *model.train_inputs)
        sources = dict(model.named_parameters()) | {str(i): x for i, x in enumerate(inputs)}
        sources = {name: source for name, source in sources.items() if source.requires_grad}
        weights = 0.5 + torch.arange(value.numel()).to(value).view(value.shape)
        total = (weights * value).sum()
        found = torch.autograd.grad(total, sources.values(), materialize_grads=True)
    return value.detach(), dict(zip(sources, found, strict=True))


def assert_same(ours, theirs, tolerance=1e-9):
    (value, gradients), (expected, expected_gradients) = ours, theirs
    torch.testing.assert_close(value, expected, rtol=tolerance, atol=tolerance)
    assert gradients.keys() == expected_gradients.keys()
    most = max(float(g.abs().max()) for g in expected_gradients.values())
    for name, gradient in expected_gradients.items():
        assert float((gradients[name] - gradient).abs().max()) <= tolerance * max(1.0, most), name


@pytest.mark.filterwarnings("ignore::gpytorch.utils.warnings.GPInputWarning")
@pytest.mark.parametrize("name", MODELS)
def test_value_and_gradients_equal_gpytorchs(name):
    model = MODELS[name]()
    expected = value_and_gradients(ExactMarginalLogLikelihood, model, "plain")
    for path in PATHS_HERE if name in ON_EVERY_PATH else ["auto"]:
        assert_same(value_and_gradients(AnalyticExactMarginalLogLikelihood, model, path), expected)


class _Warped(ExactGP):
    """Passes two equal tensors, which both depend on a parameter, to the kernel."""

    def __init__(self):
        x = torch.rand(25, 2) + 0.1
        super().__init__(x, x.sum(-1).sin(), GaussianLikelihood())
        self.mean_module = ConstantMean()
        primitives = [RBFKernel(), MaternKernel(2.5)]
        self.covar_module = NeuralKernelNetwork(primitives, [Linear(2, 1)])
        self.power = torch.nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        covariance = self.covar_module(x**self.power, x**self.power)
        return MultivariateNormal(self.mean_module(x), covariance)


def test_gradients_of_two_equal_inputs_that_depend_on_a_parameter():
    model = _Warped()
    expected = value_and_gradients(ExactMarginalLogLikelihood, model, "plain")
    assert expected[1]["power"].abs() > 1e-3
    for path in PATHS_HERE:
        ours = value_and_gradients(AnalyticExactMarginalLogLikelihood, model, path)
        assert_same(ours, expected, 1e-7)


@pytest.mark.parametrize("name", ["network", "sum"])
def test_train_inputs_that_require_gradients(name):
    model = MODELS[name]()
    x = model.train_inputs[0].detach().clone().requires_grad_()
    model.set_train_data(x, strict=False)
    expected = value_and_gradients(ExactMarginalLogLikelihood, model, "plain", [x])
    assert expected[1]["0"].abs().max() > 1e-3
    for path in PATHS_HERE:
        ours = value_and_gradients(AnalyticExactMarginalLogLikelihood, model, path, [x])
        # where points coincide, on the diagonal, GPyTorch's distances lose half of the digits
        assert_same(ours, expected, 1e-7)


@pytest.mark.parametrize("path", PATHS)
def test_missing_observations_are_gpytorchs(path):
    model = small(regression())
    model.train_targets[[2, 5]] = math.nan
    with gpytorch.settings.observation_nan_policy("mask"):
        expected = value_and_gradients(ExactMarginalLogLikelihood, model, "plain")
        ours = value_and_gradients(AnalyticExactMarginalLogLikelihood, model, path)
    assert expected[0].isfinite()
    assert_same(ours, expected)


class IndefiniteKernel(Kernel):
    def forward(self, x1, x2, diag=False, **params):
        distance = self.covar_dist(x1, x2, diag=diag, square_dist=True)
        return 1 + distance  # grows with the distance


@pytest.mark.parametrize(
    "kernel", [IndefiniteKernel, lambda: NeuralKernelNetwork([IndefiniteKernel()], [])]
)
@pytest.mark.parametrize("path", PATHS)
def test_an_indefinite_matrix_raises(kernel, path):
    model = SmallGP(*data(), kernel()).train()
    mll = AnalyticExactMarginalLogLikelihood(model.likelihood, model)
    with kernel_evaluation(path), pytest.raises(NotPSDError, match=r"12 x 12 .*positive definite"):
        mll(model(*model.train_inputs), model.train_targets)


@pytest.mark.parametrize(
    ("bad", "path"), [*((math.nan, path) for path in PATHS_HERE), (math.inf, "auto")]
)
def test_parameters_that_are_not_finite_raise(bad, path):
    model = small(regression()).train()
    model.covar_module.primitives[0].raw_lengthscale.data.fill_(math.nan)
    model.likelihood.raw_noise.data.fill_(bad)
    mll = AnalyticExactMarginalLogLikelihood(model.likelihood, model)
    with kernel_evaluation(path), pytest.raises(NotPSDError, match="not finite"):
        mll(model(*model.train_inputs), model.train_targets)


@pytest.mark.parametrize(
    "batch, path", [(((), (3,)), "auto"), (((3,), ()), "plain"), (((2, 1), (3,)), "auto")]
)
def test_exact_log_density_broadcasts_targets_and_covariances(batch, path):
    of_network, of_targets = (torch.Size(shape) for shape in batch)
    kernel, x = perturb(regression(batch_shape=of_network)), torch.randn(6, 2)
    target = torch.randn(*of_targets, 6)
    likelihood = GaussianLikelihood()
    with kernel_evaluation(path):
        prior = MultivariateNormal(torch.zeros(*of_network, 6), kernel(x))
        value = exact_log_density(likelihood(prior), target)
    with kernel_evaluation("plain"):
        covariance = kernel(x).to_dense() + likelihood.noise * torch.eye(6)
    expected = torch.distributions.MultivariateNormal(torch.zeros(6), covariance).log_prob(target)
    torch.testing.assert_close(value, expected)


def test_exact_log_density_of_an_indefinite_matrix_is_minus_infinity():
    prior = MultivariateNormal(torch.zeros(4), IndefiniteKernel()(torch.randn(4, 2)))
    assert exact_log_density(GaussianLikelihood()(prior), torch.randn(4)) == -math.inf


def test_one_target_is_not_that_of_every_row():
    output = MultivariateNormal(torch.zeros(4), torch.eye(4))
    for target in (torch.ones(1), torch.ones(2, 1), torch.ones(5)):
        with pytest.raises(ValueError, match=rf"target must be ... x 4, got .*{target.size(-1)}"):
            exact_log_density(output, target)
