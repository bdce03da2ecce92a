"""Parallel execution by any joblib backend: threads, processes, Dask or Ray."""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError
from contextlib import closing, nullcontext
from itertools import chain, islice
from typing import Any
from uuid import uuid4

import cloudpickle
import numpy as np
import torch
from gpytorch import settings
from joblib import Parallel, delayed, effective_n_jobs
from threadpoolctl import threadpool_limits

from gpytorch_nkn.fit.session import warn_user
from gpytorch_nkn.settings import kernel_evaluation

__all__ = ["as_finished", "is_lost"]

_LOST_ELSEWHERE = (
    *("KilledWorker", "FutureCancelledError", "CommClosedError"),  # Dask's
    *("RayActorError", "WorkerCrashedError", "NodeDiedError"),
)
_TASKS_PER_WORKER = 4  # number of tasks per worker and round, for backends that return lists only
_MAX_ATTEMPTS = 3  # largest number of consecutive attempts without a result
_MAX_CACHED = 2  # number of shared objects that a worker caches


def as_finished(
    function: Callable[..., Any], tasks: Iterable[tuple], n_jobs: int | None, *, shared: Any = None
) -> Generator[tuple[int, Any]]:
    """Yield each task's number and ``function(*task)``, in the order in which tasks finish.

    Parallel tasks use one thread each, and the default dtype and kernel evaluation of this process,
    so that results do not depend on the worker. Tasks of a lost worker (killed, out of memory,
    machine switched off) restart on another worker. Backends that only return lists (Ray,
    multiprocessing) run rounds of a few tasks.

    Args:
        function: Function of an importable module.
        tasks: Arguments of each task, drawn as workers become free.
        n_jobs: Number of jobs as in joblib; ``joblib.parallel_config`` selects the backend.
        shared: First argument of every task, sent to each worker once (by Ray with every task);
            ``None`` for no shared argument.

    Raises:
        Exception: ``BrokenExecutor``, Dask's ``KilledWorker`` or Ray's ``RayActorError``, after
            several consecutive lost workers without a result.
    """
    is_alone = effective_n_jobs(n_jobs) == 1
    caller = (torch.get_default_dtype(), kernel_evaluation.path(), os.getpid(), is_alone)
    payload = None if shared is None else _SharedPayload(shared)
    threads, attempts = torch.get_num_threads(), 0
    lazy = settings.lazily_evaluate_kernels  # which GPyTorch sets while it evaluates a kernel
    waiting: dict[int, tuple] = {}
    unstarted = enumerate(tasks)

    def jobs() -> Iterator[Any]:
        for number, task in chain(list(waiting.items()), unstarted):
            waiting[number] = task
            yield delayed(_call)(caller, payload, function, number, task)

    try:
        while True:
            attempts += 1
            try:
                with lazy(lazy.on()), closing(_results(jobs(), n_jobs)) as results:
                    for number, result in results:
                        del waiting[number]
                        attempts = 0
                        yield number, result
                return
            except Exception as error:
                if not is_lost(error) or attempts >= _MAX_ATTEMPTS:
                    raise
                warn_user(
                    f"A worker was lost ({type(error).__name__}); its unfinished tasks restart."
                )
    finally:
        torch.set_num_threads(threads)  # threads share this setting, and GPyTorch's


def _results(jobs: Iterator[Any], n_jobs: int | None) -> Generator[tuple[int, Any]]:
    try:
        parallel = Parallel(n_jobs=n_jobs, batch_size=1, return_as="generator_unordered")
    except ValueError:
        with Parallel(n_jobs=n_jobs, batch_size=1) as parallel:
            while batch := list(islice(jobs, _TASKS_PER_WORKER * effective_n_jobs(n_jobs))):
                yield from parallel(batch)
    else:
        with closing(parallel(jobs)) as results:
            yield from results


def is_lost(error: Exception) -> bool:
    """Return whether a backend raised the error because it lost a worker."""
    names = {base.__name__ for base in type(error).__mro__}
    is_usual = isinstance(error, BrokenExecutor | CancelledError)
    return is_usual or not names.isdisjoint(_LOST_ELSEWHERE)


def _call(
    caller: tuple,
    payload: _SharedPayload | None,
    function: Callable[..., Any],
    number: int,
    task: tuple,
) -> tuple[int, Any]:
    dtype, path, parent, is_alone = caller
    is_elsewhere = os.getpid() != parent
    before = torch.get_default_dtype()
    if not is_alone:
        torch.set_num_threads(1)  # additional threads would compete with other tasks
    if is_elsewhere:
        torch.set_default_dtype(dtype)
    try:
        with (
            threadpool_limits(1) if is_elsewhere else nullcontext(),
            kernel_evaluation(path) if is_elsewhere else nullcontext(),
        ):
            first = () if payload is None else (payload.open(),)
            return number, function(*first, *task)
    finally:
        if is_elsewhere:  # other clients may use the worker
            torch.set_default_dtype(before)


class _SharedPayload:
    """Object that is sent to each worker once.

    The object is pickled into one array of bytes, which joblib memory-maps and Dask scatters. Each
    worker unpickles it once.
    """

    def __init__(self, value: Any):
        self._key = uuid4().hex
        self._value: Any = value
        self._bytes: np.ndarray | None = None

    def open(self) -> Any:
        """Return the object itself in this process, or one copy for all tasks of a worker."""
        if self._value is not None:
            return self._value
        if self._key not in _opened:
            _opened[self._key] = pickle.loads(self._packed().tobytes())
            while len(_opened) > _MAX_CACHED:
                _opened.popitem(last=False)
        return _opened[self._key]

    def _packed(self) -> np.ndarray:
        if self._bytes is None:
            content = cloudpickle.dumps(self._value)  # includes classes of a script or notebook
            self._bytes = np.frombuffer(content, np.uint8)
        return self._bytes

    def __getstate__(self) -> dict:
        return {"_key": self._key, "_value": None, "_bytes": self._packed()}

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self._packed().nbytes


_opened: OrderedDict[str, Any] = OrderedDict()
