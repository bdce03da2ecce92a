"""Non-stationary spectral mixture with pairs of correlated frequencies."""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch.constraints import Interval
from torch import Tensor, nn

from gpytorch_nkn.kernels.batch_kernel import BatchKernel, constrained
from gpytorch_nkn.kernels.complex_kernel import phase
from gpytorch_nkn.kernels.distances import squared_distances
from gpytorch_nkn.linalg import check_counts

__all__ = ["BivariateSpectralMixtureKernel"]

_GOLDEN = (math.sqrt(5) - 1) / 2  # golden ratio: its multiples modulo 1 cover [0, 1] evenly
_START_CORRELATION = 0.9
_TINY = 1e-12  # smallest correlation, so that its square root has a finite gradient


class BivariateSpectralMixtureKernel(BatchKernel):
    r"""Sum of :math:`Q` pairs of sinusoids with Gaussian envelopes.

    .. math::
        k(x, x') &= \sum_{q=1}^{Q} w_q \exp\Bigl(-\frac{1}{2} \sum_d s_{qd}^2
            (\bar x_d^2 + \bar x_d'^2 - 2 \rho_{qd} \bar x_d \bar x'_d)\Bigr)
            \langle \psi_q(x), \psi_q(x') \rangle, \qquad \bar x = x - c

        \psi_q(x) &= \tfrac{1}{2} [\cos \omega_q^\top \bar x + \cos \omega_q'^\top \bar x,\;
            \sin \omega_q^\top \bar x + \sin \omega_q'^\top \bar x]

    The inner sum equals :math:`(1 - \rho_{qd})(\bar x_d^2 + \bar x_d'^2) +
    \rho_{qd} (\bar x_d - \bar x'_d)^2`. For :math:`\rho \ge 0` the envelope is therefore an RBF
    kernel times :math:`h(x) h(x')`. Multiplied by an inner product and summed with
    :math:`w \ge 0`, it is a valid kernel in any dimension.

    The kernel is the Fourier transform
    :math:`\int\!\int e^{i (u^\top \bar x - v^\top \bar x')} S(u, v)` of Gaussians. Their centres
    are the four pairs of :math:`\pm\omega_q` and :math:`\pm\omega_q'`. Both frequencies have the
    standard deviation :math:`s_{qd}` and correlation :math:`\rho_{qd}`. The published form has two
    standard deviations, is therefore not symmetric in :math:`x` and :math:`x'`, and is not valid.
    With :math:`\rho = 1` and :math:`\omega = \omega'` a component is a
    :class:`SpectralComponentKernel` of lengthscale :math:`1 / s`. With smaller correlations,
    functions decay away from :math:`c` over the length :math:`1 / (s \sqrt{1 - \rho})`.

    Args:
        num_mixtures: Number of components ``Q``.
        **kwargs: ``ard_num_dims``, ``batch_shape``, ``active_dims`` as in
            :class:`gpytorch.kernels.Kernel`; ``ard_num_dims=None`` shares the parameters of one
            column among all columns.

    Attributes:
        mixture_weights: :math:`w`, ``... x Q``, variances at the centre; they start at 1 / Q.
        mixture_scales: :math:`s`, ``... x Q x D``, in radians per unit of the input.
        correlations: :math:`\rho`, ``... x Q x D``.
        frequencies: :math:`\omega` and :math:`\omega'`, ``... x Q x 2 x D``, in radians per unit
            of the input. The frequencies of a pair start slightly apart, because equal frequencies
            would stay equal during training.
        center: :math:`c`, ``... x 1 x D``, in units of the input; starts at 0 and is not trained.
            All sinusoids are in phase there.

    Raises:
        ValueError: ``num_mixtures`` is below 1.

    Reference: Remes, Heinonen and Kaski (2017), Non-Stationary Spectral Kernels, section 3; Samo
    and Roberts (2015), Generalized Spectral Kernels.
    """

    is_stationary = False
    raw_weights: Tensor
    raw_scales: Tensor
    raw_correlations: Tensor
    frequencies: Tensor
    center: Tensor
    mixture_weights = constrained(
        "weights", "Variances of the components at the centre, ``... x Q``."
    )
    mixture_scales = constrained(
        "scales", "Standard deviations of the frequencies, ``... x Q x D``."
    )
    correlations = constrained(
        "correlations", "Correlations of the two frequencies, ``... x Q x D``."
    )

    def __init__(self, num_mixtures: int = 4, **kwargs: Any):
        check_counts(1, num_mixtures=num_mixtures)
        super().__init__(**kwargs)
        self.num_mixtures = num_mixtures
        columns = self.ard_num_dims or 1
        shape = (*self.batch_shape, num_mixtures, columns)
        self.add_constrained("weights", shape[:-1], None)
        self.add_constrained("scales", shape, None)
        self.add_constrained("correlations", shape, Interval(0.0, 1.0), _START_CORRELATION)
        self.mixture_weights = 1 / num_mixtures
        start = _start_frequencies(num_mixtures, columns)
        start = start.expand(*self.batch_shape, *start.shape).clone()
        self.register_parameter("frequencies", nn.Parameter(start))
        center = torch.zeros(*self.batch_shape, 1, columns)
        self.register_parameter("center", nn.Parameter(center, False))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return values ``... x N x M`` (``... x N`` with ``diag``)."""
        # inputs ... x 1 x N x D broadcast with parameters ... x Q x 1 x D
        x1, x2 = ((x - self.center).unsqueeze(-3) for x in (x1, x2))
        width = self.mixture_scales * self.correlations.clamp_min(_TINY).sqrt()
        left, right = (x * width.unsqueeze(-2) for x in (x1, x2))
        squared = squared_distances(left, right, diag)  # ... x Q x N x M
        left, right = (self._features(x) for x in (x1, x2))
        left = left * self.mixture_weights[..., None, None]
        if diag:
            products = (left * right).sum(-1)
        else:
            products = left @ right.transpose(-1, -2)
        values = squared.mul(-0.5).exp() * products
        return values.sum(-2 if diag else -3)

    def _features(self, x: Tensor) -> Tensor:
        """Return the envelope times psi, ``... x Q x N x 2``.

        The sum of two sinusoids has their mean frequency and a sinusoidal envelope.
        """
        first, second = self.frequencies.split(1, dim=-2)  # each ... x Q x 1 x D
        rate = self.mixture_scales.square() * (1 - self.correlations) / 2
        decay = phase(x.square(), rate.unsqueeze(-2))
        beat = phase(x, (first - second) / 2)
        wave = phase(x, (first + second) / 2)
        amplitude = (-decay).exp() * beat.cos()
        return torch.stack([amplitude * wave.cos(), amplitude * wave.sin()], dim=-1)


def _start_frequencies(num_mixtures: int, columns: int) -> Tensor:
    """Return pairs of frequencies ``Q x 2 x D`` between 0.2 and 1, in different directions."""
    count = torch.arange(1, num_mixtures * columns + 1, dtype=torch.float64)
    size = 0.2 + 0.8 * (count * _GOLDEN).frac().view(num_mixtures, columns)
    odd = torch.arange(num_mixtures).unsqueeze(-1) * torch.arange(columns) % 2
    frequency = (size * (1 - 2 * odd)).to(torch.get_default_dtype())
    return torch.stack([frequency, 1.1 * frequency], dim=-2)
