"""Scores and relative times of small cases, which a change of the package must preserve.

``python -m benchmarks.golden`` runs the cases (10 minutes on one thread) and compares each figure
with ``benchmarks/results/golden.csv``. After a change of the package's code all cases run again. A
score may differ by one standard error, over series, rows, blocks of pixels or seeds. Times are
processor times in units of a training step of GPyTorch's RBF kernel (N = 500, or the N of the row),
measured in turn with it. GPYTORCH_NKN_DATA names the folder of the data.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
from botorch.test_functions import Hartmann, StyblinskiTang
from threadpoolctl import threadpool_limits

import gpytorch_nkn
from benchmarks import forecast_panel
from benchmarks.bo_loop import Problem, run_loop
from benchmarks.data import (
    load_askl_table,
    load_dank_table,
    load_regression,
    load_series,
    load_texture,
)
from benchmarks.photographs import mask_of, photograph
from benchmarks.report import Table, read_table
from benchmarks.runner import Axis, Benchmark
from benchmarks.step import training_step
from gpytorch_nkn.estimators import ASKLClassifier, DANKClassifier, NKNForecaster, NKNRegressor
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.grids import inpaint
from gpytorch_nkn.kernels import NeuralKernelNetwork

__all__ = ["BENCHMARK", "CASES", "compare", "main"]

Figures = dict[str, tuple[float, float]]  # value and tolerance by name

_SIZES = {144: 40, 500: 20, 2000: 5}  # turns by number of points
_COMPILED, _UNCOMPILED, _WHOLE_FIT = 1.1, 1.5, 1.5  # allowed ratios of times


def _mean(values: np.ndarray) -> tuple[float, float]:
    """Return a mean and its standard error."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values)))


def _rmse(errors: np.ndarray) -> tuple[float, float]:
    """Return a root mean square and its standard error, by the delta method."""
    mean, error = _mean(np.square(errors))
    return math.sqrt(mean), error / (2 * math.sqrt(mean))


def _geometric(values: Sequence[float]) -> tuple[float, float]:
    mean, error = _mean(np.log(values))
    return math.exp(mean), math.exp(mean) * error


def _by_blocks(values: np.ndarray) -> tuple[float, float]:
    """Return a mean and its standard error over 16 blocks, because neighbours are similar."""
    blocks = np.array([block.mean() for block in np.array_split(values, 16)])
    return float(np.mean(values)), _mean(blocks)[1]


def _panel() -> Figures:
    """Forecast the last horizon of every third series from all earlier values."""
    rows = [forecast_panel.run(series, 0, "default", "panel") for series in range(0, 57, 3)]
    scores = [forecast_panel.score(r["forecast"], r["truth"], r["scale"]) for r in rows]
    return {
        "MASE, geometric mean": _geometric([score["mase"] for score in scores]),
        "MSIS, geometric mean": _geometric([score["msis"] for score in scores]),
        "coverage of 95 %": _mean(np.array([score["95"] for score in scores])),
    }


def _table(name: str) -> Figures:
    """Score split 0 of a table of Sun et al. (2018)."""
    X, y, *new = load_regression(name).split(0)
    return _errors(NKNRegressor(random_state=0, progress=False).fit(X, y), *new)


def _gaps() -> Figures:
    """Predict miles per gallon, with the origin as a category and a tenth of the cells missing."""
    table = load_dank_table("mpg")
    frame, y = pd.DataFrame(table.X), table.y
    frame.columns = [f"x{column}" for column in frame.columns]
    rng = np.random.default_rng(0)
    frame = frame.mask(rng.random(frame.shape) < 0.1)
    last = frame.columns[-1]
    codes = frame[last].rank(method="dense")
    frame[last] = codes.map(lambda code: None if np.isnan(code) else f"kind {code:.0f}")
    order = rng.permutation(len(y))
    train, test = order[60:], order[:60]
    model = NKNRegressor(random_state=0, progress=False).fit(frame.iloc[train], y[train])
    return _errors(model, frame.iloc[test], y[test])


