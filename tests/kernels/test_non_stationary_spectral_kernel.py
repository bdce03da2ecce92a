import copy
import math

import gpytorch
import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel, RFFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import GammaPrior, NormalPrior
from linear_operator.operators import LowRankRootLinearOperator, RootLinearOperator

from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.kernels import (
    BivariateComplexExponentialKernel,
    NeuralKernelNetwork,
    NonStationarySpectralKernel,
)
from gpytorch_nkn.layers import Linear, Product
from gpytorch_nkn.mlls import AnalyticExactMarginalLogLikelihood

MANY = 200_000  # pairs, for expectations; their standard error is below 0.0023


def spread(kernel):
    """The kernel with parameters that differ, and a centre that matters."""
    for number, parameter in enumerate(kernel.parameters()):
        generator = torch.Generator().manual_seed(number)
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return kernel


def equation_5(kernel, x, y):
    """The paper's four waves of each pair, entry by entry."""
    z, v = ((t - kernel.center) / kernel.lengthscale for t in (x, y))
    values = torch.zeros(len(x), len(y))
    for first, second in zip(kernel.frequencies[0], kernel.frequencies[-1], strict=True):
        for i in range(len(x)):
            for j in range(len(y)):
                values[i, j] += (
                    math.cos(first @ z[i] - second @ v[j])
                    + math.cos(second @ z[i] - first @ v[j])
                    + math.cos(first @ (z[i] - v[j]))
                    + math.cos(second @ (z[i] - v[j]))
                )
    return kernel.outputscale * values / (4 * kernel.num_features)


@pytest.mark.parametrize("stationary", [False, True])
def test_psi_has_the_values_of_equation_5(stationary):
    kernel = spread(NonStationarySpectralKernel(7, 3, correlation=0.3, stationary=stationary))
    if not stationary:
        kernel.envelope_phases.data.zero_()
    x, y = torch.randn(5, 3), torch.randn(4, 3)
    expected = equation_5(kernel, x, y)
    torch.testing.assert_close(kernel(x, y).to_dense(), expected)
    torch.testing.assert_close(kernel(x).to_dense(), equation_5(kernel, x, x))
    diagonal = equation_5(kernel, x, x).diagonal()
    torch.testing.assert_close(kernel(x, diag=True), diagonal)
    assert torch.allclose(diagonal, kernel.outputscale) == stationary


def test_phases_of_envelopes_shift_the_waves_of_a_pair_apart():
    """Each pair as half the squared length of two unit phasors' sum."""
    kernel = spread(NonStationarySpectralKernel(7, 2, learn_envelopes=True, correlation=0.3))
    assert kernel.envelope_phases.requires_grad and kernel.envelope_phases.std() > 0.1
    x, y = torch.randn(5, 2), torch.randn(4, 2)

    def phasors(x):
        z = (x - kernel.center) / kernel.lengthscale
        first, second = z @ kernel.frequencies.mT
        first, second = first + kernel.envelope_phases, second - kernel.envelope_phases
        return torch.polar(torch.ones(()), first) + torch.polar(torch.ones(()), second)

    expected = (phasors(x) @ phasors(y).mH).real * kernel.outputscale / (4 * 7)
    torch.testing.assert_close(kernel(x, y).to_dense(), expected)
    symmetric = NonStationarySpectralKernel(7, 2, correlation=0.3)
    assert not symmetric.envelope_phases.requires_grad
    symmetric.half_differences.data.mul_(5.0)
    diagonal = symmetric(torch.stack([x, -x]), diag=True)
    torch.testing.assert_close(diagonal[0], diagonal[1])
    center = kernel.center
    diagonal = kernel(torch.stack([center + x, center - x]), diag=True)
    assert (diagonal[0] - diagonal[1]).abs().max() > 0.05


