"""What training data must be beyond what BoTorch checks."""

from __future__ import annotations

from torch import Tensor

__all__ = ["check_training_data"]


def check_training_data(train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None = None) -> None:
    """Refuse infinite values and data that do not belong together row by row.

    BoTorch refuses NaN and wrong numbers of dimensions, with errors of its own.

    Args:
        train_X: Inputs ``... x n x d``.
        train_Y: Outcomes ``... x n x m``.
        train_Yvar: Variances of the noise, as the outcomes, or ``None``.

    Raises:
        ValueError: Numbers of rows differ, or a value is infinite.
    """
    named = {"train_X": train_X, "train_Y": train_Y, "train_Yvar": train_Yvar}
    present = {name: values for name, values in named.items() if values is not None}
    for name, values in present.items():
        if values.isinf().any():
            raise ValueError(
                f"{name} must be finite, got {int(values.isinf().sum())} infinite values."
            )
    if all(v.dim() > 1 for v in present.values()):
        if len({values.size(-2) for values in present.values()}) > 1:
            shapes = ", ".join(f"{name} {tuple(v.shape)}" for name, v in present.items())
            raise ValueError(f"Data must have the same number of rows, got the shapes {shapes}.")
