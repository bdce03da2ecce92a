"""Bayesian optimisation of the 24 BBOB functions (package ioh).

The box [-5, 5]^D is scaled to the unit cube. All methods of an instance start from the same 10
random points and add one point per iteration, without noise. GPs use LogEI (``bo_loop``); turbo is
TuRBO-1, and cma is CMA-ES, restarted when it stops. Defaults were chosen on odd functions and
instances 1 to 3; even functions and instances from 4 on are reported.
"""

from __future__ import annotations

import math
import statistics
import time
from itertools import pairwise

import numpy as np
import torch
from botorch.generation import MaxPosteriorSampling
from torch import Tensor
from torch.quasirandom import SobolEngine

from benchmarks.bo_loop import INITIAL_POINTS, SURROGATES, Problem, initial_points, run_loop
from benchmarks.report import Table, grouped, mean, mean_and_error, mean_ranks
from benchmarks.runner import Axis, Benchmark

__all__ = ["BENCHMARK", "bbob_problem"]

_GROUPS = {"separable": 5, "moderate": 9, "ill-conditioned": 14, "multimodal": 19, "weak": 24}
_GPS = ("structures", "singletask", "matern")
_LEAST = 1e-8  # smaller regrets count as equal


def bbob_problem(function: int, instance: int, dimension: int) -> Problem:
    """Return a BBOB function as a problem."""
    import ioh

    made = ioh.get_problem(function, instance, dimension)

    def values(x: Tensor) -> Tensor:
        rows = [made(row) for row in x.reshape(-1, dimension).tolist()]
        return torch.tensor(rows, dtype=x.dtype).reshape(x.shape[:-1])

    bounds = torch.tensor([[-5.0], [5.0]], dtype=torch.float64).repeat(1, dimension)
    return Problem(f"bbob{function}", values, bounds, made.optimum.y)


def run(method: str, function: int, instance: int, dimension: int, evaluations: int) -> dict:
    """Return the regret of a loop after 25, 50, 100 ... evaluations, and seconds per iteration."""
    problem = bbob_problem(function, instance, dimension)
    begin = time.process_time()
    if method in SURROGATES:
        y = run_loop(problem, method, instance, evaluations)["y"]
    else:
        search = {"turbo": _turbo, "cma": _cma}[method]
        torch.manual_seed(instance)
        y = search(problem, initial_points(problem, instance), evaluations, instance)
    seconds = (time.process_time() - begin) / (evaluations - INITIAL_POINTS)
    best = np.minimum.accumulate(y) - problem.optimum
    return {"regret": best.tolist(), "seconds": seconds}


def _cma(problem: Problem, x: Tensor, evaluations: int, seed: int) -> list[float]:
    import cma

    y = problem(x).tolist()
    start, options = x[int(np.argmin(y))].tolist(), {"bounds": [0, 1], "verbose": -9}
    while len(y) < evaluations:
        search = cma.CMAEvolutionStrategy(start, 0.3, options | {"seed": seed + len(y) + 1})
        while len(y) < evaluations and not search.stop():
            points = search.ask()
            values = problem(torch.tensor(np.array(points))).tolist()
            search.tell(points, values)
            y += values
        start = torch.rand(problem.dim).tolist()
    return y[:evaluations]


