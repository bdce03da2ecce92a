"""Automated spectral kernel learning: table 2 of Li, Liu and Wang (2020), its time, and its GP.

``python -m benchmarks.askl`` trains the five methods of the paper with the defaults of
ASKLClassifier and ASKLRegressor, beside what one would pick instead, on 80/20 splits
(mnist_10k_10k: on its own split, several seeds); targets of a regression are mapped to [0, 100].
Each run adds a line to a JSON-lines file, so that a second call goes on where the first one ended;
then the tables are printed. ``--cost`` times an epoch beside a plain two-layer network of torch,
``--gp`` a Gaussian process with the kernel at many rows. One thread. The environment variable
GPYTORCH_NKN_DATA names the folder of the data.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy and torch read them

import argparse  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
import zlib  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from functools import cache  # noqa: E402
from importlib import metadata  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402

from benchmarks.askl_references import REFERENCES, fit_reference  # noqa: E402
from benchmarks.askl_report import METHODS, report  # noqa: E402
from benchmarks.data import (  # noqa: E402
    ClassificationTable,
    RegressionTable,
    load_askl_table,
)

__all__ = ["main", "run"]

_SETS = ("segment", "satimage", "letter", "abalone", "cpusmall", "mnist_10k_10k")
_OWN_SPLIT = ("mnist_10k_10k",)
_SEEDS = (0, 1, 2, 3, 4)
_LIBRARIES = ("torch", "gpytorch", "botorch", "numpy", "scipy", "scikit-learn", "gpytorch_nkn")
_KEY = ("set", "checksum", "split", "seed", "method", "settings")


@dataclass(frozen=True)
class _Job:
    set: str
    split: int | str
    seed: int
    method: str
    settings: tuple[tuple[str, int], ...]  # those that are not the defaults


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing in the file of results and print the tables; or time."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.askl",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sets", nargs="+", default=_SETS, metavar="NAME")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="M")
    parser.add_argument("--seeds", nargs="+", type=int, default=_SEEDS, metavar="S")
    parser.add_argument("--components", type=int, default=2000, metavar="D", help="features")
    parser.add_argument("--epochs", type=int, metavar="N", help="instead of the default")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/askl.jsonl"))
    parser.add_argument("--report", action="store_true", help="only print the tables")
    parser.add_argument("--cost", action="store_true", help="seconds per epoch instead")
    parser.add_argument("--gp", action="store_true", help="the Gaussian process instead")
    parser.add_argument("--rows", nargs="+", type=int, metavar="N", help="of --cost and --gp")
    parser.add_argument("--rounds", type=int, metavar="R", help="of --cost and --gp")
    parser.add_argument("--classes", type=int, default=2, metavar="K", help="of --cost")
    parser.add_argument("--batch-size", type=int, default=256, metavar="B", help="of --cost")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    if args.cost and args.gp:
        parser.error("--cost and --gp are two calls.")
    if not (args.cost or args.gp) and (args.rows or args.rounds):
        parser.error("--rows and --rounds belong to --cost or --gp.")
    if args.cost:
        from benchmarks.askl_cost import measure_cost

        rows = (args.rows or [50_000])[0]
        print(measure_cost(rows, args.components, args.classes, args.batch_size, args.rounds or 7))
        return 0
    if args.gp:
        from benchmarks.askl_gp import measure_gp

        print(measure_gp(args.rows or [3162, 10_000, 31_623, 100_000], args.rounds or 5))
        return 0
    try:
        wanted = _wanted(args)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    done = _read(args.results)
    missing = [job for key, job in wanted.items() if key not in done]
    print(
        f"{len(wanted) - len(missing)} of {len(wanted)} runs are in {args.results}.",
        file=sys.stderr,
    )
    failures = 0
    if not args.report:
        failures = _run_missing(missing, args.results)
        done = _read(args.results)
    print(report([done[key] for key in wanted if key in done]))
    return 1 if failures else 0


def _wanted(args: argparse.Namespace) -> dict[str, _Job]:
    """Every run that was asked for, by its key; one seed of all sets after another."""
    settings = {"components": args.components}
    if args.epochs is not None:
        settings["epochs"] = args.epochs
    jobs = {}
    for seed in args.seeds:
        for name in args.sets:
            table = _table(name)
            split = "official" if name in _OWN_SPLIT else seed
            table.test_mask(split)  # raises where there is no such split
            for method in args.methods:
                if method == "rff_logistic" and isinstance(table, RegressionTable):
                    continue
                used = {} if method in REFERENCES else settings
                job = _Job(name, split, seed, method, tuple(used.items()))
                jobs[_key([name, _checksum(table), split, seed, method, used])] = job
    return jobs


def _key(values: Sequence) -> str:
    *others, settings = values
    return json.dumps([*others, sorted(settings.items())])


def _read(path: Path) -> dict[str, dict]:
    """The runs of a file by their keys; a line that is only half written does not count."""
    records = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        records[_key([record[name] for name in _KEY])] = record
    return records


def _run_missing(jobs: Sequence[_Job], path: Path) -> int:
    """Run and write, one at a time; returns the number of failures."""
    path.parent.mkdir(parents=True, exist_ok=True)
    failures = 0
    for i, job in enumerate(jobs, 1):
        head = f"[{i}/{len(jobs)}] {job.set} {job.split} seed {job.seed} {job.method}"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                record = run(_table(job.set), job.split, job.seed, job.method, dict(job.settings))
        except Exception as error:  # the other runs go on
            failures += 1
            print(f"{head}: failed: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        with path.open("a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # what a killed run left
                    file.write(b"\n")
            file.write(json.dumps(record).encode() + b"\n")
        print(f"{head}: {record['score']:.4g}, {record['fit_cpu']:.1f} CPU s", file=sys.stderr)
    return failures


def run(
    table: ClassificationTable | RegressionTable,
    split: int | str,
    seed: int,
    method: str,
    settings: dict[str, int],
) -> dict:
    """One method on one split: the line of the file.

    Args:
        table: The data.
        split: Of the table.
        seed: Of everything that is drawn.
        method: Key of ``METHODS``.
        settings: ``components`` and ``epochs`` of the methods of the paper.
    """
    classes = isinstance(table, ClassificationTable)
    test = table.test_mask(split)
    y = table.y if classes else 100 * (table.y - table.y.min()) / np.ptp(table.y)
    X, new_X, new_y = table.X[~test], table.X[test], y[test]
    _warm_up(method, classes)
    start = time.process_time(), time.perf_counter()
    model, chosen = _fit(method, X, y[~test], classes, seed, settings)
    fitted = time.process_time(), time.perf_counter()
    prediction = np.asarray(model.predict(new_X))
    end = time.process_time()
    if classes:
        score = 100 * float(np.mean(prediction == new_y))
    else:
        score = float(np.sqrt(np.mean((prediction - new_y) ** 2)))
    if not np.isfinite(score):
        raise ArithmeticError(f"The score is not finite: {score}.")
    return {
        "set": table.name,
        "checksum": _checksum(table),
        "split": split,
        "seed": seed,
        "method": method,
        "settings": settings,
        "classes": len(np.unique(y)) if classes else 0,
        "n": len(X),
        "d": X.shape[1],
        "num_test": len(new_y),
        "score": score,
        "chosen": chosen,
        "fit_cpu": fitted[0] - start[0],
        "fit_wall": fitted[1] - start[1],
        "predict_cpu": end - fitted[0],
        "versions": {name: metadata.version(name) for name in _LIBRARIES},
    }


def _fit(
    method: str, X: np.ndarray, y: np.ndarray, classes: bool, seed: int, settings: dict[str, int]
) -> tuple:
    """A trained estimator, and how it was trained."""
    if method in REFERENCES:
        return fit_reference(method, X, y, classes=classes, seed=seed)
    from gpytorch_nkn.estimators import ASKLClassifier, ASKLRegressor

    options = {"n_components": settings["components"]}
    if "epochs" in settings:
        options["max_iter"] = settings["epochs"]
    estimator = ASKLClassifier if classes else ASKLRegressor
    model = estimator(method, random_state=seed, **options).fit(X, y)
    return model, {
        "epochs trained": int(model.n_iter_),
        "best epoch": int(model.best_iteration_),
        "gamma": float(model.gamma_),
        "rank": int(model.rank_),
    }


@cache
def _warm_up(method: str, classes: bool) -> None:
    """Once in a process: imports and compilation are not what is measured."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 2))
    y = (X[:, 0] > 0.5).astype(int) if classes else X.sum(1)
    _fit(method, X, y, classes, 0, {"components": 20, "epochs": 1})


def _checksum(table: ClassificationTable | RegressionTable) -> int:
    return zlib.crc32(table.X.tobytes() + table.y.tobytes())


@cache
def _table(name: str) -> ClassificationTable | RegressionTable:
    return load_askl_table(name)


if __name__ == "__main__":
    sys.exit(main())
