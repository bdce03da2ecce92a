"""The table of layers: what each class of them does to kernels."""

from __future__ import annotations

import enum

from gpytorch_nkn.layers.activation import Activation
from gpytorch_nkn.layers.layer import Layer
from gpytorch_nkn.layers.linear import Linear
from gpytorch_nkn.layers.product import Product

__all__ = ["Operation", "operation_of", "register_layer"]


class Operation(enum.Enum):
    """What a layer does, by which networks are evaluated, expanded and sampled from.

    Attributes:
        SUMS: Non-negative combinations: ``weight`` ``... x O x C`` and ``bias`` ``... x O`` or
            ``None``; parameters are called so, or ``raw_weight`` and ``raw_bias``.
        PRODUCTS: Products of neighbouring groups, whose sizes are ``groups``.
        SERIES: A power series of each unit: ``coefficients``, non-negative and lowest power first,
            or ``"exp"``.
    """

    SUMS = "sums"
    PRODUCTS = "products"
    SERIES = "series"


_OPERATIONS: dict[type[Layer], Operation] = {
    Activation: Operation.SERIES,
    Linear: Operation.SUMS,
    Product: Operation.PRODUCTS,
}


def register_layer(cls: type[Layer], operation: Operation) -> None:
    """Make a class of layers known wherever networks are taken apart.

    Args:
        cls: A subclass of :class:`Layer`, with the attributes that the operation names.
        operation: What its ``forward`` does.

    Raises:
        TypeError: ``cls`` is no class of layers, or ``operation`` no operation.
    """
    if not (isinstance(cls, type) and issubclass(cls, Layer)):
        raise TypeError(f"cls must be a subclass of gpytorch_nkn.layers.Layer, got {cls!r}.")
    if not isinstance(operation, Operation):
        raise TypeError(f"operation must be an Operation, got {operation!r}.")
    _OPERATIONS[cls] = operation


def operation_of(layer: Layer, *, inherited: bool = False) -> Operation | None:
    """What a layer does, ``None`` if that is not known.

    With ``inherited`` a subclass that inherits ``forward`` does what its base class does.
    """
    for cls in type(layer).__mro__ if inherited else (type(layer),):
        if cls in _OPERATIONS:
            return _OPERATIONS[cls] if cls.forward is type(layer).forward else None
    return None
