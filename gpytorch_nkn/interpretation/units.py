"""The data's own units."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

__all__ = ["Units", "number", "percent"]


@dataclass(frozen=True)
class Units:
    """What a model's inputs and targets mean: data = offset + scale * value in the model.

    Args:
        x_offset: Per input column ``D``.
        x_scale: Per input column ``D``.
        y_offset: Of the targets.
        y_scale: Of the targets.
        names: Of the input columns ``D``.
        x_unit: What one unit of the first column is called, such as ``yr``; may be empty.
        y_name: What the targets are called.
        y_unit: What one unit of the targets is called, such as ``ppm``; may be empty.
        log_targets: The model is one of the logarithm of the targets.
    """

    x_offset: np.ndarray = field(default_factory=lambda: np.zeros(1))
    x_scale: np.ndarray = field(default_factory=lambda: np.ones(1))
    y_offset: float = 0.0
    y_scale: float = 1.0
    names: tuple[str, ...] = ("x",)
    x_unit: str = ""
    y_name: str = "y"
    y_unit: str = ""
    log_targets: bool = False

    @classmethod
    def plain(cls, input_dim: int) -> Units:
        """The model's units themselves."""
        names = ("x",) if input_dim == 1 else tuple(f"x{place}" for place in range(input_dim))
        return cls(x_offset=np.zeros(input_dim), x_scale=np.ones(input_dim), names=names)

    def length(self, values: Tensor, column: int = 0) -> str:
        """A length along a column as text; from the smallest to the largest of several."""
        lengths = values.detach().double().cpu().numpy() * self.x_scale[column]
        text = number(lengths.min())
        if number(lengths.max()) != text:
            text += f" to {number(lengths.max())}"
        return text + (f" {self.x_unit}" if self.x_unit and column == 0 else "")


def number(value: float) -> str:
    """Three digits, as people write them."""
    value = float(value)
    if value != 0 and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.2e}"
    if abs(value) >= 999.5:
        return f"{value:.0f}"
    return f"{value:#.3g}".rstrip(".")


def percent(value: float) -> str:
    """A share with one digit, or what tells it apart from nothing and from everything."""
    if 0 < abs(value) < 0.0005:
        return "less than 0.1 %"
    if 0.9995 < value < 1:
        return "more than 99.9 %"
    return f"{100 * value:.1f} %"
