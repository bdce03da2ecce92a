"""Linear algebra of structured covariance matrices, independent of kernels."""

from gpytorch_nkn.linalg.block_diagonal import BlockDiagonal as BlockDiagonal
from gpytorch_nkn.linalg.checks import (
    check_counts as check_counts,
    check_finite as check_finite,
    check_flags as check_flags,
    check_number as check_number,
    check_tensors as check_tensors,
)
from gpytorch_nkn.linalg.cholesky import (
    factorize_inducing as factorize_inducing,
    solve_lower as solve_lower,
)
from gpytorch_nkn.linalg.delayed_matrix import DelayedMatrix
from gpytorch_nkn.linalg.entrywise import (
    EntrywiseMatrix as EntrywiseMatrix,
    broadcast_batches as broadcast_batches,
    broadcasts as broadcasts,
    elements as elements,
    to_dense as to_dense,
)
from gpytorch_nkn.linalg.exact_posterior import ExactPosterior
from gpytorch_nkn.linalg.gaussian import (
    entrywise_negative_log_likelihood as entrywise_negative_log_likelihood,
    gaussian_negative_log_likelihood,
    solve_in_place as solve_in_place,
    with_less_noise as with_less_noise,
)
from gpytorch_nkn.linalg.grid import (
    GridLikelihood,
    HeldOutBlocks,
    KroneckerEigen,
    PartialGrid,
    PartialKronecker,
    kronecker_multiply,
)
from gpytorch_nkn.linalg.known_gradients import with_gradients as with_gradients
from gpytorch_nkn.linalg.low_rank_gaussian import (
    Features as Features,
    LowRankSums as LowRankSums,
    low_rank_negative_log_likelihood,
    low_rank_posterior,
    row_chunks as row_chunks,
)
from gpytorch_nkn.linalg.singular_values import singular_value_threshold
from gpytorch_nkn.linalg.tiles import (
    Evaluator,
    TileEvaluator as TileEvaluator,
    add_all as add_all,
    in_threads as in_threads,
    symmetric_strips as symmetric_strips,
)

__all__ = [
    "DelayedMatrix",
    "Evaluator",
    "ExactPosterior",
    "GridLikelihood",
    "HeldOutBlocks",
    "KroneckerEigen",
    "PartialGrid",
    "PartialKronecker",
    "gaussian_negative_log_likelihood",
    "kronecker_multiply",
    "low_rank_negative_log_likelihood",
    "low_rank_posterior",
    "singular_value_threshold",
]
