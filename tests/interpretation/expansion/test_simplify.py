import io
import math
import pickle

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import LinearKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from scipy.stats import multivariate_normal, norm

from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.interpretation.expansion.candidates import (
    Part,
    as_gpytorch,
    as_network,
    gpytorch_sum,
)
from gpytorch_nkn.interpretation.expansion.simplify import simplify
from gpytorch_nkn.kernels import (
    CenteredLinearKernel,
    ComplexExponentialKernel,
    NeuralKernelNetwork,
    SpectralComponentKernel,
    ZeroMeanPeriodicKernel,
)
from gpytorch_nkn.layers import Linear, Product
from tests.interpretation.small_models import GP


def squared_exponential(d, lengthscale):
    return np.exp(-0.5 * (d / lengthscale) ** 2)


def periodic(d, period, lengthscale):
    return np.exp(-2 * np.sin(np.pi * d / period) ** 2 / lengthscale)


def draw(covariance, seed, noise=0.1):
    rng = np.random.default_rng(seed)
    n = len(covariance)
    # not rng.multivariate_normal, whose eigenvectors are not the same on all machines
    return np.linalg.cholesky(covariance + noise**2 * np.eye(n)) @ rng.standard_normal(n)


def covariance_of_cycle_and_trend(t):
    d = t[:, None] - t
    return squared_exponential(d, 25) + periodic(d, 12, 1.0)


def cycle_and_trend(seed, n=84):
    t = np.arange(float(n))
    return t, draw(covariance_of_cycle_and_trend(t), seed)


@pytest.fixture(scope="module")
def forecaster():
    t, y = cycle_and_trend(3)
    kernels = [RBFKernel(), PeriodicKernel(), LinearKernel()]
    return NKNForecaster(
        NeuralKernelNetwork(kernels, [Linear(3, 4), Product(4, 2), Linear(2, 1)]),
        transform="identity",
        outliers="keep",
        restarts=1,
        recipe=Recipe(adam_steps=30, lbfgs_iterations=20),
        random_state=0,
    ).fit(t, 5 + 3 * y)


@pytest.fixture(scope="module")
def simple(forecaster):
    return simplify(forecaster, max_candidates=2)


def families(result):
    return sorted("*".join(sorted(term.signature)) for term in result.terms)


def test_a_cycle_and_a_trend_are_found(simple):
    assert families(simple) == ["PER[0]", "RBF[0]"]
    labels = {term.label[:3]: float(term.label[4:-1]) for term in simple.terms}
    assert labels["PER"] == pytest.approx(12, rel=0.03) and 12 < labels["RBF"] < 50
    text = str(simple)
    assert "a cycle of 12.0" in text and "variation over" in text
    assert simple.loss == simple.network_log_density - simple.log_density < 0.05


def test_criterion_is_the_bic_of_the_kernel_that_is_returned(simple):
    model = simple.model
    x, y = model.train_inputs[0], model.train_targets
    with torch.no_grad():
        covariance = simple.kernel(x).to_dense() + model.likelihood.noise * torch.eye(len(y))
        likelihood = multivariate_normal.logpdf(y, model.mean_module(x), covariance)
    parameters = {"LIN": 1, "PER": 3, "RBF": 2, "RQ": 3}  # a scale and, but for LIN, its own
    # slope, level and noise beside the parameters of the terms
    free = 3 + sum(parameters[term.label.split("(")[0]] for term in simple.terms)
    assert free == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert simple.bic == pytest.approx(likelihood - 0.5 * free * math.log(len(y)), abs=1e-4)


def test_log_density_is_that_of_refits_without_each_block(simple, forecaster):
    model = simple.model
    x, y = model.train_inputs[0], model.train_targets
    with torch.no_grad():
        k = (simple.kernel(x).to_dense() + model.likelihood.noise * torch.eye(len(y))).numpy()
        residual = (y - model.mean_module(x)).numpy()
    total = 0.0
    for block in np.array_split(np.arange(len(y)), 8):
        rest = np.setdiff1d(np.arange(len(y)), block)
        gain = np.linalg.solve(k[np.ix_(rest, rest)], k[np.ix_(rest, block)])
        variance = np.diag(k[np.ix_(block, block)] - gain.T @ k[np.ix_(rest, block)])
        total += norm.logpdf(residual[block], gain.T @ residual[rest], np.sqrt(variance)).sum()
    expected = total / len(y) - math.log(forecaster.y_scale_)
    assert simple.log_density == pytest.approx(expected, abs=1e-6)


class WithoutThisPackage(pickle.Unpickler):
    def find_class(self, module, name):
        assert not module.startswith("gpytorch_nkn"), module
        return super().find_class(module, name)


def test_kernel_works_and_unpickles_without_this_package(simple):
    kernel = WithoutThisPackage(io.BytesIO(pickle.dumps(simple.kernel))).load()
    x = torch.tensor([[0.1], [0.7]])
    torch.testing.assert_close(kernel(x).to_dense(), simple.kernel(x).to_dense())
    assert all(
        type(m).__module__.startswith(("gpytorch.", "torch.")) for m in simple.kernel.modules()
    )
    with pytest.raises(AssertionError, match="gpytorch_nkn"):
        WithoutThisPackage(io.BytesIO(pickle.dumps(simple.terms[0]))).load()
    assert list(simple.kernel.named_priors()) == []
    pickle.loads(pickle.dumps(simple))


