"""What is known of a class of kernels, and where to look it up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_nkn.kernels.formula import Formula
from gpytorch_nkn.kernels.measures import Measure

__all__ = ["KernelRow", "own_row", "register", "role_of", "row_of", "row_of_values", "short_name"]

# Trailing dimensions of parameters that do not belong to the batch; 2 of all others: 1 x D.
_EVENT_DIMS = {"exponent": 1, "constant": 1, "outputscale": 0}
_PER_COLUMN = ("lengthscale", "shape", "period", "frequency", "variance", "center")
_KINDS = (*_PER_COLUMN, *_EVENT_DIMS)
_ROLES = ("smooth", "periodic", "linear", "walk", "step", None)


@dataclass(frozen=True, eq=False)
class KernelRow:
    """All that the package knows of a class of kernels; see ``gpytorch_nkn.kernels.catalogue``.

    Args:
        cls: The class.
        name: Short name in the literature's words, or a function that gives it for a kernel.
        parameters: Names of its parameters, in the order of the formula and of the measure, with
            the kind of each: ``"lengthscale"``, ``"shape"`` (within a period), ``"period"``,
            ``"frequency"``, ``"variance"``, ``"center"``, all ``... x 1 x D``; ``"exponent"`` and
            ``"constant"``, ``... x 1``; ``"outputscale"``, ``...``.
        role: How functions move: ``"smooth"`` over a lengthscale, ``"periodic"``, ``"linear"``,
            ``"walk"`` (from an ``origin`` on) or ``"step"`` (at a ``location``, to the ``side``
            that it keeps); ``None`` for anything else.
        words: A phrase for reports, such as ``"a random walk"``; of a smooth kernel, what stands
            ahead of its lengthscale.
        formula: Its formula, or a function that gives that for a kernel; ``None`` for the
            kernel's own (``kernel.formula``), if there is one.
        measure: ``measure(kernel, columns, batch_shape, *parameters)`` gives its spectral measure
            for random features, see ``gpytorch_nkn.kernels.measures``. Parameters come as
            ``B x D``, those of fewer dimensions as ``B``.
        start: ``start(kernel, x)`` sets start values from the inputs ``N x D`` that the kernel
            sees, such as an origin; those of common names (lengthscales, periods, variances) are
            set without it, and before.
        period: Periods ``... x 1 x D`` of a kernel that repeats.
        multiply: The product of two kernels of the class as one of the class, exactly; ``None``
            where there is none.
        unit: Its variance ``...`` and the kernel with variance one, of a kernel over one column;
            expansions add up those that are equal then.
        terms: Constant ``c`` and the kernel ``k`` of which it is ``c + (1 - c) k``.
        columns: One kernel per column, whose sum it is.
        products: Lists of kernels, the sum of whose products it is.
        stock: A kernel of GPyTorch with the same parameters, all of them free, on any columns.
        simpler: Simpler kernels of GPyTorch that come near it, each with its short name.
    """

    cls: type[Kernel]
    name: str | Callable[[Kernel], str]
    parameters: Mapping[str, str] = field(default_factory=dict)
    role: str | None = None
    words: str | None = None
    formula: Formula | Callable[[Kernel], Formula | None] | None = None
    measure: Callable[..., Measure] | None = None
    start: Callable[[Kernel, Tensor], None] | None = None
    period: Callable[[Kernel], Tensor] | None = None
    multiply: Callable[[Kernel, Kernel], Kernel | None] | None = None
    unit: Callable[[Kernel], tuple[Tensor, Kernel] | None] | None = None
    terms: Callable[[Kernel], tuple[Tensor, Kernel] | None] | None = None
    columns: Callable[[Kernel], list[Kernel] | None] | None = None
    products: Callable[[Kernel], list[list[Kernel]]] | None = None
    stock: Callable[[Kernel, bool], Kernel | None] | None = None
    simpler: Callable[[Kernel], Sequence[Kernel]] | None = None

    @cached_property
    def layout(self) -> tuple[tuple[str, int], ...]:
        """The parameters, each with its trailing dimensions that do not belong to the batch."""
        return tuple((name, _EVENT_DIMS.get(kind, 2)) for name, kind in self.parameters.items())

    def first(self, kernel: Kernel, kind: str) -> Tensor | None:
        """The first parameter of a kind as it is now, detached; None where there is none."""
        name = next((name for name, own in self.parameters.items() if own == kind), None)
        return None if name is None else getattr(kernel, name).detach()

    def formula_of(self, kernel: Kernel) -> Formula | None:
        """The formula of a kernel of the class."""
        if self.formula is None:
            classes = type(kernel).__mro__
            stated: Any = next((c for c in classes if "formula" in vars(c)), None)
            own = stated is not None and stated.forward is type(kernel).forward
            return kernel.formula if own else None
        return self.formula if isinstance(self.formula, Formula) else self.formula(kernel)


_ROWS: dict[type[Kernel], KernelRow] = {}


def register(row: KernelRow) -> None:
    """Enter a row into the catalogue, in place of another of the same class.

    Raises:
        TypeError: It is no row, or ``row.cls`` no class of kernels.
        ValueError: The kind of a parameter or the role is none that a row may have.
    """
    if not isinstance(row, KernelRow):
        raise TypeError(f"row must be a KernelRow, got {row!r}.")
    if not (isinstance(row.cls, type) and issubclass(row.cls, Kernel)):
        raise TypeError(f"cls must be a subclass of gpytorch.kernels.Kernel, got {row.cls!r}.")
    unknown = {name: kind for name, kind in row.parameters.items() if kind not in _KINDS}
    if unknown:
        raise ValueError(f"Kinds of parameters must be among {_KINDS}, got {unknown}.")
    if row.role not in _ROLES:
        raise ValueError(f"role must be one of {_ROLES}, got {row.role!r}.")
    _ROWS[row.cls] = row


def own_row(kernel: Kernel) -> KernelRow | None:
    """The row of the kernel's class itself: what its values are computed or derived by."""
    return _ROWS.get(type(kernel))


def row_of(kernel: Kernel) -> KernelRow | None:
    """The row of its class or else of the nearest base class: what the kernel is like."""
    return next((_ROWS[cls] for cls in type(kernel).__mro__ if cls in _ROWS), None)


def row_of_values(kernel: Kernel) -> KernelRow | None:
    """As :func:`row_of`, where the kernel has the values of that class: it inherits ``forward``."""
    row = row_of(kernel)
    values = "complex_values" if hasattr(type(kernel), "complex_values") else "forward"
    same = row is not None and getattr(row.cls, values, None) is getattr(type(kernel), values)
    return row if same else None


def short_name(kernel: Kernel) -> str:
    """Name of a kernel's family, such as ``RBF`` or ``PER``; that of its class for others."""
    row = own_row(kernel)
    if row is None:
        return type(kernel).__name__.removesuffix("Kernel")
    return row.name if isinstance(row.name, str) else row.name(kernel)


def role_of(kernel: Kernel) -> str | None:
    """How functions of a kernel move: ``smooth``, ``periodic``, ``linear``, or None."""
    row = row_of(kernel)
    return None if row is None else row.role
