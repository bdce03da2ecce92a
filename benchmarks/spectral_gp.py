"""SpectralGP compared with Gaussian processes with an RBF kernel, which it contains.

Up to 2,000 rows the RBF model is an exact GP with a lengthscale per column (two starts, trained to
convergence); above, it has 300 learned inducing points (SparseNKNGP). Tables are split 80/20
(``uci``: 90/10) by seed; synthetic functions have 4,000 rows and 1,000 to test. GPYTORCH_NKN_DATA
names the folder of the data.
"""

from __future__ import annotations

import statistics

import numpy as np
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from benchmarks.data import load_askl_table, load_regression, standardized
from benchmarks.report import Table, grouped, mean_and_error, paired
from benchmarks.runner import Axis, Benchmark, timed
from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.models import SparseNKNGP, SpectralGP, fit_sparse_gp, fit_spectral_gp

__all__ = ["BENCHMARK", "synthetic"]

_UCI = ("yacht", "energy", "boston", "concrete", "kin8nm")
_SYNTHETIC = ("network", "ridges", "rbf", "noise")
_EXACT, _TEST = 2000, 1000  # largest number of rows of an exact GP; number of test rows


def synthetic(name: str, seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw inputs and noisy values of a function.

    ``"network"`` has 30 tanh units of 8 columns, ``"ridges"`` three sines across 8 columns,
    ``"rbf"`` is a draw from an RBF kernel of 4 columns, ``"noise"`` has no signal.
    """
    rng = np.random.default_rng(seed)
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


def run(set: str, seed: int, method: str, rows: int) -> dict:
    """Return scores of one model; ``rows`` is the number of rows of a synthetic function."""
    if set in _SYNTHETIC:
        x, y = synthetic(set, seed, rows + _TEST)
        parts = x[:rows], y[:rows], x[rows:], y[rows:]
    else:
        table = load_regression(set) if set in _UCI else load_askl_table(set)
        parts = table.split(seed)
    x, y, new_x, new_y = (torch.from_numpy(array) for array in standardized(*parts))
    model, seconds = timed(lambda: _fit(method, x, y, seed))
    with torch.no_grad():
        blocks = [model.posterior(block, observation_noise=True) for block in new_x.split(500)]
        mean = torch.cat([posterior.mean.squeeze(-1) for posterior in blocks])
        variance = torch.cat([posterior.variance.squeeze(-1) for posterior in blocks])
    density = torch.distributions.Normal(mean, variance.sqrt()).log_prob(new_y)
    return {
        "n": len(x),
        "nlpd": -density.mean().item(),
        "rmse": (mean - new_y).square().mean().sqrt().item(),
        "seconds": seconds,
    }


def _fit(method: str, x: Tensor, y: Tensor, seed: int) -> SingleTaskGP:
    targets = y.unsqueeze(-1)
    if method == "SpectralGP":
        return fit_spectral_gp(SpectralGP(x, targets, seed=seed), seed=seed)
    kernel = ScaleKernel(RBFKernel(ard_num_dims=x.size(-1)))
    if len(x) <= _EXACT:
        model = SingleTaskGP(x, targets, covar_module=kernel)
        recipe = Recipe(adam_steps=0, lbfgs_iterations=200)
        return fit_best_of(model, restarts=2, recipe=recipe, seed=seed, progress=False).model
    sparse = SparseNKNGP(x, targets, structure=kernel, inducing_points=300, seed=seed)
    return fit_sparse_gp(sparse, seed=seed)


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return paired differences over the splits."""
    lines = []
    for name, runs in grouped(rows, "set").items():
        by_method = grouped(runs, "method")
        if len(by_method) < 2:
            continue
        base, ours = by_method["RBF"], by_method["SpectralGP"]
        rmse = {row["seed"]: row["rmse"] for row in base}
        ratios = [row["rmse"] / rmse[row["seed"]] for row in ours if row["seed"] in rmse]
        lines.append(
            {
                "set": f"{name} ({len(ours)})",
                "rows": f"{base[0]['n']:,}",
                "NLPD, RBF": f"{statistics.fmean(row['nlpd'] for row in base):.3f}",
                "SpectralGP less RBF": mean_and_error(paired(ours, base, "nlpd", "seed"), sign="+"),
                "RMSE, ratio": f"{statistics.fmean(ratios):.3f}",
                "seconds, RBF": f"{statistics.fmean(row['seconds'] for row in base):.0f}",
                "SpectralGP": f"{statistics.fmean(row['seconds'] for row in ours):.0f}",
            }
        )
    return {"spectral_gp": Table.of(lines)}


BENCHMARK = Benchmark(
    {
        "set": Axis([*_UCI, "abalone", "cpusmall", *_SYNTHETIC]),
        "seed": Axis(range(10), (0, 1, 2)),
        "method": Axis(["RBF", "SpectralGP"]),
    },
    run,
    tables,
    settings={"rows": 4000},
)

if __name__ == "__main__":
    BENCHMARK.command()
