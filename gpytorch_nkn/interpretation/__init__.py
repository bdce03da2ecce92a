"""Terms of a learned kernel, components and effects of its posterior, and reports."""

from gpytorch_nkn.interpretation.decompose import (
    Component,
    ComponentPosterior,
    Decomposition,
    decompose,
)
from gpytorch_nkn.interpretation.effects import Effect, Effects, effects
from gpytorch_nkn.interpretation.expansion import Expansion, Simplification, Term, expand, simplify
from gpytorch_nkn.interpretation.reporting import (
    ClassReport,
    Report,
    SearchReport,
    report,
    report_search,
)

__all__ = [
    "ClassReport",
    "Component",
    "ComponentPosterior",
    "Decomposition",
    "Effect",
    "Effects",
    "Expansion",
    "Report",
    "SearchReport",
    "Simplification",
    "Term",
    "decompose",
    "effects",
    "expand",
    "report",
    "report_search",
    "simplify",
]
