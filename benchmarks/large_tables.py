"""Sparse models of a table of 100,000 rows: networks and one RBF kernel.

``python -m benchmarks.large_tables`` draws 8 columns from the uniform distribution on [0, 1] and

    y = sin(2 pi x1) + 2 x2^2 + 2 sin(pi x3) sin(2 pi x4) + 1.5 cos(2 pi x5) x6 + x7 / 2 + noise

with noise of standard deviation 0.3; x8 plays no part. Models with the same inducing points,
mini-batches and epochs: VariationalNKNGP with a network and with an RBF kernel with a lengthscale
per column (ARD); SparseNKNGP, which takes all rows in every step, with fewer of them. Reported are
errors and mean log densities of new observations, which an oracle brings to the last row of the
table, and of the function itself; each model runs in a process of its own, for its memory.
"""

import argparse
import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

__all__ = ["main"]

_NOISE = 0.3
_METHODS = ("svgp-network", "svgp-rbf", "sgpr-network")


@dataclass
class _Result:
    method: str
    rows: int
    rmse: float  # of new observations
    log_density: float
    function_rmse: float  # of the function without noise
    noise: float  # standard deviation that was learned
    seconds: float
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
    parser.add_argument("--methods", nargs="+", choices=_METHODS, default=_METHODS)
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
    from gpytorch.kernels import RBFKernel, ScaleKernel

    from gpytorch_nkn.models import (
        SparseNKNGP,
        VariationalNKNGP,
        fit_sparse_gp,
        fit_variational_gp,
    )

    torch.set_num_threads(args.threads)
    generator = torch.Generator().manual_seed(args.seed)
    count = args.rows + args.test_rows
    x = torch.rand(count, 8, generator=generator, dtype=torch.float64)
    f = _function(x)
    y = f + _NOISE * torch.randn(count, 1, generator=generator, dtype=torch.float64)
    train, test = slice(args.rows), slice(args.rows, None)
    standardised = math.sqrt(12) * (x - 0.5)  # lengthscales of the presets are for these
    kind, kernel = method.split("-")
    structure = ScaleKernel(RBFKernel(ard_num_dims=8)) if kernel == "rbf" else "tabular"
    start = time.perf_counter()
    options = {"structure": structure, "inducing_points": args.inducing_points, "seed": args.seed}
    if kind == "svgp":
        model = VariationalNKNGP(standardised[train], y[train], **options)
        fit_variational_gp(model, epochs=args.epochs, batch_size=args.batch_size, seed=args.seed)
    else:
        model = SparseNKNGP(standardised[train], y[train], **options)
        fit_sparse_gp(model, max_iterations=args.iterations, seed=args.seed, progress=True)
    seconds = time.perf_counter() - start
    mean, variance = model.predict(standardised[test], observation_noise=True)
    log_density = torch.distributions.Normal(mean, variance.sqrt()).log_prob(y[test])
    return _Result(
        method=method,
        rows=args.rows,
        rmse=(mean - y[test]).square().mean().sqrt().item(),
        log_density=log_density.mean().item(),
        function_rmse=(mean - f[test]).square().mean().sqrt().item(),
        noise=(model.likelihood.noise.sqrt() * y[train].std()).item(),
        seconds=seconds,
        peak_gb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    )


def _function(x):
    two_pi = 2 * math.pi
    additive = (two_pi * x[:, 0]).sin() + 2 * x[:, 1].square() + 0.5 * x[:, 6]
    products = 2 * (math.pi * x[:, 2]).sin() * (two_pi * x[:, 3]).sin()
    products = products + 1.5 * (two_pi * x[:, 4]).cos() * x[:, 5]
    return (additive + products).unsqueeze(-1)


def _table(results: Sequence[_Result], args: argparse.Namespace) -> str:
    lines = [
        f"{args.rows:,} rows, 8 columns, {args.inducing_points} inducing points, {args.epochs} "
        f"epochs of mini-batches of {args.batch_size}, seed {args.seed}, {args.threads} threads, "
        f"{_versions()}",
        f"{'method':<14}{'RMSE':>9}{'log density':>13}{'f RMSE':>9}{'noise':>8}{'s':>8}{'GB':>7}",
    ]
    lines += [
        f"{r.method:<14}{r.rmse:>9.4f}{r.log_density:>13.4f}{r.function_rmse:>9.4f}"
        f"{r.noise:>8.4f}{r.seconds:>8.0f}{r.peak_gb:>7.2f}"
        for r in results
    ]
    density = -0.5 * math.log(2 * math.pi * math.e * _NOISE**2)
    lines.append(f"{'oracle':<14}{_NOISE:>9.4f}{density:>13.4f}{0:>9.4f}{_NOISE:>8.4f}")
    return "\n".join(lines)


def _versions() -> dict[str, str]:
    names = ("torch", "gpytorch", "botorch", "gpytorch_nkn")
    versions = {name: metadata.version(name) for name in names}
    return {"python": platform.python_version(), **versions}


if __name__ == "__main__":
    sys.exit(main())
