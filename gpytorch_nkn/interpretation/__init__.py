"""What a kernel has learned: its terms, the components of its posterior, and words for them."""

from gpytorch_nkn.interpretation.checks import check_residuals, leave_one_out
from gpytorch_nkn.interpretation.column_use import ColumnUse
from gpytorch_nkn.interpretation.decompose import decompose
from gpytorch_nkn.interpretation.decomposition import Component, ComponentPosterior, Decomposition
from gpytorch_nkn.interpretation.effects import Effect, Effects, effects
from gpytorch_nkn.interpretation.expand import expand
from gpytorch_nkn.interpretation.expansion import Expansion, Term, TermGroup
from gpytorch_nkn.interpretation.findings import Report
from gpytorch_nkn.interpretation.report import report
from gpytorch_nkn.interpretation.simplification import Simplification
from gpytorch_nkn.interpretation.simplify import simplify

__all__ = [
    "ColumnUse",
    "Component",
    "ComponentPosterior",
    "Decomposition",
    "Effect",
    "Effects",
    "Expansion",
    "Report",
    "Simplification",
    "Term",
    "TermGroup",
    "check_residuals",
    "decompose",
    "effects",
    "expand",
    "leave_one_out",
    "report",
    "simplify",
]
