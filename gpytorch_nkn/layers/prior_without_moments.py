"""Priors whose moments have no closed form."""

from __future__ import annotations

from typing import Any

from gpytorch.priors import Prior

__all__ = ["PriorWithoutMoments"]


class _NoMomentError(NotImplementedError, AttributeError):
    """What torch raises for such a distribution, and what ``hasattr`` takes for an answer."""


class PriorWithoutMoments(Prior):
    """A prior without mean, mode and variance: modules that have one can be traced."""

    mean = mode = stddev = variance = property()

    def __getattr__(self, name: str) -> Any:
        if name in ("mean", "mode", "stddev", "variance"):
            raise _NoMomentError(f"{type(self).__name__} has no closed form of its {name}.")
        return super().__getattr__(name)
