"""Periodic kernel without a constant part."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gpytorch_nkn.kernels.batch_kernel import constrained
from gpytorch_nkn.kernels.formula import stationary
from gpytorch_nkn.kernels.formula_kernel import FormulaKernel, formula_values
from gpytorch_nkn.kernels.formulas import wrap

__all__ = ["ZeroMeanPeriodicKernel"]


def _zero_mean_factor(lengthscale: Tensor) -> Tensor:
    """Return ``1 / (1 - exp(-z) I0(z))`` for ``z = 1 / lengthscale``, accurate for small z."""
    z = lengthscale.reciprocal()
    small = z < 0.05
    tiny = torch.where(small, z, 0.01)
    # 1 - i0e(z) = sum_k (-1)^(k+1) c_k z^k with c_k = (2k)! / (2^k (k!)^3)
    series = sum(
        (-1) ** (k + 1) * math.factorial(2 * k) / (2**k * math.factorial(k) ** 3) * tiny**k
        for k in range(1, 9)
    )
    plain = 1 - torch.special.i0e(torch.where(small, 1.0, z))
    return torch.where(small, series, plain).reciprocal()


def _zero_mean_slope(lengthscale: Tensor, factor: Tensor) -> Tensor:
    """Return the derivative of :func:`_zero_mean_factor` with respect to the lengthscale."""
    z = lengthscale.reciprocal()
    return factor.square() * (torch.special.i0e(z) - torch.special.i1e(z)) * z.square()


class ZeroMeanPeriodicKernel(FormulaKernel):
    r"""Periodic kernel whose functions average to zero over a period.

    .. math::
        k(x, x') = \prod_d \frac{\exp(z_d \cos \theta_d) - I_0(z_d)}{\exp(z_d) - I_0(z_d)},
        \qquad \theta_d = \frac{2 \pi (x_d - x'_d)}{p_d},\; z_d = 1 / \ell_d

    The numerator, MacKay's periodic kernel minus its mean over a period, has positive Fourier
    coefficients :math:`2 I_n(z)`, hence each factor and their product are valid. The denominator
    scales the kernel to :math:`k(x, x) = 1`. For long lengthscales MacKay's kernel tends to a
    constant, and this kernel tends to a cosine. The lengthscale is not squared, as in
    :class:`gpytorch.kernels.PeriodicKernel`.

    Args:
        **kwargs: ``ard_num_dims``, ``batch_shape``, ``active_dims``, ``lengthscale_prior``,
            ``lengthscale_constraint`` as in :class:`gpytorch.kernels.Kernel`.

    Reference: Lloyd et al. (2014), Automatic Construction and Natural-Language Description of
    Nonparametric Regression Models, appendix A.
    """

    has_lengthscale = True
    formula = stationary(
        lambda square, factor: 1 + (-0.5 * square).expm1() * factor,
        points=wrap,
        code=8,
        derived=_zero_mean_factor,
        derived_slope=_zero_mean_slope,
        max_columns=1,
    )
    period_length = constrained("period_length", "Period, ``... x 1 x D``, in units of the input.")

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        shape = (*self.batch_shape, 1, self.ard_num_dims or 1)
        self.add_constrained("period_length", shape)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return values ``... x N x M`` (``... x N`` with ``diag``)."""
        parameters = self.lengthscale, self.period_length
        product: Tensor | None = None
        for column in range(x1.size(-1)):
            of_column = [p[..., column if p.size(-1) > 1 else 0, None] for p in parameters]
            left = x1[..., column, None]
            right = left if x1 is x2 else x2[..., column, None]
            values = formula_values(self.formula, of_column, left, right, diag)
            product = values if product is None else product * values
        assert product is not None
        return product
