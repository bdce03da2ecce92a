"""EEG and a table of 50,000 rows: accuracy, time and memory, each fit in a process of its own."""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.svm import SVC

from benchmarks.dank_protocol import Split
from benchmarks.dank_report import Paired
from benchmarks.data import load_dank_table
from gpytorch_nkn.estimators.dank.dank_classifier import DANKClassifier

__all__ = ["load_eeg", "load_made", "measure_large", "summary"]

_FENCE = 6.0  # interquartile ranges beyond the quartiles, where four rows of EEG are far outside
_ROWS, _NEW_ROWS = 50_000, 20_000
_METHODS: dict[str, dict[str, Any] | None] = {
    "SVC": None,
    "DANK, relevance=None": {"relevance": None},
    "DANK, relevance=None, eta=norm": {"relevance": None, "eta": "norm"},
    "DANK, defaults": {},
    "DANK, exact, eta=norm": {"n_clusters": 1, "relevance": None, "eta": "norm"},
    "DANK, exact, eta=norm, tau=0.01": {
        "n_clusters": 1,
        "relevance": None,
        "eta": "norm",
        "tau": 0.01,
    },
}
_DECOMPOSED = tuple(name for name in _METHODS if "exact" not in name)
_PATIENCE = 900.0  # seconds on the clock


def load_eeg(seed: int) -> Split:
    """A random half of EEG, with gross outliers moved to fences, scaled to [0, 1].

    Args:
        seed: Number of the half.
    """
    table = load_dank_table("eeg")
    test = table.test_mask(seed)
    low, high = np.quantile(table.X[~test], [0.25, 0.75], axis=0)
    reach = _FENCE * (high - low)
    X = np.clip(table.X, low - reach, high + reach)
    low, high = X[~test].min(axis=0), X[~test].max(axis=0)
    X = (X - low) / (high - low)
    return Split("eeg", "half", seed, X[~test], table.y[~test], X[test], table.y[test], 2)


def load_made(noisy: bool, seed: int = 0) -> Split:
    """22 columns, 10 of which are binary, and a rare class of a tenth, as in ijcnn1.

    Args:
        noisy: Whether 5 % of the classes are wrong, and there is noise in what separates them.
        seed: Of the draws.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(_ROWS + _NEW_ROWS, 22))
    X[:, :10] = 0.25 * (X[:, :10] < np.linspace(0.1, 0.9, 10))
    z = X[:, 10:]
    f = np.sin(4 * z[:, 0] + 2 * z[:, 1]) + 2 * z[:, 2] * z[:, 3] + np.cos(5 * z[:, 4] * z[:, 5])
    f += 3.2 * X[:, 0] * np.sin(3 * z[:, 6]) + 1.5 * np.abs(z[:, 7] - 0.5) + 2 * X[:, 3] * z[:, 8]
    if noisy:
        f += rng.normal(0.0, 0.45, len(f))
    y = np.where(f > np.quantile(f, 0.9), 1, -1)
    if noisy:
        y = np.where(rng.uniform(size=len(y)) < 0.05, -y, y)
    train, test = slice(None, _ROWS), slice(_ROWS, None)
    return Split("made", "half", seed, X[train], y[train], X[test], y[test], 2)


_LOADS = {
    "eeg": (load_eeg, 32.0, 100.0),
    "easy": (lambda seed: load_made(False, seed), 32.0, 2.0),
    "noisy": (lambda seed: load_made(True, seed), 32.0, 2.0),
}
_RUNS = [
    *(("eeg", seed, method) for seed in range(4) for method in _DECOMPOSED),
    *(("easy", 0, method) for method in _DECOMPOSED),
    *(("eeg", 0, method) for method in _METHODS if "exact" in method),
    *(("noisy", 0, method) for method in ("SVC", "DANK, defaults")),
]


def measure_large(cases: Sequence[str] = tuple(_LOADS)) -> str:
    """Markdown: a row for each table and method.

    Args:
        cases: Tables. EEG gets 5 clusters by default, the made ones of 50,000 rows 34.
    """
    runs = []
    for case, seed, method in _RUNS:
        if case not in cases:
            continue
        command = [sys.executable, "-m", "benchmarks.dank_large", case, str(seed), method]
        head = f"{case} {seed} {method}"
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            print(f"{head}: not in {_PATIENCE:g} s", file=sys.stderr, flush=True)
            continue
        if done.returncode:
            error = (done.stderr.strip().splitlines() or ["killed"])[-1]
            print(f"{head}: failed: {error}", file=sys.stderr, flush=True)
            continue
        runs.append(json.loads(done.stdout.splitlines()[-1]))
        print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    return summary(runs)


def summary(runs: Sequence[dict]) -> str:
    """Markdown: means over seeds, and gains over SVC on the same seeds.

    Args:
        runs: Lines of :func:`main`.
    """
    lines = [
        "| table | method | runs | accuracy, % | gain over SVC | fit CPU s | predict CPU s | "
        "peak, MB | of which data and libraries |",
        "| --- " * 9 + "|",
    ]
    plain = {(run["case"], run["seed"]): run["score"] for run in runs if run["method"] == "SVC"}
    for case, method in dict.fromkeys((run["case"], run["method"]) for run in runs):
        own = [run for run in runs if (run["case"], run["method"]) == (case, method)]
        means = [
            statistics.mean(run[key] for run in own)
            for key in ("score", "fit_cpu", "predict_cpu", "peak", "before")
        ]
        gains = [run["score"] - plain[case, run["seed"]] for run in own]
        lines.append(
            f"| {case} | {method} | {len(own)} | {means[0]:.2f} | {Paired(gains)} | "
            f"{means[1]:.3g} | {means[2]:.2g} | {means[3]:,.0f} | {means[4]:,.0f} |"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """One fit, as a line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dank_large")
    parser.add_argument("case", choices=_LOADS)
    parser.add_argument("seed", type=int)
    parser.add_argument("method", choices=_METHODS)
    args = parser.parse_args(argv)
    load, cost, gamma = _LOADS[args.case]
    split = load(args.seed)
    options = _METHODS[args.method]
    if options is None:
        model: Any = SVC(C=cost, gamma=gamma, cache_size=1000)
    else:
        model = DANKClassifier(C=cost, gamma=gamma, random_state=args.seed, **options)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.process_time()
    model.fit(split.X, split.y)
    fitted = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    prediction = model.predict(split.test_inputs)
    line = {
        "case": args.case,
        "seed": args.seed,
        "method": args.method,
        "score": split.score(prediction),
        "fit_cpu": fitted - start,
        "predict_cpu": time.process_time() - fitted,
        "before": before,
        "peak": peak,
        "eta": str(getattr(model, "eta_", None)),
    }
    print(json.dumps(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
