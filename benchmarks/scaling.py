"""How seconds and memory grow with the rows: exact, sparse, blocks, grids, spectral, forecasts.

``python -m benchmarks.scaling`` runs every way on a ladder of sizes, each in a process of its own
with one thread, and prints a table of CPU seconds and of the memory above that of the same work on
a small problem, measured as the highest resident size. The exponents are slopes, in logarithms,
over the upper half of a ladder. Ways are

- ``exact``: a training step of an exact GP with a network over 8 columns;
- ``sparse``: the same of SparseNKNGP with 500 inducing points;
- ``blocks``: NKNRegressor, fit to a file of Parquet (250 inducing points) and 2,000 predictions;
- ``grids``: a training step of KroneckerGridGP on a square, a seventh of it a hole;
- ``spectral``: a training step of SpectralGP with 200 pairs of frequencies;
- ``forecasts``: NKNForecaster(quality="fast") on half-hours with days and weeks, fit and forecast.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy and torch read them

import argparse  # noqa: E402
import json  # noqa: E402
import math  # noqa: E402
import resource  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import torch  # noqa: E402

from benchmarks.grid_speed import waves_iteration  # noqa: E402
from benchmarks.step import training_step  # noqa: E402

__all__ = ["LADDERS", "exponent", "main", "measure"]

#: Sizes of each way, and the small one whose memory is that of libraries and their workspaces.
LADDERS = {
    "exact": (200, (1_000, 2_000, 4_000, 8_000)),
    "sparse": (1_000, (10_000, 30_000, 100_000, 300_000)),
    "blocks": (2_000, (30_000, 100_000, 300_000, 1_000_000)),
    "grids": (32**2, (128**2, 256**2, 512**2, 1024**2)),
    "spectral": (1_000, (10_000, 30_000, 100_000, 300_000)),
    "forecasts": (400, (1_000, 3_000, 10_000, 30_000, 100_000)),
}
_STEPS = 3  # of a training, whose mean counts


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ladders and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--ways", nargs="+", choices=LADDERS, default=list(LADDERS))
    parser.add_argument("--most", type=int, default=10**9, metavar="N", help="rows, at most")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.one is not None:
        print(json.dumps(measure(args.one[0], int(args.one[1]), int(args.one[2]))))
        return 0
    print("| way | rows | CPU s | GB | exponent of seconds | exponent of memory |")
    print("| --- | --- | --- | --- | --- | --- |")
    for way in args.ways:
        small, sizes = LADDERS[way]
        sizes = [size for size in sizes if size <= args.most] or [sizes[0]]
        found = [_in_process(way, size, small) for size in sizes]
        half = len(found) // 2 if len(found) > 2 else 0
        upper = [sizes[half:], *zip(*found[half:], strict=True)]
        for place, (size, (seconds, memory)) in enumerate(zip(sizes, found, strict=True)):
            last = place == len(sizes) - 1 and len(sizes) > 1
            slopes = [f"{exponent(upper[0], part):.2f}" if last else "" for part in upper[1:]]
            print(
                f"| {way} | {size:,} | {seconds:.3g} | {memory:.2g} | " + " | ".join(slopes) + " |"
            )
    return 0


def measure(way: str, size: int, small: int) -> tuple[float, float]:
    """CPU seconds of a piece of work, and the gigabytes that it needs beyond a small one.

    Args:
        way: Key of ``LADDERS``.
        size: Number of rows.
        small: Rows of the small one, which is done first.
    """
    warnings.simplefilter("ignore")  # of sizes, and of trainings that end before they converge
    make = _WAYS[way]
    make(small)()
    before = _peak_gb()
    work = make(size)
    begin = time.process_time()
    count = work() or 1
    return (time.process_time() - begin) / count, max(_peak_gb() - before, 1e-3)


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Slope of the logarithms of values by those of sizes."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def _in_process(way: str, size: int, small: int) -> tuple[float, float]:
    command = [sys.executable, "-m", "benchmarks.scaling", "--one", way, str(size), str(small)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seconds, memory = json.loads(run.stdout.splitlines()[-1])
    print(f"{way} {size:,}: {seconds:.3g} CPU s, {memory:.2g} GB", file=sys.stderr)
    return seconds, memory


def _peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


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


def _exact(size: int) -> Callable[[], int]:
    return _repeated(training_step("compiled fused loss", "8-D", size))


def _sparse(size: int) -> Callable[[], int]:
    from gpytorch_nkn.models import SparseNKNGP, fit_sparse_gp

    x, y = (torch.from_numpy(part) for part in _table(size))
    inputs = math.sqrt(12) * (x - 0.5)
    model = SparseNKNGP(inputs, y.unsqueeze(-1), structure="tabular", inducing_points=500, seed=0)

    def work() -> int:
        fit_sparse_gp(model, start=None, max_iterations=_STEPS, progress=False)
        return _STEPS

    return work


def _blocks(size: int) -> Callable[[], None]:
    from gpytorch_nkn.estimators import NKNRegressor

    def work() -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "table.parquet"
            x, y = _table(size)
            pd.DataFrame(x, columns=[f"x{k}" for k in range(8)]).assign(y=y).to_parquet(path)
            new = pd.DataFrame(x[:2_000], columns=[f"x{k}" for k in range(8)])
            del x, y
            model = NKNRegressor(num_inducing=250, random_state=0, progress=False)
            model.fit(path, "y").predict(new, return_std=True)

    return work


def _grids(size: int) -> Callable[[], int]:
    side = math.isqrt(size)
    return _repeated(waves_iteration(f"{side}x{side}", torch.device("cpu")))


def _spectral(size: int) -> Callable[[], int]:
    from gpytorch.mlls import ExactMarginalLogLikelihood

    from gpytorch_nkn.models import SpectralGP

    x, y = (torch.from_numpy(part) for part in _table(size))
    model = SpectralGP(math.sqrt(12) * (x - 0.5), y.unsqueeze(-1), num_features=400, rbf=False)
    mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

    def step() -> None:
        optimizer.zero_grad()
        (-mll(model(*model.train_inputs), model.train_targets)).backward()
        optimizer.step()

    return _repeated(step)


def _forecasts(size: int) -> Callable[[], None]:
    from gpytorch_nkn.estimators import NKNForecaster

    rng = np.random.default_rng(0)
    t = np.arange(size)
    walk = 0.02 * rng.standard_normal(size).cumsum()
    y = walk + np.sin(2 * np.pi * t / 48) + 0.5 * np.sin(2 * np.pi * t / 336)
    y += 0.2 * rng.standard_normal(size)
    seasons = [season for season in (48, 336) if 2 * season < size]

    def work() -> None:
        model = NKNForecaster(quality="fast", seasons=seasons, random_state=0, progress=False)
        model.fit(t, y).predict_interval(size + np.arange(48))

    return work


_WAYS: dict[str, Callable[[int], Callable[[], int | None]]] = {
    "exact": _exact,
    "sparse": _sparse,
    "blocks": _blocks,
    "grids": _grids,
    "spectral": _spectral,
    "forecasts": _forecasts,
}

if __name__ == "__main__":
    sys.exit(main())
