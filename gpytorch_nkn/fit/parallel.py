"""Jobs of joblib whose results are taken as they finish."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import closing
from itertools import islice
from typing import Any

from joblib import Parallel, effective_n_jobs

__all__ = ["as_finished"]

_ROUND = 4  # jobs a worker, where results cannot be taken one by one


def as_finished(jobs: Iterable[Any], n_jobs: int | None) -> Generator[Any]:
    """Results of delayed calls, one by one in the order in which they finish.

    Backends of joblib that return lists only (Ray's, multiprocessing) work in rounds of a few
    jobs, whose results come together.

    Args:
        jobs: What :func:`joblib.delayed` makes.
        n_jobs: As joblib's.
    """
    try:
        parallel = Parallel(n_jobs=n_jobs, batch_size=1, return_as="generator_unordered")
    except ValueError:
        rest = iter(jobs)
        with Parallel(n_jobs=n_jobs, batch_size=1) as parallel:
            while part := list(islice(rest, _ROUND * effective_n_jobs(n_jobs))):
                yield from parallel(part)
    else:
        with closing(parallel(jobs)) as results:
            yield from results
