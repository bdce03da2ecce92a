"""Complex exponential of the difference between inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gpytorch_nkn.kernels.complex_kernel import ComplexKernel, phase, unit_phasor
from gpytorch_nkn.kernels.distances import center_of

__all__ = ["ComplexExponentialKernel"]


class ComplexExponentialKernel(ComplexKernel):
    r"""Complex exponential kernel with one frequency.

    .. math:: k(x, x') = \exp\bigl(i\, \mu^\top (x - x')\bigr)

    The kernel is stationary, and valid as the rank-one Hermitian kernel
    :math:`\phi(x) \overline{\phi(x')}` with :math:`\phi(x) = \exp(i \mu^\top x)`. Outside a network
    it returns its real part :math:`\cos(\mu^\top (x - x'))`.

    Args:
        **kwargs: ``ard_num_dims``, ``batch_shape``, ``active_dims`` as in
            :class:`gpytorch.kernels.Kernel`; ``ard_num_dims=None`` shares one frequency among all
            columns.

    Attributes:
        frequency: :math:`\mu` ``... x 1 x D``, in radians per unit of the input, of
            either sign; starts at 1.

    Reference: Sun et al. (2018), section 3.1 and theorem 4.
    """

    is_stationary = True

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        shape = (*self.batch_shape, 1, self.ard_num_dims or 1)
        self.register_parameter("frequency", nn.Parameter(torch.ones(shape)))

    def complex_values(self, x1: Tensor, x2: Tensor, diag: bool = False) -> Tensor:
        """Return complex values; see :class:`ComplexKernel` for shapes."""
        center = center_of(x1)  # avoids cancellation between large phases
        phase1 = phase(x1 - center, self.frequency)
        phase2 = phase(x2 - center, self.frequency)
        if diag:
            return unit_phasor(phase1 - phase2)
        return unit_phasor(phase1.unsqueeze(-1) - phase2.unsqueeze(-2))
