import pickle

import numpy as np
import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms.input import Normalize
from botorch.models.transforms.outcome import Log, Standardize
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    BetaLikelihood,
    GaussianLikelihood,
    LaplaceLikelihood,
    Likelihood,
    PoissonLikelihood,
    SoftmaxLikelihood,
    StudentTLikelihood,
)
from gpytorch.mlls import ExactMarginalLogLikelihood, VariationalELBO
from gpytorch.settings import num_likelihood_samples

from gpytorch_nkn.fit import Session
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.models import VariationalNKNGP, fit_variational_gp
from gpytorch_nkn.models.sparse.fit_variational import _Gaussian
from tests.global_state import unchanged
from tests.models.small_models import data, moved

SMALL = "Linear4-Product2-Linear1"


def variational(n=60, number=8, **options):
    x, y = data(n=n)
    y = y + 0.1 * torch.randn_like(y)
    network = NeuralKernelNetwork.regression(2, wiring=SMALL)
    return VariationalNKNGP(x, y, **{"structure": network, "inducing_points": number} | options)


def fit(model, **options):
    return fit_variational_gp(model, **{"epochs": 2, "batch_size": 20, "start": None} | options)


def elbo(model):
    model.train()
    mll = VariationalELBO(model.likelihood, model.model, model.model.train_targets.size(0))
    torch.manual_seed(0)  # of the draws of a SoftmaxLikelihood
    with torch.no_grad(), num_likelihood_samples(400):
        output = model.model(model.model.train_inputs[0])
        density = mll.likelihood.expected_log_prob(model.model.train_targets, output).sum()
        return (density - model.model.variational_strategy.kl_divergence().sum()).item()


def test_posterior_equals_the_formula_of_the_book():
    model = moved(variational(outcome_transform=None))
    root, mean = 0.3 * torch.randn(8, 8), torch.randn(8)
    model._set_distribution(mean, root)  # no optimum
    mean, root = mean.numpy(), root.numpy()
    x, z = torch.rand(6, 2), model.inducing_points
    kernel = model.model.covar_module
    with torch.no_grad():
        kuu, ksu, kss = (kernel(*pair).to_dense().numpy() for pair in ((z, z), (x, z), (x, x)))
        prior = model.model.mean_module(x).numpy()
    factor = np.linalg.cholesky(kuu)
    s = factor @ root @ root.T @ factor.T  # of the inducing values: Hensman et al. (2013), eq. 4
    a = ksu @ np.linalg.inv(kuu)
    posterior = model.posterior(x)
    np.testing.assert_allclose(
        posterior.mean.detach().numpy()[:, 0], prior + a @ factor @ mean, rtol=1e-4, atol=1e-4
    )
    covariance = kss + a @ (s - kuu) @ a.T
    found = posterior.distribution.covariance_matrix.detach().numpy()
    np.testing.assert_allclose(found, covariance, rtol=1e-3, atol=1e-4)


def test_closed_form_is_the_highest_elbo_and_equals_the_bound():
    model = fit(variational())
    best = elbo(model)
    bound = model.collapsed().bound().item()
    assert best == pytest.approx(bound, abs=0.05 * 60)  # GPyTorch adds a jitter
    distribution = model.model.variational_strategy._variational_distribution
    for parameter in distribution.parameters():
        kept = parameter.data.clone()
        for sign in (1, -1):
            change = 0.03 * torch.randn_like(parameter)
            parameter.data += sign * (change.tril() if change.dim() == 2 else change)
            assert elbo(model) < best
            parameter.data.copy_(kept)


class _DrawnPoisson(Likelihood):
    """Without a quadrature, as a likelihood of one's own."""

    def forward(self, function_samples):
        return torch.distributions.Poisson(function_samples.exp())


