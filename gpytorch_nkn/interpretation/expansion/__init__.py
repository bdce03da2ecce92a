"""Expansion of a kernel into products of primitives, and approximation by simpler kernels."""

from gpytorch_nkn.interpretation.expansion.expand import expand, expand_source
from gpytorch_nkn.interpretation.expansion.factors import period_of
from gpytorch_nkn.interpretation.expansion.simplify import Simplification, simplify, words_of
from gpytorch_nkn.interpretation.expansion.terms import (
    Expansion,
    Term,
    evaluate_groups,
    group_terms,
)

__all__ = [
    "Expansion",
    "Simplification",
    "Term",
    "evaluate_groups",
    "expand",
    "expand_source",
    "group_terms",
    "period_of",
    "simplify",
    "words_of",
]