def _errors(model: NKNRegressor | NKNForecaster, new_X, new_y: np.ndarray) -> Figures:
    return {
        "RMSE": _rmse(model.predict(new_X) - new_y),
        "log density": _mean(model.log_predictive_density(new_X, new_y)),
    }


def _optimisation(function, evaluations: int, seeds: Sequence[int]) -> Figures:
    """Return the regret, in decades, of Bayesian optimisation averaged over structures."""
    bounds, optimum = function.bounds.double(), function.optimal_value
    problem = Problem(type(function).__name__, function.evaluate_true, bounds, optimum)
    runs = [run_loop(problem, "structures", seed, evaluations)["y"] for seed in seeds]
    gaps = [math.log10(min(values) - optimum) for values in runs]
    value, error = _mean(np.array(gaps))
    return {"log10 gap": (value, max(error, 0.25))}  # two seeds determine the variation poorly


def _plate() -> Figures:
    """Fill the hole of Sun et al. (2018) in the metal plate."""
    image, mask = load_texture("plate")
    return _fill(image, mask, "SMSE", image[mask].var())


def _fill(truth: np.ndarray, mask: np.ndarray, name: str, scale: float) -> Figures:
    result = inpaint(np.where(mask, np.nan, truth), seed=0, progress=False)
    errors = np.square((result.filled - truth)[mask]) / scale
    inside = np.abs(result.mean - truth) < 1.96 * result.std
    return {name: _by_blocks(errors), "coverage of 95 %": _by_blocks(inside[mask])}


