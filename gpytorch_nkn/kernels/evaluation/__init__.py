"""Evaluation of a network's values and gradients by compiled code, by tiles, or by autograd."""

from gpytorch_nkn.kernels.evaluation.native import (
    NativeEvaluator,
    evaluator_in_use,
    instruction_set,
    is_compiled,
)
from gpytorch_nkn.kernels.evaluation.network_matrix import (
    is_ordinary,
    network_matrix,
    program_matrix,
    unwrap_scales,
)
from gpytorch_nkn.kernels.evaluation.parameter_vector import Slot, has_softplus
from gpytorch_nkn.kernels.evaluation.program import Primitive, Program, describe, is_hooked

__all__ = [
    "NativeEvaluator",
    "Primitive",
    "Program",
    "Slot",
    "describe",
    "evaluator_in_use",
    "has_softplus",
    "instruction_set",
    "is_compiled",
    "is_hooked",
    "is_ordinary",
    "network_matrix",
    "program_matrix",
    "unwrap_scales",
]
