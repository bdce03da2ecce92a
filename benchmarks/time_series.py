"""Extrapolation of real series by the Neural Kernel Network and by the usual alternatives.

``python -m benchmarks.time_series`` runs every method on every series with several seeds, adds
each finished run to a JSON-lines file (so that a second call goes on where the first one ended),
and prints medians and ranges as a Markdown table. The environment variable GPYTORCH_NKN_DATA names
the folder of the data.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

__all__ = ["main"]

_SERIES = (
    "airline",
    "airline36",
    "mauna",
    "call_centre",
    "radio",
    "gas_production",
    "unemployment",
)
_AIRLINE_HELD_OUT = 36
_RESTARTS = 5  # of the Gaussian processes that are compared with
_SCORES = {
    "rmse": ("RMSE", ".4g"),
    "mae": ("MAE", ".4g"),
    "mean_log_density": ("mean log density", ".2f"),
    "coverage": ("95 % coverage", ".0%"),
    "cpu_seconds": ("CPU s", ".1f"),
}
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_LIBRARIES = ("torch", "gpytorch", "botorch", "numpy", "scipy", "statsforecast")


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing in the results file and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.time_series", description=__doc__)
    parser.add_argument("--series", nargs="+", choices=_SERIES, default=_SERIES, metavar="NAME")
    parser.add_argument("--methods", nargs="+", choices=_METHODS, default=tuple(_METHODS))
    parser.add_argument("--seeds", type=int, default=5, metavar="K", help="seeds 0 to K - 1")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes of one core")
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/time_series.jsonl"), metavar="FILE"
    )
    parser.add_argument("--run-one", metavar="JOB", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.run_one:
        print(json.dumps(_run_one(**json.loads(args.run_one))))
        return 0
    try:
        for name in args.series:
            _load(name)
    except FileNotFoundError as error:
        parser.error(str(error))
    methods = [name for name in args.methods if _is_available(name)]
    wanted = [
        {"series": series, "method": method, "seed": seed}
        for series in args.series
        for method in methods
        for seed in range(args.seeds if method in _RANDOM else 1)
    ]
    records = _read(args.out)
    missing = [job for job in wanted if _key(job) not in records]
    print(f"{len(wanted) - len(missing)} of {len(wanted)} runs are in {args.out}.", file=sys.stderr)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    failures = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        for finished in as_completed([pool.submit(_run_in_process, job) for job in missing]):
            job, record, fault = finished.result()
            if record is None:
                failures += 1
                print(f"{_key(job)} failed:\n{fault}", file=sys.stderr)
                continue
            with args.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            records[_key(job)] = record
            scores = ", ".join(f"{name} {record[name]:.4g}" for name in _SCORES)
            print(f"{_key(job)}: {scores}", file=sys.stderr)
    print(_tables([records[_key(job)] for job in wanted if _key(job) in records]))
    return 1 if failures else 0


def _key(job: dict) -> str:
    return f"{job['series']} | {job['method']} | seed {job['seed']}"


def _read(path: Path) -> dict[str, dict]:
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {_key(record): record for record in map(json.loads, filter(None, lines))}


def _is_available(method: str) -> bool:
    if method == "AutoARIMA" and importlib.util.find_spec("statsforecast") is None:
        print(
            "AutoARIMA is left out: pip install 'gpytorch_nkn[benchmarks]' for statsforecast.",
            file=sys.stderr,
        )
        return False
    return True


def _run_in_process(job: dict) -> tuple[dict, dict | None, str]:
    """One run in a process of its own, with one thread from before NumPy is imported."""
    environment = os.environ | dict.fromkeys(_THREAD_VARIABLES, "1")
    command = [sys.executable, "-m", "benchmarks.time_series", "--run-one", json.dumps(job)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    if run.returncode:
        return job, None, run.stderr[-2000:]
    return job, json.loads(run.stdout.splitlines()[-1]), ""


def _run_one(series: str, method: str, seed: int) -> dict:
    import numpy as np
    import torch

    from gpytorch_nkn.metrics import forecast_scores

    torch.set_num_threads(1)
    x, y, new_x, new_y = _load(series)
    predict = _METHODS[method]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Once on a few points: imports and compilation are not what is measured.
        short = np.arange(24.0)
        predict(short, np.sin(short), np.arange(24.0, 26.0), np.zeros(2), seed, warm_up=True)
        cpu, wall = time.process_time(), time.perf_counter()
        forecast = predict(x, y, new_x, new_y, seed, warm_up=False)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {
        "series": series,
        "method": method,
        "seed": seed,
        "num_train": int(x.size),
        "num_test": int(new_x.size),
        **forecast_scores(new_y, **forecast),
        "cpu_seconds": cpu,
        "wall_seconds": wall,
        "versions": _versions(),
    }


def _load(name: str) -> tuple:
    from benchmarks.data import load_time_series

    series = load_time_series(name.removesuffix("36"))
    test = series.test
    if name == "airline36":
        test = series.time >= series.time[-_AIRLINE_HELD_OUT]
    return series.time[~test], series.y[~test], series.time[test], series.y[test]


def _versions() -> dict[str, str]:
    from importlib import metadata

    found = {}
    for name in _LIBRARIES:
        if importlib.util.find_spec(name) is not None:
            found[name] = metadata.version(name)
    return found


def _nkn(x, y, new_x, new_y, seed: int, *, warm_up: bool) -> dict:
    from gpytorch_nkn.estimators import NKNForecaster
    from gpytorch_nkn.fit import Recipe

    if warm_up:
        recipe = Recipe(adam_steps=1, lbfgs_iterations=1)
        forecaster = NKNForecaster(quality="fast", recipe=recipe, random_state=seed)
    else:
        forecaster = NKNForecaster(random_state=seed)
    forecaster.fit(x, y)
    lower, upper = forecaster.predict_interval(new_x)
    return {
        "mean": forecaster.predict(new_x),
        "lower": lower,
        "upper": upper,
        "log_density": forecaster.log_predictive_density(new_x, new_y),
    }


def _rbf(x, y, new_x, new_y, seed: int, *, warm_up: bool) -> dict:
    from gpytorch_nkn.baselines import rbf_forecast

    restarts = 1 if warm_up else _RESTARTS
    return _gaussian(rbf_forecast(x, y, new_x, restarts=restarts, seed=seed), new_y)


def _spectral_mixture(num_mixtures: int) -> Callable:
    """GPyTorch's kernel with start values in units of x (its own are in cycles per sample)."""

    def make_kernel(x, y, rng):
        import numpy as np
        from gpytorch.kernels import SpectralMixtureKernel

        from gpytorch_nkn.initialization import candidate_periods

        span = float(x.max() - x.min())
        step = float(x.squeeze(-1).unique().diff().median())
        kernel = SpectralMixtureKernel(num_mixtures=num_mixtures)
        # Half of the means at peaks of the periodogram, the strongest first; one near zero for
        # the trend, the others log-uniform from one cycle in the span to the highest frequency.
        peaks = 1 / candidate_periods(x.squeeze(-1).numpy(), y.numpy())[: num_mixtures // 2]
        trend = rng.uniform(0, 0.5 / span, 1)
        rest = num_mixtures - 1 - peaks.size
        random = np.exp(rng.uniform(np.log(1 / span), np.log(0.5 / step), rest))
        peaks = peaks * np.exp(0.02 * rng.standard_normal(peaks.size))
        means = np.concatenate([trend, peaks, random])
        # Deviations of a frequency: correlation over a fraction of the span to several spans.
        lengths = span * np.exp(rng.uniform(np.log(0.1), np.log(3.0), num_mixtures))
        weights = rng.dirichlet(np.ones(num_mixtures))
        as_tensor = x.new_tensor
        kernel.to(x)
        kernel.mixture_means = as_tensor(means).view(-1, 1, 1)
        kernel.mixture_scales = as_tensor(1 / (2 * np.pi * lengths)).view(-1, 1, 1)
        kernel.mixture_weights = as_tensor(np.maximum(weights, 1e-3))
        return kernel

    def predict(x, y, new_x, new_y, seed: int, *, warm_up: bool) -> dict:
        from gpytorch_nkn.baselines import gp_forecast

        restarts = 1 if warm_up else _RESTARTS
        forecast = gp_forecast(make_kernel, x, y, new_x, restarts=restarts, seed=seed)
        return _gaussian(forecast, new_y)

    return predict


def _auto_arima(x, y, new_x, new_y, seed: int, *, warm_up: bool) -> dict:
    import numpy as np
    from scipy.stats import norm
    from statsforecast.models import AutoARIMA

    from gpytorch_nkn.baselines import GaussianForecast, regular_steps, season_length

    start, step, index = regular_steps(x)
    if index is None:
        raise ValueError("AutoARIMA needs regular steps.")
    season = season_length(x, y)
    length = 1 if season is None else round(season / step)
    if season is None and abs(step - 1 / 12) < 1e-3:
        length = 12  # months of years, whose season anybody would try
    grid = np.arange(index[0], index[-1] + 1)
    values = np.interp(grid, index, y)  # gaps are interpolated
    ahead = np.round((new_x - start) / step).astype(int) - int(grid[-1])
    model = AutoARIMA(season_length=length).fit(values)
    result = model.predict(h=int(ahead.max()), level=[95])
    std = (result["hi-95"] - result["mean"]) / norm.ppf(0.975)
    return _gaussian(GaussianForecast(result["mean"][ahead - 1], std[ahead - 1]), new_y)


def _seasonal_naive(x, y, new_x, new_y, seed: int, *, warm_up: bool) -> dict:
    from gpytorch_nkn.baselines import seasonal_naive_forecast

    return _gaussian(seasonal_naive_forecast(x, y, new_x), new_y)


def _gaussian(forecast, new_y) -> dict:
    lower, upper = forecast.interval(0.95)
    return {
        "mean": forecast.mean,
        "lower": lower,
        "upper": upper,
        "log_density": forecast.log_density(new_y),
    }


_METHODS = {
    "NKN": _nkn,
    "RBF": _rbf,
    "SM4": _spectral_mixture(4),
    "SM10": _spectral_mixture(10),
    "AutoARIMA": _auto_arima,
    "seasonal_naive": _seasonal_naive,
}
_RANDOM = {"NKN", "RBF", "SM4", "SM10"}  # the others have no seed


def _tables(records: Sequence[dict]) -> str:
    if not records:
        return "No results."
    header = ["series", "method", "runs", *(title for title, _ in _SCORES.values())]
    lines = [
        "Median over the seeds, and the range where they differ:",
        "",
        _row(header),
        _row(["---"] * len(header)),
    ]
    groups: dict[tuple[str, str], list[dict]] = {}
    for record in records:
        groups.setdefault((record["series"], record["method"]), []).append(record)
    for (series, method), runs in groups.items():
        cells = [_cell([run[name] for run in runs], form) for name, (_, form) in _SCORES.items()]
        lines.append(_row([series, method, str(len(runs)), *cells]))
    lines += ["", "Coverage of the 95 % band over all series and seeds together:", ""]
    lines += [_row(["method", "observations", "inside"]), _row(["---"] * 3)]
    for method in dict.fromkeys(record["method"] for record in records):
        runs = [record for record in records if record["method"] == method]
        total = sum(run["num_test"] for run in runs)
        inside = sum(run["num_test"] * run["coverage"] for run in runs)
        lines.append(_row([method, str(total), f"{inside / total:.1%}"]))
    versions = ", ".join(f"{k} {v}" for k, v in records[-1]["versions"].items())
    return "\n".join([*lines, "", f"Versions: {versions}. One thread per run."])


def _cell(values: Sequence[float], form: str) -> str:
    median, low, high = (format(f(values), form) for f in (statistics.median, min, max))
    return median if low == high else f"{median} ({low} to {high})"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main())
