"""Periodic kernel without its constant part."""

from __future__ import annotations

import math

import torch
from gpytorch.constraints import Interval
from gpytorch.priors import Prior
from torch import Tensor

from gpytorch_nkn.kernels.batch_kernel import BatchKernel, constrained

__all__ = ["ZeroMeanPeriodicKernel"]


class ZeroMeanPeriodicKernel(BatchKernel):
    r"""Periodic functions that average to zero over a period.

    .. math::
        k(x, x') = \prod_d \frac{\exp(z_d \cos \theta_d) - I_0(z_d)}{\exp(z_d) - I_0(z_d)},
        \qquad \theta_d = \frac{2 \pi (x_d - x'_d)}{p_d},\; z_d = 1 / \ell_d

    The numerator is MacKay's periodic kernel less its mean over a period: dropping the constant
    term of a Fourier series whose coefficients :math:`2 I_n(z) > 0` are positive keeps the
    kernel valid, and so do the product over dimensions and the scaling to :math:`k(x, x) = 1`.
    The plain kernel tends to a constant as the lengthscale grows, which hides what a network
    has learned; this one tends to the cosine. The lengthscale means what it means in
    :class:`gpytorch.kernels.PeriodicKernel` (not squared).

    Args:
        ard_num_dims: Number of input columns with a lengthscale and a period each; ``None``
            shares one of each among all columns.
        period_length_prior: Prior on the period, ``... x 1 x D``.
        period_length_constraint: Constraint on the period; positive where it is ``None``.
        batch_shape, active_dims, lengthscale_prior, lengthscale_constraint: As in
            :class:`gpytorch.kernels.Kernel`.

    Raises:
        TypeError: ``period_length_prior`` is not a GPyTorch prior.

    Reference: Lloyd et al. (2014), Automatic Construction and Natural-Language Description of
    Nonparametric Regression Models, appendix A.
    """

    has_lengthscale = True
    period_length = constrained("period_length", "Period, ``... x 1 x D``, in units of the input.")

    def __init__(
        self,
        *,
        ard_num_dims: int | None = None,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
        lengthscale_prior: Prior | None = None,
        lengthscale_constraint: Interval | None = None,
        period_length_prior: Prior | None = None,
        period_length_constraint: Interval | None = None,
    ):
        super().__init__(
            ard_num_dims=ard_num_dims,
            batch_shape=batch_shape,
            active_dims=active_dims,
            lengthscale_prior=lengthscale_prior,
            lengthscale_constraint=lengthscale_constraint,
        )
        shape = (*self.batch_shape, 1, ard_num_dims or 1)
        self.add_constrained("period_length", shape, period_length_constraint)
        self.add_prior("period_length_prior", period_length_prior, "period_length")

    def forward(
        self,
        x1: Tensor,
        x2: Tensor,
        diag: bool = False,
        last_dim_is_batch: bool = False,
        **params,
    ) -> Tensor:
        """Values ``... x N x M`` (``... x N`` with ``diag``)."""
        # One matrix per dimension: ... x D x N x M, or ... x D x N with diag.
        x1, x2 = x1.transpose(-1, -2), x2.transpose(-1, -2)
        difference = x1 - x2 if diag else x1.unsqueeze(-1) - x2.unsqueeze(-2)
        trailing = (1,) if diag else (1, 1)
        period = self.period_length.squeeze(-2)
        concentration = 1 / self.lengthscale.squeeze(-2)
        angle = 2 * math.pi * difference / period.view(*period.shape, *trailing)
        value = _zero_mean(concentration.view(*concentration.shape, *trailing), angle)
        return value if last_dim_is_batch else value.prod(-2 if diag else -3)


def _zero_mean(z: Tensor, angle: Tensor) -> Tensor:
    """(exp(z cos a) - I0(z)) / (exp(z) - I0(z)), also where z is tiny and both differences cancel.

    Below z = 0.01 (0.1 in single precision) the power series through z^4 replaces numerator and
    denominator, both divided by z; the first dropped term is below rounding or nearly so.
    """
    cos = angle.cos()
    small = z < (1e-2 if z.dtype == torch.float64 else 1e-1)
    safe = torch.where(small, 1.0, z)
    # exp(z cos a) exp(-z) written with 1 - cos a = 2 sin^2(a / 2): exact near the diagonal
    decay = torch.exp(-2 * safe * (angle / 2).sin().square())
    mean = torch.special.i0e(safe)
    ratio = (decay - mean) / (1 - mean)
    tiny = torch.where(small, z, 0.0)
    return torch.where(small, _series(tiny, cos) / _series(tiny, torch.ones_like(cos)), ratio)


def _series(z: Tensor, cos: Tensor) -> Tensor:
    """(exp(z c) - I0(z)) / z through z^4."""
    return cos + z * (
        (cos.square() / 2 - 1 / 4)
        + z * (cos**3 / 6 + z * ((cos**4 / 24 - 1 / 64) + z * cos**5 / 120))
    )
