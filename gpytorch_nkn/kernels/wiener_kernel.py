"""Random walks."""

from __future__ import annotations

import torch
from torch import Tensor

from gpytorch_nkn.kernels.distances import kink
from gpytorch_nkn.kernels.walk_kernel import WalkKernel, walk_formula

__all__ = ["WienerKernel"]


def _covariance(a: Tensor, b: Tensor) -> Tensor:
    # (a + b - |a - b|) / 2, half of the slope for each where both are equal
    return torch.minimum(a, b) - kink((a - b).unsqueeze(-1)) / 2


class WienerKernel(WalkKernel):
    r"""Random walks in continuous time (Wiener process, Brownian motion), from an origin on.

    .. math:: k(x, x') = \min(a, b) / u, \qquad a = \max(x - o, 0),\; b = \max(x' - o, 0)

    The covariance of white noise that is added up from the origin :math:`o` on, hence valid. The
    best forecast is the last level, and the variance of its error grows in proportion to the
    horizon. Ahead of the origin the process is zero, and so is the kernel. Functions have no
    derivative: that of the kernel by both of two equal inputs is infinite.

    Neither of its two numbers is trained. The unit of time :math:`u`, after which the variance
    is one, would do nothing that an output scale or the weights of a network do not do; an
    earlier origin adds a constant, which these have, too. Start values from data
    (:func:`gpytorch_nkn.initialization.initialize_from_data`, and so ``fit_best_of`` and the
    estimators) set those that were not given: the origin a typical step (the median one) ahead
    of the first input, and the unit such that the variance is one at the last. In a model that
    is trained otherwise, give them.

    Args:
        origin: :math:`o`, a number or ``... x 1 x 1``, in units of the input; ``None`` is 0 until
            start values are taken from data.
        unit: :math:`u`, a positive number or ``... x 1 x 1``, in units of the input; ``None`` is 1
            until start values are taken from data.
        batch_shape, active_dims: As in :class:`gpytorch.kernels.Kernel`; one input column.

    Attributes:
        origin, unit: ``... x 1 x 1``, in the ``state_dict``. Set them with
            ``kernel.initialize(origin=...)``; gradients are exact should you train them.

    Raises:
        ValueError: ``unit`` is not positive, or there are several input columns.

    Reference: Rasmussen and Williams (2006), Gaussian Processes for Machine Learning, appendix
    B.2.
    """

    power = 1
    covariance = staticmethod(_covariance)
    formula = walk_formula(_covariance, power, code=10)
