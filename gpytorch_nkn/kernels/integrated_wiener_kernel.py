"""Trends whose slope is a random walk."""

from __future__ import annotations

from torch import Tensor

from gpytorch_nkn.kernels.walk_kernel import WalkKernel, in_order, walk_formula

__all__ = ["IntegratedWienerKernel"]


def _covariance(a: Tensor, b: Tensor) -> Tensor:
    early, late = in_order(a, b)
    return early.square() * (3 * late - early) / 6


class IntegratedWienerKernel(WalkKernel):
    r"""Trends whose slope is a random walk (integrated Wiener process, local linear trend).

    .. math:: k(x, x') = \Bigl(\frac{m^3}{3} + |a - b| \frac{m^2}{2}\Bigr) / u^3,
        \qquad m = \min(a, b),\; a = \max(x - o, 0),\; b = \max(x' - o, 0)

    The covariance of :math:`\int_0^a w(t)\, dt` for a Wiener process :math:`w`, hence valid;
    functions have one derivative, and their mean between data is a cubic spline. The best
    forecast goes on in the last direction, and the variance of its error grows as the cube of the
    horizon. Level and slope are zero at the origin :math:`o` and ahead of it: add a constant and
    a linear kernel where they are not.

    Args:
        origin, unit, batch_shape, active_dims: As in :class:`gpytorch_nkn.kernels.WienerKernel`.
            The unit is the time after which the variance is 1/3.

    Raises:
        ValueError: ``unit`` is not positive, or there are several input columns.

    Reference: Wahba (1978), Improper Priors, Spline Smoothing and the Problem of Guarding Against
    Model Errors in Regression. JRSS B.
    """

    power = 3
    covariance = staticmethod(_covariance)
    formula = walk_formula(_covariance, power, code=11)
