"""Regression on tables of data by networks of kernels and by the usual Gaussian processes.

``python -m benchmarks.uci`` runs every method on the random splits and the PCA split of every set:
each run adds a line to a JSON-lines file, so that a second call goes on where the first one ended,
and prints the tables. All methods get standardised inputs and targets, the same number of starts,
and the same iterations of L-BFGS; the paper's recipe is its own. The environment variable
GPYTORCH_NKN_DATA names the folder of the data. ``--csv FILE --target NAME`` compares the methods on
ten random 90/10 splits of a table of one's own.

Processes x threads = cores: each of J processes has cores / J threads, or OMP_NUM_THREADS if set.
Wall times mean something where no other work runs.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import time
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.uci_report import report

# NumPy and torch are imported in functions, after the number of threads has been set.
if TYPE_CHECKING:
    import numpy as np

    from benchmarks.data import RegressionTable
    from benchmarks.uci_methods import Prediction

__all__ = ["main", "run", "scores"]

_SETS = ("yacht", "boston", "energy", "concrete", "kin8nm")
_SPLITS = (*map(str, range(10)), "pca")
_METHODS = (
    "nkn",
    "rbf",
    "matern",
    "rbf_linear",
    "sm4",
    "paper",
)
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_LIBRARIES = ("torch", "gpytorch", "botorch", "numpy", "scipy", "scikit-learn", "gpytorch_nkn")


@dataclass(frozen=True)
class _Source:
    """A set: by its name, or the column of a CSV file."""

    name: str
    csv: str | None = None
    target: str | None = None


@dataclass(frozen=True)
class _Job:
    source: _Source
    split: str
    method: str
    seed: int
    settings: tuple[tuple[str, int], ...]


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing in the file of results and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.uci",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sets", nargs="+", metavar="NAME", help=f"of {', '.join(_SETS)}")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="a table with a header")
    parser.add_argument("--target", metavar="NAME", help="target column of the table")
    parser.add_argument("--splits", nargs="+", choices=_SPLITS, default=_SPLITS, metavar="S")
    parser.add_argument("--methods", nargs="+", choices=_METHODS, default=_METHODS, metavar="M")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--restarts", type=int, default=2, metavar="K")
    parser.add_argument("--iterations", type=int, default=120, metavar="N", help="of L-BFGS")
    parser.add_argument("--paper-steps", type=int, default=20_000, metavar="N", help="of Adam")
    parser.add_argument(
        "--sgpr",
        type=int,
        nargs="?",
        const=1000,
        default=0,
        metavar="M",
        help="beyond 2,000 rows, run sm4 and paper with M inducing points (1000); slow",
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/uci.jsonl"))
    parser.add_argument("--report", action="store_true", help="only print the tables")
    args = parser.parse_args(argv)
    if (args.csv is None) != (args.target is None):
        parser.error("--csv and --target go together.")
    if args.jobs < 1:
        parser.error(f"--jobs must be at least 1, got {args.jobs}.")
    threads = _set_threads(args.jobs)
    try:
        wanted = _wanted(args)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    done = _read(args.results)
    missing = [job for key, job in wanted.items() if key not in done]
    present = len(wanted) - len(missing)
    print(f"{present} of {len(wanted)} runs are in {args.results}.", file=sys.stderr)
    failures = 0
    if not args.report:
        failures = _run_missing(missing, args.jobs, threads, args.results)
        done = _read(args.results)
    from benchmarks.uci_methods import METHODS

    print(report([done[key] for key in wanted if key in done], METHODS))
    return 1 if failures else 0


def _set_threads(jobs: int) -> int:
    """Before NumPy and torch are imported; the processes inherit them."""
    affinity = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))
    given = os.environ.get("OMP_NUM_THREADS", "")
    threads = int(given) if given.isdigit() else max(1, len(affinity(0)) // jobs)
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))
    return threads


def _wanted(args: argparse.Namespace) -> dict[str, _Job]:
    """Every run that was asked for, by its key; one split of all sets after another."""
    from benchmarks.uci_methods import EXACT_ROWS, Settings, settings_in_use

    settings = Settings(args.restarts, args.iterations, args.paper_steps, args.sgpr)
    sources = [_Source(name) for name in args.sets or (() if args.csv else _SETS)]
    splits = list(args.splits)
    if args.csv:
        sources.append(_Source(args.csv.stem, str(args.csv), args.target))
    jobs, left_out = {}, set()
    for split in splits:
        for source in sources:
            table = _table(source)
            if split == "pca" and not table.named_test.size:
                continue
            num_rows = int((~table.test_mask(_split(split))).sum())
            for method in args.methods:
                used = settings_in_use(method, settings, num_rows)
                if used is None:
                    left_out.add(f"{method} on {source.name}")
                    continue
                job = _Job(source, split, method, args.seed, tuple(asdict(settings).items()))
                jobs[_key(source.name, _checksum(table), split, method, args.seed, used)] = job
    if left_out:
        print(
            f"Left out beyond {EXACT_ROWS} rows without --sgpr: {', '.join(sorted(left_out))}.",
            file=sys.stderr,
        )
    return jobs


def _key(name: str, checksum: int, split: str, method: str, seed: int, settings: dict) -> str:
    return json.dumps([name, checksum, split, method, seed, sorted(settings.items())])


def _read(path: Path) -> dict[str, dict]:
    """The runs of a file by their keys; a line that is only half written does not count."""
    records = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        names = ("set", "checksum", "split", "method", "seed", "settings")
        records[_key(*(record[name] for name in names))] = record
    return records


def _run_missing(jobs: Sequence[_Job], processes: int, threads: int, path: Path) -> int:
    """Run and write; returns the number of failures."""
    from joblib import Parallel, delayed
    from tqdm import tqdm

    path.parent.mkdir(parents=True, exist_ok=True)
    pool = Parallel(n_jobs=processes, return_as="generator_unordered")
    outcomes = pool(delayed(_guarded)(job, threads) for job in jobs)
    failures = 0
    for job, record, fault in tqdm(outcomes, total=len(jobs), unit="run", disable=None):
        head = f"{job.source.name} {job.split} {job.method}"
        if record is None:
            failures += 1
            tqdm.write(f"{head}: failed: {fault}", file=sys.stderr)
            continue
        with path.open("a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # what a killed run left
                    file.write(b"\n")
            file.write(json.dumps(record).encode() + b"\n")
        tqdm.write(
            f"{head}: RMSE {record['rmse']:.4g}, log density {record['log_density']:.3f}, "
            f"coverage {record['coverage']:.0%}, {record['fit_cpu']:.1f} CPU s",
            file=sys.stderr,
        )
    return failures


def _guarded(job: _Job, threads: int) -> tuple[_Job, dict | None, str]:
    import torch

    torch.set_num_threads(threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            table = _table(job.source)
            return job, run(table, job.split, job.method, job.seed, dict(job.settings)), ""
        except Exception as error:  # the other runs go on
            return job, None, f"{type(error).__name__}: {error}"


def run(table: RegressionTable, split: str, method: str, seed: int, settings: dict) -> dict:
    """One method on one split: the line of the file.

    Args:
        table: The data.
        split: Number of a random split, or ``pca``.
        method: Key of ``METHODS``.
        seed: Of the starts.
        settings: Fields of ``Settings``.
    """
    from importlib import metadata

    import torch

    from benchmarks.uci_methods import Settings, fit_method, settings_in_use

    chosen = Settings(**settings)
    test = table.test_mask(_split(split))
    X, y, new_X, new_y = table.X[~test], table.y[~test], table.X[test], table.y[test]
    used = settings_in_use(method, chosen, len(y))
    _warm_up(method)
    start = time.process_time(), time.perf_counter()
    predict = fit_method(method, X, y, settings=chosen, seed=seed)
    fitted = time.process_time(), time.perf_counter()
    prediction = predict(new_X)
    end = time.process_time(), time.perf_counter()
    known = set(map(bytes, X + 0.0))  # 0.0 and -0.0 are one value
    new = [bytes(row) not in known for row in new_X + 0.0]
    found = scores(prediction, new_y)
    return {
        "set": table.name,
        "checksum": _checksum(table),
        "split": split,
        "method": method,
        "seed": seed,
        "settings": used,
        "n": len(y),
        "d": X.shape[1],
        "num_test": len(new_y),
        **found,
        "new_rows": sum(new),
        "new": scores(prediction, new_y, new) if any(new) else None,
        "fit_cpu": fitted[0] - start[0],
        "fit_wall": fitted[1] - start[1],
        "predict_cpu": end[0] - fitted[0],
        "predict_wall": end[1] - fitted[1],
        "threads": torch.get_num_threads(),
        "versions": {name: metadata.version(name) for name in _LIBRARIES},
    }


def scores(prediction: Prediction, y: np.ndarray, rows: Sequence[bool] | None = None) -> dict:
    """RMSE, mean log density and coverage of the 95 % bands, of all rows or of some.

    Args:
        prediction: Of all observations.
        y: Observations ``M``.
        rows: Mask ``M`` of those that count.
    """
    import numpy as np

    kept = np.ones(len(y), dtype=bool) if rows is None else np.asarray(rows)
    lower, upper = prediction.band()
    inside = (lower <= y) & (y <= upper)
    found = {
        "rmse": np.sqrt(np.mean((prediction.mean - y)[kept] ** 2)),
        "log_density": np.mean(prediction.log_density(y)[kept]),
        "coverage": np.mean(inside[kept]),
    }
    wrong = {name: value for name, value in found.items() if not np.isfinite(value)}
    if wrong:
        raise ArithmeticError(f"Scores are not finite: {wrong}.")
    return {name: float(value) for name, value in found.items()}


@cache
def _warm_up(method: str) -> None:
    """Once in a process: imports and compilation are not what is measured."""
    import numpy as np

    from benchmarks.uci_methods import Settings, fit_method

    X = np.random.default_rng(0).uniform(size=(30, 2))
    few = Settings(restarts=1, iterations=2, paper_steps=2)
    fit_method(method, X, np.sin(5 * X).sum(1), settings=few, seed=0)(X[:5])


def _split(split: str) -> int | str:
    return split if split == "pca" else int(split)


@cache
def _table(source: _Source) -> RegressionTable:
    from benchmarks.data import load_regression

    return load_regression(source.name) if source.csv is None else _read_csv(source)


def _read_csv(source: _Source) -> RegressionTable:
    """A table of one's own with ten random splits, the same in every call."""
    import numpy as np
    import pandas as pd

    from benchmarks.data import RegressionTable

    try:
        frame = pd.read_csv(source.csv, sep=None, engine="python")  # finds the separator
    except csv.Error as error:
        raise ValueError(f"{source.csv}: {error}.") from None
    names = ", ".join(map(repr, frame.columns))
    if source.target not in frame:
        raise ValueError(f"There is no column {source.target!r}; the columns are {names}.")
    other = list(frame.select_dtypes(exclude=["number", "bool"]).columns)
    if other:
        raise ValueError(f"Every column must hold numbers, which {other} do not.")
    complete = frame.dropna()
    if len(complete) < len(frame):
        print(f"{len(frame) - len(complete)} rows with empty cells left out.", file=sys.stderr)
    if len(complete) < 20 or len(frame.columns) < 2:
        raise ValueError(
            f"A table needs at least 20 rows and 2 columns, got {len(complete)} and "
            f"{len(frame.columns)}."
        )
    y = complete.pop(source.target).to_numpy(dtype=float)
    rng = np.random.default_rng(0)
    tests = np.stack([rng.permutation(len(y))[: len(y) // 10] for _ in range(10)])
    X = complete.to_numpy(dtype=float)
    return RegressionTable(source.name, X, y, tests, np.empty(0, dtype=int))


def _checksum(table: RegressionTable) -> int:
    """Of the data and the splits: runs on other values are other runs."""
    parts = (table.X, table.y, table.random_tests, table.named_test)
    return zlib.crc32(b"".join(part.tobytes() for part in parts))


if __name__ == "__main__":
    from benchmarks import uci  # the name by which the processes find it

    sys.exit(uci.main())
