"""Non-stationary spectral mixture: pairs of frequencies that are correlated."""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch.constraints import Interval
from gpytorch.priors import Prior
from torch import Tensor, nn

from gpytorch_nkn.kernels.batch_kernel import BatchKernel, constrained
from gpytorch_nkn.kernels.complex_kernel import phase
from gpytorch_nkn.kernels.distances import squared_distances

__all__ = ["BivariateSpectralMixtureKernel"]

_GOLDEN = (math.sqrt(5) - 1) / 2  # multiples of it, modulo one, never come close to each other
_START_CORRELATION = 0.9
_TINY = 1e-12  # keeps the gradient of the root finite where a correlation is set to zero


class BivariateSpectralMixtureKernel(BatchKernel):
    r"""Sum of :math:`Q` waves of two frequencies each, under a Gaussian envelope.

    .. math::
        k(x, x') &= \sum_{q=1}^{Q} w_q \exp\Bigl(-\frac{1}{2} \sum_d s_{qd}^2
            (\bar x_d^2 + \bar x_d'^2 - 2 \rho_{qd} \bar x_d \bar x'_d)\Bigr)
            \langle \psi_q(x), \psi_q(x') \rangle, \qquad \bar x = x - c

        \psi_q(x) &= \tfrac{1}{2} [\cos \omega_q^\top \bar x + \cos \omega_q'^\top \bar x,\;
            \sin \omega_q^\top \bar x + \sin \omega_q'^\top \bar x]

    The exponent is that of :math:`(1 - \rho_{qd})(\bar x_d^2 + \bar x_d'^2) +
    \rho_{qd} (\bar x_d - \bar x'_d)^2`: a function of :math:`x` times the same one of
    :math:`x'`, times an RBF kernel where :math:`\rho \ge 0`. With an inner product and
    :math:`w \ge 0` this makes the sum a valid kernel in any dimension.

    It is the transform :math:`\int\!\int e^{i (u^\top \bar x - v^\top \bar x')} S(u, v)` of a
    mixture of Gaussians around the four pairs of :math:`\omega_q` and :math:`\omega_q'` and their
    negatives, with the standard deviation :math:`s_{qd}` in both frequencies and the correlation
    :math:`\rho_{qd}` between them. Published forms have a width for each of the two
    frequencies; for different widths they are not symmetric in :math:`x` and :math:`x'`, hence no
    kernels, and for a negative correlation not positive semi-definite. With :math:`\rho = 1` and
    :math:`\omega = \omega'` a component is :class:`SpectralComponentKernel` of lengthscale
    :math:`1 / s`; with smaller correlations functions die out away from :math:`c`, over
    the length :math:`1 / (s \sqrt{1 - \rho})`.

    Args:
        num_mixtures: Number of components ``Q``.
        ard_num_dims: Number of input columns ``D`` with parameters of their own; ``None`` shares
            those of one column among all columns.
        batch_shape, active_dims: As in :class:`gpytorch.kernels.Kernel`.
        weight_prior, scale_prior, correlation_prior, frequency_prior: Priors on the attributes.
        weight_constraint, scale_constraint: Constraints; positive where they are ``None``.
        correlation_constraint: Constraint within 0 and 1, which are the bounds of ``None``.
        learn_center: Train the centre too.

    Attributes:
        mixture_weights: :math:`w`, ``... x Q``, the variances at the centre; they start at 1 / Q.
        mixture_scales: :math:`s`, ``... x Q x D``, in radians per unit of the input.
        correlations: :math:`\rho`, ``... x Q x D``.
        frequencies: :math:`\omega` and :math:`\omega'`, ``... x Q x 2 x D``, in radians per unit
            of the input. Every component starts elsewhere, and the two of a pair start near each
            other: equal ones would have equal gradients for ever.
        center: :math:`c`, ``... x 1 x D``, in units of the input; starts at 0. Values depend on
            it, as the origin is where all waves are in phase.

    Raises:
        TypeError: A prior is not a GPyTorch prior.
        ValueError: ``num_mixtures`` is below one, or correlations may leave 0 to 1.

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

    def __init__(
        self,
        num_mixtures: int = 4,
        *,
        ard_num_dims: int | None = None,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
        weight_prior: Prior | None = None,
        weight_constraint: Interval | None = None,
        scale_prior: Prior | None = None,
        scale_constraint: Interval | None = None,
        correlation_prior: Prior | None = None,
        correlation_constraint: Interval | None = None,
        frequency_prior: Prior | None = None,
        learn_center: bool = False,
    ):
        if num_mixtures < 1:
            raise ValueError(f"num_mixtures must be at least 1, got {num_mixtures}.")
        if correlation_constraint is None:
            correlation_constraint = Interval(0.0, 1.0)
        low, high = correlation_constraint
        if low.min() < 0 or high.max() > 1:
            raise ValueError(
                f"correlation_constraint must lie within 0 and 1, got {correlation_constraint}."
            )
        super().__init__(
            ard_num_dims=ard_num_dims, batch_shape=batch_shape, active_dims=active_dims
        )
        self.num_mixtures = num_mixtures
        columns = ard_num_dims or 1
        shape = (*self.batch_shape, num_mixtures, columns)
        self.add_constrained("weights", shape[:-1], weight_constraint)
        self.add_constrained("scales", shape, scale_constraint)
        self.add_constrained("correlations", shape, correlation_constraint)
        start = _start_frequencies(num_mixtures, columns)
        start = start.expand(*self.batch_shape, *start.shape).clone()
        self.register_parameter("frequencies", nn.Parameter(start))
        center = torch.zeros(*self.batch_shape, 1, columns)
        self.register_parameter("center", nn.Parameter(center, learn_center))
        if weight_constraint is None:
            self.mixture_weights = 1 / num_mixtures
        if low.max() < _START_CORRELATION < high.min():
            self.correlations = _START_CORRELATION
        self.add_prior("weight_prior", weight_prior, "mixture_weights")
        self.add_prior("scale_prior", scale_prior, "mixture_scales")
        self.add_prior("correlation_prior", correlation_prior, "correlations")
        self.add_prior("frequency_prior", frequency_prior, "frequencies")

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Values ``... x N x M`` (``... x N`` with ``diag``)."""
        # ... x 1 x N x D beside parameters ... x Q x 1 x D
        x1, x2 = ((x - self.center).unsqueeze(-3) for x in (x1, x2))
        width = self.mixture_scales * self.correlations.clamp_min(_TINY).sqrt()
        squared = squared_distances(
            x1 * width.unsqueeze(-2),
            x2 * width.unsqueeze(-2),
            diag=diag,
        )  # ... x Q x N x M
        left, right = (self._features(x) for x in (x1, x2))
        left = left * self.mixture_weights[..., None, None]
        if diag:
            products = (left * right).sum(-1)
        else:
            products = left @ right.transpose(-1, -2)
        values = squared.mul(-0.5).exp() * products
        return values.sum(-2 if diag else -3)

    def _features(self, x: Tensor) -> Tensor:
        """Envelope times psi, ``... x Q x N x 2``.

        The sum of two waves is one wave of their mean frequency whose amplitude is the cosine of
        half of their difference.
        """
        first, second = self.frequencies.split(1, dim=-2)  # each ... x Q x 1 x D
        rate = self.mixture_scales.square() * (1 - self.correlations) / 2
        decay = phase(x.square(), rate.unsqueeze(-2))
        beat = phase(x, (first - second) / 2)
        wave = phase(x, (first + second) / 2)
        amplitude = (-decay).exp() * beat.cos()
        return torch.stack([amplitude * wave.cos(), amplitude * wave.sin()], dim=-1)


def _start_frequencies(num_mixtures: int, columns: int) -> Tensor:
    """Pairs of frequencies ``Q x 2 x D`` of sizes between 0.2 and 1, in different directions."""
    count = torch.arange(1, num_mixtures * columns + 1, dtype=torch.float64)
    size = 0.2 + 0.8 * (count * _GOLDEN).frac().view(num_mixtures, columns)
    odd = torch.arange(num_mixtures).unsqueeze(-1) * torch.arange(columns) % 2
    frequency = (size * (1 - 2 * odd)).to(torch.get_default_dtype())
    return torch.stack([frequency, 1.1 * frequency], dim=-2)
