"""Non-stationary complex exponential kernel with two frequencies."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gpytorch_nkn.kernels.complex_kernel import ComplexKernel, phase, unit_phasor

__all__ = ["BivariateComplexExponentialKernel"]


class BivariateComplexExponentialKernel(ComplexKernel):
    r"""Rank-one Hermitian kernel with two frequencies.

    .. math::
        k(x, x') = \psi(x)\, \overline{\psi(x')}, \qquad
        \psi(x) = \tfrac{1}{2} \bigl(e^{i \omega^\top x} + e^{i \omega'^\top x}\bigr)

    Yaglom's theorem writes non-stationary kernels as mixtures of such terms, here symmetrised in
    the two frequencies. The kernel is valid as the outer product of one feature. With
    :math:`\omega = \omega'` it equals the stationary :class:`ComplexExponentialKernel`. Its
    diagonal :math:`|\psi(x)|^2 = \cos^2((\omega - \omega')^\top x / 2)` is not constant.

    Args:
        **kwargs: ``ard_num_dims``, ``batch_shape``, ``active_dims`` as in
            :class:`gpytorch.kernels.Kernel`; ``ard_num_dims=None`` shares one pair of frequencies
            among all columns.

    Attributes:
        frequencies: :math:`\omega` and :math:`\omega'`, ``... x 2 x D``, in radians per unit of the
            input. They start at 1 and 1.1: equal frequencies would stay equal during training, and
            very different frequencies make the diagonal oscillate fast.

    Reference: Li, Liu and Wang (2020), Automated Spectral Kernel Learning, section 2; Sun et al.
    (2018), theorem 5.
    """

    is_stationary = False

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        start = torch.tensor([1.0, 1.1]).unsqueeze(-1)
        shape = (*self.batch_shape, 2, self.ard_num_dims or 1)
        self.register_parameter("frequencies", nn.Parameter(start.expand(shape).clone()))

    def complex_values(self, x1: Tensor, x2: Tensor, diag: bool = False) -> Tensor:
        """Return complex values; see :class:`ComplexKernel` for shapes."""
        feature1 = self._feature(x1)
        feature2 = self._feature(x2).conj()
        if diag:
            return feature1 * feature2
        return feature1.unsqueeze(-1) * feature2.unsqueeze(-2)

    def _feature(self, x: Tensor) -> Tensor:
        first, second = self.frequencies.split(1, dim=-2)  # each ... x 1 x D
        return 0.5 * (unit_phasor(phase(x, first)) + unit_phasor(phase(x, second)))
