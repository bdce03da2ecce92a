"""What a change of the package must not change: scores and relative times of small cases.

``python -m benchmarks.golden`` runs the cases (10 minutes on one thread) and compares each figure
with ``benchmarks/results/golden.csv``. A finished case adds a line to a file, so that a second call
goes on where the first one ended; a change of the package's code starts anew. A score may differ by
one standard error, over series, rows, blocks of pixels or seeds. Times are processor times in units
of a training step of GPyTorch's RBF kernel (N = 500, or the N of the row), measured in turn with
it. ``--write`` replaces the committed table. GPYTORCH_NKN_DATA names the folder of the data.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy and torch read them

import argparse  # noqa: E402
import csv  # noqa: E402
import json  # noqa: E402
import math  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
import zlib  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402
from statistics import median  # noqa: E402

import gpytorch  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import torch  # noqa: E402
from botorch.acquisition import LogExpectedImprovement  # noqa: E402
from botorch.optim import optimize_acqf  # noqa: E402
from botorch.test_functions import Hartmann, StyblinskiTang  # noqa: E402
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel  # noqa: E402
from gpytorch.mlls import ExactMarginalLogLikelihood  # noqa: E402

import gpytorch_nkn  # noqa: E402
from benchmarks.photographs import mask_of, photograph  # noqa: E402
from benchmarks.step import Regression  # noqa: E402
from gpytorch_nkn.estimators import (  # noqa: E402
    ASKLClassifier,
    DANKClassifier,
    NKNForecaster,
    NKNRegressor,
)
from gpytorch_nkn.fit import Recipe, fit_best_of  # noqa: E402
from gpytorch_nkn.grids import inpaint  # noqa: E402
from gpytorch_nkn.kernels import NeuralKernelNetwork  # noqa: E402
from gpytorch_nkn.mlls import AnalyticExactMarginalLogLikelihood  # noqa: E402
from gpytorch_nkn.models import StructureEnsembleGP, fit_structure_ensemble_gp  # noqa: E402
from gpytorch_nkn.settings import kernel_evaluation  # noqa: E402

__all__ = ["CASES", "compare", "main"]

Figures = dict[str, tuple[float, float]]  # value and tolerance by name

_COMMITTED = Path(__file__).parent / "results" / "golden.csv"
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


def _blocks(errors: np.ndarray) -> tuple[float, float]:
    """Mean of squares and its standard error over 16 blocks, as errors of neighbours are alike."""
    value, _ = _mean(np.square(errors))
    return value, _mean([np.square(part).mean() for part in np.array_split(errors, 16)])[1]


def _data(path: str) -> Path:
    root = os.environ.get("GPYTORCH_NKN_DATA")
    if not root:
        raise FileNotFoundError("Set GPYTORCH_NKN_DATA to the folder of the benchmark data.")
    return Path(root) / path


# -- cases


def _panel() -> Figures:
    """Every third series: its last horizon from all that came before."""
    facts = json.loads(_data("forecast_panel/panel.json").read_text(encoding="utf-8"))
    groups = dict(list(pd.read_csv(_data("forecast_panel/panel.csv")).groupby("unique_id")))
    mase, msis, inside = [], [], []
    for name, fact in list(facts.items())[::3]:
        x, y = (groups[name][column].to_numpy(float) for column in "xy")
        horizon, season = fact["horizon"], fact["season"]
        train_x, train_y, new_x, new_y = x[:-horizon], y[:-horizon], x[-horizon:], y[-horizon:]
        step = float(np.median(np.diff(np.unique(train_x))))
        told = "auto" if season > 24 else [season * step] if season > 1 else []
        model = NKNForecaster(seasons=told, horizon=horizon, random_state=0, progress=False)
        model.fit(train_x, train_y)
        lower, upper = model.predict_interval(new_x)
        scale = np.abs(train_y[season:] - train_y[:-season]).mean()
        beyond = np.maximum(lower - new_y, 0) + np.maximum(new_y - upper, 0)
        mase.append(np.abs(model.predict(new_x) - new_y).mean() / scale)
        msis.append((upper - lower + 40 * beyond).mean() / scale)
        inside.append(np.mean(beyond == 0))
    return {
        "MASE, geometric mean": _geometric(mase),
        "MSIS, geometric mean": _geometric(msis),
        "coverage of 95 %": _mean(np.array(inside)),
    }


def _geometric(values: Sequence[float]) -> tuple[float, float]:
    mean, error = _mean(np.log(values))
    return math.exp(mean), math.exp(mean) * error


def _table(name: str) -> Figures:
    """Split 0 of a table of Sun et al. (2018)."""
    with np.load(_data(f"uci_regression/{name}.npz")) as file:
        X, y, test = file["X"].astype(float), file["y"].astype(float), file["nkn_test_idx"][0]
    train = np.setdiff1d(np.arange(len(y)), test)
    return _regression(X[train], y[train], X[test], y[test])


def _gaps() -> Figures:
    """Miles per gallon with the origin as a category and a tenth of the cells empty."""
    with np.load(_data("dank/mpg.npz")) as file:
        frame, y = pd.DataFrame(file["X"].astype(float)), file["y"].astype(float)
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
    model = NKNRegressor(random_state=0, progress=False).fit(X, y)
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
        previous = None
        while len(y) < evaluations:
            model = StructureEnsembleGP(x, y.unsqueeze(-1))
            previous = fit_structure_ensemble_gp(model, previous=previous)
            point, _ = optimize_acqf(
                LogExpectedImprovement(previous, best_f=y.max()),
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
    with np.load(_data("textures/plate.npz")) as file:
        truth = file["gray"].astype(float)
    mask = np.zeros(truth.shape, dtype=bool)
    mask[60:120, 80:160] = True
    return _fill(truth, mask, "SMSE", lambda error: error / truth[mask].var())


def _photograph() -> Figures:
    """Scratches in the photograph of the camera man."""
    truth, mask = photograph("camera"), mask_of("scratches")
    return _fill(truth, mask, "squared error", lambda error: error)


def _fill(truth: np.ndarray, mask: np.ndarray, name: str, scaled: Callable) -> Figures:
    result = inpaint(np.where(mask, np.nan, truth), seed=0, progress=False)
    value, error = _blocks((result.filled - truth)[mask])
    inside = np.abs(result.mean - truth) < 1.96 * result.std
    covered = [part.mean() for part in np.array_split(inside[mask], 16)]
    return {name: (scaled(value), scaled(error)), "coverage of 95 %": _mean(np.array(covered))}


def _satimage() -> Figures:
    """Spectral kernel learning on half of the table, with 500 features and ten epochs."""
    with np.load(_data("askl/satimage.npz")) as file:
        X, y = file["X"].astype(float), file["y"]
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[: len(y) // 2], order[len(y) // 2 :]
    model = ASKLClassifier(n_components=500, max_iter=10, random_state=0).fit(X[train], y[train])
    return {"accuracy": _mean(model.predict(X[test]) == y[test])}


def _dank() -> Figures:
    """Data-adaptive kernels on five halves of heart."""
    with np.load(_data("dank/heart.npz")) as file:
        X, y = file["X"].astype(float), file["y"]
    X = (X - X.min(0)) / np.ptp(X, axis=0)
    right = []
    for seed in range(5):
        order = np.random.default_rng(100 + seed).permutation(len(y))
        train, test = order[: len(y) // 2], order[len(y) // 2 :]
        model = DANKClassifier(random_state=seed).fit(X[train], y[train])
        right.append(np.mean(model.predict(X[test]) == y[test]))
    return {"accuracy": _mean(np.array(right))}


def _airline() -> Figures:
    """The network of the paper by its recipe, and the last third of the passengers."""
    table = np.loadtxt(_data("timeseries/airline.csv"), delimiter=",", skiprows=1)
    with np.load(_data("timeseries/splits.npz")) as splits:
        test = splits["airline_extrap_test"]
    train = np.setdiff1d(np.arange(len(table)), test)
    (x, y), (new_x, new_y) = table[train].T, table[test].T
    options = {"priors": False, "restarts": 1, "recipe": Recipe.paper(), "progress": False}
    model = NKNForecaster("time_series", random_state=0, **options).fit(x, y)
    return {
        "RMSE": _rmse(model.predict(new_x) - new_y),
        "log density": _mean(model.log_predictive_density(new_x, new_y)),
    }


# -- times


def _regression_of(num_points: int, kernel: Kernel) -> Regression:
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.rand(num_points, 1, generator=generator, dtype=torch.float64)
    noise = torch.randn(num_points, generator=generator, dtype=torch.float64)
    return Regression(x, torch.sin(3 * x.sum(-1)) + 0.1 * noise, kernel).double().train()


def _network() -> NeuralKernelNetwork:
    return NeuralKernelNetwork.time_series(priors=False)


def _step(
    num_points: int,
    make_kernel: Callable[[], Kernel],
    mll: Callable = ExactMarginalLogLikelihood,
    path: str = "auto",
) -> Callable[[], None]:
    """A function that computes the marginal likelihood and its gradient once."""
    model = _regression_of(num_points, make_kernel())
    loss = mll(model.likelihood, model)

    def step() -> None:
        model.zero_grad()
        with kernel_evaluation(path), gpytorch.settings.max_cholesky_size(10**6):
            (-loss(model(*model.train_inputs), model.train_targets)).backward()

    return step


def _fit(num_points: int, steps: int = 40) -> Callable[[], None]:
    """A function that does steps of the package's own training."""
    recipe = Recipe(adam_steps=steps, lbfgs_iterations=0)
    model = _regression_of(num_points, _network())
    return lambda: fit_best_of(model, restarts=1, recipe=recipe, progress=False)


