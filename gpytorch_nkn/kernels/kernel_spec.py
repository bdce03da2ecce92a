"""Registry of kernel specs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_nkn.kernels.formula import Formula
from gpytorch_nkn.kernels.measures import Measure

__all__ = [
    "KernelSpec",
    "own_spec",
    "register",
    "role_of",
    "short_name",
    "spec_of",
    "spec_of_values",
]

# Number of dimensions after the batch, by kind of parameter; 2 for other kinds (1 x D).
_EVENT_DIMS = {"exponent": 1, "constant": 1, "outputscale": 0}
_PER_COLUMN = ("lengthscale", "shape", "period", "frequency", "variance", "center")
_KINDS = (*_PER_COLUMN, *_EVENT_DIMS)
_ROLES = ("smooth", "periodic", "linear", "walk", "step", None)


@dataclass(frozen=True, eq=False)
class KernelSpec:
    """Properties of a kernel class, for networks, random features, expansions and reports.

    Args:
        cls: The class.
        name: Short name, or a function that returns it for a kernel.
        parameters: Names of the parameters, in the order of the formula and the measure, with
            their kinds: ``"lengthscale"``, ``"shape"`` (dimensionless, of a periodic kernel),
            ``"period"``, ``"frequency"``, ``"variance"``, ``"center"``, all ``... x 1 x D``;
            ``"exponent"`` and ``"constant"``, ``... x 1``; ``"outputscale"``, ``...``.
        role: Kernel type: ``"smooth"``, ``"periodic"``, ``"linear"``, ``"walk"`` (needs an
            attribute ``origin``), ``"step"`` (needs ``location`` and ``side``), or ``None``.
        words: Phrase for reports, such as ``"a random walk"``; for smooth kernels, the phrase
            before the lengthscale.
        formula: Formula, or a function that returns it for a kernel; ``None`` uses the attribute
            ``formula`` of the kernel, if it exists.
        measure: ``measure(kernel, columns, batch_shape, *parameters)`` returns the spectral measure
            for random features, see ``gpytorch_nkn.kernels.measures``. Parameters have the shape
            ``B x D``, or ``B`` for kinds without columns.
        start: ``start(kernel, x)`` sets start values, such as an origin, from the inputs
            ``N x D`` of the kernel. Lengthscales, periods and variances are set before the call.
        period: Returns the periods ``... x 1 x D`` of a periodic kernel.
        multiply: Returns the exact product of two kernels as one kernel of the class, or ``None``.
        unit: Returns the variance ``...`` and a unit-variance copy of a kernel over one column.
            Expansions merge equal copies.
        terms: Returns ``c`` and ``k`` if the kernel equals ``c + (1 - c) k``.
        columns: Returns one kernel per column, whose sum equals the kernel.
        products: Returns lists of kernels; the sum of their products equals the kernel.
        to_gpytorch: ``to_gpytorch(kernel, zero_mean)`` returns a GPyTorch kernel of equal values,
            up to a factor and a constant.
        simpler: Returns simpler GPyTorch kernels that resemble the kernel.
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
    to_gpytorch: Callable[[Kernel, bool], Kernel | None] | None = None
    simpler: Callable[[Kernel], Sequence[Kernel]] | None = None

    @cached_property
    def layout(self) -> tuple[tuple[str, int], ...]:
        """Names of the parameters with their numbers of event dimensions."""
        return tuple((name, _EVENT_DIMS.get(kind, 2)) for name, kind in self.parameters.items())

    def first(self, kernel: Kernel, kind: str) -> Tensor | None:
        """Return the detached value of the first parameter of a kind, or None."""
        name = next((name for name, other in self.parameters.items() if other == kind), None)
        return None if name is None else getattr(kernel, name).detach()

    def formula_of(self, kernel: Kernel) -> Formula | None:
        """Return the formula of a kernel of the class, or None."""
        if self.formula is None:
            classes = type(kernel).__mro__
            definer: Any = next((c for c in classes if "formula" in vars(c)), None)
            # a subclass that overrides forward has other values
            is_valid = definer is not None and definer.forward is type(kernel).forward
            return kernel.formula if is_valid else None
        return self.formula if isinstance(self.formula, Formula) else self.formula(kernel)


_REGISTRY: dict[type[Kernel], KernelSpec] = {}


def register(spec: KernelSpec) -> None:
    """Add a spec to the registry, in place of any earlier spec of the class.

    Raises:
        TypeError: ``spec`` is not a KernelSpec, or ``spec.cls`` is not a kernel class.
        ValueError: The kind of a parameter or the role is unknown.
    """
    if not isinstance(spec, KernelSpec):
        raise TypeError(f"spec must be a KernelSpec, got {spec!r}.")
    if not (isinstance(spec.cls, type) and issubclass(spec.cls, Kernel)):
        raise TypeError(f"cls must be a subclass of gpytorch.kernels.Kernel, got {spec.cls!r}.")
    unknown = {name: kind for name, kind in spec.parameters.items() if kind not in _KINDS}
    if unknown:
        raise ValueError(f"Kinds of parameters must be among {_KINDS}, got {unknown}.")
    if spec.role not in _ROLES:
        raise ValueError(f"role must be one of {_ROLES}, got {spec.role!r}.")
    _REGISTRY[spec.cls] = spec


def own_spec(kernel: Kernel) -> KernelSpec | None:
    """Return the spec of the kernel's class itself, not of a base class, or None."""
    return _REGISTRY.get(type(kernel))


def spec_of(kernel: Kernel) -> KernelSpec | None:
    """Return the spec of the kernel's class or of its nearest base class with a spec, or None."""
    return next((_REGISTRY[cls] for cls in type(kernel).__mro__ if cls in _REGISTRY), None)


def spec_of_values(kernel: Kernel) -> KernelSpec | None:
    """Return :func:`spec_of`, or ``None`` if the kernel's class overrides the values."""
    spec = spec_of(kernel)
    values = "complex_values" if hasattr(type(kernel), "complex_values") else "forward"
    same = spec is not None and getattr(spec.cls, values, None) is getattr(type(kernel), values)
    return spec if same else None


def short_name(kernel: Kernel) -> str:
    """Return the registered short name, such as ``RBF``, or the name of the class."""
    spec = own_spec(kernel)
    if spec is None:
        return type(kernel).__name__.removesuffix("Kernel")
    return spec.name if isinstance(spec.name, str) else spec.name(kernel)


def role_of(kernel: Kernel) -> str | None:
    """Return the type of a kernel, such as ``smooth`` or ``periodic``, or None."""
    spec = spec_of(kernel)
    return None if spec is None else spec.role
