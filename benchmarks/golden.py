"""What a change of the package must not change: scores and relative times of small cases.

``python -m benchmarks.golden`` runs the cases (10 minutes on one thread) and compares each figure
with ``benchmarks/results/golden.csv``. A finished case adds a line to a file, so that a second call
goes on where the first one ended; a change of the package's code starts anew. A score may differ by
one standard error, over series, rows, blocks of pixels or seeds. Times are processor times in units
of a training step of GPyTorch's RBF kernel (N = 500, or the N of the row), measured in turn with
it. ``--write`` replaces the committed table. GPYTORCH_NKN_DATA names the folder of the data.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.optim import optimize_acqf
from botorch.test_functions import Hartmann, StyblinskiTang
from threadpoolctl import threadpool_limits

import gpytorch_nkn
from benchmarks import forecast_panel
from benchmarks.data import (
    load_askl_table,
    load_dank_table,
    load_regression,
    load_series,
    load_texture,
)
from benchmarks.photographs import mask_of, photograph
from benchmarks.report import Table, read_table, write_table
from benchmarks.step import training_step
from gpytorch_nkn.estimators import ASKLClassifier, DANKClassifier, NKNForecaster, NKNRegressor
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.grids import inpaint
from gpytorch_nkn.models import StructureEnsembleGP, fit_structure_ensemble_gp

__all__ = ["CASES", "compare", "main"]

Figures = dict[str, tuple[float, float]]  # value and tolerance by name

_SIZES = {144: 40, 500: 20, 2000: 5}  # turns by number of points
_COMPILED, _UNCOMPILED, _WHOLE_FIT = 1.1, 1.5, 1.5  # allowed ratios of times


# -- scores


def _mean(values: np.ndarray) -> tuple[float, float]:
    """Mean and its standard error."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values)))


def _rmse(errors: np.ndarray) -> tuple[float, float]:
    """Root mean square and its standard error, by the delta method."""
    mean, error = _mean(np.square(errors))
    return math.sqrt(mean), error / (2 * math.sqrt(mean))


def _geometric(values: Sequence[float]) -> tuple[float, float]:
    mean, error = _mean(np.log(values))
    return math.exp(mean), math.exp(mean) * error


def _by_blocks(values: np.ndarray) -> tuple[float, float]:
    """Mean and its standard error over 16 blocks, as neighbours are alike."""
    blocks = np.array([part.mean() for part in np.array_split(values, 16)])
    return float(np.mean(values)), _mean(blocks)[1]


# -- cases


def _panel() -> Figures:
    """Every third series: its last horizon from all that came before."""
    rows = [forecast_panel.run(series, 0, "default", "panel") for series in range(0, 57, 3)]
    scores = [forecast_panel.score(r["forecast"], r["truth"], r["scale"]) for r in rows]
    return {
        "MASE, geometric mean": _geometric([one["mase"] for one in scores]),
        "MSIS, geometric mean": _geometric([one["msis"] for one in scores]),
        "coverage of 95 %": _mean(np.array([one["95"] for one in scores])),
    }


def _table(name: str) -> Figures:
    """Split 0 of a table of Sun et al. (2018)."""
    return _regression(*load_regression(name).split(0))


def _gaps() -> Figures:
    """Miles per gallon with the origin as a category and a tenth of the cells empty."""
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
    return _regression(frame.iloc[train], y[train], frame.iloc[test], y[test])


def _regression(X, y: np.ndarray, new_X, new_y: np.ndarray) -> Figures:
    return _errors(NKNRegressor(random_state=0, progress=False).fit(X, y), new_X, new_y)


def _errors(model: NKNRegressor | NKNForecaster, new_X, new_y: np.ndarray) -> Figures:
    return {
        "RMSE": _rmse(model.predict(new_X) - new_y),
        "log density": _mean(model.log_predictive_density(new_X, new_y)),
    }


