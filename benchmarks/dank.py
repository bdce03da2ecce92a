"""Data-adaptive kernels (DANK) beside support vector machines with the kernel they start from.

``python -m benchmarks.dank`` follows tables 1 and 6 of Liu et al. (2020): random halves, inputs
scaled to [0, 1], width and cost (for regression the tube, too) by 5-fold cross-validation on the
paper's grid; the learned kernels start from what the SVM chose. Further tables check the defaults.
Each run adds a line to a JSON-lines file, so that a second call goes on where the first one ended;
then the tables are printed. ``--large`` EEG and 50,000 rows,
``--gp`` the kernel in Gaussian processes. One thread. The environment variable GPYTORCH_NKN_DATA
names the folder of the data.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy and torch read them

import argparse  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from importlib import metadata  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402

from benchmarks.dank_protocol import (  # noqa: E402
    HELD_OUT,
    METHODS,
    PAPER_SETS,
    SEEN,
    Split,
    fit,
    load_split,
)
from benchmarks.dank_report import report  # noqa: E402

__all__ = ["main", "run"]

_GROUPS = {"paper": PAPER_SETS, "seen": SEEN, "held_out": HELD_OUT}
_KEY = ("set", "split", "repeat", "method")
_LIBRARIES = ("torch", "gpytorch", "botorch", "numpy", "scipy", "scikit-learn", "gpytorch_nkn")
_REGRESSION_ONLY = ("ard", "gp")


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing in the file of results and print the tables; or one of the others."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dank",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = {f"{name}:{kind}": (name, kind) for group in _GROUPS.values() for name, kind in group}
    parser.add_argument(
        "--sets",
        nargs="+",
        choices=[*_GROUPS, *known],
        default=["paper"],
        metavar="NAME",
        help=f"groups ({', '.join(_GROUPS)}) or tables ({', '.join(known)})",
    )
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="M")
    parser.add_argument("--repeats", type=int, default=10, metavar="R")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="of the repeats")
    parser.add_argument(
        "--results", type=Path, help="default: benchmarks/dank.jsonl, dank_gp.jsonl"
    )
    parser.add_argument("--report", action="store_true", help="only print the tables")
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--large", action="store_true", help="EEG and 50,000 rows instead")
    other.add_argument("--gp", action="store_true", help="the kernel in Gaussian processes instead")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    if args.large:
        from benchmarks.dank_large import measure_large

        print(measure_large())
        return 0
    if args.gp:
        from benchmarks.dank_gp import main as measure_gp

        options = [] if args.results is None else ["--results", str(args.results)]
        return measure_gp([*options, *["--report"] * args.report])
    args.results = args.results or Path("benchmarks/dank.jsonl")
    wanted: list[tuple[str, str]] = []
    for name in args.sets:
        wanted += _GROUPS.get(name, (known.get(name),))
    done = _read(args.results)
    failures = 0
    if not args.report:
        failures = _run_missing(list(dict.fromkeys(wanted)), args, done)
    chosen = [
        record
        for record in done.values()
        if (record["set"], record["split"]) in wanted
        and args.first <= record["repeat"] < args.first + args.repeats
        and record["method"] in args.methods
    ]
    print(report(chosen))
    return 1 if failures else 0


def _read(path: Path) -> dict[tuple, dict]:
    """The runs of a file by their keys; a line that is only half written does not count."""
    records = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        records[tuple(record[name] for name in _KEY)] = record
    return records


def _run_missing(
    tables: Sequence[tuple[str, str]], args: argparse.Namespace, done: dict[tuple, dict]
) -> int:
    """Run and write, one repeat of all tables after another; returns the number of failures."""
    args.results.parent.mkdir(parents=True, exist_ok=True)
    failures = 0
    for repeat in range(args.first, args.first + args.repeats):
        for name, kind in tables:
            split = load_split(name, kind, repeat)
            for method in ["svm", *(m for m in args.methods if m != "svm")]:
                key = (name, kind, repeat, method)
                if key in done or (split.classes and method in _REGRESSION_ONLY):
                    continue
                head = " ".join(map(str, key))
                tuned = done.get((name, kind, repeat, "svm"), {}).get("chosen")
                try:
                    with warnings.catch_warnings(record=True) as caught:
                        warnings.simplefilter("always")
                        record = run(split, method, tuned)
                except Exception as error:  # the other runs go on
                    failures += 1
                    print(f"{head}: failed: {type(error).__name__}: {error}", file=sys.stderr)
                    continue
                record["warnings"] = sorted({str(warning.message)[:200] for warning in caught})
                _write(args.results, record)
                done[key] = record
                text = f"{head}: {record['score']:.2f}, {record['fit_cpu']:.2f} CPU s"
                print(text, file=sys.stderr, flush=True)
    return failures


def _write(path: Path, record: dict) -> None:
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # what a killed run left
                file.write(b"\n")
        file.write(json.dumps(record).encode() + b"\n")


def run(split: Split, method: str, tuned: dict[str, float] | None) -> dict:
    """One method on one split: the line of the file.

    Args:
        split: The data.
        method: Key of ``METHODS``.
        tuned: Settings that the SVM chose on this split.
    """
    start = time.process_time()
    predict, chosen = fit(method, split, tuned)
    fitted = time.process_time()
    prediction = np.asarray(predict(split.test_inputs))
    predicted = time.process_time()
    score = split.score(prediction)
    if not np.isfinite(score):
        raise ArithmeticError(f"The score is not finite: {score}.")
    return {
        "set": split.name,
        "split": split.kind,
        "repeat": split.repeat,
        "method": method,
        "checksum": split.checksum,
        "classes": split.classes,
        "n": len(split.X),
        "d": split.X.shape[1],
        "num_test": len(split.test_y),
        "score": score,
        "train_score": _train_score(split, predict),
        "chosen": chosen,
        "fit_cpu": fitted - start,
        "predict_cpu": predicted - fitted,
        "versions": {name: metadata.version(name) for name in _LIBRARIES},
    }


def _train_score(split: Split, predict) -> float:
    own = Split(split.name, split.kind, 0, split.X, split.y, split.X, split.y, split.classes)
    return own.score(np.asarray(predict(split.X)))


if __name__ == "__main__":
    sys.exit(main())
