"""A network as plain data: which formulas, on which columns, with parameters in one vector."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from gpytorch import Module
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import (
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from torch import Tensor
from torch.nn.functional import softplus

from gpytorch_nkn.kernels.centered_linear_kernel import CenteredLinearKernel
from gpytorch_nkn.kernels.zero_mean_periodic_kernel import ZeroMeanPeriodicKernel
from gpytorch_nkn.layers import Activation, Layer, Linear, Product

__all__ = [
    "Kind",
    "LayerKind",
    "LayerStep",
    "ParameterVector",
    "Primitive",
    "Program",
    "Slot",
    "describe",
    "has_softplus",
    "is_hooked",
    "zero_mean_factor",
]


class Kind(enum.IntEnum):
    """Formulas of primitives; the numbers are those of the compiled evaluator."""

    RBF = 0
    MATERN12 = 1
    MATERN32 = 2
    MATERN52 = 3
    RATIONAL_QUADRATIC = 4
    PERIODIC = 5
    LINEAR = 6
    CENTERED_LINEAR = 7
    ZERO_MEAN_PERIODIC = 8


class LayerKind(enum.IntEnum):
    """Kinds of layers; the numbers are those of the compiled evaluator."""

    LINEAR = 0
    PRODUCT = 1
    POLYNOMIAL = 2
    EXPONENTIAL = 3


class Slot(NamedTuple):
    """Where a parameter lies in the vector of all of them."""

    start: int
    stop: int

    def of(self, theta: Tensor) -> Tensor:
        """The parameter, flat."""
        return theta[self.start : self.stop]


@dataclass(frozen=True)
class Primitive:
    """A formula, the columns that it sees, and the places of its parameters."""

    kind: Kind
    dims: tuple[int, ...]
    slots: tuple[Slot, ...]
    scale: Slot | None

    def parameters(self, theta: Tensor) -> list[Tensor]:
        """Its parameters, each ``1`` or as many as there are columns."""
        return [slot.of(theta) for slot in self.slots]


@dataclass(frozen=True)
class LayerStep:
    """A layer, the places of its parameters, and its coefficients where it has fixed ones."""

    kind: LayerKind
    in_features: int
    out_features: int
    weight: Slot | None = None
    bias: Slot | None = None
    coefficients: tuple[float, ...] = ()


@dataclass(frozen=True)
class Program:
    """All there is to know of a network, apart from the values of its parameters."""

    primitives: tuple[Primitive, ...]
    layers: tuple[LayerStep, ...]
    num_parameters: int


_FORMULAS: dict[type[Kernel], tuple[Kind, tuple[str, ...]]] = {
    RBFKernel: (Kind.RBF, ("lengthscale",)),
    RQKernel: (Kind.RATIONAL_QUADRATIC, ("alpha", "lengthscale")),
    PeriodicKernel: (Kind.PERIODIC, ("lengthscale", "period_length")),
    LinearKernel: (Kind.LINEAR, ("variance",)),
    CenteredLinearKernel: (Kind.CENTERED_LINEAR, ("variance", "center")),
    ZeroMeanPeriodicKernel: (Kind.ZERO_MEAN_PERIODIC, ("lengthscale", "period_length")),
}
_MATERN = {0.5: Kind.MATERN12, 1.5: Kind.MATERN32, 2.5: Kind.MATERN52}

# Trailing dimensions of a parameter that do not belong to the batch.
_EVENT_DIMS = {
    "lengthscale": 2,
    "period_length": 2,
    "variance": 2,
    "center": 2,
    "weight": 2,
    "alpha": 1,
    "bias": 1,
    "outputscale": 0,
}


def describe(
    network: Kernel, input_dim: int, scales: Sequence[ScaleKernel] = ()
) -> tuple[Program, ParameterVector] | None:
    """The program of a network, and where its parameters come from.

    Args:
        network: A kernel with ``primitives`` and ``layers``.
        input_dim: Number of columns that come in.
        scales: Kernels that scale the network, each by its output scale.

    Returns:
        ``None`` where a part is none of those whose formulas are known.
    """
    batch_shapes = [network.batch_shape, *(scale.batch_shape for scale in scales)]
    vector = ParameterVector(torch.broadcast_shapes(*batch_shapes))
    primitives = [_describe_primitive(kernel, input_dim, vector) for kernel in network.primitives]
    layers = [_describe_layer(layer, vector) for layer in network.layers]
    for scale in scales:
        hooked = is_hooked(scale)
        slot = vector.add(scale, "outputscale", 1)
        layers.append(None if hooked else LayerStep(LayerKind.LINEAR, 1, 1, slot))
    if any(part is None for part in (*primitives, *layers)):
        return None
    widths = [len(primitives), *(layer.out_features for layer in layers)]  # type: ignore[union-attr]
    if widths[-1] != 1 or widths[:-1] != [layer.in_features for layer in layers]:  # type: ignore
        return None  # a layer was replaced
    program = Program(tuple(primitives), tuple(layers), vector.size)  # type: ignore[arg-type]
    return program, vector


class ParameterVector:
    """Collects parameters into one vector, transforming all of them at once where that is exact.

    Attributes:
        batch_shape: Of the network.
        size: Numbers so far per element of the batch.
        parts: What stands in the vector, in order: modules and names of parameters, or tensors
            of derived numbers.
    """

    def __init__(self, batch_shape: torch.Size):
        self.batch_shape = batch_shape
        self.size = 0
        self.parts: list[tuple[Module, str] | Tensor] = []
        self._counts: list[int] = []

    def add(self, module: Module, name: str, count: int) -> Slot:
        """Reserve the place of a parameter of ``count`` numbers per element of the batch."""
        return self._add((module, name), count)

    def add_derived(self, value: Tensor) -> Slot:
        """Reserve the place of a number, one per element of the batch, that is no parameter."""
        return self._add(value.unsqueeze(-1), 1)

    def values(self) -> Tensor | None:
        """The vector ``... x T``, differentiable; None if a parameter is not of its size."""
        softplus_of_all = all(
            not isinstance(part, Tensor) and _is_softplus(*part) for part in self.parts
        )
        flat = []
        for part, count in zip(self.parts, self._counts, strict=True):
            if isinstance(part, Tensor):
                value, event_dims = part, 1
            else:
                module, name = part
                value = module._parameters[f"raw_{name}"] if softplus_of_all else getattr(*part)
                event_dims = _EVENT_DIMS[name]
            if value.shape[value.dim() - event_dims :].numel() != count:
                return None
            flat.append(self._flat(value, event_dims))
            if flat[-1].numel() != count * self.batch_shape.numel():
                return None
        if len({part.dtype for part in flat}) > 1:  # plain evaluation tells what is wrong
            return None
        together = torch.cat(flat, dim=-1)
        return softplus(together) if softplus_of_all else together

    def _add(self, part: tuple[Module, str] | Tensor, count: int) -> Slot:
        self.parts.append(part)
        self._counts.append(count)
        self.size += count
        return Slot(self.size - count, self.size)

    def _flat(self, value: Tensor, event_dims: int) -> Tensor:
        if not self.batch_shape:
            return value.reshape(-1)
        event = value.shape[value.dim() - event_dims :]
        return value.expand(*self.batch_shape, *event).reshape(*self.batch_shape, -1)


def _is_softplus(module: Module, name: str) -> bool:
    """Whether the parameter is exactly the softplus of its raw value."""
    if f"raw_{name}" not in module._parameters:
        return False
    constraint = module.constraint_for_parameter_name(f"raw_{name}")
    return type(constraint) is Positive and has_softplus(constraint)


def has_softplus(constraint: Interval) -> bool:
    """Whether a constraint's transform is the softplus of PyTorch with its usual settings."""
    transform = constraint._transform
    if type(transform) is torch.nn.Softplus:
        return transform.beta == 1 and transform.threshold == 20
    return transform is softplus