def _stock(num_points: int) -> Callable[[], None]:
    return _step(num_points, lambda: ScaleKernel(RBFKernel()))


def _seconds(run: Callable[[], object]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


def _steps() -> Figures:
    """A training step of the network beside one of a stock RBF kernel."""
    found: Figures = {}
    for size, turns in _SIZES.items():
        base = _stock(size)
        ways = {
            "drop-in": (_step(size, _network), 1, _COMPILED),
            "own likelihood": (
                _step(size, _network, AnalyticExactMarginalLogLikelihood),
                1,
                _COMPILED,
            ),
            "plain": (_step(size, _network, path="plain"), 1, _UNCOMPILED),
        }
        for path in ("closed_form", "autograd", "tiles"):  # those that this version has
            try:
                kernel_evaluation(path)
            except ValueError:
                continue
            ways[f"_{path}"] = (_step(size, _network, path=path), 1, _UNCOMPILED)
        ways["training"] = (_fit(size), 40, _COMPILED)
        ratios: dict[str, list[float]] = {name: [] for name in ways}
        for step in (base, *(step for step, _, _ in ways.values())):
            step()
        for turn in range(turns):
            for name, (step, number, _) in ways.items():
                if number > 1 and turn % 5:
                    continue
                ratios[name].append(_seconds(step) / number / _seconds(base))
        best = min((n for n in ways if n.startswith("_")), key=lambda n: median(ratios[n]))
        for name, (_, _, allowed) in ways.items():
            if name.startswith("_") and name != best:
                continue
            title = "without compiled code" if name == best else name
            found[f"{title}, N = {size}"] = (median(ratios[name]), allowed)
    return found


def _imports() -> Figures:
    """Seconds of imports beside those of ``import gpytorch``."""
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


def compare(committed: dict[str, str], value: float) -> bool:
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
            with warnings.catch_warnings():
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
        with _COMMITTED.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    with _COMMITTED.open(newline="", encoding="utf-8") as file:
        committed = {(row["case"], row["figure"]): row for row in csv.DictReader(file)}
    differences = 0
    print(
        "| case | figure | committed | now | tolerance | |\n| --- | --- | --- | --- | --- | --- |"
    )
    for row in rows:
        old = committed.get((row["case"], row["figure"]))
        same = old is not None and compare(old, float(row["value"]))
        differences += not same
        cells = [row["case"], row["figure"], old["value"] if old else "", row["value"]]
        allowed = "" if old is None else old["tolerance"]
        sign = "x" if old is not None and old["kind"] == "time ratio" else "±"
        print("| " + " | ".join([*cells, sign + allowed, "" if same else "**differs**"]) + " |")
    print(f"\n{differences} of {len(rows)} figures differ.")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