def test_phi_has_the_values_of_equation_6_with_shared_phases():
    kernel = spread(NonStationarySpectralKernel(7, 2, features="phi", correlation=0.3))
    kernel.envelope_phases.data.zero_()
    x = torch.randn(5, 2)
    z = (x - kernel.center) / kernel.lengthscale
    first, second = kernel.frequencies
    phi = (z @ first.T + kernel.phases).cos() + (z @ second.T + kernel.phases).cos()
    phi = phi * (kernel.outputscale / (2 * 7)).sqrt()
    torch.testing.assert_close(kernel.features(x), phi)
    torch.testing.assert_close(kernel(x).to_dense(), phi @ phi.T)


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_values_are_equation_5_integrated_over_a_gaussian_density(correlation):
    """E exp(i (w x - w' x')) = exp(-(|x|^2 + |x'|^2 - 2 r x x') / 2) for standard normal pairs."""
    kernel = NonStationarySpectralKernel(MANY, 2, correlation=correlation)
    kernel.initialize(center=torch.tensor([[0.5, -0.2]]), lengthscale=torch.tensor([[0.7, 1.9]]))
    kernel.outputscale = 1.3
    x, y = torch.randn(5, 2), torch.randn(4, 2)
    z, v = ((t - kernel.center) / kernel.lengthscale for t in (x, y))
    squares = z.square().sum(-1).unsqueeze(-1) + v.square().sum(-1)
    mixed = torch.exp(-(squares - 2 * correlation * z @ v.T) / 2)
    expected = 1.3 * (mixed + torch.exp(-(squares - 2 * z @ v.T) / 2)) / 2
    torch.testing.assert_close(kernel(x, y).to_dense(), expected, rtol=0.0, atol=0.01)
    stationary = RBFKernel(ard_num_dims=2).initialize(lengthscale=kernel.lengthscale)
    assert (1.3 * stationary(x, y).to_dense() - expected).abs().max() > 0.1


def test_psi_and_phi_agree_in_expectation_over_the_phases():
    x, y = torch.randn(5, 2), torch.randn(4, 2)
    psi = NonStationarySpectralKernel(MANY, 2, correlation=0.2)
    phi = NonStationarySpectralKernel(MANY, 2, correlation=0.2, features="phi")
    expected = psi(x, y).to_dense()
    assert expected.std() > 0.1
    torch.testing.assert_close(phi(x, y).to_dense(), expected, rtol=0.0, atol=0.01)


def test_independent_phases_as_in_the_paper_lose_what_is_not_stationary():
    kernel = NonStationarySpectralKernel(MANY, 1, correlation=0.0)
    x = torch.tensor([[0.0], [0.5], [3.0]])
    generator = torch.Generator().manual_seed(5)
    phases = 2 * math.pi * torch.rand(2, MANY, generator=generator)
    waves = (x @ kernel.frequencies.detach().mT + phases.unsqueeze(-2)).cos().sum(0)
    printed = waves @ waves.T / (2 * MANY)
    half = RBFKernel().initialize(lengthscale=1.0)(x).to_dense().detach() / 2
    torch.testing.assert_close(printed, half, rtol=0.0, atol=0.01)
    own = kernel(x).to_dense().diagonal().tolist()
    assert own[0] == pytest.approx(1.0) and own[2] == pytest.approx(0.5, abs=0.01)


def test_equal_frequencies_are_random_fourier_features():
    kernel = NonStationarySpectralKernel(9, 2, stationary=True)
    kernel.lengthscale = torch.tensor([[0.4, 1.3]])
    other = RFFKernel(9, num_dims=2, ard_num_dims=2).initialize(lengthscale=kernel.lengthscale)
    other.randn_weights = kernel.mean_frequencies.T.detach().clone()
    x, y = torch.randn(5, 2), torch.randn(4, 2)
    torch.testing.assert_close(kernel(x, y).to_dense(), other(x, y).to_dense())
    assert kernel.is_stationary
    pairs = NonStationarySpectralKernel(9, 2)
    assert not pairs.is_stationary
    pairs.initialize(frequencies=kernel.frequencies)
    pairs.lengthscale = kernel.lengthscale
    torch.testing.assert_close(pairs(x, y).to_dense(), kernel(x, y).to_dense())


def test_one_pair_is_the_bivariate_complex_exponential():
    kernel = NonStationarySpectralKernel(1, 3, correlation=0.1, learn_lengthscale=False)
    kernel.lengthscale = 1.0
    other = BivariateComplexExponentialKernel(ard_num_dims=3)
    other.initialize(frequencies=kernel.frequencies.squeeze(-2).detach())
    x, y = torch.randn(5, 3), torch.randn(4, 3)
    torch.testing.assert_close(kernel(x, y).to_dense(), other(x, y).to_dense())