def _describe_primitive(
    kernel: Kernel, input_dim: int, vector: ParameterVector
) -> Primitive | None:
    dims = _columns(kernel, tuple(range(input_dim)))
    scale = None
    if type(kernel) is ScaleKernel:
        if is_hooked(kernel):
            return None
        # A ScaleKernel has selected the columns of its base kernel, which does not do so again.
        primitive = _describe_base(kernel.base_kernel, dims, vector)
        if primitive is None:
            return None
        scale = vector.add(kernel, "outputscale", 1)
        return Primitive(primitive.kind, primitive.dims, primitive.slots, scale)
    return _describe_base(kernel, dims, vector)


def _describe_base(
    kernel: Kernel, dims: tuple[int, ...], vector: ParameterVector
) -> Primitive | None:
    formula: tuple[Kind, tuple[str, ...]] | None
    if type(kernel) is MaternKernel:
        kind = _MATERN.get(kernel.nu)
        formula = None if kind is None else (kind, ("lengthscale",))
    else:
        formula = _FORMULAS.get(type(kernel))
    if formula is None or is_hooked(kernel) or not dims:
        return None
    kind, names = formula
    if kind is Kind.ZERO_MEAN_PERIODIC and len(dims) > 1:
        return None
    sizes = {
        name: getattr(kernel, name if name == "center" else f"raw_{name}").size(-1)
        for name in names
        if name != "alpha"
    }
    ard = set(sizes.values())
    if len(ard) > 1 or not ard <= {1, len(dims)} or not ard <= {1, kernel.ard_num_dims}:
        return None  # the kernel itself says what is wrong
    slots = [vector.add(kernel, name, sizes.get(name, 1)) for name in names]
    if kind is Kind.ZERO_MEAN_PERIODIC:
        slots.append(vector.add_derived(zero_mean_factor(kernel.lengthscale)[..., 0, 0]))
    return Primitive(kind, dims, tuple(slots), None)


