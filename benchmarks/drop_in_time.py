"""Time of everyday code with a network in place of GPyTorch's RBF kernel.

Times of training steps and predictions are relative to RBF, and times of fits are relative to
BoTorch's. Both alternate; a figure is the median ratio of process CPU times.
"""

from __future__ import annotations

from statistics import median

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import MultiTaskGP, SingleTaskGP
from gpytorch import constraints, kernels, likelihoods, means, mlls, models, priors, variational
from gpytorch.distributions import MultivariateNormal
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer

from benchmarks.report import Table, mean, summary
from benchmarks.runner import Axis, Benchmark, ratios_in_turn
from gpytorch_nkn.bo import fit_bo_model
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.mlls import AnalyticExactMarginalLogLikelihood

__all__ = ["BENCHMARK"]

_POINTS, _DIM = 60, 4


def _stock(dim, *shape):
    base = kernels.RBFKernel(ard_num_dims=dim, batch_shape=torch.Size(shape))
    return kernels.ScaleKernel(base, batch_shape=torch.Size(shape))


def _network(dim, *shape):
    return NeuralKernelNetwork.tabular(dim, batch_shape=torch.Size(shape))


def _data(seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(_POINTS, _DIM, generator=generator)
    return x, torch.sin(3 * x.sum(-1)) + 0.05 * torch.randn(_POINTS, generator=generator)


class _Forward:
    def forward(self, x):
        x = self.features(x)
        return MultivariateNormal(self.mean(x), self.kernel(x))


class _Exact(_Forward, models.ExactGP):
    def __init__(self, x, y, kernel, features):
        super().__init__(x, y, likelihoods.GaussianLikelihood())
        self.mean, self.kernel, self.features = means.ConstantMean(), kernel, features


class _Layer(_Forward, DeepGPLayer):
    def __init__(self, x, kernel, *shape):
        posterior = variational.CholeskyVariationalDistribution(len(x), torch.Size(shape))
        strategy = variational.VariationalStrategy(self, x.expand(*shape, -1, -1), posterior)
        super().__init__(strategy, x.size(-1), shape[0] if shape else None)
        self.mean, self.kernel = means.ConstantMean(batch_shape=torch.Size(shape)), kernel
        self.features = torch.nn.Identity()


class _Variational(_Layer):
    __call__ = models.ApproximateGP.__call__


class _Deep(DeepGP):
    def __init__(self, x, make):
        super().__init__()
        self.layers = torch.nn.Sequential(_Layer(x, make(_DIM, 2), 2), _Layer(x[:, :2], make(2)))

    def forward(self, x):
        return self.layers(x)


def _training(model, mll, y, *params, inputs=None):
    optimizer = torch.optim.Adam(mll.train().parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        (-mll(model(*(inputs or model.train_inputs)), y, *params)).sum().backward()
        optimizer.step()

    return step


def _exact(kernel, dim=_DIM, features=None, mll=mlls.ExactMarginalLogLikelihood):
    x, y = _data()
    model = _Exact(x[:, :dim], y, kernel, features or torch.nn.Identity())
    return _training(model, mll(model.likelihood, model), y)


def _analytic(make):
    network = make is _network
    mll = AnalyticExactMarginalLogLikelihood if network else mlls.ExactMarginalLogLikelihood
    return _exact(make(_DIM), mll=mll)


def _approximate(make, deep=False):
    (x, y), likelihood = _data(), likelihoods.GaussianLikelihood()
    inducing = x[:20].clone()
    model = _Deep(inducing, make) if deep else _Variational(inducing, make(_DIM))
    mll = mlls.VariationalELBO(likelihood, model, _POINTS)
    return _training(model, mlls.DeepApproximateMLL(mll) if deep else mll, y, inputs=(x,))


def _noise_with_transform():
    """Return BoTorch's default likelihood, with a softplus of the noise parameter."""
    floor, prior = constraints.GreaterThan(1e-4), priors.LogNormalPrior(-4.0, 1.0)
    return likelihoods.GaussianLikelihood(noise_prior=prior, noise_constraint=floor)


def _botorch(make, tasks=False, likelihood=None):
    (x, y), kernel = _data(), make and make(_DIM)
    if not tasks:
        return SingleTaskGP(x, y[:, None], covar_module=kernel, likelihood=likelihood)
    x = torch.cat([x, torch.arange(_POINTS)[:, None] % 2], -1)
    return MultiTaskGP(x, y[:, None], -1, covar_module=kernel)


def _multitask(make):
    model = _botorch(make, tasks=True)
    mll = mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    return _training(model, mll, model.train_targets, model.train_inputs)


def _inducing(make):
    points, likelihood = _data()[0][:20].clone(), likelihoods.GaussianLikelihood()
    return _exact(kernels.InducingPointKernel(make(_DIM), points, likelihood))


def _deep_kernel(make):
    layers = torch.nn.Linear(_DIM, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)
    return _exact(make(2), features=torch.nn.Sequential(*layers))


def _fit(make, tasks=False, fit_bo=False, transform=False, **options):
    network = make is _network

    def run():
        likelihood = _noise_with_transform() if transform and network else None
        model = _botorch(make if network else None, tasks, likelihood)
        if fit_bo and network:
            fit_bo_model(model)
        else:
            mll = mlls.ExactMarginalLogLikelihood(model.likelihood, model)
            fit_gpytorch_mll(mll, optimizer_kwargs={"options": options if network else {}})

    return run


_USES = {
    "ExactGP": lambda make: _exact(make(_DIM)),
    "ExactGP, closed-form gradient": _analytic,
    "SVGP": _approximate,
    "SGPR": _inducing,
    "MultiTaskGP": _multitask,
    "deep kernel learning": _deep_kernel,
    "deep GP": lambda make: _approximate(make, deep=True),
    "fit of SingleTaskGP": _fit,
    "fit of SingleTaskGP, maxcor=100": lambda make: _fit(make, maxcor=100),
    "fit of SingleTaskGP with softplus noise": lambda make: _fit(make, transform=True),
    "fit of SingleTaskGP by fit_bo_model": lambda make: _fit(make, fit_bo=True),
    "fit of MultiTaskGP": lambda make: _fit(make, tasks=True),
    "fit of MultiTaskGP, maxcor=100": lambda make: _fit(make, tasks=True, maxcor=100),
    "fit of MultiTaskGP by fit_bo_model": lambda make: _fit(make, tasks=True, fit_bo=True),
}


def run(use: str, turns: int) -> dict:
    """Return milliseconds of both kernels, measured alternately."""
    torch.manual_seed(0)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        steps = {"stock": _USES[use](_stock), "network": _USES[use](_network)}
        count = min(turns, 3) if use.startswith("fit") else turns
        seconds = ratios_in_turn(steps, count)
    finally:
        torch.set_default_dtype(default)
    pairs = zip(seconds["network"], seconds["stock"], strict=True)
    milliseconds = {name: 1e3 * median(times) for name, times in seconds.items()}
    return {**milliseconds, "ratio": median(network / stock for network, stock in pairs)}


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return a row for each use."""
    cells = {f"{name}, ms": mean(name, ",.1f") for name in ("stock", "network")}
    cells["network / stock"] = mean("ratio", ".2f")
    return {"drop_in_time": summary(rows, ("use",), cells)}


BENCHMARK = Benchmark({"use": Axis(list(_USES))}, run, tables, settings={"turns": 60})

if __name__ == "__main__":
    BENCHMARK.command()
