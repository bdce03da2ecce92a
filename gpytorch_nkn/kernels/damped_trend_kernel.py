"""Kernel of damped trends."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gpytorch_nkn.kernels.walk_kernel import WalkKernel, in_order, walk_formula

__all__ = ["DampedTrendKernel"]

# Taylor coefficients, from x^3 to x^19, of the function x - (1 - exp(-x)) - (1 - exp(-x))^2 / 2.
_SERIES = [(-1) ** n * (2**n - 2) / math.factorial(n + 1) for n in range(2, 19)]
_SERIES_UP_TO = 0.5  # largest x at which the series is used


def _variance(time: Tensor) -> Tensor:
    """Integrate (1 - exp(-s))^2 from 0 to ``time``; a series avoids cancellation near zero."""
    small = time < _SERIES_UP_TO
    near, far = torch.where(small, time, 0.0), torch.where(small, 1.0, time)
    series = torch.zeros_like(near)
    for coefficient in reversed(_SERIES):
        series = series * near + coefficient
    settled = -torch.expm1(-far)
    return torch.where(small, series * near**3, far - settled - settled.square() / 2)


def _covariance(a: Tensor, b: Tensor, lengthscale: Tensor) -> Tensor:
    a, b = a / lengthscale, b / lengthscale
    early, late = in_order(a, b)
    settled, between = -torch.expm1(-early), -torch.expm1(early - late)
    return lengthscale**3 * (_variance(early) + between * settled.square() / 2)


class DampedTrendKernel(WalkKernel):
    r"""Damped trend (integrated Ornstein-Uhlenbeck process).

    .. math::
        k(x, x') = \frac{\ell^3}{u^3} \Bigl(m - e - \frac{e^2}{2}
            + \bigl(1 - e^{-|a - b| / \ell}\bigr) \frac{e^2}{2}\Bigr),
        \qquad m = \min(a, b) / \ell,\; e = 1 - e^{-m}

    with :math:`a = \max(x - o, 0)` and :math:`b = \max(x' - o, 0)`. It is valid as the covariance
    of :math:`\int_0^a v(t)\, dt` for a slope :math:`v` that starts at zero and follows
    :math:`dv = -v\, dt / \ell + u^{-3/2}\, dw`. The impulse response after a time :math:`t` is
    :math:`\ell\, (1 - e^{-t / \ell})`. Forecasts continue the last slope and level off after a few
    lengthscales. For long lengthscales the kernel tends to
    :class:`gpytorch_nkn.kernels.IntegratedWienerKernel`, for short ones to
    :class:`gpytorch_nkn.kernels.WienerKernel` times :math:`\ell^2 u^{-2}`.

    Args:
        origin, unit, batch_shape, active_dims: As in :class:`gpytorch_nkn.kernels.WienerKernel`.
        lengthscale_prior, lengthscale_constraint: As in :class:`gpytorch.kernels.Kernel`.

    Attributes:
        lengthscale: :math:`\ell`, ``... x 1 x 1``, the time in which a slope decays to :math:`1/e`.

    Raises:
        ValueError: ``unit`` is not positive, or the input has several columns.

    References: Uhlenbeck and Ornstein (1930), On the Theory of the Brownian Motion, for the
    process; Gardner and McKenzie (1985), Forecasting Trends in Time Series, for damped trends.
    """

    has_lengthscale = True
    parameter_names = ("origin", "unit", "lengthscale")
    power = 3
    covariance = staticmethod(_covariance)
    formula = walk_formula(_covariance, power, code=12)