def test_single_task_gp_keeps_its_transforms_and_finds_the_columns():
    torch.manual_seed(1)
    x = 10 * torch.rand(70, 3)
    y = (torch.sin(x[:, 0]) + 0.3 * x[:, 2] + 0.05 * torch.randn(70)).unsqueeze(-1) * 7 + 40
    kernel = NeuralKernelNetwork.additive(3, wiring="Linear4-Product2-Linear1")
    model = SingleTaskGP(
        x[:50], y[:50], covar_module=kernel, input_transform=Normalize(3),
        outcome_transform=Standardize(1),
    )  # fmt: skip
    recipe = Recipe(adam_steps=30, lbfgs_iterations=10)
    fit_best_of(model, restarts=1, recipe=recipe, progress=False)
    result = simplify(model, max_candidates=2)
    assert isinstance(result.model.outcome_transform, Standardize)
    mean = result.model.posterior(x[50:]).mean
    assert (mean - y[50:]).square().mean() < 0.05 * y[50:].var()
    assert {c for term in result.terms for c in term.columns} == {0, 2}
    assert "Leave-one-out" in str(result)


def test_a_kernel_over_all_columns_loses_those_that_are_not_needed():
    x = torch.rand(30, 3)
    y = 6 * (x[:, :1] - 0.5) * (x[:, 2:] - 0.5) + 0.02 * torch.randn(30, 1)
    network = NeuralKernelNetwork.optimization(3)
    network.layers[-1].weight = torch.tensor([[0.01, 0.01, 0.03, 0.03, 0.03, 0.85]])
    model = SingleTaskGP(x, y, covar_module=ScaleKernel(network))
    model.likelihood.noise = 0.01
    result = simplify(model, max_terms=1, max_candidates=1)
    assert [term.columns for term in result.terms] == [frozenset({0, 2})]
    assert result.terms[0].label.startswith("MATERN5/2[x0, x2](")


def test_terms_without_a_counterpart_are_rejected():
    x = torch.linspace(-1, 1, 12)[:, None]

    class OwnKernel(RBFKernel):
        pass

    with pytest.raises(ValueError, match="GPyTorch.s kernels can represent, got .*Own"):
        simplify(GP(x, x[:, 0].sin(), OwnKernel()))


def test_network_and_stock_kernel_have_the_value_of_the_formula():
    per = PeriodicKernel().initialize(period_length=0.9, lengthscale=0.6)
    rbf = RBFKernel().initialize(lengthscale=0.7)
    linear = LinearKernel().initialize(variance=1.0)
    linear.raw_variance.requires_grad_(False)
    parts = Part(0.5, (per, rbf)), Part(2.0, (linear,)), Part(0.3, ()), Part(0.1, (linear, rbf))
    x, z, like = torch.randn(6, 1), torch.randn(4, 1), torch.zeros(())
    d, product = (x - z.T).numpy(), (x @ z.T).numpy()
    smooth = squared_exponential(d, 0.7)
    expected = 0.5 * periodic(d, 0.9, 0.6) * smooth + 2 * product + 0.3 + 0.1 * product * smooth
    network, trained = as_network(parts, like)
    for kernel in (network, gpytorch_sum(parts, like), gpytorch_sum(trained(), like)):
        torch.testing.assert_close(kernel(x, z).to_dense(), torch.as_tensor(expected))
    assert [part.num_parameters for part in parts] == [4, 1, 1, 2]


def test_kernels_of_this_package_become_gpytorchs():
    zero_mean = ZeroMeanPeriodicKernel().initialize(period_length=1.3, lengthscale=0.4)
    gpytorch = as_gpytorch(zero_mean, 1)
    assert type(gpytorch) is PeriodicKernel and gpytorch.period_length.item() == pytest.approx(1.3)
    assert gpytorch.lengthscale.item() == pytest.approx(0.4)
    assert type(as_gpytorch(CenteredLinearKernel(), 1)) is LinearKernel
    complex_kernel = ComplexExponentialKernel()
    complex_kernel.frequency.data.fill_(2.5)
    x = torch.randn(5, 1)
    cosine = as_gpytorch(complex_kernel, 1)(x).to_dense()
    torch.testing.assert_close(cosine, torch.cos(2.5 * (x - x.T)))
    assert as_gpytorch(complex_kernel, 2) is None  # the cosine of a sum, not of a distance
    with_prior = NeuralKernelNetwork.time_series().primitives[0]
    assert list(with_prior.named_priors()) and not list(as_gpytorch(with_prior, 1).named_priors())
    assert as_gpytorch(RBFKernel(active_dims=(0, 1)), 2).active_dims is None
    assert as_gpytorch(RBFKernel(active_dims=(1,)), 2).active_dims.tolist() == [1]
    assert as_gpytorch(SpectralComponentKernel(), 1) is None


def test_zero_mean_keeps_periodic_kernels_without_their_constant_part():
    x = torch.linspace(-1.7, 1.7, 36).unsqueeze(-1)
    y = 1.2 * x[:, 0] + torch.sin(12 * x[:, 0]) * torch.exp(-(x[:, 0] ** 2))
    y = y + 0.05 * torch.randn(36)
    kernel = ScaleKernel(RBFKernel() * PeriodicKernel()) + LinearKernel()
    kernel.kernels[0].base_kernel.kernels[1].period_length = 0.52
    model = GP(x, y, kernel, GaussianLikelihood().initialize(noise=0.01))
    found = simplify(model, zero_mean=True, max_candidates=3)
    factors = [factor for term in found.terms for factor in term.factors]
    assert any(isinstance(factor, ZeroMeanPeriodicKernel) for factor in factors)
    assert not any(isinstance(factor, PeriodicKernel) for factor in factors)
    assert ("LIN",) in {tuple(words.split("[")[0] for words in t.signature) for t in found.terms}
    torch.testing.assert_close(  # what is said to be the kernel is that of the model
        found.kernel(x).to_dense(), found.model.covar_module(x).to_dense()
    )
