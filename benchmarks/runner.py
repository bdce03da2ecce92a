"""Runner of all benchmarks: jobs, a file of finished rows, tables.

A benchmark defines its axes (data, methods, seeds: every combination is a job), its settings, and
functions that run a job and make tables of the rows. ``python -m benchmarks.NAME`` runs the jobs
without a row in the file, so that a second call continues the first, and prints the tables.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import multiprocessing
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import torch
from sklearn.model_selection import ParameterSampler

from benchmarks.report import Table, write_table

__all__ = [
    "Axis",
    "Benchmark",
    "boosting",
    "peak_gigabytes",
    "random_search",
    "ratios_in_turn",
    "timed",
    "versions",
]

_PREFIXES = {"lightgbm": "LGBM", "catboost": "CatBoost"}
_LIBRARIES = ("torch", "gpytorch", "botorch", "numpy", "scipy", "scikit-learn", "gpytorch_nkn")


@dataclass(frozen=True)
class Axis:
    """Values of a job's axis: all values, and the default selection."""

    values: Sequence[Any]
    default: Sequence[Any] = ()


@dataclass(frozen=True)
class Benchmark:
    """A benchmark; its name and description come from the module of ``run``.

    Attributes:
        axes: Axes by name; every combination of their values is a job.
        run: Computes the figures of a job, whose axes and settings are its arguments.
        tables: Makes the tables, by name, of the finished rows.
        settings: Numbers that a call may change, by name; they also identify rows.
        possible: Whether a combination is a job.
        needs: Packages that must be installed, by the value of an axis that needs them.
        fresh: Whether each job has its own process, so that peak memory can be measured.
        one_thread: Whether torch uses one thread; otherwise OMP_NUM_THREADS decides.
        warm_up: Receives the method of a job before its first job in a process, so that no figure
            includes imports and compilation.
    """

    axes: Mapping[str, Axis]
    run: Callable[..., dict]
    tables: Callable[[list[dict]], dict[str, Table]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    possible: Callable[[dict], bool] = lambda job: True
    needs: Mapping[str, str] = field(default_factory=dict)
    fresh: bool = False
    one_thread: bool = True
    warm_up: Callable[[str], object] | None = None

    @property
    def module(self) -> Any:
        """Module, which is ``__main__`` in a command."""
        return sys.modules[self.run.__module__]

    @property
    def name(self) -> str:
        """Last part of the module's name."""
        return self.module.__spec__.name.rpartition(".")[2]

    def command(self) -> NoReturn:
        """Run :meth:`main` and end the process."""
        sys.exit(self.main())

    def main(self, argv: Sequence[str] | None = None) -> int:
        """The command: run what is missing, print the tables; 1 if a job failed."""
        parser = self._parser()
        args = parser.parse_args(argv)
        try:
            jobs = list(self._jobs(args))
        except FileNotFoundError as error:
            parser.error(str(error))
        rows = self._read(args.file)
        missing = [job for job in jobs if _key(job) not in rows]
        print(f"{len(jobs) - len(missing)} of {len(jobs)} rows are in {args.file}", file=sys.stderr)
        failures = 0
        for job, figures, fault in () if args.report else self._run(missing):
            if figures is None:
                failures += 1
                print(f"{_values(job)} failed: {fault}", file=sys.stderr)
                continue
            row = {"job": job, **figures, "versions": versions()}
            _append(args.file, row)
            rows[_key(job)] = row
            shown = {k: v for k, v in figures.items() if isinstance(v, int | float)}
            print(f"{_values(job)}: {_values(shown)}", file=sys.stderr, flush=True)
        done = [rows[_key(job)] for job in jobs if _key(job) in rows]
        if done:
            for name, table in self.tables([{**row["job"], **row} for row in done]).items():
                print(f"\n{name}:\n\n{table.markdown()}")
                if args.write:
                    write_table(name, table)
            print(_values(done[-1]["versions"]))
        return 1 if failures else 0

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            prog=f"python -m benchmarks.{self.name}",
            description=self.module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for name, axis in self.axes.items():
            kind = type(axis.values[0])
            choices = None if kind is int else axis.values
            default = axis.default or axis.values
            parser.add_argument(
                f"--{name}", nargs="+", type=kind, choices=choices, default=default, metavar="X",
                help=f"of {', '.join(map(str, axis.values))}".replace("%", "%%"),
            )  # fmt: skip
        for name, value in self.settings.items():
            option = f"--{name.replace('_', '-')}"
            parser.add_argument(option, type=type(value), default=value, help=f"default: {value}")
        parser.add_argument("--report", action="store_true", help="only print the tables")
        parser.add_argument("--write", action="store_true", help="replace the committed tables")
        default = Path(f"benchmarks/.rows/{self.name}.jsonl")
        parser.add_argument("--file", type=Path, default=default, help="of finished rows")
        return parser

    def _jobs(self, args: argparse.Namespace) -> Iterator[dict]:
        lacking = {value for value, package in self.needs.items() if find_spec(package) is None}
        settings = {name: getattr(args, name) for name in self.settings}
        names = list(self.axes)
        held_out = set()
        for values in itertools.product(*(getattr(args, name) for name in reversed(names))):
            job = dict(zip(reversed(names), values, strict=True))
            held_out |= lacking & set(values)
            job = {name: job[name] for name in names} | settings
            if not lacking & set(values) and self.possible(job):
                yield job
        for value in sorted(held_out):
            print(f"{value} is skipped: {self.needs[value]} is not installed", file=sys.stderr)

    def _read(self, path: Path) -> dict[str, dict]:
        """Read finished rows by job; incomplete lines are ignored."""
        rows = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            rows[_key(row["job"])] = row
        return rows

    def _run(self, jobs: Sequence[dict]) -> Iterator[tuple[dict, dict | None, str]]:
        if not self.fresh:
            yield from (_guarded(self, job) for job in jobs)
            return
        context = multiprocessing.get_context("spawn")
        module = f"benchmarks.{self.name}"
        with ProcessPoolExecutor(1, context, max_tasks_per_child=1) as pool:
            yield from pool.map(partial(_in_process, module), jobs)


def _in_process(module: str, job: dict) -> tuple[dict, dict | None, str]:
    return _guarded(importlib.import_module(module).BENCHMARK, job)


def _guarded(benchmark: Benchmark, job: dict) -> tuple[dict, dict | None, str]:
    if benchmark.one_thread:
        torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if benchmark.warm_up:
                _warm(benchmark.warm_up, job.get("method", ""))
            return job, benchmark.run(**job), ""
        except Exception:  # the other jobs still run
            return job, None, traceback.format_exc(limit=-3)


@cache
def _warm(warm_up: Callable[[str], object], method: str) -> None:
    warm_up(method)


def _key(job: dict) -> str:
    return json.dumps(job, sort_keys=True)


def _values(values: Mapping[str, Any]) -> str:
    texts = (f"{v:.4g}" if isinstance(v, float) else str(v) for v in values.values())
    return ", ".join(f"{name} {text}" for name, text in zip(values, texts, strict=True))


def _append(path: Path, row: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # a killed run left an incomplete line
                file.write(b"\n")
        file.write(json.dumps(row).encode() + b"\n")


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """Return a function's result and its CPU seconds, child processes included."""
    begin = time.process_time() + sum(os.times()[2:4])
    result = function()
    return result, time.process_time() + sum(os.times()[2:4]) - begin


def random_search(
    loss: Callable[[dict[str, Any]], float],
    space: Mapping[str, Any],
    first: dict[str, Any],
    *,
    seed: int,
    seconds: float,
) -> tuple[dict[str, Any], float]:
    """Return options with the smallest loss after CPU ``seconds`` of random search, and the loss.

    The search begins with the options ``first``; an empty space has no others.
    """
    begin, smallest, best = time.process_time(), loss(first), first
    for options in ParameterSampler(space, 10_000, random_state=seed) if space else ():
        if time.process_time() - begin >= seconds:
            break
        if (value := loss(options)) < smallest:
            smallest, best = value, options
    return best, smallest


def boosting(library: str, kind: str, seed: int, **options: Any) -> Any:
    """Create a ``Regressor`` or ``Classifier`` of LightGBM or CatBoost, on one thread."""
    quiet: dict[str, Any] = {"n_jobs": 1, "verbose": -1}
    if library == "catboost":
        quiet = {"thread_count": 1, "verbose": False, "allow_writing_files": False}
    make = getattr(importlib.import_module(library), _PREFIXES[library] + kind)
    return make(random_state=seed, **quiet, **options)


def ratios_in_turn(
    steps: Mapping[str, Callable[[], object]],
    turns: int,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, list[float]]:
    """Time steps alternately, so that other load of the machine affects them equally."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(turns + 1):
        for name, step in steps.items():
            begin = clock()
            step()
            if turn:  # the first step of each includes its set-up
                seconds[name].append(clock() - begin)
    return seconds


def peak_gigabytes() -> float:
    """Return the peak resident size of this process."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def versions() -> dict[str, str]:
    """Return the versions of the libraries."""
    return {name: metadata.version(name) for name in _LIBRARIES}