def _turbo(problem: Problem, x: Tensor, evaluations: int, seed: int) -> list[float]:
    """Run TuRBO-1 of Eriksson et al. (2019): Thompson samples of a Matern GP, with restarts."""
    y, first = problem(x), 0
    length, gains, losses = 0.8, 0, 0
    while len(y) < evaluations:
        own_x, own_y = x[first:], y[first:]
        model = SURROGATES["matern"](own_x, -own_y.unsqueeze(-1))
        scales = model.covar_module.base_kernel.lengthscale.detach().squeeze(0)
        half = 0.5 * length * scales / scales.log().mean().exp()
        best = own_x[own_y.argmin()]
        lower, upper = (best - half).clamp(0, 1), (best + half).clamp(0, 1)
        count = min(5000, max(2000, 200 * problem.dim))
        draws = SobolEngine(problem.dim, scramble=True, seed=seed + len(y)).draw(count).to(x)
        moved = torch.rand(draws.shape) < min(1.0, 20 / problem.dim)
        points = torch.where(moved, lower + (upper - lower) * draws, best)
        with torch.no_grad():
            new = MaxPosteriorSampling(model, replacement=False)(points, num_samples=1)
        value = problem(new)
        better = bool(value < own_y.min() - 1e-3 * own_y.min().abs())
        gains, losses = (gains + 1, 0) if better else (0, losses + 1)
        x, y = torch.cat([x, new]), torch.cat([y, value])
        if gains == 3:
            length, gains = min(2 * length, 1.6), 0
        elif losses == max(4, problem.dim):
            length, losses = length / 2, 0
        if length < 0.5**7:
            length, gains, losses, first = 0.8, 0, 0, len(y)
            more = torch.rand(INITIAL_POINTS, problem.dim).to(x)
            x, y = torch.cat([x, more]), torch.cat([y, problem(more)])
    return y[:evaluations].tolist()


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return log10 regret ratios to the other methods by group, with ranks and seconds."""
    lines = []
    for dimension, runs in grouped(rows, "dimension").items():
        total = runs[0]["evaluations"]
        for count in [c for c in (25, 50, 100) if c <= total] or [total]:
            logs = {
                (r["method"], r["function"], r["instance"]): math.log10(
                    max(r["regret"][count - 1], _LEAST)
                )
                for r in runs
            }
            groups = [*pairwise([("", 0), *_GROUPS.items()]), (("", 0), ("all", 24))]
            for (_, low), (group, high) in groups:
                line = _line({k: v for k, v in logs.items() if low < k[1] <= high})
                lines.append({"D": dimension, "evaluations": count, "group": group, **line})
    seconds = {m: mean("seconds", ".2f")(runs) for m, runs in grouped(rows, "method").items()}
    curves = []
    for (function, dimension, method), runs in grouped(
        (r for r in rows if r["evaluations"] >= 50), "function", "dimension", "method"
    ).items():
        line = {"function": f"{function}, {dimension}-d", "method": method}
        for n in range(10, 51, 5):  # geometric means over the instances
            values = [max(r["regret"][n - 1], _LEAST) for r in runs]
            line[str(n)] = f"{statistics.geometric_mean(values):.3g}"
        curves.append(line)
    results = {"bbob": Table.of(lines), "bbob_seconds": Table.of([seconds])}
    return results | ({"bbob_curves": Table.of(curves)} if curves else {})


def _line(here: dict[tuple, float]) -> dict[str, str]:
    methods = list(dict.fromkeys(method for method, *_ in here))
    cases = {key[1:] for key in here}
    shared = [c for c in sorted(cases) if all((m, *c) in here for m in methods)]
    line = {"runs": str(len(shared))}
    for peer in (m for m in methods if m != "structures" and "structures" in methods):
        gaps = [here["structures", *c] - here[peer, *c] for c in shared]
        line[f"to {peer}"] = mean_and_error(gaps, ".2f", "+")
    ranks = mean_ranks([{m: here[m, *c] for m in methods} for c in shared], methods)
    for method in methods:
        line[f"rank {method}"] = f"{ranks[method]:.2f}" if shared else ""
    return line


BENCHMARK = Benchmark(
    {
        "method": Axis([*_GPS, "cma", "turbo"]),
        "function": Axis(range(1, 25), range(2, 25, 2)),
        "instance": Axis(range(1, 16), (4,)),
        "dimension": Axis((2, 3, 5, 10, 20, 40), (5,)),
    },
    run,
    tables,
    settings={"evaluations": 50},
    needs={**dict.fromkeys((*_GPS, "turbo"), "ioh"), "cma": "cma"},
)

if __name__ == "__main__":
    BENCHMARK.command()
