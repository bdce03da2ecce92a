"""Logistic step at a learned location, which switches other kernels on or off."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from torch import Tensor

from gpytorch_nkn.kernels.batch_kernel import constrained
from gpytorch_nkn.kernels.formula import Formula
from gpytorch_nkn.kernels.formula_kernel import FormulaKernel

__all__ = ["StepKernel", "logistic_step"]

_SIDES = {"before": -1.0, "after": 1.0}
_MAX_DISTANCE = 700.0  # distance in widths beyond which the step is 0 or 1 in floating point


def logistic_step(x: Tensor, location: Tensor, width: Tensor, sign: float = 1.0) -> Tensor:
    """Return the logistic function of ``sign * (x - location) / width``, finite for any width."""
    distance = x - location
    far = distance.abs() > _MAX_DISTANCE * width
    # the unused branch must be finite for its gradient to be zero
    near = torch.where(far, 0.0, distance) / width
    return torch.sigmoid(sign * torch.where(far, _MAX_DISTANCE * distance.sign(), near))


class StepKernel(FormulaKernel):
    r"""Step at a learned location, which switches other kernels on or off in products.

    .. math:: k(x, x') = s(x)\, s(x'), \qquad s(x) = \frac{1}{1 + e^{-(x - l) / w}}

    with :math:`1 - s` instead of :math:`s` for ``side="before"``; valid as an inner product of one
    feature. On its own, the kernel is a level shift at :math:`l`. A product with one step restricts
    another kernel to one side of :math:`l`, a product with two steps to a window. With steps as
    primitives, a network learns which kernels change; with
    :class:`gpytorch_nkn.kernels.ChangePointKernel` you choose the kernels.

    ``fit_best_of``, the estimators and :func:`gpytorch_nkn.initialization.initialize_from_data`
    initialise the location at the largest change of the targets.

    Args:
        side: ``"after"`` for values near one above the location and near zero below it;
            ``"before"`` for the reverse.
        location: :math:`l`, a number or ``... x 1 x 1``, in units of the input.
        width: :math:`w`, a positive number or ``... x 1 x 1``, in units of the input; the inverse
            of GPflow's steepness. Three quarters of the step lie within two widths of its centre.
        batch_shape, active_dims: As in :class:`gpytorch.kernels.Kernel`; one input column.

    Raises:
        ValueError: ``side`` is unknown, the location or width is not finite, the width is not
            positive, or the input has several columns.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> before, after = StepKernel("before", location=5.0), StepKernel(location=3.0)
        >>> window = RBFKernel() * after * before  # between 3 and 5

    Reference: Lloyd et al. (2014), Automatic Construction and Natural-Language Description of
    Nonparametric Regression Models, appendix A.
    """

    is_stationary = False
    parameter_names = ("location", "width")
    location = constrained("location", "Location of the step, ``... x 1 x 1``.")
    width = constrained("width", "Width of the step, ``... x 1 x 1``.")

    def __init__(
        self,
        side: Literal["before", "after"] = "after",
        *,
        location: float | Tensor = 0.0,
        width: float | Tensor = 1.0,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ):
        if side not in _SIDES:
            raise ValueError(f"side must be 'before' or 'after', got {side!r}.")
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        self.side = side
        shape = (*self.batch_shape, 1, 1)
        self.add_constrained("location", shape, location, positive=False)
        self.add_constrained("width", shape, width)

    @property
    def formula(self) -> Formula:  # type: ignore[override]
        """Formula of the step on this side."""
        return _FORMULAS[self.side]


def _values(sign: float, x1: Tensor, x2: Tensor, location: Tensor, width: Tensor) -> Tensor:
    left, right = (logistic_step(x, location, width, sign) for x in (x1, x2))
    return left * right.mT


_FORMULAS = {
    side: Formula(partial(_values, sign), code=code, max_columns=1)
    for (side, sign), code in zip(_SIDES.items(), (13, 14), strict=True)
}
