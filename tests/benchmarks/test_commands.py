"""Each benchmark runs and makes the committed tables."""

import runpy
import sys
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.report import FOLDER, read_table
from benchmarks.runner import Benchmark

ROOT = Path(__file__).parents[2]
NEWER = ("large_tables",)  # has columns that the committed table has not

JOBS = {
    "gpu": [{"part": part, "device": "cpu", "turns": 1} for part in ("grids", "botorch")],
    "step": [
        {"dim": 1, "points": 200, "way": way, "what": "time", "turns": 1}
        for way in ("RBF, stock", "drop-in", "compiled fused loss")
    ],
    "drop_in_time": [{"use": use, "turns": 1} for use in ("ExactGP", "SVGP", "deep GP")],
    "time_series": [
        {"series": "airline", "method": method, "seed": 0} for method in ("RBF", "seasonal_naive")
    ],
    "forecast_panel": [
        {"series": 0, "origin": 0, "method": method, "panel": "panel"}
        for method in ("default", '`structure="time_series"`')
    ],
    "long_series": [
        {"series": "monthly_sunspots", "horizon": "short", "origin": 0, "method": "fast"}
    ],
    "covariates": [{"series": "road casualties", "method": "seasonal naive", "origin": 0}],
    "counts": [
        {"series": 0, "origin": 0, "method": method}
        for method in ("empirical quantiles", 'NKNForecaster `quality="fast"`')
    ],
    "uci": [
        {"set": "yacht", "split": split, "method": method, "starts": 1, "iterations": 2, "steps": 2}
        for split, method in (
            *(("0", method) for method in ("NKNRegressor", "RBF-ARD", "the paper's NKN")),
            ("pca", "RBF-ARD"),
        )
    ],
    "tables": [
        {"set": "yacht", "split": split, "method": method, "rows": 30, "tuning": 0.1}
        for split, method in ((0, "NKNRegressor"), (0, "SVR, tuned"), (3, "ridge"))
    ],
    "askl": [
        {"set": "segment", "seed": 0, "method": method, "components": 10, "epochs": 1}
        for method in ("ASKL: NSKL, trace and feature norms", "tuned random features + ridge")
    ],
    "rates": [
        {"set": "claims", "split": 0, "method": method, "tuning": 0.1}
        for method in ("PoissonRegressor", "HistGradientBoosting, tuned")
    ],
    "outputs": [
        {"set": "co-kriging", "split": 0, "method": method, "noise": 0.1}
        for method in ("NKNSingleTaskGP per output", "SingleTaskGP per output")
    ],
    "classes": [
        {"set": "breast_cancer", "split": 0, "method": method, "tuning": 0.1}
        for method in ("logistic regression", "SVC, tuned")
    ],
    "dank": [
        {"set": name, "repeat": 0, "method": method}
        for name, method in (("heart", "DANK, untuned"), ("mpg", "GP, RBF-ARD (BoTorch)"))
    ],
    "spectral_gp": [
        {"set": "ridges", "seed": 0, "method": method, "rows": 60}
        for method in ("RBF", "SpectralGP")
    ],
    "texture": [{"case": "plate", "method": method, "seed": 0} for method in ("harmonic", "mean")],
    "photographs": [{"image": "camera", "missing": "scratches", "seed": 0, "budget": 1.0}],
    "grid_speed": [
        {"way": way, "noise": 1.0, "turns": 1, "train": 1}
        for way in ("ours, float32", "paper, float32")
    ],
    "large_tables": [
        {"function": "waves", "method": "svgp-rbf", "rows": 200}
        | {"inducing": 5, "epochs": 1, "batch": 50}
    ],
    "scaling": [{"way": "exact", "rows": rows} for rows in (100, 200)],
    "recovery": [{"case": "LIN + RBF*PER", "seed": 102}],
    "bbob": [
        {"method": method, "function": 8, "instance": 1, "dimension": 2, "evaluations": 11}
        for method in ("structures", "turbo", "cma")
    ],
    "gradients": [
        {"function": "branin", "seed": 0, "method": method, "evaluations": 6}
        for method in ("network", "SingleTaskGP")
    ],
    "bo_real_loops": [
        {"function": name, "surrogate": "structures", "seed": 0, "evaluations": 11, "batch": 1}
        for name in ("noisyhartmann6",)
    ],
}


@pytest.mark.usefixtures("few_iterations")
@pytest.mark.parametrize("name", JOBS)
def test_a_benchmark_runs_and_makes_its_tables(name, data, monkeypatch):
    if name == "bbob":  # packages of the extra, which are not needed elsewhere
        pytest.importorskip("ioh")
        pytest.importorskip("cma")
    module = import_module(f"benchmarks.{name}")
    if name == "rates":
        monkeypatch.setattr(module, "_ROWS", 90)
    if name == "forecast_panel":
        for options in module.OURS.values():
            monkeypatch.setitem(options, "budget", 0.3)
    if name == "recovery":
        quick = {"max_terms": 1, "max_candidates": 2}
        simplify = module.simplify
        monkeypatch.setattr(module, "simplify", lambda model, **o: simplify(model, **o | quick))
    benchmark = module.BENCHMARK
    assert isinstance(benchmark, Benchmark)
    rows = []
    for job in JOBS[name]:
        assert set(job) == {*benchmark.axes, *benchmark.settings}
        rows.append({**job, **benchmark.run(**job)})
    tables = benchmark.tables(rows)
    for title, table in tables.items():
        if title not in NEWER and (FOLDER / f"{title}.csv").is_file():
            columns = read_table(title).columns
            known = [c for c in table.columns if c in columns or "11" in c or "N = " in c]
            assert known and table.columns[0] == columns[0], title


def test_every_committed_table_is_one_that_a_command_makes():
    """``make demo`` prints the one that is left."""
    text = "".join(path.read_text(encoding="utf-8") for path in FOLDER.parent.glob("*.py"))
    committed = {path.stem for path in FOLDER.glob("*.csv")} - {"demo"}
    assert not {name for name in committed if f'"{name}"' not in text}


def test_every_benchmark_of_the_makefile_runs():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    names = text.partition("BENCHMARKS ?= ")[2].partition("\n")[0].split()
    assert set(names) == set(JOBS)


def test_a_command_starts(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.delitem(sys.modules, "benchmarks.photographs", raising=False)
    monkeypatch.setattr(sys, "argv", ["photographs", "--report"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("benchmarks.photographs", run_name="__main__", alter_sys=True)


@pytest.mark.parametrize("name", [*JOBS, "golden", "report", "size"])
def test_commands_have_help(name, capsys):
    module = import_module(f"benchmarks.{name}")
    main = module.BENCHMARK.main if name in JOBS else module.main
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert f"benchmarks.{name}" in shown and module.__doc__.split(".")[0] in shown
