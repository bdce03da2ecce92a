"""Base class of kernels with a formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from gpytorch_nkn.kernels.batch_kernel import BatchKernel
from gpytorch_nkn.kernels.formula import Formula

__all__ = ["FormulaKernel", "formula_values"]


class FormulaKernel(BatchKernel):
    """Kernel with one formula for its values, inside and outside of networks.

    Attributes:
        formula: Values as a function of inputs and parameters.
        parameter_names: Names of the parameters ``... x 1 x D``, in the order of the formula.
    """

    formula: Formula
    parameter_names: tuple[str, ...] = ("lengthscale",)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return values ``... x N x M`` (``... x N`` with ``diag``)."""
        formula, columns = self.formula, x1.size(-1)
        if formula.max_columns is not None and columns > formula.max_columns:
            raise ValueError(
                f"{type(self).__name__} needs one input column, got {columns}: select one by "
                "active_dims."
            )
        parameters = [getattr(self, name) for name in self.parameter_names]
        return formula_values(formula, parameters, x1, x2, diag)


def formula_values(
    formula: Formula, parameters: Sequence[Tensor], x1: Tensor, x2: Tensor, diag: bool
) -> Tensor:
    """Return values of a formula at all pairs of inputs (``diag``: at corresponding inputs)."""
    if formula.derived is not None:
        parameters = [*parameters, formula.derived(parameters[0])]
    if not diag:
        return formula.values(x1, x2, *parameters)
    left = x1.unsqueeze(-2)  # one 1 x 1 matrix per row
    right = left if x1 is x2 else x2.unsqueeze(-2)
    return formula.values(left, right, *(p.unsqueeze(-3) for p in parameters))[..., 0, 0]
