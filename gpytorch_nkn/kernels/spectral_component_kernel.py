"""One component of a spectral mixture, with frequencies across all columns."""

from __future__ import annotations

import torch
from gpytorch.constraints import Interval
from gpytorch.priors import Prior
from torch import Tensor, nn

from gpytorch_nkn.kernels.distances import squared_distances
from gpytorch_nkn.kernels.formula import Formula
from gpytorch_nkn.kernels.formula_kernel import FormulaKernel

__all__ = ["SpectralComponentKernel"]


def _values(x1: Tensor, x2: Tensor, lengthscale: Tensor, frequency: Tensor) -> Tensor:
    # Far from the origin the phases would be large numbers whose difference is small.
    center = x1.mean(-2, keepdim=True).detach()
    left, right = ((x - center) / lengthscale for x in (x1, x2))
    phases1, phases2 = (((x - center) * frequency).sum(-1, keepdim=True) for x in (x1, x2))
    return (-0.5 * squared_distances(left, right)).exp() * (phases1 - phases2.mT).cos()


class SpectralComponentKernel(FormulaKernel):
    r"""Waves in one direction whose phase is lost over a lengthscale.

    .. math::
        k(x, x') = \exp\Bigl(-\frac{1}{2} \sum_d \frac{(x_d - x'_d)^2}{\ell_d^2}\Bigr)
            \cos\Bigl(\sum_d \mu_d (x_d - x'_d)\Bigr)

    Its spectral density is the mean of two Gaussians, around :math:`\mu` and :math:`-\mu` with
    the standard deviations :math:`1 / \ell_d`: positive, hence the kernel is valid in any
    dimension. One frequency vector for all columns sees directions, such as that of
    :math:`x_1 + x_2`; the product over dimensions of one-dimensional mixtures, which is
    :class:`gpytorch.kernels.SpectralMixtureKernel`, has the same density at :math:`(\mu_1, \mu_2)`
    and at :math:`(\mu_1, -\mu_2)`.

    Args:
        ard_num_dims: Number of input columns ``D`` with a lengthscale and a frequency each;
            ``None`` shares one of each among all columns.
        batch_shape, active_dims, lengthscale_prior, lengthscale_constraint: As in
            :class:`gpytorch.kernels.Kernel`.
        frequency_prior: Prior on the frequencies ``... x 1 x D``; frequencies may be negative.

    Attributes:
        frequency: :math:`\mu` ``... x 1 x D``, in radians per unit of the input. It starts
            between 0.1 and 0.3, for at zero it has no gradient.

    Raises:
        TypeError: ``frequency_prior`` is not a GPyTorch prior.

    Reference: Wilson and Adams (2013), Gaussian Process Kernels for Pattern Discovery and
    Extrapolation, equation 12 before the product; here one component of weight one.
    """

    has_lengthscale = True
    formula = Formula(_values, code=9)
    parameter_names = ("lengthscale", "frequency")

    def __init__(
        self,
        *,
        ard_num_dims: int | None = None,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
        lengthscale_prior: Prior | None = None,
        lengthscale_constraint: Interval | None = None,
        frequency_prior: Prior | None = None,
    ):
        super().__init__(
            ard_num_dims=ard_num_dims,
            batch_shape=batch_shape,
            active_dims=active_dims,
            lengthscale_prior=lengthscale_prior,
            lengthscale_constraint=lengthscale_constraint,
        )
        start = torch.linspace(0.1, 0.3, ard_num_dims or 1)
        start = start.expand(*self.batch_shape, 1, -1).clone()
        self.register_parameter("frequency", nn.Parameter(start))
        self.add_prior("frequency_prior", frequency_prior, "frequency")
