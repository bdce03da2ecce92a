"""Linear algebra of structured covariance matrices, independent of kernels."""

from gpytorch_nkn.linalg.block_diagonal import BlockDiagonal
from gpytorch_nkn.linalg.checks import check_counts, check_finite, check_tensors
from gpytorch_nkn.linalg.cholesky import factorize_inducing, psd_root, solve_lower
from gpytorch_nkn.linalg.delayed_matrix import DelayedMatrix
from gpytorch_nkn.linalg.entrywise import EntrywiseMatrix, broadcasts, elements, to_dense
from gpytorch_nkn.linalg.exact_posterior import ExactPosterior
from gpytorch_nkn.linalg.gaussian import (
    entrywise_negative_log_likelihood,
    gaussian_negative_log_likelihood,
    solve_in_place,
    with_less_noise,
)
from gpytorch_nkn.linalg.grid import (
    GridLikelihood,
    HeldOutBlocks,
    KroneckerEigen,
    PartialGrid,
    PartialKronecker,
    kronecker_multiply,
)
from gpytorch_nkn.linalg.known_gradients import with_gradients
from gpytorch_nkn.linalg.low_rank_gaussian import (
    Features,
    LowRankSums,
    low_rank_negative_log_likelihood,
    low_rank_posterior,
    row_chunks,
)
from gpytorch_nkn.linalg.singular_values import singular_value_threshold
from gpytorch_nkn.linalg.tiles import (
    Evaluator,
    TileEvaluator,
    add_all,
    in_threads,
    symmetric_strips,
)

__all__ = [
    "BlockDiagonal",
    "DelayedMatrix",
    "EntrywiseMatrix",
    "Evaluator",
    "ExactPosterior",
    "Features",
    "GridLikelihood",
    "HeldOutBlocks",
    "KroneckerEigen",
    "LowRankSums",
    "PartialGrid",
    "PartialKronecker",
    "TileEvaluator",
    "add_all",
    "broadcasts",
    "check_counts",
    "check_finite",
    "check_tensors",
    "elements",
    "entrywise_negative_log_likelihood",
    "factorize_inducing",
    "gaussian_negative_log_likelihood",
    "in_threads",
    "kronecker_multiply",
    "low_rank_negative_log_likelihood",
    "low_rank_posterior",
    "psd_root",
    "row_chunks",
    "singular_value_threshold",
    "solve_in_place",
    "solve_lower",
    "symmetric_strips",
    "to_dense",
    "with_gradients",
    "with_less_noise",
]