def _satimage() -> Figures:
    """Score spectral kernel learning on half of a table, with 500 features and ten epochs."""
    table = load_askl_table("satimage")
    order = np.random.default_rng(0).permutation(len(table.y))
    train, test = order[: len(order) // 2], order[len(order) // 2 :]
    model = ASKLClassifier(n_components=500, max_iter=10, random_state=0)
    model.fit(table.X[train], table.y[train])
    return {"accuracy": _mean(model.predict(table.X[test]) == table.y[test])}


def _dank() -> Figures:
    """Score data-adaptive kernels on five halves of heart."""
    table = load_dank_table("heart")
    X, y = (table.X - table.X.min(0)) / np.ptp(table.X, axis=0), table.y
    right = []
    for seed in range(5):
        order = np.random.default_rng(100 + seed).permutation(len(y))
        train, test = order[: len(y) // 2], order[len(y) // 2 :]
        model = DANKClassifier(random_state=seed).fit(X[train], y[train])
        right.append(np.mean(model.predict(X[test]) == y[test]))
    return {"accuracy": _mean(np.array(right))}


def _airline() -> Figures:
    """Train the paper's network by its recipe, and forecast the last tenth of the passengers."""
    x, y, test = load_series("airline")
    network = NeuralKernelNetwork.time_series(priors=False)
    options = {"restarts": 1, "recipe": Recipe.paper(), "progress": False}
    model = NKNForecaster(network, random_state=0, **options).fit(x[~test], y[~test])
    return _errors(model, x[test], y[test])


def _seconds(run: Callable[[], object]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


# A way of ``benchmarks.step``, the training steps in a call, the allowed ratio.
_WAYS = {
    "drop-in": ("compiled drop-in", 1, _COMPILED),
    "own likelihood": ("compiled, our likelihood", 1, _COMPILED),
    "plain": ("network, plain", 1, _UNCOMPILED),
    "without compiled code": ("drop-in", 1, _UNCOMPILED),
    "training": ("compiled fused loss", 40, _COMPILED),
}


def _steps() -> Figures:
    """Time a training step of the network relative to GPyTorch's RBF kernel."""
    figures: Figures = {}
    for size, turns in _SIZES.items():
        base = training_step("RBF, stock", 1, size)
        steps = {
            name: training_step(way, 1, size, steps=number, lazily=True)
            for name, (way, number, _) in _WAYS.items()
        }
        for step in (base, *steps.values()):
            step()
        for name, (_, number, allowed) in _WAYS.items():
            count = turns if number == 1 else math.ceil(turns / 5)
            pairs = [(_seconds(steps[name]) / number, _seconds(base)) for _ in range(count)]
            figures[f"{name}, N = {size}"] = median(ours / stock for ours, stock in pairs), allowed
    return figures


def _imports() -> Figures:
    """Time imports relative to ``import gpytorch``."""
    ratios: dict[str, list[float]] = {name: [] for name in ("kernels", "models", "estimators")}
    for _ in range(7):
        base = _seconds_elsewhere("import gpytorch")
        for name, values in ratios.items():
            values.append(_seconds_elsewhere(f"from gpytorch_nkn.{name} import *") / base)
    return {name: (median(values), _COMPILED) for name, values in ratios.items()}


def _seconds_elsewhere(code: str) -> float:
    code = f"import time; b = time.process_time(); {code}; print(time.process_time() - b)"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(run.stdout)


CASES: dict[str, Callable[[], Figures]] = {
    "step": _steps,
    "import": _imports,
    "panel": _panel,
    "yacht": partial(_table, "yacht"),
    "concrete": partial(_table, "concrete"),
    "mpg with gaps": _gaps,
    "hartmann6": partial(_optimisation, Hartmann(6), 40, (0, 1)),
    "stybtang10": partial(_optimisation, StyblinskiTang(10), 40, (0, 1)),
    "plate": _plate,
    "scratches": lambda: _fill(photograph("camera"), mask_of("scratches"), "squared error", 1.0),
    "satimage": _satimage,
    "heart": _dank,
    "airline, paper": _airline,
}
_TIMES = ("step", "import")  # cases whose figures are times
_TIME_OF_CASE = "fit time"


def run(case: str, code: int) -> dict:
    """Return figures of a case, with its processor time in steps of GPyTorch's RBF kernel."""
    with threadpool_limits(1):
        if case in _TIMES:
            return {"figures": CASES[case]()}
        unit = training_step("RBF, stock", 1, 500)
        before = [_seconds(unit) for _ in range(6)][1:]
        figures: Figures = {}
        total = _seconds(lambda: figures.update(CASES[case]()))
        after = [_seconds(unit) for _ in range(5)]
        figures[_TIME_OF_CASE] = total / median(before + after), _WHOLE_FIT
        return {"seconds": total, "figures": figures}


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return a row for each figure."""
    lines = [
        {
            "case": row["case"],
            "figure": name,
            "value": f"{value:.4g}",
            "tolerance": f"{tolerance:.3g}",
            "kind": "time ratio" if row["case"] in _TIMES or name == _TIME_OF_CASE else "score",
        }
        for row in rows
        for name, (value, tolerance) in row["figures"].items()
    ]
    return {"golden": Table.of(lines)}


def compare(committed: Mapping[str, str], value: float) -> bool:
    """Return whether a figure is as good as the committed figure: not slower, equal scores."""
    old, allowed = float(committed["value"]), float(committed["tolerance"])
    if committed["kind"] == "time ratio":
        return value <= old * allowed
    return abs(value - old) <= allowed


def _code() -> int:
    """Return a checksum of the package's code."""
    folder = Path(gpytorch_nkn.__file__).parent
    paths = sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".so", ".cpp"))
    return zlib.crc32(b"".join(path.read_bytes() for path in paths))


BENCHMARK = Benchmark({"case": Axis(list(CASES))}, run, tables, settings={"code": _code()})


def main(argv: Sequence[str] | None = None) -> int:
    """Run missing cases, and print the table and the differences."""
    old = read_table("golden")
    committed = {tuple(row[:2]): dict(zip(old.columns, row, strict=True)) for row in old.rows}
    now: list[list[str]] = []

    def remembered(rows: list[dict]) -> dict[str, Table]:
        results = tables(rows)
        now.extend(results["golden"].rows)
        return results

    failures = replace(BENCHMARK, tables=remembered).main(argv)
    differences = 0
    for case, figure, value, *_ in now:
        row = committed.get((case, figure))
        if row is None or not compare(row, float(value)):
            differences += 1
            was = f"{row['value']}, tolerance {row['tolerance']}" if row else "nothing"
            print(f"{case}, {figure}: {value} where {was} is committed")
    print(f"{differences} of {len(now)} figures differ.")
    return 1 if differences or failures else 0


if __name__ == "__main__":
    sys.exit(main())
