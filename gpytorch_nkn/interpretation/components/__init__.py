"""Decomposition of a posterior into additive components."""

from gpytorch_nkn.interpretation.components.behaviour import Geometry, Role, behaviours_of
from gpytorch_nkn.interpretation.components.decompose import decompose, decompose_gp
from gpytorch_nkn.interpretation.components.decomposition import (
    Component,
    ComponentCurve,
    ComponentPosterior,
    Decomposition,
)

__all__ = [
    "Component",
    "ComponentCurve",
    "ComponentPosterior",
    "Decomposition",
    "Geometry",
    "Role",
    "behaviours_of",
    "decompose",
    "decompose_gp",
]
