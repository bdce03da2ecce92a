"""What a network costs in place of GPyTorch's RBF kernel, in ten uses of everyday code.

``python -m benchmarks.drop_in_time`` prints the time of a training step or of predictions in
multiples of that with RBF, then fits in multiples of BoTorch's. Both take turns; process CPU time,
one thread, median of the ratios.
"""

import os

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # before torch reads them

import time
import warnings
from statistics import median

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import MultiTaskGP, SingleTaskGP
from gpytorch import kernels, likelihoods, means, mlls, models, variational
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.priors import LogNormalPrior

from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.evaluation import evaluator_in_use

_POINTS, _DIM, _TURNS, _FITS = 60, 4, 60, 3


def _stock(dim, *shape):
    base = kernels.RBFKernel(ard_num_dims=dim, batch_shape=torch.Size(shape))
    return kernels.ScaleKernel(base, batch_shape=torch.Size(shape))


def _network(dim, *shape):
    if dim == 1:  # interpolation on a grid needs a stationary kernel
        return NeuralKernelNetwork.additive(1)
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
    def __init__(self, x, kernel, *shape, tasks=None):
        posterior = variational.CholeskyVariationalDistribution(len(x), torch.Size(shape))
        strategy = variational.VariationalStrategy(self, x.expand(*shape, -1, -1), posterior)
        if tasks:
            strategy = variational.LMCVariationalStrategy(strategy, tasks, num_latents=3)
        super().__init__(strategy, x.size(-1), shape[0] if shape else None)
        self.mean, self.kernel = means.ConstantMean(batch_shape=torch.Size(shape)), kernel
        self.features = torch.nn.Identity()


class _Variational(_Layer):
    __call__ = models.ApproximateGP.__call__


class _Deep(DeepGP):
    def __init__(self, x, make):
        super().__init__()
        self.layers = torch.nn.Sequential(
            _Layer(x, make(_DIM, 2), 2),
            _Layer(x[:, :2], make(2)),
        )

    def forward(self, x):
        return self.layers(x)


def _training(model, mll, y, *params, inputs=None):
    optimizer = torch.optim.Adam(mll.train().parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        (-mll(model(*(inputs or model.train_inputs)), y, *params)).sum().backward()
        optimizer.step()

    return step


def _exact(kernel, dim=_DIM, features=None):
    x, y = _data()
    model = _Exact(x[:, :dim], y, kernel, features or torch.nn.Identity())
    return _training(model, mlls.ExactMarginalLogLikelihood(model.likelihood, model), y)


def _approximate(make, tasks=None, deep=False):
    (x, y), shape = _data(), [3] if tasks else []
    inducing, likelihood = x[:20].clone(), likelihoods.GaussianLikelihood()
    if tasks:
        likelihood = likelihoods.MultitaskGaussianLikelihood(tasks)
        y = torch.stack([y.roll(task) for task in range(tasks)], -1)
    if deep:
        model = _Deep(inducing, make)
    else:
        model = _Variational(inducing, make(_DIM, *shape), *shape, tasks=tasks)
    mll = mlls.VariationalELBO(likelihood, model, _POINTS)
    return _training(model, mlls.DeepApproximateMLL(mll) if deep else mll, y, inputs=(x,))


def _botorch(make, tasks=False, likelihood=None):
    (x, y), kernel = _data(), make and make(_DIM)
    if not tasks:
        return SingleTaskGP(x, y[:, None], likelihood=likelihood, covar_module=kernel)
    x = torch.cat([x, torch.arange(_POINTS)[:, None] % 2], -1)
    return MultiTaskGP(x, y[:, None], -1, likelihood=likelihood, covar_module=kernel)


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


def _fantasies(make):
    model, (x, y) = _botorch(make).eval(), _data(1)
    model.posterior(x[:8])
    observe = model.condition_on_observations
    return lambda: observe(x[:2], y[:2, None]).posterior(x[:8]).variance


def _jacobian(make):
    model, x = _botorch(make).eval(), _data(1)[0][:10]
    return lambda: torch.autograd.functional.jacobian(lambda z: model.posterior(z).mean, x)


def _fit(make, tasks=False, softplus=False):
    def run():
        prior, bound = LogNormalPrior(-4.0, 1.0), GreaterThan(1e-4, initial_value=0.018)
        likelihood = likelihoods.GaussianLikelihood(noise_prior=prior, noise_constraint=bound)
        model = _botorch(
            make if make is _network else None, tasks, likelihood if softplus else None
        )
        fit_gpytorch_mll(mlls.ExactMarginalLogLikelihood(model.likelihood, model))

    return run


_USES = {
    "ExactGP": lambda make: _exact(make(_DIM)),
    "SVGP": _approximate,
    "SGPR": _inducing,
    "MultiTaskGP": _multitask,
    "deep kernel learning": _deep_kernel,
    "LMC": lambda make: _approximate(make, tasks=4),
    "deep GP": lambda make: _approximate(make, deep=True),
    "KISS-GP": lambda make: _exact(
        kernels.GridInterpolationKernel(make(1), grid_size=32, num_dims=1), dim=1
    ),
    "fantasies and their posterior": _fantasies,
    "Jacobian of the posterior mean": _jacobian,
    "fit of SingleTaskGP": _fit,
    "fit of SingleTaskGP, softplus noise": lambda make: _fit(make, softplus=True),
    "fit of MultiTaskGP": lambda make: _fit(make, tasks=True),
}


def _seconds(step):
    start = time.process_time()
    step()
    return time.process_time() - start


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"N = {_POINTS}, {_DIM} columns. torch {torch.__version__}. {evaluator_in_use()}\n")
    print("| use | stock, ms | network, ms | network / stock |\n| --- | --- | --- | --- |")
    for name, use in _USES.items():
        torch.manual_seed(0)
        stock, own = use(_stock), use(_network)
        turns = _FITS if name.startswith("fit") else _TURNS
        pairs = [(_seconds(stock), _seconds(own)) for _ in range(turns + 1)][1:]  # after imports
        first, second = (1e3 * median(times) for times in zip(*pairs, strict=True))
        ratio = median(b / a for a, b in pairs)
        print(f"| {name} | {first:.1f} | {second:.1f} | {ratio:.2f} |", flush=True)
