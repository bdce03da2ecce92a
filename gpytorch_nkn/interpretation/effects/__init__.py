"""Effects of columns and of pairs of columns on the predictions."""

from gpytorch_nkn.interpretation.effects.averages import Averages
from gpytorch_nkn.interpretation.effects.effects import (
    Effect,
    Effects,
    effects,
    effects_of,
    positions,
)

__all__ = ["Averages", "Effect", "Effects", "effects", "effects_of", "positions"]
