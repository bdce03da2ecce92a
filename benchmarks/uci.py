"""Regression on tables by networks of kernels and usual Gaussian processes.

Ten random splits of each table and its PCA split (both ends of the first principal component are
held out), as in Sun et al. (2018). All methods get standardised inputs and targets, the same number
of starts and of L-BFGS iterations, except for the paper's recipe. Beyond 2,000 rows the other
kernels are trained on blocks of rows, as the only structure of NKNRegressor, and the spectral
mixture and the paper's recipe are omitted. GPYTORCH_NKN_DATA names the folder.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import torch
from gpytorch.kernels import (
    Kernel,
    LinearKernel,
    MaternKernel,
    RBFKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from gpytorch.models import ExactGP

from benchmarks.data import load_regression, standardized
from benchmarks.report import Cell, Table, grouped, mean, mean_and_error, paired, summary
from benchmarks.runner import Axis, Benchmark, timed
from benchmarks.step import Regression
from benchmarks.tables import Fitted, normal, of_estimator
from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.estimators.nkn import ensemble
from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.initialization import initialize_model, median_distances
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import Linear

__all__ = ["BENCHMARK"]

_OURS, _PAPER, _MIXTURE = "NKNRegressor", "the paper's NKN", "spectral mixture 4"
_CONSTANT = "NKNRegressor, constant noise"
_EXACT_ROWS, _MIXTURES = 2000, 4
_PEERS = ("RBF-ARD", "Matern-5/2-ARD")
_LARGE = ("kin8nm",)
_PARTS: dict[str, Callable[[int], list[Kernel]]] = {
    "RBF-ARD": lambda d: [RBFKernel(ard_num_dims=d)],
    "Matern-5/2-ARD": lambda d: [MaternKernel(nu=2.5, ard_num_dims=d)],
    "RBF-ARD + linear": lambda d: [RBFKernel(ard_num_dims=d), LinearKernel(ard_num_dims=d)],
}
# RMSE and log density on random splits, then on the PCA split; for NKNRegressor, the paper's NKN.
_PUBLISHED = {
    ("yacht", _OURS): ("0.305 ± 0.060", "-0.116 ± 0.270", "0.528", "-0.694"),
    ("yacht", "RBF-ARD"): ("0.447 ± 0.083", "-0.714 ± 0.449", "1.190", "-2.896"),
    ("yacht", _MIXTURE): ("0.436 ± 0.070", "-0.891 ± 0.523", "1.736", "-2.768"),
    ("boston", _OURS): ("2.506 ± 0.150", "-2.394 ± 0.080", "4.658", "-3.557"),
    ("boston", "RBF-ARD"): ("2.753 ± 0.137", "-2.434 ± 0.069", "6.390", "-4.063"),
    ("energy", _OURS): ("0.254 ± 0.020", "-0.213 ± 0.162", "0.459", "-0.649"),
    ("energy", "RBF-ARD"): ("0.471 ± 0.013", "-0.673 ± 0.035", "0.974", "-1.297"),
    ("concrete", _OURS): ("3.688 ± 0.249", "-2.842 ± 0.263", "6.242", "-3.112"),
    ("concrete", "RBF-ARD"): ("4.685 ± 0.137", "-2.948 ± 0.025", "8.531", "-3.246"),
    ("kin8nm", _OURS): ("0.067 ± 0.001", "1.291 ± 0.006", "0.086", "1.057"),
    ("kin8nm", "RBF-ARD"): ("0.068 ± 0.001", "1.287 ± 0.007", "0.093", "0.998"),
}


def run(set: str, split: str, method: str, starts: int, iterations: int, steps: int) -> dict:
    """Return scores of one method on one split."""
    X, y, new_X, new_y = load_regression(set).split(split)
    recipe = Recipe(adam_steps=0, lbfgs_iterations=iterations)
    if method == _PAPER:
        starts, recipe = 1, replace(Recipe.paper(), adam_steps=steps)
    (mean, quantiles, density), fitting = timed(lambda: _fit(method, X, y, starts, recipe))

    def predict() -> tuple:
        lower, upper = quantiles(new_X, np.array([0.025, 0.975]))
        return mean(new_X), lower, upper, density(new_X, new_y, None)

    (means, lower, upper, densities), predicting = timed(predict)
    return {
        "rmse": float(np.sqrt(np.mean((means - new_y) ** 2))),
        "density": float(np.mean(densities)),
        "covered": float(np.mean((lower <= new_y) & (new_y <= upper))),
        "fit": fitting,
        "predict": predicting,
    }


def _warm_up(method: str) -> None:
    X = np.random.default_rng(0).uniform(size=(30, 2))
    y = np.sin(5 * X).sum(1)
    _fit(method, X, y, 1, Recipe(adam_steps=0, lbfgs_iterations=2))[0](X)


def _fit(method: str, X: np.ndarray, y: np.ndarray, starts: int, recipe: Recipe) -> Fitted:
    if method in (_OURS, _CONSTANT) or len(y) > _EXACT_ROWS:
        structure: str | NeuralKernelNetwork = "auto"
        if method in _PARTS:
            parts = _PARTS[method](X.shape[1])
            structure = NeuralKernelNetwork(parts, [Linear(len(parts), 1)])
        options: dict = {"restarts": starts, "recipe": recipe}
        model = NKNRegressor(structure, random_state=0, progress=False, **options)
        least_rows = math.inf if method == _CONSTANT else ensemble._SCALED_ROWS
        with patch.object(ensemble, "_SCALED_ROWS", least_rows):
            return of_estimator(model.fit(X, y))
    gp, initialize = _gp(method, *standardized(X, y, X, y)[:2])
    fit_best_of(gp, restarts=starts, recipe=recipe, initialize=initialize, seed=0, progress=False)

    def moments(new_X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        inputs = torch.from_numpy(standardized(X, y, new_X, y)[2])
        with torch.no_grad():
            new = gp.likelihood(gp(inputs))
        return y.mean() + y.std() * new.mean.numpy(), y.std() * new.stddev.numpy()

    return normal(moments)


def _gp(method: str, X: np.ndarray, y: np.ndarray) -> tuple[ExactGP, Callable]:
    dim = X.shape[1]
    if method == _MIXTURE:
        kernel: Kernel = SpectralMixtureKernel(num_mixtures=_MIXTURES, ard_num_dims=dim)
    elif method == _PAPER:
        kernel = NeuralKernelNetwork.regression(dim, priors=False)
    else:
        first, *others = _PARTS[method](dim)
        kernel = ScaleKernel(first)
        for other in others:
            kernel = kernel + other
    model = Regression(torch.from_numpy(X), torch.from_numpy(y), kernel).double()
    return model, _start_mixture if method == _MIXTURE else _start


def _start(model: ExactGP, seed: int, restart: int) -> None:
    initialize_model(model, seed=seed, restart=restart)


def _start_mixture(model: ExactGP, seed: int, restart: int) -> None:
    """Set start values like RBF lengthscales: frequencies near zero, from median distances."""
    initialize_model(model, seed=seed, restart=restart)  # the noise
    rng = np.random.default_rng([seed, restart, 2])
    kernel = model.covar_module
    medians = median_distances(model.train_inputs[0])
    shape = tuple(kernel.mixture_scales.shape)  # Q x 1 x D
    lengths = 0.6 * medians * torch.from_numpy(np.exp(rng.standard_normal(shape)))
    kernel.mixture_scales = 1 / (2 * math.pi * lengths)
    kernel.mixture_means = torch.from_numpy(rng.uniform(0.01, 0.05, shape)) / medians
    weights = torch.from_numpy(rng.dirichlet(np.full(_MIXTURES, 5.0)))
    kernel.mixture_weights = weights.clamp_min(1e-3)


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return scores on random and PCA splits, and gains over the better of RBF and Matern.

    If all rows are of NKNRegressor, they have a table without peers. Rows with constant noise are
    compared with learned noise.
    """
    random, pca = ([r for r in rows if (r["split"] == "pca") == ends] for ends in (False, True))
    if constant := [row for row in random if row["method"] == _CONSTANT]:
        ours = [row for row in random if row["method"] == _OURS]

        def gain(runs: list[dict]) -> str:
            return mean_and_error(paired(runs, constant, "density", "set", "split"), sign="+")

        cells = {"splits": len, "log density": mean("density", ".3f"), "gain": gain}
        return {"uci_noise": summary(ours, ("set",), cells)}
    if all(row["method"] == _OURS for row in rows):
        cells: dict[str, Cell] = {"ten random splits": _both(random), "PCA split": _both(pca)}
        return {"uci_now": summary(rows, ("set",), cells)}
    results = {"uci": _scores(random, 0), "uci_pca": _scores(pca, 2), "uci_gain": _gains(rows)}
    return {name: table for name, table in results.items() if table.rows}


