"""Time and memory by number of rows: exact, sparse, blocks, grids, spectral, forecasts.

Each size runs in its own process. Memory is the peak resident size minus that of the same work on a
small problem. Exponents are slopes of logarithms over the upper half of the sizes. The methods are

- ``exact``: a training step of an exact GP with a network over 8 columns;
- ``sparse``: a training step of SparseNKNGP with 500 inducing points;
- ``blocks``: NKNRegressor with 250 inducing points, and 2,000 predictions;
- ``grids``: a training step of KroneckerGridGP on a square, a seventh of it a hole;
- ``spectral``: a training step of SpectralGP with 200 pairs of frequencies;
- ``forecasts``: NKNForecaster on half-hours with days and weeks, fit and forecast of a week.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from gpytorch.mlls import ExactMarginalLogLikelihood

from benchmarks.grid_speed import waves_iteration
from benchmarks.report import Table, grouped
from benchmarks.runner import Axis, Benchmark, peak_gigabytes, timed
from benchmarks.step import training_step
from gpytorch_nkn.estimators import NKNForecaster, NKNRegressor
from gpytorch_nkn.models import SparseNKNGP, SpectralGP, fit_sparse_gp

__all__ = ["BENCHMARK", "exponent"]

# Sizes of each method, and a small one, whose memory (libraries, workspaces) is subtracted.
_LADDERS = {
    "exact": (200, (1_000, 2_000, 4_000, 8_000)),
    "sparse": (1_000, (10_000, 30_000, 100_000, 300_000)),
    "blocks": (2_000, (30_000, 100_000, 300_000)),
    "grids": (32**2, (128**2, 256**2, 512**2, 1024**2)),
    "spectral": (1_000, (10_000, 30_000, 100_000, 300_000)),
    "forecasts": (400, (1_000, 3_000, 10_000, 30_000, 100_000)),
}
_SIZES = sorted({size for _, sizes in _LADDERS.values() for size in sizes})
_STEPS = 3  # steps of a training, whose times are averaged


def run(way: str, rows: int) -> dict:
    """Return CPU seconds of a task, and its gigabytes in excess of a small task."""
    make = _WAYS[way]
    make(_LADDERS[way][0])()
    before = peak_gigabytes()
    work = make(rows)
    count, seconds = timed(work)
    return {"seconds": seconds / (count or 1), "memory": max(peak_gigabytes() - before, 1e-3)}


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of log values against log sizes."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def _repeated(step: Callable[[], object]) -> Callable[[], int]:
    def work() -> int:
        for _ in range(_STEPS):
            step()
        return _STEPS

    step()
    return work


def _table(size: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(size, 8))
    y = np.sin(2 * np.pi * x[:, 0]) + 2 * x[:, 1] * np.cos(2 * np.pi * x[:, 2]) + x[:, 3] ** 2
    return x, y + 0.2 * rng.standard_normal(size)


def _tensors(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = (torch.from_numpy(array) for array in _table(size))
    return math.sqrt(12) * (x - 0.5), y.unsqueeze(-1)


def _exact(size: int) -> Callable[[], int]:
    return _repeated(training_step("compiled, our likelihood", 8, size))


def _sparse(size: int) -> Callable[[], int]:
    model = SparseNKNGP(*_tensors(size), structure="tabular", inducing_points=500, seed=0)

    def work() -> int:
        fit_sparse_gp(model, start=None, max_iterations=_STEPS, progress=False)
        return _STEPS

    return work


def _blocks(size: int) -> Callable[[], None]:
    def work() -> None:
        x, y = _table(size)
        model = NKNRegressor(num_inducing=250, random_state=0, progress=False)
        model.fit(x, y).predict(x[:2_000], return_std=True)

    return work


def _grids(size: int) -> Callable[[], int]:
    return _repeated(waves_iteration(*[math.isqrt(size)] * 2))


def _spectral(size: int) -> Callable[[], int]:
    model = SpectralGP(*_tensors(size), num_features=400, rbf=False)
    mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

    def step() -> None:
        optimizer.zero_grad()
        (-mll(model(*model.train_inputs), model.train_targets)).backward()
        optimizer.step()

    return _repeated(step)


def _forecasts(size: int) -> Callable[[], None]:
    rng = np.random.default_rng(0)
    t = np.arange(size)
    walk = 0.02 * rng.standard_normal(size).cumsum()
    y = walk + np.sin(2 * np.pi * t / 48) + 0.5 * np.sin(2 * np.pi * t / 336)
    y += 0.2 * rng.standard_normal(size)
    seasons = [season for season in (48, 336) if 2 * season < size]

    def work() -> None:
        model = NKNForecaster(horizon=336, seasons=seasons, random_state=0, progress=False)
        model.fit(t, y).predict_interval(size + np.arange(336))

    return work


_WAYS: dict[str, Callable[[int], Callable[[], int | None]]] = {
    way.__name__[1:]: way for way in (_exact, _sparse, _blocks, _grids, _spectral, _forecasts)
}


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return a row for each size, with the exponents in the last row."""
    lines = []
    for way, runs in grouped(rows, "way").items():
        runs = sorted(runs, key=lambda row: row["rows"])
        upper = runs[len(runs) // 2 if len(runs) > 2 else 0 :]
        for row in runs:
            slopes = {"exponent of seconds": "", "exponent of memory": ""}
            if row is runs[-1] and len(runs) > 1:
                sizes = [r["rows"] for r in upper]
                for quantity in ("seconds", "memory"):
                    value = exponent(sizes, [r[quantity] for r in upper])
                    slopes[f"exponent of {quantity}"] = f"{value:.2f}"
            cells = {"CPU s": f"{row['seconds']:.3g}", "GB": f"{row['memory']:.2g}"}
            lines.append({"way": way, "rows": f"{row['rows']:,}", **cells, **slopes})
    return {"scaling": Table.of(lines)}


BENCHMARK = Benchmark(
    {"way": Axis(list(_WAYS)), "rows": Axis(_SIZES)},
    run,
    tables,
    possible=lambda job: job["rows"] in _LADDERS[job["way"]][1] or job["rows"] < min(_SIZES),
    fresh=True,
)

if __name__ == "__main__":
    BENCHMARK.command()
