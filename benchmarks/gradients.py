"""Bayesian optimisation with observed gradients: a network or GPyTorch's RBFKernelGrad.

All methods start from the same five random points and maximise LogEI of the value by the same
search. Models with gradients are trained by ``fit_best_of``. The network, a convex combination of
two RBF kernels, was chosen on Branin with seeds 10 to 12.
"""

from __future__ import annotations

from statistics import fmean

import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from botorch.optim import optimize_acqf
from botorch.test_functions import Branin, Hartmann
from gpytorch import constraints, distributions, kernels, likelihoods, means, models

from benchmarks.bo_loop import SURROGATES
from benchmarks.report import Cell, Table, mean, mean_and_error, summary
from benchmarks.runner import Axis, Benchmark, timed
from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.kernels import GradientKernel, NeuralKernelNetwork
from gpytorch_nkn.layers import Linear

__all__ = ["BENCHMARK"]

_SEARCH = {"q": 1, "num_restarts": 4, "raw_samples": 64, "options": {"maxiter": 100}}


class _GradientGP(GPyTorchModel, models.ExactGP):
    def __init__(self, x, y, kernel):
        noise = {"has_task_noise": False, "noise_constraint": constraints.GreaterThan(1e-6)}
        super().__init__(x, y, likelihoods.MultitaskGaussianLikelihood(y.size(-1), **noise))
        self.likelihood.noise, self._num_outputs = 1e-4, y.size(-1)
        self.mean_module, self.covar_module = means.ConstantMeanGrad(), kernels.ScaleKernel(kernel)
        recipe = Recipe(adam_steps=0, lbfgs_iterations=75)
        fit_best_of(self.to(x), restarts=3, recipe=recipe, progress=False)

    def forward(self, x):
        mean, covariance = self.mean_module(x), self.covar_module(x)
        return distributions.MultitaskMultivariateNormal(mean, covariance)


def _rbf(dim):
    prior = get_covar_module_with_dim_scaled_prior(dim).lengthscale_prior
    kernel = kernels.RBFKernelGrad(ard_num_dims=dim, lengthscale_prior=prior)
    return kernel.initialize(lengthscale=prior.mode)


def _network(dim):
    kernels = [get_covar_module_with_dim_scaled_prior(dim) for _ in range(2)]
    for kernel, factor in zip(kernels, (0.7, 0.25), strict=True):
        kernel.lengthscale = factor * dim**0.5
    return GradientKernel(NeuralKernelNetwork(kernels, [Linear(2, 1, weights="simplex")]))


_METHODS = {
    "network": lambda x, y: _GradientGP(x, y, _network(x.size(-1))),
    "RBFKernelGrad": lambda x, y: _GradientGP(x, y, _rbf(x.size(-1))),
    "SingleTaskGP": lambda x, y: SURROGATES["singletask"](x, y[:, :1], outcome_transform=None),
}


def run(function: str, seed: int, method: str, evaluations: int) -> dict:
    """Return log10 regrets at half of the search and at its end, and CPU seconds per point."""
    torch.set_default_dtype(torch.float64)
    problem = Branin(negate=True) if function == "branin" else Hartmann(3, negate=True)
    dim, (lower, upper) = problem.dim, problem.bounds

    def observed(x):
        x = x.clone().requires_grad_()
        value = problem(lower + (upper - lower) * x)
        (slopes,) = torch.autograd.grad(value.sum(), x)
        return torch.cat([value.detach()[:, None], slopes], -1)

    def next_point():
        targets = (y - torch.eye(dim + 1)[0] * y[:, 0].mean()) / y[:, 0].std()
        model = _METHODS[method](x, targets)
        value = ScalarizedPosteriorTransform(torch.eye(model.num_outputs)[0])
        acquisition = LogExpectedImprovement(model, targets[:, 0].max(), value)
        return optimize_acqf(acquisition, torch.tensor([[0.0], [1.0]]).expand(2, dim), **_SEARCH)[0]

    torch.manual_seed(seed)
    x, seconds = torch.rand(5, dim), {}
    y = observed(x)
    while len(x) < evaluations:
        torch.manual_seed(1000 * seed + len(x))
        point, seconds[len(x)] = timed(next_point)
        x, y = torch.cat([x, point]), torch.cat([y, observed(point)])
    regrets = (problem.optimal_value - y[:, 0].cummax(0).values).clamp_min(1e-6).log10()
    half, end = regrets[[(5 + evaluations) // 2 - 1, -1]].tolist()
    return {"half": half, "end": end, "seconds": fmean(seconds.values())}


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return log10 regrets, means over the seeds, and CPU seconds."""

    def regret(function: str, end: str) -> Cell:
        return lambda runs: mean_and_error(
            [r[end] for r in runs if r["function"] == function], ".2f"
        )

    names = [(function, end) for function in ("branin", "hartmann3") for end in ("half", "end")]
    cells = {", ".join(name): regret(*name) for name in names}
    return {"gradients": summary(rows, ("method",), {**cells, "CPU s": mean("seconds", ".2f")})}


BENCHMARK = Benchmark(
    {
        "function": Axis(["branin", "hartmann3"]),
        "seed": Axis(range(5)),
        "method": Axis([*_METHODS]),
    },
    run,
    tables,
    settings={"evaluations": 15},
)

if __name__ == "__main__":
    BENCHMARK.command()