def _both(rows: list[dict]) -> Cell:
    """Return RMSE and log density of the rows of a set."""

    def cell(runs: list[dict]) -> str:
        same = [row for row in rows if row["set"] == runs[0]["set"]]
        return ", ".join(mean_and_error([r[n] for r in same]) for n in ("rmse", "density") if same)

    return cell


def _seconds(runs: list[dict]) -> float:
    return statistics.fmean(row["fit"] + row["predict"] for row in runs)


def _scores(rows: list[dict], published: int) -> Table:
    def theirs(number: int) -> Cell:
        def cell(runs: list[dict]) -> str:
            name, method = runs[0]["set"], runs[0]["method"]
            key = name, _OURS if method == _PAPER else method
            return _PUBLISHED.get(key, ("",) * 4)[number]

        return cell

    cells: dict[str, Cell] = {} if published else {"splits": len}
    cells |= {
        "RMSE": lambda runs: mean_and_error([row["rmse"] for row in runs]),
        "log density": lambda runs: mean_and_error([row["density"] for row in runs]),
        "95 % coverage": mean("covered", ".1%"),
        "fit CPU s": mean("fit", ".3g"),
        "predict CPU s": mean("predict", ".3g"),
        "published RMSE": theirs(published),
        "published log density": theirs(published + 1),
    }
    return summary(rows, ("set", "method"), cells)


