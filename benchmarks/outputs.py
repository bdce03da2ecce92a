"""Several outputs, each observed at some of the inputs: NKNMultiTaskGP and other models.

The data are simulated: two coregionalised fields in the plane (co-kriging: one of three outputs is
rare), four sensors with gaps, and the static torques of a plane arm with seven links. Half of the
torques are observed. Outputs are standardised by their training values; test values have noise,
too. No default was chosen on these sets.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import MultiTaskGP, SingleTaskGP
from gpytorch.kernels import IndexKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.report import Cell, Table, mean, mean_and_error, paired, summary
from benchmarks.runner import Axis, Benchmark, timed
from gpytorch_nkn.bo import fit_bo_model
from gpytorch_nkn.models import NKNMultiTaskGP, NKNSingleTaskGP

__all__ = ["BENCHMARK"]

Drawn = tuple[Tensor, Tensor, Tensor]  # inputs N x D, outputs N x M, whether observed N x M


def _fields(lengthscales: list[float], x: Tensor) -> Tensor:
    """Draws ``N x K`` of Gaussian processes with Matern-3/2 kernels."""
    distances = 3**0.5 * torch.cdist(x, x) / torch.tensor(lengthscales)[:, None, None]
    covariances = (1 + distances) * (-distances).exp() + 1e-8 * torch.eye(len(x))
    draws = torch.linalg.cholesky(covariances) @ torch.randn(len(lengthscales), len(x), 1)
    return draws[..., 0].T


def _cokriging() -> Drawn:
    x = torch.rand(200, 2)
    fields = _fields([0.3, 0.3, 0.1], x)
    y = fields @ torch.tensor([[1.0, 0.9, 0.3], [0.2, 0.5, 1.0], [0.3, 0.1, 0.2]])
    return x, y, torch.rand(200, 3) < torch.tensor([0.15, 0.7, 0.7])


def _sensors() -> Drawn:
    """Draw ten days of four sensors; each fails twice for a day and a half."""
    x = torch.linspace(0, 1, 160)[:, None]
    shared, individual = _fields([0.3], x), _fields([0.1] * 4, x)
    y = torch.sin(20 * torch.pi * (x + 0.005 * torch.randn(4))) + shared + 0.3 * individual
    begins = torch.rand(4, 2) * 0.85
    return x, y, ((x[:, :, None] < begins) | (x[:, :, None] > begins + 0.15)).all(-1)


def _arm() -> Drawn:
    x = torch.rand(120, 7)
    # horizontal positions of the ends of the links, with equal masses there
    ends = torch.cos((2 * x - 1).cumsum(-1)).cumsum(-1)
    starts = torch.cat([torch.zeros(len(x), 1), ends[:, :-1]], -1)
    after = ends.flip(-1).cumsum(-1).flip(-1)
    return x, after - starts * torch.arange(7.0, 0.0, -1), torch.rand(120, 7) < 0.5


_SETS = {"co-kriging": _cokriging, "sensors": _sensors, "arm": _arm}


def _apart(make: Callable[..., Any], fit: Callable[[Any], Any]) -> Callable[..., Any]:
    """One model per output."""

    def predict(x: Tensor, task: Tensor, y: Tensor, new: Tensor, new_task: Tensor) -> Any:
        mean, variance = torch.zeros(len(new)), torch.zeros(len(new))
        for t in task.unique():
            model = fit(make(x[task == t], y[task == t, None]))
            posterior = model.posterior(new[new_task == t], observation_noise=True)
            mean[new_task == t] = posterior.mean[:, 0].detach()
            variance[new_task == t] = posterior.variance[:, 0].detach()
        return mean, variance

    return predict


def _joint(make: Callable[..., Any], fit: Callable[[Any], Any], multi: bool) -> Callable[..., Any]:
    """One model of all outputs; unless ``multi``, points for predictions have a task, too."""

    def predict(x: Tensor, task: Tensor, y: Tensor, new: Tensor, new_task: Tensor) -> Any:
        model = fit(make(torch.cat([x, task[:, None]], -1), y[:, None]))
        points = new if multi else torch.cat([new, new_task[:, None]], -1)
        posterior = model.posterior(points, observation_noise=True)
        column = new_task.long()[:, None] if multi else torch.zeros(len(new), 1).long()
        return [m.detach().gather(-1, column)[:, 0] for m in (posterior.mean, posterior.variance)]

    return predict


def _stock(model: Any) -> Any:
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def _lcm(x: Tensor, y: Tensor) -> SingleTaskGP:
    """A linear model of coregionalisation with two RBF kernels."""
    tasks, columns = int(x[:, -1].max()) + 1, range(x.size(-1) - 1)
    parts = [
        RBFKernel(ard_num_dims=len(columns), active_dims=tuple(columns))
        * IndexKernel(tasks, rank=1, active_dims=(len(columns),))
        for _ in range(2)
    ]
    return SingleTaskGP(x, y, covar_module=ScaleKernel(parts[0] + parts[1]))


_METHODS = {
    "NKNMultiTaskGP": _joint(lambda x, y: NKNMultiTaskGP(x, y, -1), fit_bo_model, True),
    "NKNSingleTaskGP per output": _apart(NKNSingleTaskGP, fit_bo_model),
    "MultiTaskGP": _joint(lambda x, y: MultiTaskGP(x, y, -1), _stock, True),
    "LCM of RBF": _joint(_lcm, _stock, False),
    "SingleTaskGP per output": _apart(SingleTaskGP, _stock),
}


def run(set: str, split: int, method: str, noise: float) -> dict:
    """Mean log density and RMSE of the values that were not observed."""
    torch.manual_seed(split)
    torch.set_default_dtype(torch.float64)
    x, y, seen = _SETS[set]()
    y = y + noise * y.std(0) * torch.randn_like(y)
    shown = torch.where(seen, y, torch.nan)
    center = shown.nanmean(0)
    y = (y - center) / (shown - center).square().nanmean(0).sqrt()
    rows, tasks = seen.nonzero().T
    new_rows, new_tasks = (~seen).nonzero().T
    given = x[rows], tasks.to(x), y[rows, tasks], x[new_rows], new_tasks.to(x)
    (mean, variance), seconds = timed(lambda: _METHODS[method](*given))
    errors = y[new_rows, new_tasks] - mean
    density = torch.distributions.Normal(0.0, variance.sqrt()).log_prob(errors)
    rmse = errors.square().mean().sqrt()
    return {"density": density.mean().item(), "rmse": rmse.item(), "seconds": seconds}


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return differences in log density to one network per output, by set, and seconds."""
    base = [row for row in rows if row["method"] == "NKNSingleTaskGP per output"]

    def gain(set: str, runs: list[dict]) -> str:
        in_set = [row for row in runs if row["set"] == set]
        return mean_and_error(paired(in_set, base, "density", "set", "split"), sign="+")

    cells: dict[str, Cell] = {set: partial(gain, set) for set in _SETS}
    return {"outputs": summary(rows, ("method",), {**cells, "CPU s": mean("seconds", ".1f")})}


BENCHMARK = Benchmark(
    {"set": Axis([*_SETS]), "split": Axis(range(3)), "method": Axis([*_METHODS])},
    run,
    tables,
    settings={"noise": 0.1},
)

if __name__ == "__main__":
    BENCHMARK.command()
