import copy
import pickle

import pytest
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    BetaLikelihood,
    GaussianLikelihood,
    PoissonLikelihood,
    SoftmaxLikelihood,
    StudentTLikelihood,
)
from gpytorch.means import ConstantMean
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.models import LaplaceGP, laplace_gp as module


class Logistic(BernoulliLikelihood):
    """The link of the parent is another one."""

    def forward(self, function_samples, *args, **kwargs):
        return torch.distributions.Bernoulli(logits=function_samples)


torch.manual_seed(0)
X = torch.randn(30, 2, dtype=torch.float64)
SIGNAL = torch.sin(2 * X[:, 0]) + X[:, 1]
NOISY = SIGNAL + 0.3 * torch.randn(30, dtype=torch.float64)
WILD = torch.stack([NOISY, -NOISY]) + 4.0 * (torch.arange(30) % 9 == 0)
CASES = {
    "bernoulli": (BernoulliLikelihood, (NOISY > 0).double()),
    "several": (BernoulliLikelihood, torch.stack([(NOISY > 0), X[:, 0] > 0.5]).double()),
    "logistic": (Logistic, (NOISY > 0).double()),
    "poisson": (PoissonLikelihood, torch.poisson(SIGNAL.exp())),
    "student_t": (lambda: StudentTLikelihood().double().initialize(noise=0.05), WILD),
    "beta": (BetaLikelihood, torch.sigmoid(NOISY)),
    "gaussian": (GaussianLikelihood, NOISY),
}


def make(case, dtype=torch.float64):
    likelihood, targets = CASES[case]
    mean = ConstantMean(batch_shape=targets.shape[:-1])
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2)).double().initialize(outputscale=2.0)
    return LaplaceGP(X, targets, likelihood(), mean, kernel).to(dtype)


@pytest.mark.parametrize("case", CASES)
def test_evidence_is_the_formula_at_the_mode_and_has_the_gradient_of_differences(case, monkeypatch):
    monkeypatch.setattr(module, "_TOLERANCE", 1e-11)  # differences need an exact mode
    model = make(case)
    model.log_evidence().sum().backward()
    with torch.no_grad():
        latent = model.eval()(X).mean
        slope = torch.func.jacrev(lambda f: model.likelihood(f).log_prob(model.train_targets).sum())
        _, curvature = torch.func.jvp(slope, (latent,), (-torch.ones_like(latent),))
        curvature = curvature.clamp_min(0)
        covariance, mean = model.covar_module(X).to_dense(), model.mean_module(X)
        away = latent - mean
        white = torch.linalg.solve(covariance, away.unsqueeze(-1))[..., 0]
        logs = model.likelihood(latent).log_prob(model.train_targets).sum(-1)
        determinant = torch.logdet(torch.eye(30) + covariance * curvature.unsqueeze(-2))
        expected = logs - (away * white).sum(-1) / 2 - determinant / 2
        torch.testing.assert_close(model.train().log_evidence(), expected)
        ways = [torch.arange(1.0, p.numel() + 1).cos().view(p.shape) for p in model.parameters()]
        parts = list(zip(model.parameters(), ways, strict=True))
        ends = []
        for step in (1e-5, -2e-5):
            for parameter, way in parts:
                parameter += step * way
            ends.append(model.log_evidence().sum())
        slope = sum((parameter.grad * way).sum() for parameter, way in parts)
        torch.testing.assert_close(slope, (ends[0] - ends[1]) / 2e-5, rtol=1e-5, atol=1e-5)


def test_with_gaussian_noise_it_is_exact():
    model = make("gaussian")
    new = torch.randn(4, 2, dtype=torch.float64)
    noisy = model.covar_module(X).to_dense() + model.likelihood.noise * torch.eye(30)
    mean = model.mean_module(X)
    density = torch.distributions.MultivariateNormal(mean, noisy).log_prob(NOISY)
    torch.testing.assert_close(model.log_evidence(), density)
    cross = model.covar_module(new, X).to_dense()
    solved = torch.linalg.solve(noisy, cross.mT)
    posterior = model.eval()(new)
    torch.testing.assert_close(posterior.mean, model.mean_module(new) + (NOISY - mean) @ solved)
    expected = model.covar_module(new).to_dense() - cross @ solved
    torch.testing.assert_close(posterior.covariance_matrix, expected)
    torch.testing.assert_close(posterior.variance, expected.diagonal())
    inverse = torch.linalg.inv(noisy)
    held_out = NOISY - (inverse @ (NOISY - mean)) / inverse.diagonal()
    torch.testing.assert_close(model.leave_one_out().mean, held_out)


def test_evidence_and_probabilities_match_scikit_learn():
    model = make("logistic")
    kernel = ConstantKernel(2.0) * RBF(
        model.covar_module.base_kernel.lengthscale.detach()[0].numpy()
    )
    peer = GaussianProcessClassifier(kernel, optimizer=None).fit(X, CASES["logistic"][1])
    expected = peer.log_marginal_likelihood(peer.kernel_.theta)
    assert model.log_evidence().item() == pytest.approx(expected, abs=1e-5)
    latent = model.eval()(X[:9])
    draws = latent.mean + latent.stddev * torch.randn(20_000, 9, dtype=torch.float64)
    ours = draws.sigmoid().mean(0).detach()
    torch.testing.assert_close(
        ours, torch.from_numpy(peer.predict_proba(X[:9])[:, 1]), atol=0.01, rtol=0
    )


