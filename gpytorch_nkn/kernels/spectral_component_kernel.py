"""Component of a spectral mixture with a frequency vector."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gpytorch_nkn.kernels.distances import center_of, squared_distances
from gpytorch_nkn.kernels.formula import Formula
from gpytorch_nkn.kernels.formula_kernel import FormulaKernel

__all__ = ["SpectralComponentKernel"]


def _values(x1: Tensor, x2: Tensor, lengthscale: Tensor, frequency: Tensor) -> Tensor:
    # centre the inputs to avoid cancellation between large phases
    center = center_of(x1)
    left, right = ((x - center) / lengthscale for x in (x1, x2))
    phases1, phases2 = (((x - center) * frequency).sum(-1, keepdim=True) for x in (x1, x2))
    return (-0.5 * squared_distances(left, right)).exp() * (phases1 - phases2.mT).cos()


class SpectralComponentKernel(FormulaKernel):
    r"""Quasi-periodic kernel with a frequency vector.

    .. math::
        k(x, x') = \exp\Bigl(-\frac{1}{2} \sum_d \frac{(x_d - x'_d)^2}{\ell_d^2}\Bigr)
            \cos\Bigl(\sum_d \mu_d (x_d - x'_d)\Bigr)

    Its spectral density is the mean of two Gaussians with means :math:`\pm \mu` and standard
    deviations :math:`1 / \ell_d`. The density is positive, hence the kernel is valid in any
    dimension. The kernel oscillates in one direction, for example along :math:`x_1 + x_2`. In
    contrast, :class:`gpytorch.kernels.SpectralMixtureKernel`, a product of one-dimensional
    mixtures, cannot distinguish :math:`(\mu_1, \mu_2)` from :math:`(\mu_1, -\mu_2)`.

    Args:
        **kwargs: ``ard_num_dims``, ``batch_shape``, ``active_dims``, ``lengthscale_prior``,
            ``lengthscale_constraint`` as in :class:`gpytorch.kernels.Kernel`.

    Attributes:
        frequency: :math:`\mu` ``... x 1 x D``, in radians per unit of the input, of either sign. It
            starts between 0.1 and 0.3, because the gradient at 0 is zero.

    Reference: Wilson and Adams (2013), Gaussian Process Kernels for Pattern Discovery and
    Extrapolation, equation 12 before the product over dimensions, with one component of weight 1.
    """

    has_lengthscale = True
    formula = Formula(_values, code=9)
    parameter_names = ("lengthscale", "frequency")

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        start = torch.linspace(0.1, 0.3, self.ard_num_dims or 1)
        start = start.expand(*self.batch_shape, 1, -1).clone()
        self.register_parameter("frequency", nn.Parameter(start))
