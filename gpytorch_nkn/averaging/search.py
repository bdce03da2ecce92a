"""Training of candidates within a time budget, sequentially or in processes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from joblib import effective_n_jobs

from gpytorch_nkn.fit import Session, as_finished, is_lost, warn_user

__all__ = ["Trained", "train_candidates", "warn_of_untrained"]

_UNTRAINED = "untrained"  # status of a candidate if the training ended before its turn
_FAILURES = (RuntimeError, ArithmeticError, np.linalg.LinAlgError)

K = TypeVar("K")
C = TypeVar("C")


@dataclass
class Trained(Generic[K, C]):
    """Result of training one candidate."""

    key: K
    candidate: C | None  # None if its training failed or did not begin
    seconds: float  # wall time
    status: str  # "ok", "interrupted" (trained up to Ctrl-C), "failed: ..." or "untrained"

    @property
    def failed(self) -> bool:
        """Whether the training failed; the status gives the reason."""
        return self.status.startswith("failed")


def train_candidates(
    train: Callable[[Any, K, float | None], C],
    keys: Sequence[K],
    session: Session,
    *,
    shared: Any = None,
    ready: Sequence[Trained[K, C]] = (),
    n_jobs: int = 1,
) -> list[Trained[K, C]]:
    """Train candidates in the order of ``keys``, each for a fraction of the remaining time.

    Once a candidate is trained, Ctrl-C or the end of the budget leaves the remaining candidates
    untrained; before that, Ctrl-C raises a KeyboardInterrupt. The ``status`` of each result gives
    the outcome.

    Args:
        train: ``train(shared, key, seconds)`` returns a trained candidate; ``seconds`` is ``None``
            without a limit. With several processes, ``train`` must be picklable. A candidate whose
            training ended by Ctrl-C has ``interrupted=True``.
        keys, ready: Identifiers of the candidates, and candidates that are already trained.
        session, n_jobs: Budget, interrupts and progress bar; number of processes.
        shared: First argument of ``train``; each process receives it once.
    """
    done = [one for one in ready if one.key in keys and one.status != _UNTRAINED]
    todo = [key for key in keys if all(key != trained.key for trained in done)]

    # wall time, because monotonic clocks of machines have different origins
    end = time.time() + session.seconds_left

    def any_trained() -> bool:
        return any(trained.candidate is not None for trained in done)

    with session.bar(len(todo), "candidates", "fit") as bar, session.interruptible(any_trained):
        if n_jobs == 1 or len(todo) <= 1:
            for number, key in enumerate(todo):
                if session.is_over and any_trained():
                    break
                done.append(_train((train, shared), key, end, len(todo) - number))
                session.interrupted |= done[-1].status == "interrupted"
                bar.update()
        else:
            jobs = min(effective_n_jobs(n_jobs), len(todo))
            rounds = math.ceil(len(todo) / jobs)
            tasks = ((key, end, rounds - number // jobs) for number, key in enumerate(todo))
            try:
                for _, trained in as_finished(_train, tasks, n_jobs, shared=(train, shared)):
                    done.append(trained)
                    bar.update()
            except Exception as error:
                if not is_lost(error) or not any_trained():
                    raise
                warn_user(
                    f"Worker processes were lost ({type(error).__name__}): candidates are missing."
                )
    trained = {one.key: one for one in done}
    return [trained.get(key, Trained(key, None, 0.0, _UNTRAINED)) for key in keys]


def warn_of_untrained(trained: Sequence[Trained]) -> None:
    """Warn if the training ended before some candidates were trained."""
    if untrained := [one.key for one in trained if one.status == _UNTRAINED]:
        warn_user(f"The training ended before {untrained} could be trained.")


def _train(shared: tuple[Callable, Any], key: Any, end: float, rounds: int) -> Trained:
    """Train a candidate at the beginning of a number of rounds that remain until ``end``."""
    train, payload = shared
    seconds = None if math.isinf(end) else max((end - time.time()) / rounds, 1e-3)
    begin, candidate, status = time.monotonic(), None, "ok"
    try:
        candidate = train(payload, key, seconds)
        if getattr(candidate, "interrupted", False):
            status = "interrupted"
    except _FAILURES as error:
        status = f"failed: {type(error).__name__}: {error}"
    return Trained(key, candidate, time.monotonic() - begin, status)
