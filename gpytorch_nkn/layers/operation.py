"""Registry of layer classes and their operations on kernels."""

from __future__ import annotations

import enum

from gpytorch_nkn.layers.activation import Activation
from gpytorch_nkn.layers.layer import Layer
from gpytorch_nkn.layers.linear import Linear
from gpytorch_nkn.layers.product import Product

__all__ = ["Operation", "operation_of", "register_layer"]


class Operation(enum.Enum):
    """Operation of a layer, used to evaluate, expand and sample networks.

    Attributes:
        SUMS: Non-negative combinations, with attributes ``weight`` ``... x O x C`` and ``bias``
            ``... x O`` or ``None``. Both are parameters or transforms of ``raw_weight``,
            ``raw_bias``.
        PRODUCTS: Products of adjacent groups of units; the attribute ``groups`` has their sizes.
        SERIES: A power series of each unit; the attribute ``coefficients`` is ``"exp"`` or a
            sequence of non-negative numbers in ascending order.
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
    """Register a layer class, so that networks with it can be compiled, expanded and sampled.

    Args:
        cls: A subclass of :class:`Layer` with the attributes that :class:`Operation` requires.
        operation: The operation that its ``forward`` performs.

    Raises:
        TypeError: ``cls`` is not a subclass of Layer, or ``operation`` is not an Operation.
    """
    if not (isinstance(cls, type) and issubclass(cls, Layer)):
        raise TypeError(f"cls must be a subclass of gpytorch_nkn.layers.Layer, got {cls!r}.")
    if not isinstance(operation, Operation):
        raise TypeError(f"operation must be an Operation, got {operation!r}.")
    _OPERATIONS[cls] = operation


def operation_of(layer: Layer, *, inherited: bool = False) -> Operation | None:
    """Return the operation of a layer, or ``None`` if its class is not registered.

    With ``inherited``, subclasses that inherit ``forward`` have the operation of their base class.
    """
    for cls in type(layer).__mro__ if inherited else (type(layer),):
        if cls in _OPERATIONS:
            return _OPERATIONS[cls] if cls.forward is type(layer).forward else None
    return None
