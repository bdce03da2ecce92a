"""Models of a table of many rows beside each other: RMSE, density, time and memory.

``python -m benchmarks.large_tables`` draws 8 columns from the uniform distribution on [0, 1], and
a function of them plus noise; ``--function`` is

- ``waves``: sin(2 pi x1) + 2 x2^2 + 2 sin(pi x3) sin(2 pi x4) + 1.5 cos(2 pi x5) x6 + x7 / 2, with
  noise of 0.3 (x8 plays no part);
- ``arm``: the distance from a point to the end of a plane robot arm of eight links, as in the kin
  family of tables, by its angles in [-90, 90] degrees;
- ``rough``: a sum of random waves in four pairs of the first seven columns, of heavy-tailed
  frequencies. These two have a deviation of about 1, with noise of 0.2.

``svgp-network`` and ``svgp-rbf`` are VariationalNKNGP (GPyTorch's stochastic variational inference)
with a network and with an RBF kernel with a lengthscale per column (ARD); ``sgpr-network`` is
SparseNKNGP, which takes all rows in every step. ``regressor`` is NKNRegressor, ``parquet`` the same
reading the table from a file; ``--budget`` limits its time. ``lightgbm`` and ``ngboost`` are run
where they are installed. Reported are errors and mean log densities of new observations, which an
oracle brings to the last row of the table, and errors of the function itself; each model runs in a
process of its own, for its memory, in which the table was drawn, too.
"""

import argparse
import json
import math
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm

__all__ = ["main"]

_METHODS = (
    "svgp-network",
    "svgp-rbf",
    "sgpr-network",
    "regressor",
    "parquet",
    "lightgbm",
    "ngboost",
)
_USUAL = _METHODS[:4]


@dataclass
class _Result:
    method: str
    rows: int
    rmse: float  # of new observations
    log_density: float
    function_rmse: float  # of the function without noise
    noise: float  # standard deviation that was learned
    seconds: float
    predict_seconds: float
    peak_gb: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run the models and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_tables", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, metavar="N")
    parser.add_argument("--test-rows", type=int, default=20_000, metavar="N")
    parser.add_argument("--inducing-points", type=int, default=500, metavar="M")
    parser.add_argument("--epochs", type=int, default=3, metavar="E")
    parser.add_argument("--batch-size", type=int, default=1000, metavar="B")
    parser.add_argument("--iterations", type=int, default=20, help="of SparseNKNGP on its bound")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--threads", type=int, default=2, metavar="T")
    parser.add_argument("--function", choices=_FUNCTIONS, default="waves")
    parser.add_argument("--budget", type=float, metavar="S", help="of NKNRegressor")
    parser.add_argument("--methods", nargs="+", choices=_METHODS, default=_USUAL)
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the results as JSON")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.one:
        print(json.dumps(asdict(_run(args.methods[0], args))))
        return 0
    given = list(sys.argv[1:] if argv is None else argv)
    results = [_in_process(method, given, args.threads) for method in args.methods]
    print(_table(results, args))
    if args.out is not None:
        content = {
            "settings": {k: str(v) for k, v in vars(args).items()},
            "versions": _versions(),
            "results": [asdict(result) for result in results],
        }
        args.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return 0


def _in_process(method: str, given: list[str], threads: int) -> _Result:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = os.environ | dict.fromkeys(names, str(threads))
    command = [sys.executable, "-m", "benchmarks.large_tables", *given]
    command += ["--one", "--methods", method]
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result = _Result(**json.loads(run.stdout.splitlines()[-1]))
    print(result, file=sys.stderr)
    return result


