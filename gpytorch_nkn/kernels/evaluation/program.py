"""Description of a network by formulas, input columns and parameter indices."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel, ProductKernel, ScaleKernel

from gpytorch_nkn.kernels.evaluation.parameter_vector import ParameterVector, Slot
from gpytorch_nkn.kernels.formula import Formula
from gpytorch_nkn.kernels.kernel_spec import own_spec
from gpytorch_nkn.layers import Operation, operation_of
from gpytorch_nkn.linalg import broadcast_batches

__all__ = ["LayerKind", "LayerStep", "Primitive", "Program", "describe", "is_hooked"]


_PRODUCT = Formula(values=torch.mul)  # formula of a product of factors


class _UnknownPartError(Exception):
    """A part of the network has no formula."""


class LayerKind(enum.IntEnum):
    """Kinds of layers, numbered as in the compiled code."""

    LINEAR = 0
    PRODUCT = 1
    POLYNOMIAL = 2
    EXPONENTIAL = 3


class Primitive(NamedTuple):
    """A formula with its input columns and the slots of its parameters.

    A product has no columns; its slots are the slots of all factors.
    """

    formula: Formula
    dims: tuple[int, ...]
    slots: tuple[Slot, ...]
    scale: Slot | None
    factors: tuple[Primitive, ...] = ()


class LayerStep(NamedTuple):
    """Description of a layer: slots of its parameters, fixed coefficients, sizes of groups.

    With ``skip``, the layer receives the units of the previous layer and the primitives.
    """

    kind: LayerKind
    in_features: int
    out_features: int
    weight: Slot | None = None
    bias: Slot | None = None
    coefficients: tuple[float, ...] = ()
    groups: tuple[int, ...] = ()
    skip: bool = False


class Program(NamedTuple):
    """Description of a network without parameter values."""

    primitives: tuple[Primitive, ...]
    layers: tuple[LayerStep, ...]
    num_parameters: int


def describe(
    network: Kernel, input_dim: int, scales: Sequence[ScaleKernel] = ()
) -> tuple[Program, ParameterVector] | None:
    """Return the program and the parameters of a network times output scales.

    Return ``None`` if a primitive has no formula, or if replaced layers do not fit together.
    """
    batch_shapes = [network.batch_shape, *(scale.batch_shape for scale in scales)]
    vector = ParameterVector(broadcast_batches(*batch_shapes))
    columns = tuple(range(input_dim))
    try:
        primitives = [_describe_primitive(k, columns, vector) for k in network.primitives]
        layers = [_describe_layer(layer, vector) for layer in network.layers]
    except _UnknownPartError:
        return None
    if network.skip:
        if len(layers) < 2:  # the user removed layers
            return None
        layers[-1] = layers[-1]._replace(skip=True)
    for scale in scales:
        if is_hooked(scale):
            return None
        layers.append(LayerStep(LayerKind.LINEAR, 1, 1, vector.add(scale, "outputscale", 1, 0)))
    width = len(primitives)
    for step in layers:
        if step.in_features != width + (len(primitives) if step.skip else 0):
            return None  # the user replaced a layer
        width = step.out_features
    if width != 1:
        return None
    return Program(tuple(primitives), tuple(layers), vector.size), vector


def _describe_primitive(
    kernel: Kernel, columns: tuple[int, ...], vector: ParameterVector
) -> Primitive:
    dims = _columns(kernel, columns)
    if type(kernel) is not ScaleKernel:
        return _describe_base(kernel, dims, vector)
    if is_hooked(kernel):
        raise _UnknownPartError
    # a ScaleKernel has the active_dims of its base kernel, which are applied once
    primitive = _describe_base(kernel.base_kernel, dims, vector)
    return primitive._replace(scale=vector.add(kernel, "outputscale", 1, 0))


def _describe_base(kernel: Kernel, dims: tuple[int, ...], vector: ParameterVector) -> Primitive:
    if type(kernel) is ProductKernel:
        if is_hooked(kernel):
            raise _UnknownPartError
        factors = [_describe_primitive(factor, dims, vector) for factor in kernel.kernels]
        used = [slot for f in factors for slot in (*f.slots, f.scale) if slot is not None]
        return Primitive(_PRODUCT, (), tuple(used), None, tuple(factors))
    spec = own_spec(kernel)
    formula = None if spec is None else spec.formula_of(kernel)
    if spec is None or formula is None or not spec.layout or is_hooked(kernel) or not dims:
        raise _UnknownPartError
    if formula.max_columns is not None and len(dims) > formula.max_columns:
        raise _UnknownPartError
    # one number or one per column; otherwise the kernel itself raises an error
    sizes = {_raw(kernel, name).size(-1) for name, event_dims in spec.layout if event_dims == 2}
    size = sizes.pop() if sizes else 1
    if sizes or (size != 1 and not size == len(dims) == kernel.ard_num_dims):
        raise _UnknownPartError
    slots = [
        vector.add(kernel, name, size if event_dims == 2 else 1, event_dims)
        for name, event_dims in spec.layout
    ]
    if formula.derived is not None:
        first = getattr(kernel, spec.layout[0][0])
        slots.append(vector.add_derived(formula.derived(first)[..., 0, 0]))
    return Primitive(formula, dims, tuple(slots), None)


def _raw(module: torch.nn.Module, name: str) -> Any:
    """Return the unconstrained value of a parameter."""
    for attribute in (f"raw_{name}", name):
        if attribute in module._parameters:
            return module._parameters[attribute]
    return getattr(module, f"raw_{name}" if hasattr(module, f"raw_{name}") else name)


def _describe_layer(layer: Any, vector: ParameterVector) -> LayerStep:
    sizes = layer.in_features, layer.out_features
    operation = None if is_hooked(layer) else operation_of(layer)
    if operation is Operation.SUMS:
        weight = vector.add(layer, "weight", sizes[0] * sizes[1])
        has_bias = _raw(layer, "bias") is not None
        bias = vector.add(layer, "bias", sizes[1], 1) if has_bias else None
        return LayerStep(LayerKind.LINEAR, *sizes, weight, bias)
    if operation is Operation.PRODUCTS:
        return LayerStep(LayerKind.PRODUCT, *sizes, groups=layer.groups)
    if operation is Operation.SERIES:
        if isinstance(layer.coefficients, str):
            return LayerStep(LayerKind.EXPONENTIAL, *sizes)
        return LayerStep(LayerKind.POLYNOMIAL, *sizes, coefficients=tuple(layer.coefficients))
    raise _UnknownPartError


def _columns(kernel: Kernel, dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return the columns in the kernel's ``active_dims``; an empty tuple if one is out of range."""
    active_dims = kernel.active_dims
    if active_dims is None:
        return dims
    picked = active_dims.tolist()
    in_range = not picked or (min(picked) >= 0 and max(picked) < len(dims))
    return tuple([dims[number] for number in picked]) if in_range else ()


def is_hooked(module: torch.nn.Module) -> bool:
    """Return whether a hook or an instance attribute may change the result of ``forward``."""
    return "forward" in vars(module) or bool(module._forward_hooks or module._forward_pre_hooks)
