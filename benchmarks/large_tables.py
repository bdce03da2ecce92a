"""Models of a table of many rows: RMSE, log density, time and memory, each in its own process.

The table has 8 columns, uniform on [0, 1], and a function of them plus noise: ``waves`` (additive
parts and products, noise of 0.3) or ``arm`` (the distance from a point to the end of a plane robot
arm of eight links, as in the kin family of tables, noise of 0.2).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from scipy.stats import norm

from benchmarks.report import Table
from benchmarks.runner import Axis, Benchmark, boosting, peak_gigabytes, timed
from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.models import SparseNKNGP, VariationalNKNGP, fit_sparse_gp, fit_variational_gp

__all__ = ["BENCHMARK"]

_TITLES = {
    "svgp-network": "VariationalNKNGP, network",
    "svgp-rbf": "VariationalNKNGP, RBF-ARD",
    "sgpr-network": "SparseNKNGP, network",
    "regressor": "NKNRegressor",
    "lightgbm": "LightGBM, early stopping",
}


def run(function: str, method: str, rows: int, inducing: int, epochs: int, batch: int) -> dict:
    """Return scores of 20,000 new observations and of the function, time and memory."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(rows + 20_000, 8))
    make, noise = _FUNCTIONS[function]
    f = np.concatenate([make(block) for block in np.array_split(x, 1 + len(x) // 20_000)])
    y = f + noise * rng.standard_normal(len(x))
    kind = method.split("-")[0]
    fit = {"svgp": _sparse, "sgpr": _sparse, "lightgbm": _lightgbm}
    options = {"inducing": inducing, "epochs": epochs, "batch": batch}
    train = fit.get(kind, _regressor)
    predict, fitting = timed(lambda: train(method, x[:rows], y[:rows], **options))
    (mean, density), predicting = timed(lambda: predict(x[rows:], y[rows:]))
    return {
        "rmse": float(np.sqrt(np.mean((mean - y[rows:]) ** 2))),
        "density": float(density),
        "function_rmse": float(np.sqrt(np.mean((mean - f[rows:]) ** 2))),
        "fit": fitting,
        "predict": predicting,
        "peak": peak_gigabytes(),
    }


def _sparse(method: str, x: np.ndarray, y: np.ndarray, inducing: int, epochs: int, batch: int):
    def tensor(x: np.ndarray) -> torch.Tensor:  # unit variance, as presets expect
        return torch.from_numpy(math.sqrt(12) * (x - 0.5))

    kind, kernel = method.split("-")
    structure = ScaleKernel(RBFKernel(ard_num_dims=8)) if kernel == "rbf" else "tabular"
    options = {"structure": structure, "inducing_points": inducing, "seed": 0}
    targets = torch.from_numpy(y).unsqueeze(-1)
    if kind == "svgp":
        model = VariationalNKNGP(tensor(x), targets, **options)
        fit_variational_gp(model, epochs=epochs, batch_size=batch, seed=0)
    else:
        model = SparseNKNGP(tensor(x), targets, **options)
        fit_sparse_gp(model, max_iterations=20, seed=0, progress=False)

    def predict(x: np.ndarray, y: np.ndarray) -> tuple:
        moments = model.predict(tensor(x), observation_noise=True)
        mean, variance = (moment.squeeze(-1).numpy() for moment in moments)
        return mean, norm.logpdf(y, mean, np.sqrt(variance)).mean()

    return predict


def _regressor(method: str, x: np.ndarray, y: np.ndarray, inducing: int, **_):
    model = NKNRegressor(num_inducing=inducing, random_state=0, progress=False)
    model.fit(x, y)
    return lambda x, y: (model.predict(x), model.log_predictive_density(x, y).mean())


def _lightgbm(method: str, x: np.ndarray, y: np.ndarray, **_):
    from lightgbm import early_stopping

    tenth = len(y) // 10
    model = boosting("lightgbm", "Regressor", 0, n_estimators=5000, num_leaves=63)
    callbacks = [early_stopping(20, verbose=False)]
    model.fit(x[tenth:], y[tenth:], eval_set=[(x[:tenth], y[:tenth])], callbacks=callbacks)
    return lambda x, y: (model.predict(x), math.nan)


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


_FUNCTIONS = {"waves": (_waves, 0.3), "arm": (_arm, 0.2)}


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return a row for each model, the oracle last."""
    by_table: dict[str, list[dict]] = {}
    for row in rows:
        name = "large_tables_million" if row["rows"] > 500_000 else "large_tables"
        by_table.setdefault(name, []).append(
            {
                "model": _TITLES[row["method"]],
                "RMSE": f"{row['rmse']:.4f}",
                "log density": "" if math.isnan(row["density"]) else f"{row['density']:.4f}",
                "RMSE of the function": f"{row['function_rmse']:.4f}",
                "CPU s, fit": f"{row['fit']:.0f}",
                "predict": f"{row['predict']:.0f}",
                "peak GB": f"{row['peak']:.2f}",
            }
        )
    noise = _FUNCTIONS[rows[0]["function"]][1]
    density = -0.5 * math.log(2 * math.pi * math.e * noise**2)
    oracle = {"model": "oracle", "RMSE": f"{noise:.4f}", "log density": f"{density:.4f}"}
    return {name: Table.of([*lines, oracle]) for name, lines in by_table.items()}


BENCHMARK = Benchmark(
    {
        "function": Axis(list(_FUNCTIONS), ("waves",)),
        "method": Axis(list(_TITLES), list(_TITLES)[:4]),
    },
    run,
    tables,
    settings={"rows": 100_000, "inducing": 500, "epochs": 3, "batch": 1000},
    needs={"lightgbm": "lightgbm"},
    fresh=True,
    one_thread=False,
)

if __name__ == "__main__":
    BENCHMARK.command()
