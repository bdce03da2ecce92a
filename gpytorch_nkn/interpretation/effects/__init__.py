"""Effects of columns and of pairs of columns on the posterior mean."""

from gpytorch_nkn.interpretation.effects.effects import (
    Effect,
    Effects,
    effects,
    effects_of,
    positions,
)

__all__ = ["Effect", "Effects", "effects", "effects_of", "positions"]
