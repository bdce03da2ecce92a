"""The data's own units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor

from gpytorch_nkn.interpretation.amounts import length_text

__all__ = ["Units"]


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
        affine: Offset and scale say all; otherwise lengths are those of the transformed inputs.
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
    affine: bool = True

    @classmethod
    def plain(cls, input_dim: int) -> Units:
        """The model's units themselves."""
        names = ("x",) if input_dim == 1 else tuple(f"x{place}" for place in range(input_dim))
        return cls(x_offset=np.zeros(input_dim), x_scale=np.ones(input_dim), names=names)

    def named(self, columns: Sequence[str] | None) -> Units:
        """The same with other names of the columns; None leaves them.

        Raises:
            TypeError: The names are not a sequence of strings.
            ValueError: There are more or fewer names than columns.
        """
        if columns is None:
            return self
        is_names = isinstance(columns, Sequence) and not isinstance(columns, str)
        if not is_names or not all(isinstance(name, str) for name in columns):
            raise TypeError(f"columns must be a sequence of names, got {columns!r}.")
        if len(columns) != len(self.x_scale):
            raise ValueError(f"columns must hold {len(self.x_scale)} names, got {len(columns)}.")
        return replace(self, names=tuple(columns))

    def length(self, values: Tensor, column: int = 0) -> str:
        """A length along a column as text; from the smallest to the largest of several."""
        lengths = values.detach().double().cpu().numpy() * self.x_scale[column]
        unit = self.x_unit if column == 0 else ""
        ends = [length_text(float(end), unit) for end in (lengths.min(), lengths.max())]
        return ends[0] if ends[0] == ends[1] else " to ".join(ends)
