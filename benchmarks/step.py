"""Time of a training step of a Neural Kernel Network, relative to GPyTorch's RBF kernel.

A step computes value and gradient of the exact marginal likelihood (with Cholesky factorisations)
of two preset networks, evaluated by several methods, and of GPyTorch's RBF kernel under its
likelihood. The methods alternate; a figure is the median ratio of a method's time to RBF's, with
minimum and maximum. Each row of ``memory`` is the peak resident size minus that of a small step, in
multiples of an N x N matrix, in its own process. OMP_NUM_THREADS sets the threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.models import ExactGP

from benchmarks.report import Table
from benchmarks.runner import Axis, Benchmark, peak_gigabytes, ratios_in_turn
from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.mlls import AnalyticExactMarginalLogLikelihood
from gpytorch_nkn.settings import kernel_evaluation

__all__ = ["BENCHMARK", "Regression", "training_step"]

_SMALL = 500  # points of a small step, whose memory (libraries, workspaces) is subtracted
_STEPS = 20  # steps of a training by fit_best_of, by which its time is divided
_BASE = "RBF, stock"
# Kernel, path of evaluation, likelihood.
_WAYS = {
    _BASE: ("rbf", "plain", "stock"),
    "RBF, our likelihood": ("rbf", "plain", "analytic"),
    "network, plain": ("network", "plain", "stock"),
    "drop-in": ("network", "tiles", "stock"),
    "our likelihood": ("network", "tiles", "analytic"),
    "fused loss": ("network", "tiles", "fused"),
    "compiled drop-in": ("network", "compiled", "stock"),
    "compiled, our likelihood": ("network", "compiled", "analytic"),
    "compiled fused loss": ("network", "compiled", "fused"),
}


class Regression(ExactGP):
    """A GP with a constant mean."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, kernel: Kernel):
        super().__init__(x, y, GaussianLikelihood())
        self.mean_module = ConstantMean()
        self.covar_module = kernel

    def forward(self, x: torch.Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def training_step(
    way: str, dim: int, num_points: int, *, steps: int = _STEPS, lazily: bool = False, **to: Any
) -> Callable[[], object]:
    """Return a function that computes value and gradient once, or ``steps`` times by a fused loss.

    ``to`` has the dtype (float64 by default) and the device.
    With ``lazily``, our likelihood evaluates the kernel, as GPyTorch's does.
    """
    name, path, likelihood = _WAYS[way]
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.rand(num_points, dim, generator=generator, dtype=torch.float64)
    noise = torch.randn(num_points, generator=generator, dtype=torch.float64)
    to = {"dtype": torch.float64, **to}
    x, y = (tensor.to(**to) for tensor in (x, torch.sin(3 * x.sum(-1)) + 0.1 * noise))
    model = Regression(x, y, _kernel(name, dim)).to(**to).train()
    if likelihood == "fused":
        recipe = Recipe(adam_steps=steps, lbfgs_iterations=0)

        def train() -> None:
            with kernel_evaluation(path):
                fit_best_of(model, restarts=1, initialize=None, recipe=recipe, progress=False)

        return train
    analytic = likelihood == "analytic"
    make = AnalyticExactMarginalLogLikelihood if analytic else ExactMarginalLogLikelihood
    mll = make(model.likelihood, model)

    def step() -> None:
        model.zero_grad()
        lazy = gpytorch.settings.lazily_evaluate_kernels(lazily or not analytic)
        with kernel_evaluation(path), gpytorch.settings.max_cholesky_size(10**6), lazy:
            (-mll(model(x), y)).backward()

    return step


def _kernel(name: str, dim: int) -> Kernel:
    if name == "rbf":
        return ScaleKernel(RBFKernel(ard_num_dims=dim if dim > 1 else None))
    if dim == 1:
        return NeuralKernelNetwork.time_series(priors=False)
    return NeuralKernelNetwork.regression(dim, priors=False)


def run(dim: int, points: int, way: str, what: str, turns: int) -> dict:
    """Return seconds of a method and of the RBF step, measured alternately, or memory."""
    if what == "memory":
        training_step(way, dim, _SMALL, lazily=True)()
        step, before = training_step(way, dim, points, lazily=True), peak_gigabytes()
        for _ in range(2):
            step()
        return {"value": (peak_gigabytes() - before) * 1e9 / (8 * points**2)}
    steps = {name: training_step(name, dim, points) for name in (_BASE, way)}
    count = turns * max(1, 1000 // points)
    seconds = ratios_in_turn(steps, count, time.perf_counter)
    parts = _STEPS if _WAYS[way][2] == "fused" else 1
    pairs = zip(seconds[way], seconds[_BASE], strict=True)
    ratios = [step_time / parts / base_time for step_time, base_time in pairs]
    figures = {"value": median(ratios), "low": min(ratios), "high": max(ratios)}
    return {**figures, "ms": 1e3 * median(seconds[_BASE])}


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return a table for each network, and for the memory."""
    by_table: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows:
        name = "step_1d" if row["dim"] == 1 else "step_8d"
        name = "step_memory" if row["what"] == "memory" else name
        line = by_table.setdefault(name, {}).setdefault(row["way"], {"way": row["way"]})
        cell = f"{row['value']:.1f}"
        if row["what"] == "time":
            cell = f"{row['value']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
            if row["way"] == _BASE:
                cell = f"{row['ms']:.1f} ms"
        line[f"N = {row['points']:,}"] = cell
    return {name: Table.of(list(lines.values())) for name, lines in by_table.items()}


BENCHMARK = Benchmark(
    {
        "dim": Axis([1, 8]),
        "points": Axis([144, 500, 1000, 2000, 4000]),
        "way": Axis(list(_WAYS)),
        "what": Axis(["time", "memory"], ["time"]),
    },
    run,
    tables,
    settings={"turns": 5},
    fresh=True,
    one_thread=False,
)

if __name__ == "__main__":
    BENCHMARK.command()