def test_as_many_points_as_processes():
    kernel = ScaleKernel(RBFKernel(), batch_shape=torch.Size([2])).double()
    kernel.outputscale = torch.tensor([0.5, 2.0])
    likelihood, targets = CASES["several"]
    model = LaplaceGP(X, targets, likelihood(), ConstantMean(batch_shape=[2]).double(), kernel)
    found, expected = model.eval()(X[:2]), model(X[:3])
    torch.testing.assert_close(found.variance, expected.variance[:, :2])
    torch.testing.assert_close(found.covariance_matrix, expected.covariance_matrix[:, :2, :2])


def test_a_change_of_parameters_in_training_mode_changes_the_mode():
    found = []
    for used in (True, False):
        model = make("poisson")
        if used:
            model.leave_one_out()
        model.covar_module.outputscale = 20.0
        found.append(model.leave_one_out().mean)
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("case", ["several", "poisson"])
def test_leave_one_out_is_close_to_models_without_the_row(case):
    model = make(case).eval()
    found, given_all = model.leave_one_out().mean, model(X).mean
    errors, shifts = [], []
    for row in range(0, 30, 3):
        rest = torch.arange(30) != row
        model.set_train_data(X[rest], CASES[case][1][..., rest])
        exact = model(X[row : row + 1]).mean[..., 0]
        errors.append(found[..., row] - exact)
        shifts.append(given_all[..., row] - exact)
    assert torch.stack(errors).norm() < 0.3 * torch.stack(shifts).norm()


@pytest.mark.parametrize("case", ["several", "student_t"])
def test_fit_best_of_trains_it_and_copies_predict_alike(case):
    model = make(case)
    model.covar_module = NeuralKernelNetwork.tabular(2).double()
    result = fit_best_of(model, restarts=1, recipe=Recipe(adam_steps=0, lbfgs_iterations=6))
    record = result.restarts[result.best]
    assert record.loss < record.trace[0] - 1
    priors = sum(
        prior.log_prob(get(owner)).sum() for _, owner, prior, get, _ in model.named_priors()
    )
    posterior = model.train().log_evidence().sum() + priors
    assert record.loss == pytest.approx(-posterior.item())
    model.eval()
    expected = model(X[:3]).mean
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), make(case).eval()):
        other.covar_module = copy.deepcopy(model.covar_module)
        for parameter in other.parameters():
            parameter.data += 0.1
        moved = other(X[:3]).mean
        torch.testing.assert_close(moved, other.train().eval()(X[:3]).mean)
        other.load_state_dict(model.state_dict())
        torch.testing.assert_close(other(X[:3]).mean, expected)
    torch.testing.assert_close(model.float()(X[:3]).mean, expected.float(), rtol=1e-3, atol=2e-2)


@pytest.mark.parametrize("spread", [30.0, 1000.0])
def test_mode_is_near_targets_that_are_outliers_of_the_prior_mean(spread):
    kernel = ScaleKernel(RBFKernel()).double().initialize(outputscale=spread)
    kernel.base_kernel.lengthscale = 20.0
    likelihood = StudentTLikelihood(noise_constraint=Positive()).double().initialize(noise=1e-6)
    y = X[:, 0] + 5.0 * (torch.arange(30) % 9 == 8)
    model = LaplaceGP(X, y, likelihood, ConstantMean().double(), kernel).eval()
    torch.testing.assert_close(model(X).mean, X[:, 0], rtol=0, atol=0.05)


def test_wrong_data_and_likelihoods_are_rejected():
    model = make("bernoulli")
    for wrong in (X[:, :1], X[0]):
        with pytest.raises(ValueError, match=r"must be ... x M x \d, got shape"):
            model(wrong)
    with pytest.raises(ValueError, match="x must be finite, got NaN or infinite values: 60"):
        model(torch.nan * X)
    with pytest.raises(ValueError, match="must be N x D.*got shapes"):
        model.set_train_data(X[:5])
    with pytest.raises(ValueError, match="must be finite"):
        model.set_train_data(targets=torch.full((30,), torch.nan, dtype=torch.float64))
    with pytest.raises(ValueError, match="likelihood allows, got values from 1 to 2 for Bernoulli"):
        model.set_train_data(targets=1 + model.train_targets)
    with pytest.raises(TypeError, match="in this order, got RBFKernel as mean"):
        LaplaceGP(X, SIGNAL, model.likelihood, RBFKernel(), ConstantMean())
    with pytest.raises(NotImplementedError, match="one latent function, got a SoftmaxLikelihood"):
        LaplaceGP(X, SIGNAL, SoftmaxLikelihood(2, 2), ConstantMean(), RBFKernel())