def _describe_layer(layer: Layer, vector: ParameterVector) -> LayerStep | None:
    sizes = layer.in_features, layer.out_features
    if is_hooked(layer):
        return None
    if type(layer) is Linear:
        weight = vector.add(layer, "weight", math.prod(sizes))
        bias = None if layer.raw_bias is None else vector.add(layer, "bias", sizes[1])
        return LayerStep(LayerKind.LINEAR, *sizes, weight, bias)
    if type(layer) is Product:
        return LayerStep(LayerKind.PRODUCT, *sizes)
    if type(layer) is Activation:
        if isinstance(layer.coefficients, str):
            return LayerStep(LayerKind.EXPONENTIAL, *sizes)
        return LayerStep(LayerKind.POLYNOMIAL, *sizes, coefficients=tuple(layer.coefficients))
    return None


def _columns(kernel: Kernel, dims: tuple[int, ...]) -> tuple[int, ...]:
    """The columns that a kernel sees; none where it asks for one that there is not."""
    if kernel.active_dims is None:
        return dims
    picked = kernel.active_dims.tolist()
    known = all(0 <= number < len(dims) for number in picked)
    return tuple(dims[number] for number in picked) if known else ()


def is_hooked(module: torch.nn.Module) -> bool:
    """Whether something watches the module's calls, or takes their place."""
    return "forward" in vars(module) or bool(module._forward_hooks or module._forward_pre_hooks)


def zero_mean_factor(lengthscale: Tensor) -> Tensor:
    """``1 / (1 - exp(-z) I0(z))`` for ``z = 1 / lengthscale``, exact where z is small too."""
    z = lengthscale.reciprocal()
    small = z < 0.05
    tiny = torch.where(small, z, 0.01)
    # 1 - i0e(z) = sum_k (-1)^(k+1) c_k z^k with c_k = (2k)! / (2^k (k!)^3)
    series = sum(
        (-1) ** (k + 1) * math.factorial(2 * k) / (2**k * math.factorial(k) ** 3) * tiny**k
        for k in range(1, 9)
    )
    plain = 1 - torch.special.i0e(torch.where(small, 1.0, z))
    return torch.where(small, series, plain).reciprocal()