def _optimisation(function, evaluations: int, seeds: Sequence[int]) -> Figures:
    """Gap to the optimum, in decades, of Bayesian optimisation averaged over structures."""
    lower, upper = function.bounds.double()
    gaps = []
    for seed in seeds:
        torch.manual_seed(seed)
        x = torch.rand(10, function.dim, dtype=torch.float64)
        y = -function.evaluate_true(lower + (upper - lower) * x)
        unit = torch.stack([torch.zeros_like(x[0]), torch.ones_like(x[0])])
        while len(y) < evaluations:
            model = fit_structure_ensemble_gp(StructureEnsembleGP(x, y.unsqueeze(-1)))
            point, _ = optimize_acqf(
                LogExpectedImprovement(model, best_f=y.max()),
                unit,
                q=1,
                num_restarts=4,
                raw_samples=128,
                options={"batch_limit": 4, "maxiter": 60},
            )
            x = torch.cat([x, point])
            y = torch.cat([y, -function.evaluate_true(lower + (upper - lower) * point)])
        gaps.append(math.log10(float(-y.max()) - function.optimal_value))
    value, error = _mean(np.array(gaps))
    return {"log10 gap": (value, max(error, 0.25))}  # two seeds tell little of the spread


def _plate() -> Figures:
    """The hole of Sun et al. (2018) in the metal plate."""
    texture = load_texture("plate")
    scale = texture.image[texture.mask].var()
    return _fill(texture.image.astype(float), texture.mask, "SMSE", scale)


def _photograph() -> Figures:
    """Scratches in the photograph of the camera man."""
    return _fill(photograph("camera"), mask_of("scratches"), "squared error", 1.0)


def _fill(truth: np.ndarray, mask: np.ndarray, name: str, scale: float) -> Figures:
    result = inpaint(np.where(mask, np.nan, truth), seed=0, progress=False)
    errors = np.square((result.filled - truth)[mask]) / scale
    inside = np.abs(result.mean - truth) < 1.96 * result.std
    return {name: _by_blocks(errors), "coverage of 95 %": _by_blocks(inside[mask])}


