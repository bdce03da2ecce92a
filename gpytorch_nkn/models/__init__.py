"""Gaussian process models for BoTorch."""

from gpytorch_nkn.models.additive_partition_gp import AdditivePartitionGP
from gpytorch_nkn.models.fit_grid import GridFit, GridRestart, fit_grid_gp
from gpytorch_nkn.models.fit_partitions import fit_additive_partition_gp
from gpytorch_nkn.models.fit_sparse import fit_sparse_gp
from gpytorch_nkn.models.fit_spectral import fit_spectral_gp
from gpytorch_nkn.models.fit_variational import fit_variational_gp
from gpytorch_nkn.models.kronecker_grid_gp import KroneckerGridGP
from gpytorch_nkn.models.nkn_single_task_gp import NKNSingleTaskGP
from gpytorch_nkn.models.sparse_nkn_gp import SparseNKNGP
from gpytorch_nkn.models.spectral_features import SpectralFeatureMap, spectral_features
from gpytorch_nkn.models.spectral_gp import SpectralGP
from gpytorch_nkn.models.variational_nkn_gp import VariationalNKNGP
from gpytorch_nkn.models.weight_space_paths import draw_weight_space_paths

__all__ = [
    "AdditivePartitionGP",
    "GridFit",
    "GridRestart",
    "KroneckerGridGP",
    "NKNSingleTaskGP",
    "SparseNKNGP",
    "SpectralFeatureMap",
    "SpectralGP",
    "VariationalNKNGP",
    "draw_weight_space_paths",
    "fit_additive_partition_gp",
    "fit_grid_gp",
    "fit_sparse_gp",
    "fit_spectral_gp",
    "fit_variational_gp",
    "spectral_features",
]
