"""When processes and clusters pay: what a task costs beside what sending it costs.

``python -m benchmarks.clusters`` measures, with two workers of one thread each, for every backend
of joblib that is installed (its own processes, Dask's LocalCluster, a local Ray): the seconds from
nothing to workers that have imported what they need, those of a call (Ray's workers end with it),
of sending a task out and its result back, and of a megabyte of shared data. Then restarts of a
network of kernels run on one and on two workers, beside what a model says of two:

    seconds = call + data x workers + the longer of tasks x dispatch + task, tasks / workers x task

Columns of more workers than two are that model, not measurements: a network between machines is
slower than one machine's memory. They are of 1,000 tasks with a megabyte of data.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy and torch read them

import argparse  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Iterator, Sequence  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from importlib.util import find_spec  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from joblib import parallel_config  # noqa: E402

from benchmarks.step import Regression  # noqa: E402
from gpytorch_nkn.fit import Recipe, as_finished, fit_best_of  # noqa: E402
from gpytorch_nkn.kernels import NeuralKernelNetwork  # noqa: E402

__all__ = ["Costs", "main"]

_WORKERS = 2
_SMALL_TASKS = 200
_MEGABYTES = 20
_MODELLED = (10, 100, 1000)
_BACKENDS = {"loky": "joblib", "dask": "distributed", "ray": "ray", "threading": "joblib"}


@dataclass(frozen=True)
class Costs:
    """Seconds of what comes beside the tasks.

    Args:
        start: From nothing until all workers have imported what tasks need.
        call: Of every call.
        dispatch: Of a task and its result, through the one process that sends them.
        megabyte: Of shared data, to one worker.
    """

    start: float
    call: float
    dispatch: float
    megabyte: float

    def seconds(self, tasks: int, task: float, workers: int, megabytes: float) -> float:
        """What the model says of a call with so many tasks of some seconds each."""
        sent = megabytes * self.megabyte * workers
        rounds = -(-tasks // workers)
        return self.call + sent + max(tasks * self.dispatch + task, rounds * task)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clusters", description=__doc__)
    installed = [name for name, module in _BACKENDS.items() if find_spec(module)]
    usual = [name for name in installed if name != "threading"]
    parser.add_argument("--backends", nargs="+", choices=installed, default=usual)
    parser.add_argument("--tasks", type=int, default=16, metavar="T", help="restarts")
    parser.add_argument("--rows", type=int, default=1000, metavar="N", help="of their table")
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    model = _model(args.rows)
    task = _restarts(model, args.tasks, 1) / args.tasks
    print(f"{args.tasks} restarts of {args.rows:,} rows of 8 columns, {task:.2f} s each alone\n")
    lines = []
    for name in args.backends:
        begin = time.perf_counter()
        with _backend(name):
            _send(_WORKERS, None)
            costs = _costs(time.perf_counter() - begin)
            measured = _restarts(model, args.tasks, _WORKERS)
        said = costs.seconds(args.tasks, task, _WORKERS, 0.0)
        print(name, costs, file=sys.stderr)
        sent = (1000 * costs.dispatch, 1000 * costs.megabyte)
        numbers = (costs.start, costs.call, *sent, args.tasks * task, measured, said)
        cells = [f"{number:.1f}" for number in numbers]
        cells += [
            f"{1000 * task / costs.seconds(1000, task, workers, 1.0):.0f}" for workers in _MODELLED
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    heads = ["backend", "start, s", "a call, s", "ms a task", "ms a MB", "one worker, s", "two"]
    heads += ["two, model", *(f"{workers} workers, model: times one" for workers in _MODELLED)]
    print("| " + " | ".join(heads) + " |")
    print("|" + " --- |" * len(heads))
    print("\n".join(lines))
    return 0


def _model(rows: int) -> Regression:
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.rand(rows, 8, generator=generator, dtype=torch.float64)
    y = torch.sin(x.sum(-1)) + 0.1 * torch.randn(rows, generator=generator, dtype=torch.float64)
    return Regression(x, y, NeuralKernelNetwork.tabular(8)).double()


def _restarts(model: Regression, count: int, workers: int) -> float:
    begin = time.perf_counter()
    recipe = Recipe(adam_steps=0, lbfgs_iterations=30)
    fit_best_of(model, restarts=count, recipe=recipe, seed=0, n_jobs=workers, progress=False)
    return time.perf_counter() - begin


def _costs(start: float) -> Costs:
    few, many = (_seconds(count, None) for count in (_WORKERS, _WORKERS + _SMALL_TASKS))
    data = np.random.default_rng(0).bytes(_MEGABYTES * 10**6)
    little, much = (_seconds(_WORKERS, part) for part in (data[:10], data))
    dispatch = max(many - few, 0.0) / _SMALL_TASKS
    return Costs(start, few, dispatch, max(much - little, 0.0) / _WORKERS / _MEGABYTES)


def _seconds(count: int, shared: bytes | None) -> float:
    begin = time.perf_counter()
    _send(count, shared)
    return time.perf_counter() - begin


def _send(count: int, shared: bytes | None) -> None:
    function = _imports if shared is None else _takes
    for _ in as_finished(function, ((number,) for number in range(count)), _WORKERS, shared=shared):
        pass


def _imports(number: int) -> int:
    import gpytorch_nkn.models  # noqa: F401

    return number


def _takes(shared: bytes, number: int) -> int:
    return len(shared) + number


@contextmanager
def _backend(name: str) -> Iterator[None]:
    if name == "dask":
        from distributed import Client, LocalCluster

        options = {"n_workers": _WORKERS, "threads_per_worker": 1, "dashboard_address": None}
        with LocalCluster(processes=True, **options) as cluster, Client(cluster):
            with parallel_config(backend="dask"):
                yield
    elif name == "ray":
        import ray
        from ray.util.joblib import register_ray

        register_ray()
        ray.init(num_cpus=_WORKERS, include_dashboard=False, log_to_driver=False)
        try:
            with parallel_config(backend="ray"):
                yield
        finally:
            ray.shutdown()
    else:
        with parallel_config(backend=name):
            yield


if __name__ == "__main__":
    from benchmarks.clusters import main as _main  # so that workers can import what is sent

    sys.exit(_main())
