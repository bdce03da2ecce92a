"""Settings of the package, as context managers in the manner of :mod:`gpytorch.settings`."""

from __future__ import annotations

from types import TracebackType

__all__ = ["kernel_evaluation"]


class kernel_evaluation:  # noqa: N801, gpytorch.settings are spelt so
    """How networks of kernels are evaluated.

    Args:
        path: ``"auto"`` takes the fastest path that applies. The others force one:
            ``"plain"`` differentiates every operation by autograd, ``"autograd"`` does so tile by
            tile, computing each tile anew in the backward pass, ``"closed_form"`` does the same
            with gradients written out, ``"compiled"`` in C++. Where a forced path does not apply
            (complex or unknown primitives, other devices and dtypes), evaluation is plain.

    Raises:
        ValueError: The path is none of these.

    Example:
        >>> with kernel_evaluation("plain"):
        ...     assert kernel_evaluation.path() == "plain"
    """

    _PATHS = ("auto", "plain", "autograd", "closed_form", "compiled")
    _path = "auto"

    def __init__(self, path: str):
        if path not in self._PATHS:
            raise ValueError(f"path must be one of {self._PATHS}, got {path!r}.")
        self._wanted = path
        self._before: list[str] = []  # a context may be entered within itself

    @classmethod
    def path(cls) -> str:
        """The path in force."""
        return cls._path

    def __enter__(self) -> kernel_evaluation:
        self._before.append(kernel_evaluation._path)
        kernel_evaluation._path = self._wanted
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        kernel_evaluation._path = self._before.pop()
