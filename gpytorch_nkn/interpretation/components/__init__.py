"""A posterior as a sum of components."""

from gpytorch_nkn.interpretation.components.behaviour import Geometry, behaviours_of
from gpytorch_nkn.interpretation.components.column_use import ColumnUse
from gpytorch_nkn.interpretation.components.curves import Z95, ComponentCurve, component_curves
from gpytorch_nkn.interpretation.components.decompose import decompose, decompose_gp
from gpytorch_nkn.interpretation.components.decomposition import (
    Component,
    ComponentPosterior,
    Decomposition,
)

__all__ = [
    "Z95",
    "ColumnUse",
    "Component",
    "ComponentCurve",
    "ComponentPosterior",
    "Decomposition",
    "Geometry",
    "behaviours_of",
    "component_curves",
    "decompose",
    "decompose_gp",
]
