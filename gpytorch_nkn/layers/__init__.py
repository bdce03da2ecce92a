"""Layers that map kernels to kernels."""

from gpytorch_nkn.layers.activation import Activation, polynomial as polynomial
from gpytorch_nkn.layers.layer import Layer, repeat_parameters as repeat_parameters
from gpytorch_nkn.layers.linear import Linear, add_prior as add_prior, positive
from gpytorch_nkn.layers.log_normal_prior import (
    LogNormalPrior,
    apply_to_base as apply_to_base,
    dimension_scaled_prior as dimension_scaled_prior,
    log_normal_prior,
)
from gpytorch_nkn.layers.operation import Operation, operation_of as operation_of, register_layer
from gpytorch_nkn.layers.product import Product
from gpytorch_nkn.layers.shrunk_log_normal_prior import ShrunkLogNormalPrior as ShrunkLogNormalPrior
from gpytorch_nkn.layers.wiring import PAPER_WIRING, parse_wiring

__all__ = [
    "PAPER_WIRING",
    "Activation",
    "Layer",
    "Linear",
    "LogNormalPrior",
    "Operation",
    "Product",
    "log_normal_prior",
    "parse_wiring",
    "positive",
    "register_layer",
]
