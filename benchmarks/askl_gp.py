"""A Gaussian process with the spectral kernel at many rows: seconds, memory and their growth."""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np
import torch
from gpytorch.mlls import ExactMarginalLogLikelihood

from gpytorch_nkn.models import SpectralGP

__all__ = ["measure_gp"]

_COLUMNS, _FEATURES, _TEST_ROWS, _NOISE = 8, 200, 1000, 0.3
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_COLUMNS_OF_TABLE = {
    "training": "CPU s per training iteration",
    "prediction": "CPU s of first prediction",
    "again": "CPU s of next prediction",
    "memory": "peak memory, GB",
}


def measure_gp(rows: Sequence[int], rounds: int) -> str:
    """A table with a line for each number of rows, and the slopes between them.

    Each number of rows is a process of its own, for its memory. A training iteration is the
    marginal likelihood, its gradient and a step of Adam; a prediction is that of mean and variance
    at 1,000 new rows, the first of which computes what later ones share.

    Args:
        rows: For training, in ascending order.
        rounds: Training iterations, whose median counts, after a first one.
    """
    results = [_in_process(count, rounds) for count in rows]
    memory = results[0]["before"]
    lines = [
        f"SpectralGP(num_features={_FEATURES}, rbf=False) of {_COLUMNS} columns, "
        f"{results[0]['feature_dim']} features, float64, one thread; before the data a process "
        f"has {memory:.2f} GB, which is not in the memory. Torch {torch.__version__}.",
        "",
        "| rows | " + " | ".join(_COLUMNS_OF_TABLE.values()) + " |",
        "| --- |" + " --- |" * len(_COLUMNS_OF_TABLE),
    ]
    for count, found in zip(rows, results, strict=True):
        cells = [f"{found[key]:.3g}" for key in _COLUMNS_OF_TABLE]
        lines.append(f"| {count:,} | " + " | ".join(cells) + " |")
    if len(rows) > 1:
        slopes = [_slope(rows, [found[key] for found in results]) for key in _COLUMNS_OF_TABLE]
        lines.append("| exponent of growth | " + " | ".join(slopes) + " |")
    return "\n".join(lines)


def _slope(rows: Sequence[int], values: Sequence[float]) -> str:
    """Of a line through the logarithms."""
    return f"{np.polyfit(np.log(rows), np.log(values), 1)[0]:.2f}"


def _in_process(rows: int, rounds: int) -> dict[str, float]:
    environment = os.environ | dict.fromkeys(_THREAD_VARIABLES, "1")
    command = [sys.executable, "-m", "benchmarks.askl_gp", str(rows), str(rounds)]
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(run.stdout.splitlines()[-1])
    print(f"{rows} rows: {found}", file=sys.stderr)
    return found


def _measure(rows: int, rounds: int) -> dict[str, float]:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    count = rows + _TEST_ROWS
    before = _peak()
    x = torch.rand(count, _COLUMNS, generator=generator, dtype=torch.float64)
    y = (3 * math.pi * x[:, :1] ** 2).sin() + x[:, 1:2] * (4 * x[:, 2:3]).cos()
    y += _NOISE * torch.randn(count, 1, generator=generator, dtype=torch.float64)
    x = math.sqrt(12) * (x - 0.5)
    model = SpectralGP(x[:rows], y[:rows], num_features=_FEATURES, rbf=False)
    kernel = model.spectral_kernel.initialize(lengthscale=math.sqrt(_COLUMNS))
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    model.train()
    seconds = []
    for _ in range(1 + rounds):
        start = time.process_time()
        optimizer.zero_grad()
        loss = -mll(model(*model.train_inputs), model.train_targets)
        loss.backward()
        optimizer.step()
        seconds.append(time.process_time() - start)
    predictions = []
    with torch.no_grad():
        for _ in range(2):
            start = time.process_time()
            posterior = model.posterior(x[rows:])
            mean, variance = posterior.mean, posterior.variance
            predictions.append(time.process_time() - start)
    if not (mean.isfinite().all() and (variance > 0).all()):
        raise ArithmeticError("The prediction is not finite.")
    return {
        "training": statistics.median(seconds[1:]),
        "prediction": predictions[0],
        "again": predictions[1],
        "memory": _peak() - before,
        "before": before,
        "feature_dim": kernel.feature_dim,
    }


def _peak() -> float:
    """Of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.askl_gp")
    parser.add_argument("rows", type=int)
    parser.add_argument("rounds", type=int)
    given = parser.parse_args()
    print(json.dumps(_measure(given.rows, given.rounds)))
