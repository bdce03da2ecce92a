"""Gaussian process models for GPyTorch and BoTorch, and their trainers."""

from gpytorch_nkn.models.averaging import StructureEnsembleGP, fit_structure_ensemble_gp
from gpytorch_nkn.models.base_gp import TRAINERS as TRAINERS
from gpytorch_nkn.models.gradient_posterior import gradient_posterior
from gpytorch_nkn.models.grid import (
    GridFit,
    GridRestart,
    KroneckerGridGP,
    fit_grid_gp,
    hole_blocks as hole_blocks,
)
from gpytorch_nkn.models.inducing_points import select_inducing_points as select_inducing_points
from gpytorch_nkn.models.laplace_gp import LaplaceGP
from gpytorch_nkn.models.nkn_multi_task_gp import NKNMultiTaskGP
from gpytorch_nkn.models.nkn_single_task_gp import NKNSingleTaskGP
from gpytorch_nkn.models.pathwise import SpectralFeatureMap, spectral_features
from gpytorch_nkn.models.sparse import (
    CollapsedGP as CollapsedGP,
    SparseNKNGP,
    VariationalNKNGP,
    fit_sparse_gp,
    fit_variational_gp,
)
from gpytorch_nkn.models.spectral import SpectralGP, fit_spectral_gp

__all__ = [
    "GridFit",
    "GridRestart",
    "KroneckerGridGP",
    "LaplaceGP",
    "NKNMultiTaskGP",
    "NKNSingleTaskGP",
    "SparseNKNGP",
    "SpectralFeatureMap",
    "SpectralGP",
    "StructureEnsembleGP",
    "VariationalNKNGP",
    "fit_grid_gp",
    "fit_sparse_gp",
    "fit_spectral_gp",
    "fit_structure_ensemble_gp",
    "fit_variational_gp",
    "gradient_posterior",
    "spectral_features",
]