def test_frequencies_of_a_pair_start_with_the_correlation_asked_for():
    first, second = NonStationarySpectralKernel(MANY, 1, correlation=0.6).frequencies.squeeze(-1)
    correlation = torch.corrcoef(torch.stack([first, second]))[0, 1].item()
    assert correlation == pytest.approx(0.6, abs=0.01)
    assert first.std().item() == pytest.approx(1.0, abs=0.01)
    assert second.std().item() == pytest.approx(1.0, abs=0.01)


def test_angular_frequencies_are_in_units_of_the_input():
    kernel = spread(NonStationarySpectralKernel(4, 2, batch_shape=torch.Size([3])))
    expected = kernel.frequencies / kernel.lengthscale.unsqueeze(-3)
    assert kernel.angular_frequencies.shape == (3, 2, 4, 2)
    torch.testing.assert_close(kernel.angular_frequencies, expected)


def test_seeds_differ_and_leave_the_random_state_alone():
    before = torch.get_rng_state()
    one, same, other = (NonStationarySpectralKernel(4, 2, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.frequencies, same.frequencies)
    assert not torch.allclose(one.frequencies, other.frequencies)


def test_what_is_trained():
    frequencies = {"mean_frequencies", "half_differences"}
    names = {*frequencies, "raw_lengthscale", "raw_outputscale"}

    def trained(**options):
        kernel = NonStationarySpectralKernel(4, 2, features="phi", **options)
        return {name for name, p in kernel.named_parameters() if p.requires_grad}

    assert trained() == names
    assert trained(learn_frequencies=False) == names - frequencies
    assert trained(learn_envelopes=True) == names | {"envelope_phases"}
    assert trained(learn_lengthscale=False) == names - {"raw_lengthscale"}
    assert NonStationarySpectralKernel(4, 2, ard=False).lengthscale.shape == (1, 1)
    assert NonStationarySpectralKernel(4, 2).lengthscale.shape == (1, 2)


def test_values_are_operators_of_low_rank():
    kernel = NonStationarySpectralKernel(3, 2)
    x = torch.randn(50_000, 2)
    operator = kernel(x).evaluate_kernel()  # 20 GB as a matrix
    assert isinstance(operator, LowRankRootLinearOperator)
    product = operator @ torch.ones(50_000, 1)
    assert product.shape == (50_000, 1)
    assert isinstance(kernel(x[:5]).evaluate_kernel(), RootLinearOperator)
    assert kernel.feature_dim == kernel.features(x).size(-1) == 6
    assert NonStationarySpectralKernel(3, 2, features="phi").feature_dim == 3


def test_priors_can_be_sampled_and_count():
    kernel = NonStationarySpectralKernel(
        4,
        2,
        frequency_prior=NormalPrior(torch.tensor(0.0), torch.tensor(1.0)),
        difference_prior=0.2,
        outputscale_prior=GammaPrior(2.0, 1.0),
        lengthscale_prior=GammaPrior(3.0, 1.0),
    )
    assert {name for name, *_ in kernel.named_priors()} == {
        "frequency_prior",
        "difference_prior",
        "outputscale_prior",
        "lengthscale_prior",
    }
    before = copy.deepcopy(kernel.state_dict())
    torch.manual_seed(0)
    kernel.sample_from_prior("frequency_prior")
    kernel.sample_from_prior("difference_prior")
    kernel.sample_from_prior("outputscale_prior")
    assert not torch.equal(kernel.mean_frequencies, before["mean_frequencies"])
    assert 0.05 < kernel.half_differences.std() < 0.5
    assert not torch.equal(kernel.raw_outputscale, before["raw_outputscale"])


@pytest.mark.parametrize("batch_shape", [(), (3,)])
def test_a_number_for_a_prior_is_a_deviation_from_the_start(batch_shape):
    kernel = NonStationarySpectralKernel(
        4, 2, frequency_prior=0.3, difference_prior=0.1, batch_shape=torch.Size(batch_shape)
    )
    start = kernel.mean_frequencies.detach().clone()
    kernel.mean_frequencies.data += 0.6
    kernel.half_differences.data.fill_(0.2)
    density = {}
    for name, _, prior, get, _ in kernel.named_priors():
        density[name] = prior.log_prob(get(kernel))
    for name, deviation in (("frequency_prior", 0.3), ("difference_prior", 0.1)):
        expected = -2.0 - math.log(deviation) - 0.5 * math.log(2 * math.pi)
        torch.testing.assert_close(
            density[name].view(start.shape), torch.full_like(start, expected)
        )


def test_pairs_can_be_set():
    kernel = NonStationarySpectralKernel(4, 2, batch_shape=torch.Size([3]))
    pairs = torch.randn(3, 2, 4, 2)
    kernel.initialize(frequencies=pairs)
    torch.testing.assert_close(kernel.frequencies, pairs)
    one = NonStationarySpectralKernel(4, 2, stationary=True)
    one.frequencies = pairs[0, :1].expand(2, -1, -1)
    torch.testing.assert_close(one.mean_frequencies, pairs[0, 0])
    with pytest.raises(ValueError, match="must be equal"):
        one.frequencies = pairs[0]


@pytest.mark.parametrize(
    ("error", "message", "arguments", "options"),
    [
        (TypeError, "num_features must be an integer", (2.0, 1), {}),
        (TypeError, "input_dim must be an integer", (2, True), {}),
        (ValueError, "num_features must be at least 1", (0, 1), {}),
        (ValueError, "input_dim must be at least 1, got -1", (2, -1), {}),
        (ValueError, "features must be one of", (2, 1), {"features": "cos"}),
        (ValueError, "correlation must be at least 0 and below 1", (2, 1), {"correlation": 1.0}),
        (
            ValueError,
            "no differences and no envelopes",
            (2, 1),
            {"stationary": True, "learn_envelopes": True},
        ),
        (TypeError, "frequency_prior must be a", (2, 1), {"frequency_prior": "normal"}),
        (ValueError, "deviation of a prior must be positive", (2, 1), {"frequency_prior": 0.0}),
        (ValueError, "no differences", (2, 1), {"stationary": True, "difference_prior": 1.0}),
        (TypeError, "outputscale_prior must be a", (2, 1), {"outputscale_prior": "gamma"}),
    ],
)
def test_errors(error, message, arguments, options):
    with pytest.raises(error, match=message):
        NonStationarySpectralKernel(*arguments, **options)


def test_a_wrong_number_of_columns_is_refused():
    kernel = NonStationarySpectralKernel(4, 2, ard=False)
    with pytest.raises(ValueError, match=r"inputs of 2 columns, got shape \(5, 3\)"):
        kernel(torch.randn(5, 3)).to_dense()
    with pytest.raises(ValueError, match="inputs of 2 columns"):
        kernel.features(torch.randn(5, 1))


def data(outputs=1, rows=40):
    x = 3 * torch.rand(rows, 3, generator=torch.Generator().manual_seed(0)) + 1
    y = torch.stack([x.sum(-1).sin(), 3 * x[:, 0], x[:, 1].cos()], -1)[:, :outputs]
    return x, y + 0.1 * torch.randn(y.shape, generator=torch.Generator().manual_seed(1))


def models():
    x, y = data()
    two, b = data(2)[1], torch.Size([2])
    kernel = NonStationarySpectralKernel
    yield "few", SingleTaskGP(x, y, covar_module=spread(kernel(6, 3)))
    yield "many", SingleTaskGP(x, y, covar_module=spread(kernel(60, 3)))
    phi = spread(kernel(20, 3, features="phi", correlation=0.3))
    yield "fixed noise", SingleTaskGP(x, y, 0.01 + 0.1 * y.square(), covar_module=phi)
    part = ScaleKernel(spread(kernel(6, 2, active_dims=(2, 0))))
    yield "scaled", SingleTaskGP(x, y, covar_module=part)
    yield "outputs", SingleTaskGP(x, two, covar_module=spread(kernel(6, 3, batch_shape=b)))
    scaled = ScaleKernel(spread(kernel(6, 3, batch_shape=b)), batch_shape=b)
    yield "scaled outputs", SingleTaskGP(x, two, covar_module=scaled)


MODELS = pytest.mark.parametrize("name", [name for name, _ in models()])


@MODELS
def test_predictions_are_those_of_dense_algebra(name):
    model = dict(models())[name].eval()
    for noise in model.likelihood.parameters():
        noise.data += 0.1
    x, targets = model.train_inputs[0], model.train_targets
    test = 3 * torch.rand(7, 3) + 1
    n = x.size(-2)
    joint = torch.cat([x.reshape(-1, n, 3)[0], test])
    covariance = model.covar_module(joint).to_dense()
    noisy = covariance[..., :n, :n] + torch.diag_embed(model.likelihood.noise.expand(targets.shape))
    gain = torch.linalg.solve(noisy, covariance[..., :n, n:]).mT
    center = model.mean_module(joint)
    mean = center[..., n:] + (gain @ (targets - center[..., :n]).unsqueeze(-1)).squeeze(-1)
    rest = covariance[..., n:, n:] - gain @ covariance[..., :n, n:]
    found = model(test.expand(*targets.shape[:-1], 7, 3))
    torch.testing.assert_close(found.mean, mean)
    torch.testing.assert_close(found.covariance_matrix, rest)
    with gpytorch.settings.max_cholesky_size(3):
        many = model(test.expand(*targets.shape[:-1], 7, 3)).lazy_covariance_matrix
    assert isinstance(many, RootLinearOperator)  # draws take the time of features, not of a factor
    torch.testing.assert_close(many.to_dense(), rest)


@MODELS
def test_marginal_likelihood_is_gpytorchs(name):
    model = dict(models())[name]
    parameters = [p for p in model.parameters() if p.requires_grad]
    values, gradients = [], []
    for cls in (ExactMarginalLogLikelihood, AnalyticExactMarginalLogLikelihood):
        mll = cls(model.likelihood, model).train()
        value = mll(model(*model.train_inputs), model.train_targets)
        values.append(value)
        gradients.append(torch.autograd.grad(value.sum(), parameters))
    torch.testing.assert_close(values[1], values[0])
    for own, expected in zip(*gradients[::-1], strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-6, atol=1e-9)


def test_the_marginal_likelihood_needs_no_matrix_of_the_data():
    x = torch.linspace(0, 1, 50_000).unsqueeze(-1)
    model = SingleTaskGP(x, (20 * x).sin(), covar_module=NonStationarySpectralKernel(4, 1))
    mll = AnalyticExactMarginalLogLikelihood(model.likelihood, model)
    value = mll(model(*model.train_inputs), model.train_targets)  # 20 GB otherwise
    value.backward()
    assert value.isfinite() and model.covar_module.mean_frequencies.grad.abs().sum() > 0
    assert model.posterior(x[:5]).variance.shape == (5, 1)


def test_fantasies_are_a_model_of_more_data():
    x, y = data()
    more_x, more_y = 3 * torch.rand(2, 3) + 1, torch.randn(2, 1)
    kernel = spread(NonStationarySpectralKernel(6, 3))
    model = SingleTaskGP(x, y, covar_module=kernel, outcome_transform=None).eval()
    test = 3 * torch.rand(5, 3) + 1
    model.posterior(test)  # fantasies start from what is cached
    fantasy = model.condition_on_observations(more_x, more_y).posterior(test)
    joint = SingleTaskGP(
        torch.cat([x, more_x]), torch.cat([y, more_y]), covar_module=kernel, outcome_transform=None
    ).eval()
    joint.likelihood.load_state_dict(model.likelihood.state_dict())
    expected = joint.posterior(test)
    torch.testing.assert_close(fantasy.mean, expected.mean)
    torch.testing.assert_close(fantasy.variance, expected.variance)


def test_posteriors_have_gradients_by_the_inputs():
    model = dict(models())["few"].eval()
    test = (3 * torch.rand(1, 3) + 1).requires_grad_()

    def moments(x):
        posterior = model.posterior(x)
        return posterior.mean.sum() + posterior.variance.sum()

    assert torch.autograd.gradcheck(moments, [test])


@pytest.mark.parametrize("fit", [fit_gpytorch_mll, None])
def test_fits_in_botorch_and_with_restarts(fit):
    x, y = data(rows=60)
    model = SingleTaskGP(x, y, covar_module=NonStationarySpectralKernel(8, 3))
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    with torch.no_grad():
        before = mll(model(*model.train_inputs), model.train_targets)
    if fit is None:
        recipe = Recipe(adam_steps=40, lbfgs_iterations=40)
        model = fit_best_of(model, restarts=2, seed=0, recipe=recipe).model.train()
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
    else:
        fit(mll, optimizer_kwargs={"options": {"maxiter": 40}}, warning_handler=lambda w: True)
        mll.train()
    with torch.no_grad():
        after = mll(model(*model.train_inputs), model.train_targets)
    assert after > before + 0.3
    error = model.eval().posterior(x).mean - y
    assert error.square().mean() < 0.1 * y.var()


def test_a_primitive_of_a_network():
    b = torch.Size([2])
    pairs = spread(NonStationarySpectralKernel(5, 3, batch_shape=b))
    rbf = RBFKernel(batch_shape=b)
    layers = [Linear(2, 4, batch_shape=b), Product(4, 2), Linear(2, 1, batch_shape=b)]
    network = NeuralKernelNetwork([pairs, rbf], layers)
    x, y = torch.randn(5, 3), torch.randn(4, 3)
    values = torch.stack([pairs(x, y).to_dense(), rbf(x, y).to_dense()])
    first, _, last = layers
    hidden = torch.einsum("bop,pbij->boij", first.weight, values) + first.bias[..., None, None]
    products = hidden.unflatten(1, (2, 2)).prod(2)
    expected = torch.einsum("bop,bpij->boij", last.weight, products) + last.bias[..., None, None]
    torch.testing.assert_close(network(x, y).to_dense(), expected.squeeze(1))


def test_in_a_variational_gp():
    class Variational(gpytorch.models.ApproximateGP):
        def __init__(self, points, kernel):
            distribution = gpytorch.variational.CholeskyVariationalDistribution(len(points))
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, distribution))
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = kernel

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    x, y = data(rows=60)
    model = Variational(x[:12].clone(), NonStationarySpectralKernel(8, 3))
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    mll = gpytorch.mlls.VariationalELBO(likelihood, model, len(x))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.05)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = -mll(model(x), y.squeeze(-1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.parametrize("policy", ["mask", "fill"])
def test_missing_observations_are_left_out(policy):
    x, y = data(2)
    b = torch.Size([2])
    kernel = spread(NonStationarySpectralKernel(6, 3, batch_shape=b))
    full = SingleTaskGP(x, y, covar_module=kernel, outcome_transform=None).eval()
    full.train_targets[1, [3, 17]] = torch.nan
    kept = [i for i in range(40) if i not in (3, 17)]
    fewer = SingleTaskGP(x[kept], y[kept], covar_module=kernel, outcome_transform=None).eval()
    test = torch.rand(5, 3) + 1
    with gpytorch.settings.observation_nan_policy(policy):
        posterior = full.posterior(test)
        mean, variance = posterior.mean, posterior.variance
    torch.testing.assert_close(mean[:, 1], fewer.posterior(test).mean[:, 1])
    torch.testing.assert_close(variance[:, 1], fewer.posterior(test).variance[:, 1])
    assert (variance[:, 0] < fewer.posterior(test).variance[:, 0]).all()


def test_gradients_flow_through_what_is_kept_if_they_are_to():
    model = dict(models())["scaled outputs"].eval()
    test = torch.rand(2, 5, 3) + 1
    expected = model(test)
    expected.mean.sum().backward()
    noise = model.likelihood.noise_covar.raw_noise
    assert noise.grad is None
    model.train().eval()  # forgets
    with gpytorch.settings.detach_test_caches(False):
        found = model(test)
        found.mean.sum().backward()
    torch.testing.assert_close(found.mean, expected.mean)
    torch.testing.assert_close(found.covariance_matrix, expected.covariance_matrix)
    step = 1e-6
    means = []
    for sign in (1, -1):
        noise.data += sign * step
        means.append(model.train().eval()(test).mean.sum((-2, -1)))
        noise.data -= sign * step
    torch.testing.assert_close(
        noise.grad.sum(), (means[0] - means[1]) / (2 * step), rtol=1e-4, atol=0
    )


def test_batches_of_fantasies():
    x, y = data()
    model = SingleTaskGP(
        x, y, covar_module=spread(NonStationarySpectralKernel(6, 3)), outcome_transform=None
    ).eval()
    test = 3 * torch.rand(4, 3) + 1
    model.posterior(test)
    more_x, more_y = 3 * torch.rand(2, 3) + 1, torch.randn(5, 2, 1)
    fantasies = model.condition_on_observations(more_x, more_y).posterior(test)
    assert fantasies.mean.shape == (5, 4, 1)
    for number in range(5):
        one = model.condition_on_observations(more_x, more_y[number]).posterior(test)
        torch.testing.assert_close(fantasies.mean[number], one.mean)
        torch.testing.assert_close(fantasies.variance[number], one.variance)
