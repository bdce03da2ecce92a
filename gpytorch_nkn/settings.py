"""Settings of the package: context managers as in :mod:`gpytorch.settings`."""

from __future__ import annotations

from types import TracebackType

__all__ = ["kernel_evaluation"]


_PATHS = ("auto", "plain", "tiles", "compiled")
# Active contexts; the last one applies. Threads may exit them in any order.
_entered: list[kernel_evaluation] = []


class kernel_evaluation:  # noqa: N801, spelt as gpytorch.settings
    """Select the evaluation path of kernel networks, in all threads.

    Args:
        path: ``"auto"`` uses the fastest available path. ``"plain"`` uses autograd for whole
            matrices. ``"tiles"`` uses autograd for one tile at a time and recomputes tiles in the
            backward pass. ``"compiled"`` uses C++ code with gradients in closed form. ``"plain"``
            replaces a path that does not support the primitives (complex, or without a formula),
            device or dtype. It also replaces ``"compiled"`` if
            ``gpytorch_nkn.kernels.evaluation.instruction_set()`` is ``None``.

    Raises:
        ValueError: The path is unknown.

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
        """Return the active path."""
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
