"""SpectralGP beside Gaussian processes with an RBF kernel, which it contains.

``python -m benchmarks.spectral_gp`` fits both on the same splits: up to 2000 rows the exact GP with
a lengthscale per column (two starts, trained to convergence), beyond the same with 300 inducing
points that are learned (SparseNKNGP). Tables are split 80/20 (``uci``: 90/10) by seed; synthetic
functions have 4,000 rows and 1,000 to test. One thread. The environment variable GPYTORCH_NKN_DATA
names the folder of the tables.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy and torch read them

import argparse  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from botorch.models import SingleTaskGP  # noqa: E402
from gpytorch.kernels import RBFKernel, ScaleKernel  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks.data import load_askl_table, load_regression  # noqa: E402
from gpytorch_nkn.fit import Recipe, fit_best_of  # noqa: E402
from gpytorch_nkn.models import (  # noqa: E402
    SparseNKNGP,
    SpectralGP,
    fit_sparse_gp,
    fit_spectral_gp,
)

__all__ = ["main", "synthetic"]

_UCI = ("yacht", "energy", "boston", "concrete", "kin8nm")
_TABLES = ("abalone", "cpusmall")
_SYNTHETIC = ("network", "ridges", "rbf", "noise")
_ROWS, _TEST = 4000, 1000
_EXACT = 2000  # rows


def synthetic(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and noisy values of a function.

    Args:
        name: ``"network"``, 30 tanh units of 8 columns; ``"ridges"``, three sines across 8 columns;
            ``"rbf"``, a draw from an RBF kernel of 4 columns; ``"noise"`` and nothing else.
        seed: Of the draws.
    """
    rng = np.random.default_rng(seed)
    count = _ROWS + _TEST
    x = rng.normal(size=(count, 8))
    if name == "network":
        hidden = np.tanh(x @ rng.normal(size=(8, 30)) / 2 + rng.normal(size=30))
        values = hidden @ rng.normal(size=30)
    elif name == "ridges":
        directions = rng.normal(size=(8, 3))
        values = np.sin(4 * x @ (directions / np.linalg.norm(directions, axis=0))).sum(1)
    elif name == "rbf":
        x = rng.uniform(size=(count, 4))
        z = x / np.array([0.3, 0.5, 1.0, 2.0])
        squares = (z**2).sum(1)
        kernel = np.exp(-0.5 * (squares[:, None] + squares - 2 * z @ z.T))
        values = np.linalg.cholesky(kernel + 1e-8 * np.eye(count)) @ rng.normal(size=count)
    else:
        return x, rng.normal(size=count)
    values = (values - values.mean()) / values.std()
    return x, values + 0.1 * rng.normal(size=count)


def _split(name: str, seed: int) -> tuple[np.ndarray, ...]:
    if name in _SYNTHETIC:
        x, y = synthetic(name, seed)
        return x[:_ROWS], y[:_ROWS], x[_ROWS:], y[_ROWS:]
    table = load_regression(name) if name in _UCI else load_askl_table(name)
    test = table.test_mask(seed)
    return table.X[~test], table.y[~test], table.X[test], table.y[test]


def _standardized(name: str, seed: int) -> list[Tensor]:
    x, y, test_x, test_y = _split(name, seed)
    offset, scale = x.mean(0), x.std(0)
    scale = np.where(scale > 1e-12, scale, 1.0)
    level, spread = y.mean(), y.std()
    parts = [(x - offset) / scale, (y - level) / spread]
    parts += [(test_x - offset) / scale, (test_y - level) / spread]
    return [torch.as_tensor(part, dtype=torch.float64) for part in parts]


def _fit(method: str, x: Tensor, y: Tensor, seed: int) -> SingleTaskGP:
    targets = y.unsqueeze(-1)
    if method == "spectral":
        return fit_spectral_gp(SpectralGP(x, targets, seed=seed), seed=seed)
    kernel = ScaleKernel(RBFKernel(ard_num_dims=x.size(-1)))
    if len(x) <= _EXACT:
        model = SingleTaskGP(x, targets, covar_module=kernel)
        recipe = Recipe(adam_steps=0, lbfgs_iterations=200)
        return fit_best_of(model, restarts=2, recipe=recipe, seed=seed, progress=False).model
    sparse = SparseNKNGP(x, targets, structure=kernel, inducing_points=300, seed=seed)
    return fit_sparse_gp(sparse, seed=seed)


def _run(name: str, method: str, seed: int) -> dict[str, object]:
    x, y, test_x, test_y = _standardized(name, seed)
    start = time.process_time()
    model = _fit(method, x, y, seed)
    seconds = time.process_time() - start
    with torch.no_grad():
        means, variances = [], []
        for part in test_x.split(500):
            posterior = model.posterior(part, observation_noise=True)
            means.append(posterior.mean.squeeze(-1))
            variances.append(posterior.variance.squeeze(-1))
    mean, variance = torch.cat(means), torch.cat(variances)
    density = torch.distributions.Normal(mean, variance.sqrt()).log_prob(test_y)
    return {
        "set": name,
        "method": method,
        "seed": seed,
        "rows": len(x),
        "nlpd": -density.mean().item(),
        "rmse": (mean - test_y).square().mean().sqrt().item(),
        "seconds": seconds,
    }


def _report(records: Sequence[dict]) -> str:
    head = (
        "| set | rows | NLPD, RBF | SpectralGP less RBF | RMSE, ratio | seconds, RBF | SpectralGP |"
    )
    lines = [head, "| --- |" + " --- |" * 6]
    for name in dict.fromkeys(record["set"] for record in records):
        here = {(r["seed"], r["method"]): r for r in records if r["set"] == name}
        seeds = [s for s in sorted({seed for seed, _ in here}) if (s, "spectral") in here]
        pairs = [(here[s, "rbf"], here[s, "spectral"]) for s in seeds if (s, "rbf") in here]
        if not pairs:
            continue
        gaps = np.array([b["nlpd"] - a["nlpd"] for a, b in pairs])
        error = f" ± {gaps.std(ddof=1) / np.sqrt(len(gaps)):.3f}" if len(gaps) > 1 else ""
        ratio = np.mean([b["rmse"] / a["rmse"] for a, b in pairs])
        seconds = [np.mean([pair[k]["seconds"] for pair in pairs]) for k in (0, 1)]
        nlpd = np.mean([a["nlpd"] for a, _ in pairs])
        lines.append(
            f"| {name} ({len(pairs)}) | {pairs[0][0]['rows']:,} | {nlpd:.3f} | "
            f"{gaps.mean():+.3f}{error} | {ratio:.3f} | {seconds[0]:.0f} | {seconds[1]:.0f} |"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing in the file of results, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spectral_gp",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [*_UCI, *_TABLES, *_SYNTHETIC]
    parser.add_argument("--sets", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="S")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/spectral_gp.jsonl"))
    parser.add_argument("--report", action="store_true", help="only print the table")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    records = []
    if args.results.exists():
        records = [json.loads(line) for line in args.results.read_text().splitlines()]
    done = {(r["set"], r["method"], r["seed"]) for r in records}
    jobs = [(n, m, s) for s in args.seeds for n in args.sets for m in ("rbf", "spectral")]
    for job in [] if args.report else jobs:
        if job in done:
            continue
        record = _run(*job)
        records.append(record)
        with args.results.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(record, flush=True)
    print(_report(records))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