# A likelihood and outcomes n x ... of latent values n x 1.
LIKELIHOODS = {
    "Bernoulli": (BernoulliLikelihood, lambda f: (f > 0.3 * torch.randn_like(f)).to(f)),
    "one class each": (BernoulliLikelihood, lambda f: torch.cat([f > 0, f < -1], -1).to(f)),
    "softmax": (
        lambda: SoftmaxLikelihood(num_classes=3, mixing_weights=False),
        lambda f: (f > -0.5).to(f) + (f > 0.5).to(f),
    ),
    "mixed softmax": (
        lambda: SoftmaxLikelihood(num_features=2, num_classes=3),
        lambda f: (f > -0.5).to(f) + (f > 0.5).to(f),
    ),
    "Poisson": (PoissonLikelihood, lambda f: torch.poisson((2 * f).exp())),
    "Poisson by draws": (_DrawnPoisson, lambda f: torch.poisson((2 * f).exp())),
    "Student": (StudentTLikelihood, lambda f: f + 0.2 * torch.randn_like(f) / torch.rand_like(f)),
    "beta": (BetaLikelihood, lambda f: (0.1 * torch.randn_like(f) + f).sigmoid()),
    "Laplace": (LaplaceLikelihood, lambda f: f + 0.2 * torch.randn_like(f)),
}


def of_likelihood(name, **options):
    torch.manual_seed(0)
    x, y = data(n=60)
    likelihood, outcomes = LIKELIHOODS[name]
    network = NeuralKernelNetwork.regression(2, wiring=SMALL)
    options = {"structure": network, "inducing_points": 8} | options
    return VariationalNKNGP(
        x, outcomes((y - y.mean()) / y.std()), likelihood=likelihood(), **options
    )


@pytest.mark.parametrize(
    "name", ["Bernoulli", "mixed softmax", "Poisson by draws", "beta", "Laplace"]
)
def test_any_likelihood_reaches_the_highest_elbo_of_gpytorch(name):
    model = of_likelihood(name)
    with unchanged(), num_likelihood_samples(200):
        fit(model, epochs=0)
    best = elbo(model)
    for parameter in model.strategy._variational_distribution.parameters():
        kept = parameter.data.clone()
        for sign in (1, -1):
            change = 0.1 * torch.randn_like(parameter)
            parameter.data += sign * (change.tril() if parameter.shape[-2:] == (8, 8) else change)
            assert elbo(model) < best
            parameter.data.copy_(kept)


def test_steps_on_all_rows_end_with_the_budget(monkeypatch):
    forward, calls = PoissonLikelihood.forward, []
    monkeypatch.setattr(
        PoissonLikelihood, "forward", lambda *values: calls.append(0) or forward(*values)
    )
    model = of_likelihood("Poisson")
    calls.clear()
    fit(model, epochs=0, budget=1e-9)
    assert len(calls) == 2  # at the start, and after one step


def test_counts_in_float32_whose_rates_underflow():
    x = torch.rand(60, 2, dtype=torch.float32)
    kernel = ScaleKernel(RBFKernel()).float().initialize(outputscale=900.0)
    options = {"structure": kernel, "inducing_points": 8, "likelihood": PoissonLikelihood()}
    model = fit(VariationalNKNGP(x, torch.poisson(9 * x[:, :1]), **options))
    assert model.model.covar_module.outputscale < 900


@pytest.mark.filterwarnings("ignore:The input to SoftmaxLikelihood")
@pytest.mark.parametrize("name", ["softmax", "mixed softmax"])
def test_probabilities_do_not_depend_on_the_number_of_points(name):
    """GPyTorch transposes the values of as many points as latent functions."""
    model, x = moved(of_likelihood(name)).eval(), torch.rand(5, 2)
    with num_likelihood_samples(20_000):
        all_five = model.predictive(x).probs.mean(0)
        for points in (x[:2], x[:3], x[:4].view(2, 2, 2)):
            observed = model.posterior(points, observation_noise=True).distribution
            for outcomes in (model.predictive(points), observed):
                found = outcomes.probs.mean(0).flatten(0, -2)
                torch.testing.assert_close(found, all_five[: len(found)], rtol=0, atol=0.02)


