from copy import deepcopy

import gpytorch
import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models.likelihoods.sparse_outlier_noise import SparseOutlierGaussianLikelihood
from botorch.models.transforms.input import AppendFeatures
from botorch.optim.utils import sample_all_priors
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import LinearKernel, RBFKernel, RFFKernel, RQKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from gpytorch.mlls import ExactMarginalLogLikelihood

from gpytorch_nkn.bo import fit_bo_model
from gpytorch_nkn.kernels import NeuralKernelNetwork, NonStationarySpectralKernel
from gpytorch_nkn.models import NKNSingleTaskGP, SpectralGP, StructureEnsembleGP
from tests.kernels.contract import trace
from tests.models.small_models import STRUCTURES, data, moved, structure_of


def columns_of(structure):
    return 1 if structure in ("time_series", "texture") else 2


def by_hand(model, x, y, noise, at, columns=slice(None)):
    """Posterior of one output by dense algebra: standardise, condition, undo it."""
    center, scale = y.mean(), y.std()
    kernel, mean = model.covar_module, model.mean_module.constant.detach()
    with torch.no_grad():
        of_data, cross, prior = (kernel(a, b).to_dense() for a, b in ((x, x), (at, x), (at, at)))
        inverse = torch.linalg.inv(of_data + noise * torch.eye(len(x)))
        weights = cross @ inverse
        posterior_mean = mean + weights @ ((y - center) / scale - mean)
        covariance = prior - weights @ cross.mT
    return center + scale * posterior_mean, scale**2 * covariance


