"""How a network's values and gradients are computed: formulas, tiles, compiled code."""

from gpytorch_nkn.kernels.evaluation.native import NativeEvaluator, instruction_set, is_compiled
from gpytorch_nkn.kernels.evaluation.network_matrix import (
    is_ordinary,
    network_matrix,
    program_matrix,
    unwrap_scales,
)
from gpytorch_nkn.kernels.evaluation.parameter_vector import has_softplus
from gpytorch_nkn.kernels.evaluation.program import Kind, Program, Slot, describe, zero_mean_factor

__all__ = [
    "Kind",
    "NativeEvaluator",
    "Program",
    "Slot",
    "describe",
    "has_softplus",
    "instruction_set",
    "is_compiled",
    "is_ordinary",
    "network_matrix",
    "program_matrix",
    "unwrap_scales",
    "zero_mean_factor",
]