@pytest.mark.parametrize("name", ["one class each", "mixed softmax", "Student"])
def test_any_likelihood_is_trained_and_predicts_outcomes(name, short_start):
    model = of_likelihood(name)
    start = elbo(model.eval())
    fit(model, epochs=3, start="blocks", restarts=1)
    assert (best := elbo(model)) > start
    for parameter in model.likelihood.parameters():  # far from their starts
        for change in (1.0, -2.0, 1.0):
            parameter.data += change
            assert elbo(model) < best + 2
    (x,), y = model.model.train_inputs, model.model.train_targets
    outcomes = model.predictive(x)
    assert outcomes.log_prob(y).isfinite().all()
    copied = pickle.loads(pickle.dumps(model))
    torch.testing.assert_close(copied.posterior(x).mean, model.posterior(x).mean)
    joint = model.posterior(x.view(3, 20, 2)).mean.flatten(0, 1)
    torch.testing.assert_close(joint, model.posterior(x).mean)
    other = of_likelihood(name)
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other.posterior(x).variance, model.posterior(x).variance)
    if model.num_outputs > 1:
        with pytest.raises(NotImplementedError, match="cannot select some of its [23] outputs"):
            model.subset_output([0])


class _OwnGaussian(GaussianLikelihood):
    """A user's subclass."""


def test_predictions_of_outcomes_have_their_units_or_name_what_does():
    x = torch.rand(20, 2)
    y, options = 100 + 10 * x[:, :1], {"structure": "additive", "inducing_points": 5}
    for given in ({}, {"train_Yvar": torch.full_like(y, 4.0)}, {"likelihood": _OwnGaussian()}):
        model = VariationalNKNGP(x, 9 * y, **given, **options)
        model.load_state_dict(VariationalNKNGP(x, y, **given, **options).state_dict())
        scale = model.outcome_transform.stdvs
        torch.testing.assert_close(scale, y.std(0, keepdim=True))
        noise = 4.0 if "train_Yvar" in given else scale.item() ** 2 * model.likelihood.noise.item()
        mean, variance = model.predict(x[:4], observation_noise=True)
        torch.testing.assert_close(variance - model.predict(x[:4])[1], 0 * mean + noise)
        expected, found = model.posterior(x[:4], observation_noise=True), model.predictive(x[:4])
        torch.testing.assert_close(found.mean, expected.mean[:, 0])
        torch.testing.assert_close(found.covariance_matrix, expected.variance[:, 0].diag())
    model = VariationalNKNGP(x, y, outcome_transform=Log(), **options)
    with pytest.raises(NotImplementedError, match="affine outcome_transform, got Log: use"):
        model.predictive(x)
    assert model.posterior(x, observation_noise=True).rsample().isfinite().all()
    model = of_likelihood("Student")
    with pytest.raises(NotImplementedError, match="got a StudentTLikelihood: use predictive"):
        model.predict(x, observation_noise=True)
    assert model.predictive(x).log_prob(x[:, 0]).isfinite().all()
    model.outcome_transform = Standardize(1)
    with pytest.raises(NotImplementedError, match="use outcome_transform=None"):
        model.predictive(x)


@pytest.mark.parametrize(
    ("likelihood", "outcome"),
    [
        (BernoulliLikelihood(), 2.0),
        (SoftmaxLikelihood(num_classes=2, mixing_weights=False), 2.0),
        (PoissonLikelihood(), -1.0),
        (BetaLikelihood(), 1.5),
    ],
)
def test_outcomes_that_a_likelihood_does_not_allow_are_named(likelihood, outcome):
    x, y = torch.rand(5, 2), torch.full((5, 1), 0.0)
    for outputs in (1, 3):
        batched = StudentTLikelihood(batch_shape=torch.Size([2]))
        with pytest.raises(ValueError, match="^likelihood must return .* got a StudentT"):
            VariationalNKNGP(x, y.expand(-1, outputs), likelihood=batched, inducing_points=3)
    y[3] = outcome
    with pytest.raises(ValueError, match=f"train_Y must hold .* to {max(outcome, 0.0):.4g} for"):
        VariationalNKNGP(x, y, likelihood=likelihood, structure="additive", inducing_points=3)