def _run(method: str, args: argparse.Namespace) -> _Result:
    import torch

    torch.set_num_threads(args.threads)
    rng = np.random.default_rng(args.seed)
    x = rng.uniform(size=(args.rows + args.test_rows, 8))
    function, noise = _FUNCTIONS[args.function]
    f = np.concatenate([function(part) for part in np.array_split(x, 1 + len(x) // 20_000)])
    y = f + noise * rng.standard_normal(len(x))
    train, test = slice(args.rows), slice(args.rows, None)
    kind = method.split("-")[0]
    run = {"svgp": _sparse, "sgpr": _sparse, "lightgbm": _lightgbm, "ngboost": _ngboost}
    start = time.perf_counter()
    predict, learned = run.get(kind, _regressor)(method, x[train], y[train], args)
    fitted = time.perf_counter()
    mean, log_density = predict(x[test], y[test])
    return _Result(
        method=method,
        rows=args.rows,
        rmse=_root_mean_square(mean - y[test]),
        log_density=log_density,
        function_rmse=_root_mean_square(mean - f[test]),
        noise=learned,
        seconds=fitted - start,
        predict_seconds=time.perf_counter() - fitted,
        peak_gb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    )


def _sparse(method: str, x: np.ndarray, y: np.ndarray, args: argparse.Namespace) -> tuple:
    import torch
    from gpytorch.kernels import RBFKernel, ScaleKernel

    from gpytorch_nkn.models import (
        SparseNKNGP,
        VariationalNKNGP,
        fit_sparse_gp,
        fit_variational_gp,
    )

    def tensor(x: np.ndarray) -> torch.Tensor:  # lengthscales of the presets are for such inputs
        return torch.from_numpy(math.sqrt(12) * (x - 0.5))

    kind, kernel = method.split("-")
    structure = ScaleKernel(RBFKernel(ard_num_dims=8)) if kernel == "rbf" else "tabular"
    options = {"structure": structure, "inducing_points": args.inducing_points, "seed": args.seed}
    targets = torch.from_numpy(y).unsqueeze(-1)
    if kind == "svgp":
        model = VariationalNKNGP(tensor(x), targets, **options)
        fit_variational_gp(model, epochs=args.epochs, batch_size=args.batch_size, seed=args.seed)
    else:
        model = SparseNKNGP(tensor(x), targets, **options)
        fit_sparse_gp(model, max_iterations=args.iterations, seed=args.seed, progress=True)

    def predict(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
        mean, variance = (
            part.squeeze(-1).numpy() for part in model.predict(tensor(x), observation_noise=True)
        )
        return mean, norm.logpdf(y, mean, np.sqrt(variance)).mean()

    return predict, model.likelihood.noise.sqrt().item() * y.std()


def _regressor(method: str, x: np.ndarray, y: np.ndarray, args: argparse.Namespace) -> tuple:
    from gpytorch_nkn.estimators import NKNRegressor

    model = NKNRegressor(
        num_inducing=args.inducing_points, budget=args.budget, random_state=args.seed
    )
    if method == "regressor":
        model.fit(x, y)
    else:
        names = [f"x{number}" for number in range(x.shape[1])]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "table.parquet"
            pd.DataFrame(x, columns=names).assign(y=y).to_parquet(path)
            model.fit(path, "y")

    def predict(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
        rows = x if method == "regressor" else pd.DataFrame(x, columns=names)
        means, densities = [], []
        for part, target in zip(np.array_split(rows, 20), np.array_split(y, 20), strict=True):
            means.append(model.predict(part))
            densities.append(model.log_predictive_density(part, target))
        return np.concatenate(means), np.concatenate(densities).mean()

    return predict, math.nan


def _lightgbm(method: str, x: np.ndarray, y: np.ndarray, args: argparse.Namespace) -> tuple:
    from lightgbm import LGBMRegressor, early_stopping

    tenth = len(y) // 10
    model = LGBMRegressor(
        n_estimators=5000, num_leaves=63, n_jobs=args.threads, random_state=args.seed, verbose=-1
    )
    held_out = [(x[:tenth], y[:tenth])]
    model.fit(
        x[tenth:], y[tenth:], eval_set=held_out, callbacks=[early_stopping(20, verbose=False)]
    )
    return (lambda x, y: (model.predict(x), math.nan)), math.nan


def _ngboost(method: str, x: np.ndarray, y: np.ndarray, args: argparse.Namespace) -> tuple:
    from ngboost import NGBRegressor

    model = NGBRegressor(minibatch_frac=min(1.0, 50_000 / len(y)), random_state=args.seed)
    model.fit(x, y)

    def predict(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
        found = model.pred_dist(x)
        return found.loc, found.logpdf(y).mean()

    return predict, math.nan


def _waves(x: np.ndarray) -> np.ndarray:
    two_pi = 2 * np.pi
    additive = np.sin(two_pi * x[:, 0]) + 2 * x[:, 1] ** 2 + 0.5 * x[:, 6]
    products = 2 * np.sin(np.pi * x[:, 2]) * np.sin(two_pi * x[:, 3])
    return additive + products + 1.5 * np.cos(two_pi * x[:, 4]) * x[:, 5]


def _arm(x: np.ndarray) -> np.ndarray:
    angles = np.pi * (x - 0.5)
    links = np.array([0.3, 0.25, 0.2, 0.2, 0.15, 0.15, 0.1, 0.1])
    along = np.exp(1j * angles.cumsum(1)) @ links
    return (np.abs(along - (0.1 + 0.1j)) - 0.886) / 0.286


def _rough(x: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(5)
    total = np.zeros(len(x))
    for pair in ((0, 1), (2, 3), (4, 5), (1, 6)):
        frequencies = rng.standard_t(5, size=(300, 2)) / 0.12
        phases, heights = rng.uniform(0, 2 * np.pi, 300), rng.normal(size=300)
        total += np.cos(x[:, pair] @ frequencies.T + phases) @ heights * math.sqrt(2 / 300) / 2
    return total


_FUNCTIONS = {"waves": (_waves, 0.3), "arm": (_arm, 0.2), "rough": (_rough, 0.2)}


def _root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _table(results: Sequence[_Result], args: argparse.Namespace) -> str:
    lines = [
        f"{args.function}, {args.rows:,} rows, 8 columns, {args.inducing_points} inducing points, "
        f"{args.epochs} epochs of mini-batches of {args.batch_size}, seed {args.seed}, "
        f"{args.threads} threads, {_versions()}",
        f"{'method':<14}{'RMSE':>9}{'log density':>13}{'f RMSE':>9}{'noise':>8}{'fit s':>8}"
        f"{'predict s':>11}{'GB':>7}",
    ]
    lines += [
        f"{r.method:<14}{r.rmse:>9.4f}{r.log_density:>13.4f}{r.function_rmse:>9.4f}"
        f"{r.noise:>8.4f}{r.seconds:>8.0f}{r.predict_seconds:>11.0f}{r.peak_gb:>7.2f}"
        for r in results
    ]
    noise = _FUNCTIONS[args.function][1]
    density = -0.5 * math.log(2 * math.pi * math.e * noise**2)
    lines.append(f"{'oracle':<14}{noise:>9.4f}{density:>13.4f}{0:>9.4f}{noise:>8.4f}")
    return "\n".join(lines)


def _versions() -> dict[str, str]:
    names = ("torch", "gpytorch", "botorch", "gpytorch_nkn")
    versions = {name: metadata.version(name) for name in names}
    return {"python": platform.python_version(), **versions}


if __name__ == "__main__":
    sys.exit(main())
