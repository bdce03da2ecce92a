"""Time budget, interrupts, progress bars, random numbers and option checks of training."""

from __future__ import annotations

import inspect
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch
from tqdm import tqdm

from gpytorch_nkn.linalg import check_counts, check_flags, check_number

__all__ = ["Best", "Session", "options_of", "warn_user"]

S = TypeVar("S")

_SEEDS = 2**43  # bound of seeds; a million times as many fit into torch's 63 bits

# Stack frames that warnings skip: the package, decorators and context managers.
_SKIPPED_FILES = (
    os.path.dirname(os.path.dirname(__file__)) + os.sep,
    os.path.join(os.path.dirname(torch.__file__), "utils", "_contextlib.py"),
    contextmanager.__code__.co_filename,
)


class Session:
    """Time budget, interrupts, progress bars and random numbers of one training run.

    Args:
        budget: Wall time in seconds from now; ``None`` or infinity for no limit.
        seed: Seed of :meth:`generator`.
        progress: Show progress bars if standard error is a terminal.

    Attributes:
        end: Time of the monotonic clock at which to stop; infinite without a budget.
        interrupted: Whether Ctrl-C ended an :meth:`interruptible` block or a part of the training.
    """

    def __init__(self, *, budget: float | None = None, seed: int = 0, progress: bool = True):
        if budget is not None:
            check_number("budget", budget, positive=True, infinite=True)
        check_counts(0, seed=seed)
        check_flags(progress=progress)
        if seed >= _SEEDS:
            raise ValueError(f"seed must be below 2 ** 43, got {seed}.")
        self.budget = None if budget == math.inf else budget
        self.seed, self.progress = int(seed), progress
        self.end = math.inf if self.budget is None else time.monotonic() + self.budget
        self.interrupted = False

    @property
    def seconds_left(self) -> float:
        """Seconds left, infinite without a budget and negative after its end."""
        return self.end - time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether the training must stop."""
        return self.interrupted or time.monotonic() >= self.end

    def part(self, share: float = 1.0) -> float | None:
        """Return the budget of a part of the training, a fraction of the remaining time."""
        return None if self.budget is None else max(share * self.seconds_left, 1e-3)

    def generator(self) -> torch.Generator:
        """Return a new random generator; the global random state does not change."""
        return torch.Generator().manual_seed(self.seed)

    def bar(self, total: int | None, desc: str, unit: str = "it") -> tqdm:
        """Return a progress bar for a ``with`` statement, shown only on a terminal."""
        stream = sys.stderr
        shown = self.progress and stream is not None and stream.isatty()
        return tqdm(total=total, desc=desc, unit=unit, disable=not shown, leave=False)

    @contextmanager
    def interruptible(
        self,
        reached: Callable[[], object] = lambda: True,
        message: str | Callable[[], str] | None = None,
    ) -> Iterator[None]:
        """Let Ctrl-C end a block without an error if a result exists.

        ``reached`` returns whether a result exists; otherwise KeyboardInterrupt is raised again.
        The ``message``, if any, is a warning about the result that is kept.
        """
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True
            if not reached():
                raise
            if message is not None:
                warn_user(message if isinstance(message, str) else message())


class Best(Generic[S]):
    """State with the highest value so far; at first -infinity and ``None``.

    The first state is kept for any value.
    """

    def __init__(self) -> None:
        self.value = -math.inf
        self.state: S | None = None

    def update(self, value: float, state: Callable[[], S]) -> bool:
        """Keep the result of ``state()``, and return True, if ``value`` is the highest so far."""
        if self.state is not None and not value > self.value:
            return False
        self.value, self.state = -math.inf if math.isnan(value) else value, state()
        return True


def options_of(trainer: Callable[..., Any]) -> set[str]:
    """Return the names of a trainer's keyword-only arguments."""
    parameters = inspect.signature(trainer).parameters.values()
    return {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the location of the caller outside the package."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_code.co_filename.startswith(_SKIPPED_FILES):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level + 1)
