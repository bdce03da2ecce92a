"""How a network's values and gradients are computed: formulas, tiles, compiled code."""

from gpytorch_nkn.kernels.evaluation.formulas import (
    CENTERED_LINEAR,
    LINEAR,
    MATERN,
    PERIODIC,
    RATIONAL_QUADRATIC,
    RBF,
    SPECTRAL_COMPONENT,
    ZERO_MEAN_PERIODIC,
)
from gpytorch_nkn.kernels.evaluation.group import Block, Group, Tile
from gpytorch_nkn.kernels.evaluation.inputs import Inputs
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
    "CENTERED_LINEAR",
    "LINEAR",
    "MATERN",
    "PERIODIC",
    "RATIONAL_QUADRATIC",
    "RBF",
    "SPECTRAL_COMPONENT",
    "ZERO_MEAN_PERIODIC",
    "Block",
    "Group",
    "Inputs",
    "NativeEvaluator",
    "Primitive",
    "Program",
    "Slot",
    "Tile",
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
