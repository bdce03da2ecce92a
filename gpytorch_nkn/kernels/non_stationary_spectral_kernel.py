"""Non-stationary kernel with spectral features of frequency pairs."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from gpytorch_nkn._devices import normal
from gpytorch_nkn.kernels.batch_kernel import check_columns, constrained
from gpytorch_nkn.kernels.feature_kernel import FeatureKernel
from gpytorch_nkn.linalg import check_counts, check_flags, check_number

__all__ = ["NonStationarySpectralKernel"]

_Features = Literal["psi", "phi"]
_FEATURES: tuple[_Features, ...] = get_args(_Features)


class NonStationarySpectralKernel(FeatureKernel):
    r"""Non-stationary low-rank kernel with spectral features of frequency pairs.

    .. math::
        k(x, x') = \psi(x)^\top \psi(x'), \qquad
        \psi_j(x) = \sqrt{\frac{s}{4R}} \begin{pmatrix}
            \cos \omega_j^\top z + \cos {\omega'_j}^\top z \\
            \sin \omega_j^\top z + \sin {\omega'_j}^\top z
        \end{pmatrix}, \qquad z = (x - c) / \ell

    for ``R`` pairs, with an output scale :math:`s`, a centre :math:`c` and lengthscales
    :math:`\ell`; valid as an inner product. If pairs are drawn from a density, the kernel is a
    Monte Carlo estimate of Yaglom's representation, symmetrised in each pair. With
    :math:`m = (\omega + \omega') / 2` and :math:`\delta = (\omega - \omega') / 2` the kernel is

    .. math::
        k(x, x') = \frac{s}{R} \sum_j \cos(\delta_j^\top z) \cos(\delta_j^\top z')
            \cos\bigl(m_j^\top (z - z')\bigr),

    a sum of sinusoids with input-dependent envelopes. The variance
    :math:`s\, \mathrm{mean}_j \cos^2(\delta_j^\top z)` is ``s`` at the centre and about ``s / 2``
    far from it. Envelopes are symmetric about the centre.

    Training, prediction and sampling of an exact GP take :math:`O(N R^2)` time and :math:`O(N R)`
    memory. Use the kernel for large data sets with input-dependent frequencies. Learned frequencies
    overfit small data sets; :func:`.fit_spectral_gp` regularises them.

    Args:
        num_features: Number ``R`` of pairs.
        input_dim: Number of input columns ``D``.
        features: ``"psi"`` for the ``2R`` features above. ``"phi"`` for ``R`` features with random
            phases, :math:`\phi_j(x) = \sqrt{s / 2R}\, (\cos(\omega_j^\top z + b_j) +
            \cos({\omega'_j}^\top z + b_j))`, whose expected inner product is the same.
        learn_frequencies: Train the frequencies.
        stationary: Use random Fourier features, with :math:`\omega' = \omega`.
        correlation: Correlation in [0, 1) between the standard normal start values of the two
            frequencies. The paper uses 0; equal frequencies would stay equal during training.
        seed: Seed of the frequencies and phases, which start equal in all batch entries.
        frequency_prior: Standard deviation of a normal prior on the mean frequencies around their
            start values; ``None`` for no prior.
        difference_prior: The same for the half differences around zero.
        **kwargs: ``batch_shape``, ``active_dims``, ``lengthscale_prior``,
            ``lengthscale_constraint`` as in :class:`gpytorch.kernels.Kernel`.

    Attributes:
        mean_frequencies: :math:`m`, ``... x R x D``, in radians per lengthscale.
        half_differences: :math:`\delta`, ``... x R x D``, unless ``stationary``.
        phases: :math:`b`, ``... x R``, of ``"phi"`` only.
        center: ``... x 1 x D``, in units of the input; starts at 0 and is not trained. Set it to
            the centre of the data by ``kernel.initialize(center=...)``.

    Raises:
        TypeError: A count is not an integer.
        ValueError: A count or standard deviation is not positive, ``correlation`` is not in [0, 1),
            ``features`` is unknown, or ``difference_prior`` is given with ``stationary``.

    Reference: Li, Liu and Wang (2020), Automated Spectral Kernel Learning, equations 5 and 6. Their
    :math:`\phi` has independent phases for :math:`\omega` and :math:`\omega'`, which makes the
    expected kernel stationary; here both share a phase.
    """

    has_lengthscale = True
    mean_frequencies: Tensor
    half_differences: Tensor
    phases: Tensor
    outputscale = constrained("outputscale", "Variance at the centre, ``...``; it starts at 1.")

    def __init__(
        self,
        num_features: int,
        input_dim: int,
        *,
        features: _Features = "psi",
        learn_frequencies: bool = True,
        stationary: bool = False,
        correlation: float = 0.98,
        seed: int = 0,
        frequency_prior: float | None = None,
        difference_prior: float | None = None,
        **kwargs: Any,
    ):
        check_counts(1, num_features=num_features, input_dim=input_dim)
        check_flags(learn_frequencies=learn_frequencies, stationary=stationary)
        if features not in _FEATURES:
            raise ValueError(f"features must be one of {_FEATURES}, got {features!r}.")
        check_number("correlation", correlation, positive=False)
        if correlation >= 1:
            raise ValueError(f"correlation must be at least 0 and below 1, got {correlation}.")
        if stationary and difference_prior is not None:
            raise ValueError(f"stationary=True excludes difference_prior, got {difference_prior}.")
        super().__init__(ard_num_dims=input_dim, **kwargs)
        self.num_features = num_features
        self.input_dim = input_dim
        self.feature_map = features
        self.stationary = stationary
        draws = normal((num_features, 2 * input_dim + 1), torch.Generator().manual_seed(int(seed)))
        draws = draws.to(self.raw_lengthscale.device)
        correlation = 1.0 if stationary else correlation  # both frequencies have unit variance
        mean = math.sqrt((1 + correlation) / 2) * draws[:, :input_dim]
        difference = math.sqrt((1 - correlation) / 2) * draws[:, input_dim:-1]

        def parameter(start: Tensor, trained: bool) -> nn.Parameter:
            # a parameter, because batch expansion does not add dimensions to buffers
            start = start.expand(*self.batch_shape, *start.shape).to(self.raw_lengthscale).clone()
            return nn.Parameter(start, trained)

        self.register_parameter("mean_frequencies", parameter(mean, learn_frequencies))
        if not stationary:
            self.register_parameter("half_differences", parameter(difference, learn_frequencies))
        if features == "phi":
            phases = 2 * math.pi * torch.special.ndtr(draws[:, -1])
            self.register_parameter("phases", parameter(phases, False))
        self.register_parameter("center", parameter(torch.zeros(1, input_dim), False))
        self.add_constrained("outputscale", self.batch_shape, 1.0)
        mean = mean.to(self.raw_lengthscale)
        self.add_normal_prior("frequency_prior", frequency_prior, "mean_frequencies", mean)
        self.add_normal_prior("difference_prior", difference_prior, "half_differences", 0 * mean)

    @property
    def is_stationary(self) -> bool:
        """Whether values depend on differences of inputs only; False with random phases."""
        return self.stationary and self.feature_map == "psi"

    @property
    def frequencies(self) -> Tensor:
        r"""Pairs :math:`\omega, \omega'`, ``... x 2 x R x D``, in radians per lengthscale."""
        if self.stationary:
            return torch.stack([self.mean_frequencies, self.mean_frequencies], -3)
        mean, difference = self.mean_frequencies, self.half_differences
        return torch.stack([mean + difference, mean - difference], -3)

    @frequencies.setter
    def frequencies(self, value: Tensor) -> None:
        expected = (2, self.num_features, self.input_dim)
        if value.shape[-3:] != expected:  # initialize() would reshape transposed matrices
            raise ValueError(f"frequencies must be ... x {expected}, got {tuple(value.shape)}.")
        first, second = value.select(-3, 0), value.select(-3, 1)
        if not self.stationary:
            self.initialize(half_differences=(first - second) / 2)
        elif not torch.equal(first, second):
            raise ValueError(f"Frequencies of a pair must be equal, got {first} and {second}.")
        self.initialize(mean_frequencies=(first + second) / 2)

    @property
    def feature_dim(self) -> int:  # type: ignore[override]
        """Number of features, ``2R`` for ``"psi"``, ``R`` for ``"phi"``."""
        return (2 if self.feature_map == "psi" else 1) * self.num_features

    def _features(self, x: Tensor) -> Tensor:
        check_columns(self, x, self.input_dim)
        z = (x - self.center) / self.lengthscale
        amplitude = (self.outputscale / self.num_features).sqrt().view(*self.batch_shape, 1, 1)
        angle = z @ self.mean_frequencies.mT.to(z)
        if not self.stationary:
            amplitude = amplitude * (z @ self.half_differences.mT.to(z)).cos()
        if self.feature_map == "phi":
            return math.sqrt(2) * amplitude * (angle + self.phases.unsqueeze(-2)).cos()
        return torch.cat([amplitude * angle.cos(), amplitude * angle.sin()], -1)
