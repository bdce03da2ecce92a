"""Decomposition of a posterior into additive components."""

from gpytorch_nkn.interpretation.components.behaviour import Geometry, Role, behaviours_of
from gpytorch_nkn.interpretation.components.decompose import (
    Component,
    ComponentCurve,
    ComponentPosterior,
    Decomposition,
    decompose,
    decompose_gp,
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
