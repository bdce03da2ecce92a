"""Linear kernel with a centre."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from gpytorch_nkn.kernels.batch_kernel import constrained
from gpytorch_nkn.kernels.formula import Formula
from gpytorch_nkn.kernels.formula_kernel import FormulaKernel
from gpytorch_nkn.kernels.formulas import linear

__all__ = ["CenteredLinearKernel"]


class CenteredLinearKernel(FormulaKernel):
    r"""Linear kernel whose functions are zero at a centre.

    .. math:: k(x, x') = \sum_d v_d\, (x_d - c_d)(x'_d - c_d)

    The kernel is valid as an inner product of features. With the centre at the mean of the inputs,
    functions average to zero over the data, so the slope does not change the mean level.

    Args:
        **kwargs: ``ard_num_dims``, ``batch_shape``, ``active_dims`` as in
            :class:`gpytorch.kernels.Kernel`; ``ard_num_dims=None`` shares one variance and one
            centre among all columns.

    Attributes:
        center: :math:`c`, ``... x 1 x D``, in units of the input; starts at 0 and is not trained.
            Set it with ``kernel.initialize(center=...)``; train it after
            ``kernel.center.requires_grad_()``.

    Reference: Lloyd et al. (2014), appendix A (its linear kernel with an offset).
    """

    is_stationary = False
    formula = Formula(linear, code=7)
    parameter_names = ("variance", "center")
    variance = constrained("variance", "Variance of the slopes, ``... x 1 x D``.")

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        shape = (*self.batch_shape, 1, self.ard_num_dims or 1)
        self.add_constrained("variance", shape)
        self.register_parameter("center", nn.Parameter(torch.zeros(shape), False))