def _gains(rows: list[dict]) -> Table:
    """Return paired differences of the log density to the better of RBF and Matern."""
    lines = []
    for name, runs in grouped(rows, "set").items():
        here = grouped(runs, "method")
        ours, peers = here.get(_OURS), {m: here[m] for m in _PEERS if m in here}
        if not ours or len(peers) < 2:
            continue
        line: dict[str, str] = {"set": name}
        for ends in (False, True):
            split = {m: [r for r in o if (r["split"] == "pca") == ends] for m, o in peers.items()}
            if not all(split.values()):
                continue
            best = max(split, key=lambda m: statistics.fmean(r["density"] for r in split[m]))
            gaps = paired(ours, split[best], "density", "split")
            if ends:
                line["PCA split"] = f"{gaps[0]:+.3f} ({best})"
                continue
            error = statistics.stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
            line["better of RBF and Matern"], line["splits"] = best, str(len(gaps))
            line["log density of ours less theirs"] = mean_and_error(gaps, sign="+")
            line["in standard errors"] = f"{statistics.fmean(gaps) / error:+.1f}"
        for title, peer in zip(("time of ours / RBF", "/ Matern"), _PEERS, strict=True):
            line[title] = f"{_seconds(ours) / _seconds(peers[peer]):.2f}"
        lines.append(line)
    return Table.of(lines)


BENCHMARK = Benchmark(
    {
        "set": Axis(["yacht", "boston", "energy", "concrete", "kin8nm"]),
        "split": Axis([*map(str, range(10)), "pca"]),
        "method": Axis([_OURS, *_PARTS, _MIXTURE, _PAPER, _CONSTANT], [_OURS, *_PARTS]),
    },
    run,
    tables,
    settings={"starts": 2, "iterations": 120, "steps": 20_000},
    possible=lambda job: job["set"] not in _LARGE or job["method"] not in (_PAPER, _MIXTURE),
    warm_up=_warm_up,
)

if __name__ == "__main__":
    BENCHMARK.command()
