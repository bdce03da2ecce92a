"""GPs that average over kernel structures."""

from gpytorch_nkn.models.averaging.fit_structures import fit_structure_ensemble_gp
from gpytorch_nkn.models.averaging.structure_ensemble_gp import StructureEnsembleGP

__all__ = ["StructureEnsembleGP", "fit_structure_ensemble_gp"]
