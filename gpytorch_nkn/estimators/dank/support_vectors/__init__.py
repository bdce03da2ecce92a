"""SVMs whose Gram matrix has a learned Hadamard factor: the dual problem and its solvers."""

from gpytorch_nkn.estimators.dank.support_vectors.dual import (
    Block,
    classification_blocks,
    regression_blocks,
)
from gpytorch_nkn.estimators.dank.support_vectors.extension import (
    LearnedKernel,
    SmoothExtension,
    reciprocal_neighbours,
)
from gpytorch_nkn.estimators.dank.support_vectors.factor import FactorStep
from gpytorch_nkn.estimators.dank.support_vectors.learner import EXTENSIONS, FittedSVMs, Learner
from gpytorch_nkn.estimators.dank.support_vectors.relevance import (
    RelevanceKernel,
    RelevanceTerm,
    relevance_path,
)
from gpytorch_nkn.estimators.dank.support_vectors.smo import solve_dual
from gpytorch_nkn.estimators.dank.support_vectors.solvers import SOLVERS, DualOptimum

__all__ = [
    "EXTENSIONS",
    "SOLVERS",
    "Block",
    "DualOptimum",
    "FactorStep",
    "FittedSVMs",
    "LearnedKernel",
    "Learner",
    "RelevanceKernel",
    "RelevanceTerm",
    "SmoothExtension",
    "classification_blocks",
    "reciprocal_neighbours",
    "regression_blocks",
    "relevance_path",
    "solve_dual",
]
