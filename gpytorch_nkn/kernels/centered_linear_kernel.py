"""Linear kernel around a centre."""

from __future__ import annotations

import torch
from gpytorch.constraints import Interval
from gpytorch.priors import Prior
from torch import nn

from gpytorch_nkn.kernels.batch_kernel import constrained
from gpytorch_nkn.kernels.formula import Formula
from gpytorch_nkn.kernels.formula_kernel import FormulaKernel
from gpytorch_nkn.kernels.formulas import linear

__all__ = ["CenteredLinearKernel"]


class CenteredLinearKernel(FormulaKernel):
    r"""Linear functions that vanish at a centre.

    .. math:: k(x, x') = \sum_d v_d\, (x_d - c_d)(x'_d - c_d)

    An inner product of features, hence valid. With the centre at the mean of the inputs the
    functions average to zero over the data: the kernel has no constant part, and what a network
    learns about the level stays apart from what it learns about the slope.

    Args:
        ard_num_dims: Number of input columns with a variance and a centre each; ``None`` shares
            one of each among all columns.
        batch_shape, active_dims: As in :class:`gpytorch.kernels.Kernel`.
        variance_prior: Prior on the variance, ``... x 1 x D``.
        variance_constraint: Constraint on the variance; positive where it is ``None``.
        learn_center: Train the centre too.

    Attributes:
        center: :math:`c`, ``... x 1 x D``, in units of the input; starts at 0. Set it with
            ``kernel.initialize(center=...)``.

    Raises:
        TypeError: ``variance_prior`` is not a GPyTorch prior.

    Reference: Lloyd et al. (2014), appendix A (its linear kernel with an offset).
    """

    is_stationary = False
    formula = Formula(linear, code=7)
    parameter_names = ("variance", "center")
    variance = constrained("variance", "Variance of the slopes, ``... x 1 x D``.")

    def __init__(
        self,
        *,
        ard_num_dims: int | None = None,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
        variance_prior: Prior | None = None,
        variance_constraint: Interval | None = None,
        learn_center: bool = False,
    ):
        super().__init__(
            ard_num_dims=ard_num_dims, batch_shape=batch_shape, active_dims=active_dims
        )
        shape = (*self.batch_shape, 1, ard_num_dims or 1)
        self.add_constrained("variance", shape, variance_constraint)
        self.register_parameter("center", nn.Parameter(torch.zeros(shape), learn_center))
        self.add_prior("variance_prior", variance_prior, "variance")
