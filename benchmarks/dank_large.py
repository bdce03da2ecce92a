"""EEG and a table of 50,000 rows: accuracy, time and memory, each fit in a process of its own."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.svm import SVC

from benchmarks.dank_protocol import Split
from gpytorch_nkn.datasets import load_dank_table
from gpytorch_nkn.estimators.dank_classifier import DANKClassifier

__all__ = ["load_eeg", "load_made", "measure_large"]

_FENCE = 6.0  # interquartile ranges beyond the quartiles, where four rows of EEG are far outside
_ROWS, _NEW_ROWS = 50_000, 20_000
_METHODS: dict[str, dict[str, Any] | None] = {
    "SVC": None,
    "DANK, defaults": {},
    "DANK, defaults, block": {"decomposition": "block"},
    "DANK, eta=norm": {"eta": "norm"},
    "DANK, relevance=cv": {"relevance": "cv"},
    "DANK, exact, eta=norm": {"n_clusters": 1, "relevance": None, "eta": "norm"},
    "DANK, exact, eta=norm, tau=0.01": {
        "n_clusters": 1,
        "relevance": None,
        "eta": "norm",
        "tau": 0.01,
    },
}
_EEG = tuple(_METHODS)
_MADE = tuple(name for name in _METHODS if "exact" not in name)
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


_CASES = {
    "eeg": (load_eeg, 32.0, 100.0, _EEG),
    "easy": (lambda seed: load_made(False, seed), 32.0, 2.0, _MADE),
    "noisy": (lambda seed: load_made(True, seed), 32.0, 2.0, _MADE),
}


def measure_large(cases: Sequence[str] = tuple(_CASES), seeds: Sequence[int] = (0, 1, 2, 3)) -> str:
    """Markdown: a row for each fit.

    Args:
        cases: Tables.
        seeds: Of the halves of EEG, which get 5 clusters by default; the other tables are made
            with the first one.
    """
    lines = ["| table | seed | method | accuracy, % | fit CPU s | predict CPU s | peak, MB |"]
    lines.append("| --- " * 7 + "|")
    for case in cases:
        for seed in seeds if case == "eeg" else seeds[:1]:
            for method in _CASES[case][3]:
                command = [sys.executable, "-m", "benchmarks.dank_large", case, str(seed), method]
                try:
                    done = subprocess.run(
                        command, capture_output=True, text=True, timeout=_PATIENCE
                    )
                except subprocess.TimeoutExpired:
                    lines.append(f"| {case} | {seed} | {method} | not in {_PATIENCE:g} s | | | |")
                    continue
                if done.returncode:
                    error = (done.stderr.strip().splitlines() or ["killed"])[-1]
                    print(f"{case} {seed} {method}: failed: {error}", file=sys.stderr, flush=True)
                    continue
                run = json.loads(done.stdout.splitlines()[-1])
                print(run, file=sys.stderr, flush=True)
                lines.append(
                    f"| {case} | {seed} | {method} | {run['score']:.2f} | {run['fit_cpu']:.3g} | "
                    f"{run['predict_cpu']:.3g} | {run['peak']:,.0f} |"
                )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """One fit, as a line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dank_large")
    parser.add_argument("case", choices=_CASES)
    parser.add_argument("seed", type=int)
    parser.add_argument("method", choices=_METHODS)
    args = parser.parse_args(argv)
    load, cost, gamma, _ = _CASES[args.case]
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
