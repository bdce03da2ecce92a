"""Errors with a preset in place of GPyTorch's RBF kernel, where inputs are learned or raw.

``python -m benchmarks.drop_in`` trains presets from their start values for as many steps of Adam as
an RBF kernel: in a deep GP, a Bayesian GPLVM, deep kernel learning and a GP of Poisson counts over
raw times, in single precision. It prints the error with RBF and those of presets in multiples of
it; means over the seeds.
"""

import warnings
from statistics import fmean

from benchmarks.drop_in_time import _Exact, _Layer, _stock, _Variational  # first: one thread

# isort: split
import torch
from gpytorch import likelihoods, means, mlls, priors, settings, utils
from gpytorch.models.deep_gps import DeepGP
from gpytorch.models.gplvm.latent_variable import VariationalLatentVariable

from gpytorch_nkn.kernels import NeuralKernelNetwork

_SEEDS = 3
_PRESETS = {
    1: ("time_series", "texture"),
    2: ("regression", "tabular", "additive", "optimization", "pairs"),
}


def _make(name, dim, *shape):
    if name == "rbf":
        return _stock(dim, *shape)
    arguments = () if name in _PRESETS[1] else (dim,)
    return getattr(NeuralKernelNetwork, name)(*arguments, batch_shape=torch.Size(shape))


class _Deep(DeepGP):
    def __init__(self, name, dim):
        super().__init__()
        hidden = _Layer(torch.randn(20, dim), _make(name, dim, dim), dim)
        hidden.mean = means.LinearMean(dim)
        last = _Layer(torch.randn(20, dim), _make(name, dim))
        self.layers = torch.nn.Sequential(hidden, last)

    def forward(self, x):
        return self.layers(x)


class _Poisson(likelihoods.Likelihood):
    def forward(self, rate):
        return torch.distributions.Poisson(rate.clamp(max=30).exp())


def _error(mll, output, y, steps, rate, new, truth):
    optimizer = torch.optim.Adam(mll.train().parameters(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        (-mll(output(), y)).sum().backward()
        optimizer.step()
    mll.eval()
    found = mll.model(new).mean
    found = found.mean(0) if found.dim() > truth.dim() else found  # of samples
    return float((found - truth).square().mean().sqrt())


def _deep(name, dim, draws):
    x, new = torch.randn(2, 100, dim, generator=draws).clamp(-2, 2)
    y, truth = (torch.sin(2 * each.sum(-1)) + 0.3 * each[:, 0] for each in (x, new))
    model, y = _Deep(name, dim), y + 0.1 * torch.randn(100, generator=draws)
    elbo = mlls.VariationalELBO(likelihoods.GaussianLikelihood(), model, 100)
    with settings.num_likelihood_samples(5):
        mll = mlls.DeepApproximateMLL(elbo)
        return _error(mll, lambda: model(x), y, 100, 0.05, new, truth)


def _gplvm(name, dim, draws):
    latent = torch.randn(60, dim, generator=draws)
    linear, waves = torch.randn(2, dim, 6, generator=draws)
    y = (torch.sin(latent @ waves) + 0.3 * latent @ linear).T
    y = (y - y.mean(-1, keepdim=True)) / y.std(-1, keepdim=True)
    prior = priors.NormalPrior(torch.zeros(60, dim), torch.ones(60, dim))
    model = _Variational(torch.randn(20, dim), _make(name, dim, 6), 6)
    model.latent = VariationalLatentVariable(60, 6, dim, torch.randn(60, dim), prior)
    likelihood = likelihoods.GaussianLikelihood(batch_shape=torch.Size([6]))
    mll = mlls.VariationalELBO(likelihood, model, 60)
    return _error(mll, lambda: model(model.latent()), y, 100, 0.05, model.latent.q_mu, y)


def _features(name, dim, draws):
    x = torch.randn(300, 4, generator=draws)
    truth = torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]
    y = truth[:100] + 0.1 * torch.randn(100, generator=draws)
    sizes = torch.nn.Linear(4, 20), torch.nn.ReLU(), torch.nn.Linear(20, dim)
    features = torch.nn.Sequential(*sizes, utils.grid.ScaleToBounds(-1.0, 1.0))
    model = _Exact(x[:100], y, _make(name, dim), features)
    mll = mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    return _error(mll, lambda: model(x[:100]), y, 60, 0.02, x[100:], truth[100:])


def _counts(name, dim, draws):
    x = 4 * torch.rand(200, 1, generator=draws)
    truth = 1 + torch.sin(2 * x[:, 0])
    y = torch.poisson(truth.exp(), generator=draws)
    model = _Variational(torch.linspace(0, 4, 20).unsqueeze(-1), _make(name, 1))
    mll = mlls.VariationalELBO(_Poisson(), model, 200)
    return _error(mll, lambda: model(x), y, 200, 0.05, x, truth)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for dim, names in _PRESETS.items():
        for use in (_deep, _gplvm, _features, _counts):
            errors = {}
            for name in ("rbf", *names):
                found = []
                for seed in range(_SEEDS):
                    torch.manual_seed(seed)
                    found.append(use(name, dim, torch.Generator().manual_seed(100 + seed)))
                errors[name] = fmean(found)
            ratios = (f"{name} {errors[name] / errors['rbf']:.2f}" for name in names)
            label = f"{use.__name__[1:]} {dim}-D: rbf {errors['rbf']:.3f}"
            print(label, *ratios, sep="; ", flush=True)
