"""Support vector machines whose Gram matrix has a learned Hadamard factor."""

from gpytorch_nkn.estimators.dank.support_vectors.base_kernel import KERNEL_NAMES, BaseKernel
from gpytorch_nkn.estimators.dank.support_vectors.chunking import solve_dual
from gpytorch_nkn.estimators.dank.support_vectors.decomposition import (
    ClusteredKernel,
    Clusters,
    find_clusters,
    map_clusters,
)
from gpytorch_nkn.estimators.dank.support_vectors.decomposition_bounds import (
    BlockCertificate,
    certify_blocks,
)
from gpytorch_nkn.estimators.dank.support_vectors.dual import (
    Block,
    classification_blocks,
    regression_blocks,
)
from gpytorch_nkn.estimators.dank.support_vectors.extension import (
    SmoothExtension,
    reciprocal_neighbours,
)
from gpytorch_nkn.estimators.dank.support_vectors.factor import FactorStep
from gpytorch_nkn.estimators.dank.support_vectors.learned_kernel import (
    LearnedKernel,
    RelevanceKernel,
    RelevanceTerm,
)
from gpytorch_nkn.estimators.dank.support_vectors.local_problem import (
    LEAST_ETA,
    Comparison,
    compare_etas,
    learn_extension,
    learn_machine,
    solve_local,
)
from gpytorch_nkn.estimators.dank.support_vectors.machines import EXTENSIONS, Learner, Machines
from gpytorch_nkn.estimators.dank.support_vectors.relevance import relevance_path
from gpytorch_nkn.estimators.dank.support_vectors.solvers import SOLVERS, Solution

__all__ = [
    "EXTENSIONS",
    "KERNEL_NAMES",
    "LEAST_ETA",
    "SOLVERS",
    "BaseKernel",
    "Block",
    "BlockCertificate",
    "ClusteredKernel",
    "Clusters",
    "Comparison",
    "FactorStep",
    "LearnedKernel",
    "Learner",
    "Machines",
    "RelevanceKernel",
    "RelevanceTerm",
    "SmoothExtension",
    "Solution",
    "certify_blocks",
    "classification_blocks",
    "compare_etas",
    "find_clusters",
    "learn_extension",
    "learn_machine",
    "map_clusters",
    "reciprocal_neighbours",
    "regression_blocks",
    "relevance_path",
    "solve_dual",
    "solve_local",
]
