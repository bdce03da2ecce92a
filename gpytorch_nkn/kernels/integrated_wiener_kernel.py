"""Kernel of local linear trends."""

from __future__ import annotations

from torch import Tensor

from gpytorch_nkn.kernels.walk_kernel import WalkKernel, in_order, walk_formula

__all__ = ["IntegratedWienerKernel"]


def _covariance(a: Tensor, b: Tensor) -> Tensor:
    early, late = in_order(a, b)
    return early.square() * (3 * late - early) / 6


class IntegratedWienerKernel(WalkKernel):
    r"""Local linear trend, whose slope is a random walk (integrated Wiener process).

    .. math:: k(x, x') = \Bigl(\frac{m^3}{3} + |a - b| \frac{m^2}{2}\Bigr) / u^3,
        \qquad m = \min(a, b),\; a = \max(x - o, 0),\; b = \max(x' - o, 0)

    The kernel is valid as the covariance of :math:`\int_0^a w(t)\, dt` for a Wiener process
    :math:`w`. Sample paths are once differentiable, and the posterior mean is a cubic spline.
    Forecasts continue the last slope; their error variance grows with the cube of the horizon.
    Level and slope are zero up to the origin :math:`o`; add constant and linear kernels if needed.

    Args:
        origin, unit, batch_shape, active_dims: As in :class:`gpytorch_nkn.kernels.WienerKernel`,
            except that the variance is 1/3 after one unit.

    Raises:
        ValueError: ``unit`` is not positive, or the input has several columns.

    Reference: Wahba (1978), Improper Priors, Spline Smoothing and the Problem of Guarding Against
    Model Errors in Regression. JRSS B.
    """

    power = 3
    covariance = staticmethod(_covariance)
    formula = walk_formula(_covariance, power, code=11)