def test_gradient_of_a_whole_batch_is_that_of_the_bound():
    model = moved(variational()).train()
    state = _Gaussian(model, Session())
    state.finish_epoch()
    gp = model.collapsed()
    owned = (gp.kernel, gp.mean_module, model.likelihood)
    parameters = tuple(p for part in owned for p in part.parameters()) + (gp.points,)
    # at the optimal distribution the bound moves as the expectation under it does
    loss = -gp.bound() - state.log_prior()
    expected = torch.autograd.grad(loss, parameters)
    state.rows = torch.arange(60)
    found = torch.autograd.grad(state.loss(), parameters)
    for own, gradient in zip(found, expected, strict=True):
        scale = gradient.abs().max().item()
        torch.testing.assert_close(own, gradient, rtol=1e-4, atol=1e-4 * scale)


def step(state, rows):
    """A natural gradient step while hyperparameters stand still."""
    state.rows = torch.arange(rows)
    state.loss()
    state.move_distribution()


def test_natural_gradient_steps_reach_the_optimum():
    model = moved(variational())
    state = _Gaussian(model, Session())
    state.finish_epoch()
    mean, precision = state.mean.clone(), state.precision.clone()
    state.set_distribution(torch.eye(8), torch.zeros(8))
    step(state, 60)
    torch.testing.assert_close(state.precision, 0.9 * torch.eye(8) + 0.1 * precision)
    first = state.precision - precision, state.mean - mean
    for _ in range(60):
        step(state, 60)
    last = state.precision - precision, state.mean - mean
    for before, after in zip(first, last, strict=True):  # a tenth less in each step
        assert after.norm() < 0.01 * before.norm()
    torch.testing.assert_close(last[0], 0.9**60 * first[0], rtol=1e-6, atol=1e-6)


def test_mini_batches_stand_for_all_rows():
    x, y = data(n=30)
    model = moved(VariationalNKNGP(x.repeat(4, 1), y.repeat(4, 1), inducing_points=6))
    state = _Gaussian(model, Session())
    state.finish_epoch()
    precision, shift = state.precision.clone(), state.shift.clone()
    step(state, 30)
    torch.testing.assert_close(state.precision, precision)
    torch.testing.assert_close(state.shift, shift)


def test_transforms_keep_the_constants_of_the_whole_table():
    x, y = data(n=40)
    model = VariationalNKNGP(
        5 * x - 1, y, structure="additive", inducing_points=10, input_transform=Normalize(2)
    )
    torch.testing.assert_close(model.model.train_targets.std(), torch.tensor(1.0))
    model.train()
    model((5 * x - 1)[:3])  # a mini-batch of a loop of the user's
    fit(model)
    plain = VariationalNKNGP(
        (x - x.min(0).values) / (x.max(0).values - x.min(0).values),
        y,
        structure="additive",
        inducing_points=10,
        outcome_transform=Standardize(1),
    )
    fit(plain)
    torch.testing.assert_close(
        model.predict(5 * x - 1)[0], plain.predict(plain.model.train_inputs[0])[0]
    )
    assert (model.predict(5 * x - 1)[0] - y).abs().mean() < 0.5 * y.std()


def test_the_objective_of_an_exact_gp_is_rejected():
    model = variational(number=6)
    with pytest.raises(TypeError, match="VariationalELBO.*got an ExactMarginalLogLikelihood"):
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model.model))


def test_the_loss_of_gpytorch_trains_it_too():
    model = variational(number=6)
    before = elbo(model)
    mll = VariationalELBO(model.likelihood, model.model, 60)
    fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 20}}, max_attempts=1)
    assert elbo(model) > before + 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": -1}, "epochs must be at least 0, got -1"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "got 0.0"),
        ({"start": "x"}, "got 'x'"),
    ],
)
def test_options_are_checked(options, message):
    model = variational(n=10)
    with pytest.raises(ValueError, match=message):
        fit(model, **options)
