"""A network as plain data: which formulas, on which columns, with parameters in one vector."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
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

from gpytorch_nkn.kernels.centered_linear_kernel import CenteredLinearKernel
from gpytorch_nkn.kernels.evaluation.parameter_vector import ParameterVector, Slot
from gpytorch_nkn.kernels.spectral_component_kernel import SpectralComponentKernel
from gpytorch_nkn.kernels.zero_mean_periodic_kernel import ZeroMeanPeriodicKernel
from gpytorch_nkn.layers import Activation, Layer, Linear, Product
from gpytorch_nkn.linalg import broadcast_batch_shapes

__all__ = [
    "Kind",
    "LayerKind",
    "LayerStep",
    "Primitive",
    "Program",
    "describe",
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
    SPECTRAL_COMPONENT = 9


class LayerKind(enum.IntEnum):
    """Kinds of layers; the numbers are those of the compiled evaluator."""

    LINEAR = 0
    PRODUCT = 1
    POLYNOMIAL = 2
    EXPONENTIAL = 3


class Primitive(NamedTuple):
    """A formula, the columns that it sees, and the places of its parameters."""

    kind: Kind
    dims: tuple[int, ...]
    slots: tuple[Slot, ...]
    scale: Slot | None

    def parameters(self, theta: Tensor) -> list[Tensor]:
        """Its parameters, each ``1`` or as many as there are columns."""
        return [slot.of(theta) for slot in self.slots]


class LayerStep(NamedTuple):
    """A layer, the places of its parameters, and its coefficients where it has fixed ones.

    With ``skip``, the primitives stand behind what comes in from the layer before.
    """

    kind: LayerKind
    in_features: int
    out_features: int
    weight: Slot | None = None
    bias: Slot | None = None
    coefficients: tuple[float, ...] = ()
    skip: bool = False


class Program(NamedTuple):
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
    SpectralComponentKernel: (Kind.SPECTRAL_COMPONENT, ("lengthscale", "frequency")),
}
_RAW_NAMES = {
    "lengthscale": "raw_lengthscale",
    "period_length": "raw_period_length",
    "variance": "raw_variance",
    "center": "center",
    "frequency": "frequency",
}
_MATERN = {0.5: Kind.MATERN12, 1.5: Kind.MATERN32, 2.5: Kind.MATERN52}


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
    vector = ParameterVector(broadcast_batch_shapes(*batch_shapes))
    columns = tuple(range(input_dim))
    primitives = []
    for kernel in network.primitives:
        primitive = _describe_primitive(kernel, columns, vector)
        if primitive is None:
            return None
        primitives.append(primitive)
    layers = []
    for layer in network.layers:
        step = _describe_layer(layer, vector)
        if step is None:
            return None
        layers.append(step)
    if network.skip:
        if len(layers) < 2:  # layers were taken away
            return None
        layers[-1] = layers[-1]._replace(skip=True)
    for scale in scales:
        if is_hooked(scale):
            return None
        layers.append(LayerStep(LayerKind.LINEAR, 1, 1, vector.add(scale, "outputscale", 1)))
    width = len(primitives)
    for step in layers:
        if step.in_features != width + (len(primitives) if step.skip else 0):
            return None  # a layer was replaced
        width = step.out_features
    if width != 1:
        return None
    return Program(tuple(primitives), tuple(layers), vector.size), vector


def _describe_primitive(
    kernel: Kernel, columns: tuple[int, ...], vector: ParameterVector
) -> Primitive | None:
    dims = _columns(kernel, columns)
    if type(kernel) is ScaleKernel:
        if is_hooked(kernel):
            return None
        # A ScaleKernel has selected the columns of its base kernel, which does not do so again.
        primitive = _describe_base(kernel.base_kernel, dims, vector)
        if primitive is None:
            return None
        return primitive._replace(scale=vector.add(kernel, "outputscale", 1))
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
    # One number or one for each column; where not, the kernel itself says what is wrong.
    size = getattr(kernel, _RAW_NAMES[names[-1]]).size(-1)
    if size != 1 and not size == len(dims) == kernel.ard_num_dims:
        return None
    slots = []
    for name in names:
        if name == "alpha":
            slots.append(vector.add(kernel, name, 1))
            continue
        if getattr(kernel, _RAW_NAMES[name]).size(-1) != size:
            return None
        slots.append(vector.add(kernel, name, size))
    if kind is Kind.ZERO_MEAN_PERIODIC:
        slots.append(vector.add_derived(zero_mean_factor(kernel.lengthscale)[..., 0, 0]))
    return Primitive(kind, dims, tuple(slots), None)


def _describe_layer(layer: Layer, vector: ParameterVector) -> LayerStep | None:
    sizes = layer.in_features, layer.out_features
    if is_hooked(layer):
        return None
    if type(layer) is Linear:
        weight = vector.add(layer, "weight", sizes[0] * sizes[1])
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
    active_dims = kernel.active_dims
    if active_dims is None:
        return dims
    picked = active_dims.tolist()
    known = not picked or (min(picked) >= 0 and max(picked) < len(dims))
    return tuple([dims[number] for number in picked]) if known else ()


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
