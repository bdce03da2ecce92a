"""Regression on tables: NKNRegressor beside what a practitioner would take.

``python -m benchmarks.tables`` trains every method on every split of every set and prints how well
rows that were held out are predicted. Each run has a file in the folder of the results, so that a
second call goes on where the first one ended. Methods whose packages are not installed are left
out, with a line that says so. Boosting is run at its defaults and tuned: by random search over
five-fold cross-validation, for ten times the seconds that NKNRegressor took on the same split (less
with ``--tuning-seconds``); support vectors are always tuned. What predicts points only gets normal
noise, as wide as its out-of-fold residuals. GPYTORCH_NKN_DATA names the folder of the data.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy and torch read them

import argparse  # noqa: E402
import json  # noqa: E402
import math  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from functools import cache  # noqa: E402
from importlib import metadata  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402

from benchmarks.tables_methods import METHODS, Distribution, missing_packages  # noqa: E402
from benchmarks.tables_report import report  # noqa: E402
from benchmarks.tables_sets import SETS, SPLITS, load_split  # noqa: E402
from gpytorch_nkn.metrics import interval_coverage  # noqa: E402

__all__ = ["main", "record_path", "run", "scores"]

_OURS = "nkn"
_TUNING = 10.0  # times our seconds
_LEVELS = (np.arange(50) + 0.5) / 50
_LIBRARIES = ("numpy", "scikit-learn", "torch", "gpytorch", "gpytorch_nkn")


def run(
    name: str,
    split: int,
    method: str,
    *,
    out: Path,
    rows: int = 0,
    tuning_seconds: float = math.inf,
) -> dict:
    """Train a method on a split, unless its file is there.

    Args:
        name: Key of ``SETS``.
        split: Number of the split, and the seed of every draw.
        method: Key of ``METHODS``.
        out: Folder of the results.
        rows: Training rows, at most; 0 for all.
        tuning_seconds: At most, of a method that is tuned.

    Returns:
        The record, which is in the file, too.

    Raises:
        ValueError: The file comes from other options, or the method is one to be tuned and
            NKNRegressor has not been run on this split.
    """
    options = {"rows": rows}
    if method.endswith("_tuned"):
        options["tuning_seconds"] = tuning_seconds
        ours = record_path(out, name, split, _OURS)
        if not ours.exists():
            raise ValueError(f"Run {_OURS} first: the time of tuning is a multiple of its own.")
        own = json.loads(ours.read_text(encoding="utf-8"))["fit_seconds"]
        tuning_seconds = min(tuning_seconds, _TUNING * own)
    path = record_path(out, name, split, method)
    if path.exists():
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["options"] != options:
            raise ValueError(
                f"{path} has the options {record['options']}, expected {options}; take another "
                "folder."
            )
        return record
    data = load_split(name, split, rows)
    record = {"set": name, "split": split, "method": method, "options": options}
    record |= {"n": len(data.y), "d": data.X.shape[1], "resolution": data.resolution}
    _warm_up(method)
    begin = time.process_time()
    fitted = METHODS[method].fit(data.X, data.y, split, tuning_seconds)
    middle = time.process_time()
    mean = fitted.mean(data.X_test)
    record["fit_seconds"], record["predict_seconds"] = middle - begin, time.process_time() - middle
    found = fitted.distribution(data.X_test)
    record |= scores(mean, found, data.y_test, data.resolution)
    packages = (*_LIBRARIES, *METHODS[method].packages)
    record["versions"] = {name: _version(name) for name in packages}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(record), encoding="utf-8")
    part.replace(path)
    return record


def scores(
    mean: np.ndarray, found: Distribution, y: np.ndarray, resolution: float | None
) -> dict[str, float | None]:
    """RMSE, CRPS, log density and coverage of the central 90 % of observations ``M``.

    The CRPS is twice the mean pinball loss over 50 quantiles. The log density of targets with a
    resolution is that of the interval around each, per unit; ``None`` without a density.
    """
    quantiles = np.sort(found.quantiles(np.array([*_LEVELS, 0.05, 0.95])), 0)
    lower, upper = quantiles[3], quantiles[-4]  # 0.01, 0.03, 0.05, ...
    quantiles = np.delete(quantiles, [3, -4], 0)
    error = y - quantiles
    pinball = np.maximum(_LEVELS[:, None] * error, (_LEVELS[:, None] - 1) * error)
    density = None if found.log_density is None else float(found.log_density(y, resolution).mean())
    values = {
        "rmse": float(np.sqrt(np.mean((mean - y) ** 2))),
        "crps": float(2 * pinball.mean()),
        "log_density": density,
        "coverage": interval_coverage(y, lower, upper),
    }
    wrong = {name: v for name, v in values.items() if v is not None and not math.isfinite(v)}
    if wrong:
        raise ArithmeticError(f"Scores are not finite: {wrong}.")
    return values


def record_path(out: Path, name: str, split: int, method: str) -> Path:
    """The file of a run."""
    return out / f"{name}-{split}-{method}.json"


@cache
def _warm_up(method: str) -> None:
    """Once in a process: imports and compilation are not what is measured."""
    X = np.random.default_rng(0).uniform(size=(40, 2))
    METHODS[method].fit(X, X.sum(1) + X[:, 0] ** 2, 0, 0.0).mean(X)


def _version(package: str) -> str:
    names = {"quantile_forest": "quantile-forest", "interpret": "interpret-core"}
    return metadata.version(names.get(package, package))


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tables",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=tuple(SETS), metavar="NAME")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=tuple(METHODS))
    parser.add_argument(
        "--splits", nargs="+", type=int, choices=range(SPLITS), default=range(SPLITS), metavar="S"
    )
    parser.add_argument("--rows", type=int, default=0, metavar="N", help="for training, at most")
    parser.add_argument("--tuning-seconds", type=float, default=math.inf, metavar="T")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/.tables"), metavar="DIR")
    parser.add_argument("--report", action="store_true", help="only print the tables")
    args = parser.parse_args(argv)
    if args.rows < 0 or not args.tuning_seconds > 0:
        parser.error("--rows and --tuning-seconds must be positive.")
    failures = 0 if args.report else _run_missing(args)
    paths = [
        record_path(args.out, name, split, method)
        for name in args.sets
        for method in args.methods
        for split in args.splits
    ]
    records = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
    print(report(records, {name: method.title for name, method in METHODS.items()}))
    return 1 if failures else 0


def _run_missing(args: argparse.Namespace) -> int:
    """Every run that has no file; those that fail are told and counted."""
    methods = []
    for method in args.methods:
        if missing := missing_packages(method):
            print(f"{method} is left out: {', '.join(missing)} not installed.", file=sys.stderr)
        else:
            methods.append(method)
    methods.sort(key=lambda method: method != _OURS)  # whose time bounds that of tuning
    failures = 0
    for split in args.splits:
        for name in args.sets:
            for method in methods:
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        if len(load_split(name, split, args.rows).y) > METHODS[method].max_rows:
                            continue
                        record = run(
                            name,
                            split,
                            method,
                            out=args.out,
                            rows=args.rows,
                            tuning_seconds=args.tuning_seconds,
                        )
                except FileNotFoundError as error:
                    print(f"{name} is left out: {error}", file=sys.stderr)
                    break
                except Exception as error:  # the other runs go on
                    failures += 1
                    line = f"failed: {type(error).__name__}: {error}"
                else:
                    line = f"RMSE {record['rmse']:.4g}, CRPS {record['crps']:.4g}"
                    line += f", {record['fit_seconds']:.1f} CPU s"
                print(f"{name} {split} {method}: {line}", file=sys.stderr, flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())
