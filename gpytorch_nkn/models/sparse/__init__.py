"""GPs with inducing points: collapsed and uncollapsed variational bounds."""

from gpytorch_nkn.models.sparse.collapsed_bound import CollapsedGP as CollapsedGP
from gpytorch_nkn.models.sparse.fit_sparse import fit_sparse_gp
from gpytorch_nkn.models.sparse.fit_variational import fit_variational_gp
from gpytorch_nkn.models.sparse.sparse_nkn_gp import SparseNKNGP
from gpytorch_nkn.models.sparse.variational_nkn_gp import VariationalNKNGP

__all__ = ["SparseNKNGP", "VariationalNKNGP", "fit_sparse_gp", "fit_variational_gp"]
