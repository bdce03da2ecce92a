"""Random walk kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from gpytorch_nkn.kernels.distances import kink
from gpytorch_nkn.kernels.walk_kernel import WalkKernel, walk_formula

__all__ = ["WienerKernel"]


def _covariance(a: Tensor, b: Tensor) -> Tensor:
    # -|a - b| / 2 has an infinite second derivative, which torch.minimum omits
    return torch.minimum(a, b) - kink((a - b).unsqueeze(-1)) / 2


class WienerKernel(WalkKernel):
    r"""Random walk in continuous time (Wiener process, Brownian motion).

    .. math:: k(x, x') = \min(a, b) / u, \qquad a = \max(x - o, 0),\; b = \max(x' - o, 0)

    The kernel is valid as the covariance of integrated white noise that starts at the origin
    :math:`o`. Forecasts continue the last level; their error variance is proportional to the
    horizon. Before the origin the process is zero. Sample paths are nowhere differentiable.

    The variance is one after the time unit :math:`u`. Origin and unit are not trained, because an
    output scale and a constant kernel, or the weights of a network, have the same effect.
    ``fit_best_of``, the estimators and :func:`gpytorch_nkn.initialization.initialize_from_data`
    set them if they are ``None``. The origin is then one median step before the first input, and
    the variance is one at the last input. With other trainers, pass both.

    Args:
        origin: :math:`o`, a number or ``... x 1 x 1``, in units of the input; ``None`` for 0 until
            it is initialised from data.
        unit: :math:`u`, a positive number or ``... x 1 x 1``, in units of the input; ``None`` for 1
            until it is initialised from data.
        batch_shape, active_dims: As in :class:`gpytorch.kernels.Kernel`; one input column.

    Attributes:
        origin, unit: Values ``... x 1 x 1``, not trained, with exact gradients. Set them by
            ``kernel.initialize(origin=...)``.

    Raises:
        ValueError: ``unit`` is not positive, or the input has several columns.

    Reference: Rasmussen and Williams (2006), Gaussian Processes for Machine Learning, appendix
    B.2.
    """

    power = 1
    covariance = staticmethod(_covariance)
    formula = walk_formula(_covariance, power, code=10)