def _satimage() -> Figures:
    """Spectral kernel learning on half of the table, with 500 features and ten epochs."""
    table = load_askl_table("satimage")
    order = np.random.default_rng(0).permutation(len(table.y))
    train, test = order[: len(order) // 2], order[len(order) // 2 :]
    model = ASKLClassifier(n_components=500, max_iter=10, random_state=0)
    model.fit(table.X[train], table.y[train])
    return {"accuracy": _mean(model.predict(table.X[test]) == table.y[test])}


def _dank() -> Figures:
    """Data-adaptive kernels on five halves of heart."""
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
    """The network of the paper by its recipe, and the last tenth of the passengers."""
    x, y, test = load_series("airline")
    options = {"priors": False, "restarts": 1, "recipe": Recipe.paper(), "progress": False}
    model = NKNForecaster("time_series", random_state=0, **options).fit(x[~test], y[~test])
    return _errors(model, x[test], y[test])


# -- times


def _seconds(run: Callable[[], object]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


def _stock(num_points: int) -> Callable[[], object]:
    return training_step("RBF, stock", 1, num_points)


# A way of ``benchmarks.step``, the training steps in a call, the allowed ratio.
_WAYS = {
    "drop-in": ("compiled drop-in", 1, _COMPILED),
    "own likelihood": ("compiled, our likelihood", 1, _COMPILED),
    "plain": ("network, plain", 1, _UNCOMPILED),
    "without compiled code": ("drop-in", 1, _UNCOMPILED),
    "training": ("compiled fused loss", 40, _COMPILED),
}


def _steps() -> Figures:
    """A training step of the network beside one of a stock RBF kernel."""
    found: Figures = {}
    for size, turns in _SIZES.items():
        base = _stock(size)
        steps = {
            name: training_step(way, 1, size, steps=number, lazily=True)
            for name, (way, number, _) in _WAYS.items()
        }
        for step in (base, *steps.values()):
            step()
        for name, (_, number, allowed) in _WAYS.items():
            count = turns if number == 1 else math.ceil(turns / 5)
            pairs = [(_seconds(steps[name]) / number, _seconds(base)) for _ in range(count)]
            found[f"{name}, N = {size}"] = median(own / stock for own, stock in pairs), allowed
    return found


def _imports() -> Figures:
    """Seconds of imports beside ``import gpytorch``."""
    ratios: dict[str, list[float]] = {name: [] for name in ("kernels", "models", "estimators")}
    for _ in range(7):
        base = _seconds_elsewhere("import gpytorch")
        for name, found in ratios.items():
            found.append(_seconds_elsewhere(f"from gpytorch_nkn.{name} import *") / base)
    return {name: (median(found), _COMPILED) for name, found in ratios.items()}


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
    "scratches": _photograph,
    "satimage": _satimage,
    "heart": _dank,
    "airline, paper": _airline,
}
_TIMES = ("step", "import")  # cases whose figures are times
_TIME_OF_CASE = "fit time"


def _run(case: str) -> dict[str, list[float]]:
    """Figures of a case, with its processor time in steps of the stock kernel."""
    if case in _TIMES:
        return {name: list(figure) for name, figure in CASES[case]().items()}
    unit = _stock(500)
    before = [_seconds(unit) for _ in range(6)][1:]
    found: Figures = {}
    total = _seconds(lambda: found.update(CASES[case]()))
    after = [_seconds(unit) for _ in range(5)]
    found[_TIME_OF_CASE] = total / median(before + after), _WHOLE_FIT
    print(f"{case}: {total:.0f} CPU s", file=sys.stderr, flush=True)
    return {name: list(figure) for name, figure in found.items()}


def compare(committed: Mapping[str, str], value: float) -> bool:
    """Whether a figure is as good as the committed one of a row: no slower, scores alike."""
    old, allowed = float(committed["value"]), float(committed["tolerance"])
    if committed["kind"] == "time ratio":
        return value <= old * allowed
    return abs(value - old) <= allowed


def _code() -> int:
    """Checksum of the package's code."""
    folder = Path(gpytorch_nkn.__file__).parent
    paths = sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".so", ".cpp"))
    return zlib.crc32(b"".join(path.read_bytes() for path in paths))


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing, print the table, say what differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.golden", description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=tuple(CASES), metavar="CASE")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/.golden.jsonl"))
    parser.add_argument("--write", action="store_true", help="replace the committed table")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    code, done = _code(), {}
    lines = args.results.read_text(encoding="utf-8") if args.results.exists() else ""
    for record in map(json.loads, lines.splitlines()):
        if record["code"] == code:
            done[record["case"]] = record["figures"]
    args.results.parent.mkdir(parents=True, exist_ok=True)
    for case in args.cases:
        if case not in done:
            with warnings.catch_warnings(), threadpool_limits(1):
                warnings.simplefilter("ignore")
                done[case] = _run(case)
            with args.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"code": code, "case": case, "figures": done[case]}) + "\n")
    rows = [
        {
            "case": case,
            "figure": name,
            "value": f"{value:.4g}",
            "tolerance": f"{tolerance:.3g}",
            "kind": "time ratio" if case in _TIMES or name == _TIME_OF_CASE else "score",
        }
        for case in args.cases
        for name, (value, tolerance) in done[case].items()
    ]
    if args.write:
        write_table("golden", Table.of(rows))
    table = read_table("golden")
    committed = {tuple(row[:2]): dict(zip(table.columns, row, strict=True)) for row in table.rows}
    shown = []
    for row in rows:
        old = committed.get((row["case"], row["figure"]), {})
        same = bool(old) and compare(old, float(row["value"]))
        sign = "x" if old.get("kind") == "time ratio" else "±"
        shown.append(
            {
                "case": row["case"],
                "figure": row["figure"],
                "committed": old.get("value", ""),
                "now": row["value"],
                "tolerance": sign + old.get("tolerance", ""),
                "": "" if same else "**differs**",
            }
        )
    differences = sum(bool(line[""]) for line in shown)
    print(f"{Table.of(shown).markdown()}\n{differences} of {len(rows)} figures differ.")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
