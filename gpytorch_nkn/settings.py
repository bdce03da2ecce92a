"""Settings of the package, as context managers in the manner of :mod:`gpytorch.settings`."""

from __future__ import annotations

from types import TracebackType

__all__ = ["kernel_evaluation"]


_PATHS = ("auto", "plain", "tiles", "compiled")
# Entered and not left, the last one holds; in threads they need not be left in reverse order.
_entered: list[kernel_evaluation] = []


class kernel_evaluation:  # noqa: N801, gpytorch.settings are spelt so
    """How networks of kernels are evaluated.

    Args:
        path: ``"auto"`` takes the fastest path that applies. The others force one:
            ``"plain"`` differentiates every operation by autograd, ``"tiles"`` does so tile by
            tile, computing each tile anew in the backward pass, ``"compiled"`` has the gradients
            written out in C++. Where a forced path does not apply
            (complex or unknown primitives, other devices and dtypes, compiled code that is not
            there: see ``gpytorch_nkn.kernels.evaluation.instruction_set``), evaluation is
            plain, which is the slowest.

    Like GPyTorch's settings it holds in all threads.

    Raises:
        ValueError: The path is none of these.

    Example:
        >>> with kernel_evaluation("plain"):
        ...     assert kernel_evaluation.path() == "plain"
    """

    def __init__(self, path: str):
        if path not in _PATHS:
            raise ValueError(f"path must be one of {_PATHS}, got {path!r}.")
        self._wanted = path

    @classmethod
    def path(cls) -> str:
        """The path in force."""
        return _entered[-1]._wanted if _entered else "auto"

    def __enter__(self) -> kernel_evaluation:
        _entered.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number in reversed(range(len(_entered))):
            if _entered[number] is self:
                del _entered[number]
                break
