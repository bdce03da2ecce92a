"""Evaluation of a network's values and gradients by compiled code, by tiles, or by autograd."""

from gpytorch_nkn.kernels.evaluation.native import (
    NativeEvaluator as NativeEvaluator,
    evaluator_in_use as evaluator_in_use,
    instruction_set,
    is_compiled as is_compiled,
)
from gpytorch_nkn.kernels.evaluation.network_matrix import (
    is_ordinary as is_ordinary,
    network_matrix as network_matrix,
    program_matrix as program_matrix,
    unwrap_scales as unwrap_scales,
)
from gpytorch_nkn.kernels.evaluation.parameter_vector import has_softplus as has_softplus
from gpytorch_nkn.kernels.evaluation.program import (
    Primitive as Primitive,
    Program as Program,
    describe as describe,
    is_hooked as is_hooked,
)

__all__ = ["instruction_set"]