@pytest.mark.parametrize("structure", [*STRUCTURES, RQKernel(), ScaleKernel(RQKernel())])
def test_posterior_equals_dense_algebra_by_hand(structure):
    x, y = data(d=columns_of(structure))
    model = moved(NKNSingleTaskGP(x, y, structure=structure_of(structure, x.size(-1))))
    at = torch.rand(4, x.size(-1))
    posterior = model.posterior(at)
    mean, covariance = by_hand(model, x, y[:, 0], model.likelihood.noise.item(), at)
    assert (mean - y.mean()).abs().max() > 0.1
    torch.testing.assert_close(posterior.mean[:, 0], mean, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(
        posterior.distribution.covariance_matrix, covariance, rtol=1e-6, atol=1e-8
    )


def test_a_ready_network_is_copied():
    x, y = data(m=2)
    for name in ("network", "scaled"):
        structure = structure_of(name, 2)
        before = deepcopy(structure.state_dict())
        one, other = (NKNSingleTaskGP(x, y[:, :1], structure=structure) for _ in range(2))
        torch.testing.assert_close(one.covar_module.state_dict(), before)
        kept = deepcopy(other.state_dict())
        fit_bo_model(one, fresh_starts=0, max_iterations=3)
        torch.testing.assert_close(other.state_dict(), kept)  # the next model of a loop, say
        torch.testing.assert_close(structure.state_dict(), before)
        both = NKNSingleTaskGP(x, y, structure=structure)
        assert both.covar_module.batch_shape == (2,) and structure.batch_shape == ()
    simplex = structure.base_kernel
    assert type(NKNSingleTaskGP(x, y[:, :1], structure=simplex).covar_module) is ScaleKernel
    kernel = RBFKernel()
    kernel.layers = 3  # an attribute of a user's class, which means nothing here
    assert type(NKNSingleTaskGP(x, y[:, :1], structure=kernel).covar_module) is RBFKernel


ERRORS = [
    (None, TypeError, "got NoneType"),
    ("optimisation", ValueError, "'optimization'.*got 'optimisation'"),
    ("time_series", ValueError, "one input column, got 2"),
    (NeuralKernelNetwork.optimization(3), ValueError, "fit 2 input columns.*needs 3 input columns"),
    (
        NeuralKernelNetwork.additive(2, batch_shape=torch.Size([3])),
        ValueError,
        r"batch shape .* \(2,\), got \(3,\)",
    ),
]


@pytest.mark.parametrize(("structure", "error", "message"), ERRORS)
def test_structures_that_do_not_fit(structure, error, message):
    with pytest.raises(error, match=message):
        NKNSingleTaskGP(*data(m=2), structure=structure)


def test_every_parameter_but_the_mean_has_a_prior_that_can_be_sampled():
    """As BoTorch's retries do; its mean has none either."""
    model = NKNSingleTaskGP(*data(m=2))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    sample_all_priors(model)
    after = dict(model.named_parameters())
    fixed = {name for name in after if bool((after[name] == before[name]).any())}
    assert fixed == {"mean_module.raw_constant"}
    for name in after.keys() - fixed:
        assert after[name].unique().numel() == after[name].numel(), f"{name}: equal starts"


@pytest.mark.parametrize("kind", [NKNSingleTaskGP, StructureEnsembleGP])
def test_columns_that_are_appended_at_prediction(kind):
    x, y = data(d=3)
    transform = AppendFeatures(torch.tensor([[0.2], [0.8]]).to(x))
    model = kind(x, y, input_transform=transform)
    at = torch.rand(3, 2).to(x)
    mean = model.posterior(at).mean
    assert mean.shape[-2:] == (6, 1)
    plain = kind(x, y)
    full = torch.cat([at, torch.full_like(at[:, :1], 0.8)], -1)
    torch.testing.assert_close(mean[..., 1::2, :], plain.posterior(full).mean)
    for wrong in (at[:, :1], torch.rand(3, 4).to(x)):
        with pytest.raises(ValueError, match="X must be ... x q x 3"):
            model.posterior(wrong)
    with pytest.raises(ValueError, match="X must be ... x q x 3"):
        model.condition_on_observations(at, y[:3])


def test_a_structure_that_leaves_columns_out_is_rejected():
    x = torch.rand(8, 4, dtype=torch.float64)
    y = x.sum(-1, keepdim=True)
    preset = NeuralKernelNetwork.additive(2)
    own = NeuralKernelNetwork(preset.primitives, preset.layers)
    with pytest.raises(ValueError, match=r"all 4 input columns, but ignore \{2, 3\}"):
        NKNSingleTaskGP(x, y, structure=own)
    chosen = NeuralKernelNetwork.additive(2, active_dims=(0, 3))
    assert NKNSingleTaskGP(x, y, structure=chosen).covar_module.active_dims.tolist() == [0, 3]


def test_fit_gpytorch_mll_trains_the_likelihood_of_the_mll(few_iterations):
    x, y = data()
    model, other = NKNSingleTaskGP(x, y), GaussianLikelihood().double()
    before = other.noise.item()
    fit_gpytorch_mll(
        ExactMarginalLogLikelihood(other, model), optimizer_kwargs={"options": {"maxiter": 5}}
    )
    with_options = other.noise.item()
    assert with_options != before
    other.noise = before
    fit_gpytorch_mll(ExactMarginalLogLikelihood(other, NKNSingleTaskGP(x, y)))
    assert other.noise.item() != before
    y[3] += 9  # BoTorch's optimiser trains noise that the trainer does not know
    other = SparseOutlierGaussianLikelihood(HomoskedasticNoise().double(), len(x), [3])
    start = other.noise_covar.rho[3].item()
    fit_gpytorch_mll(ExactMarginalLogLikelihood(other, NKNSingleTaskGP(x, y, likelihood=other)))
    assert other.noise_covar.rho[3] > start


@pytest.mark.parametrize("cls", [NKNSingleTaskGP, StructureEnsembleGP])
def test_arguments_that_the_prior_does_not_know_are_rejected_each_time(cls):
    model = cls(*data()).eval()
    points = model.transform_inputs(torch.rand(1, 4, 2))
    model(points)
    with pytest.raises(TypeError, match="weight"):
        model(points, weight=1.0)


@pytest.mark.parametrize("structure, outputs", [("time_series", 1), ("pairs", 1), ("spectral", 2)])
def test_predictions_can_be_traced(structure, outputs):
    columns = columns_of(structure)
    x = torch.rand(9, columns)
    y = torch.stack([torch.sin(4 * x.sum(-1)), x[:, 0] ** 2][:outputs], -1)
    model = NKNSingleTaskGP(x, y, structure=structure).eval()

    def moments(model, x):
        # BoTorch's posterior of several outputs keeps the number of points that were traced
        found = [model(x), *([model.posterior(x)] if outputs == 1 else [])]
        return tuple(moment for one in found for moment in (one.mean, one.variance))

    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        with gpytorch.settings.trace_mode():
            moments(model, torch.rand(4, columns))  # what predictions share
            traced = trace(model, moments, torch.rand(4, columns))
        for number in (4, 7):
            points = torch.rand(number, columns)
            torch.testing.assert_close(traced(points), moments(model, points))


@pytest.mark.parametrize(
    "kernel",
    [
        LinearKernel(),
        ScaleKernel(RFFKernel(20, num_dims=2)).double(),
        NonStationarySpectralKernel(3, 2).double(),
    ],
    ids=["linear", "features", "spectral"],
)
@pytest.mark.parametrize("cls", [NKNSingleTaskGP, SpectralGP])
def test_kernels_with_their_own_prediction_strategy_equal_dense_algebra(cls, kernel):
    x, y = data()
    model = cls(x, y[:, :1])
    model.covar_module = deepcopy(kernel)
    model, at = model.eval(), torch.rand(5, 2)
    noise = model.likelihood.noise.detach()
    mean, covariance = by_hand(model, x, y[:, 0], noise, at)
    posterior = model.posterior(at)
    torch.testing.assert_close(posterior.mean[:, 0], mean)
    torch.testing.assert_close(
        posterior.variance[:, 0], covariance.diagonal(), rtol=1e-4, atol=1e-6
    )


def test_a_sum_of_linear_kernels_is_a_structure():
    x, y = data()
    structure = LinearKernel(active_dims=[0]) + LinearKernel(active_dims=[1])
    model = NKNSingleTaskGP(x, y[:, :1], structure=structure)
    assert model.covar_module(x).shape == 2 * x.shape[:1]


class Trended(NKNSingleTaskGP):
    """A model whose prior is its own, for which GPyTorch joins the covariances."""

    def forward(self, x):
        prior = super().forward(x)
        return MultivariateNormal(prior.mean + x[..., 0], prior.lazy_covariance_matrix)


@pytest.mark.parametrize(
    "shape, m", [((1,), 2), ((4,), 1), ((3, 1), 1), ((2, 3, 2), 2), ((600,), 1)]
)
def test_covariances_are_those_that_gpytorch_computes(shape, m):
    x, y = data(m=m)
    points = torch.rand(*shape, 2, requires_grad=True)
    found = []
    for cls, targets, trend in (
        (Trended, y, 0.0),
        (NKNSingleTaskGP, y - x[:, :1], points[..., :1]),
    ):
        posterior = moved(cls(x, targets, outcome_transform=None)).posterior(points)
        mean, covariance = posterior.mean + trend, posterior.distribution.covariance_matrix
        value = mean.sum() + covariance.square().sum() + posterior.variance.sum()
        found.append((mean, covariance, torch.autograd.grad(value, points)[0]))
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-7, atol=1e-9)
