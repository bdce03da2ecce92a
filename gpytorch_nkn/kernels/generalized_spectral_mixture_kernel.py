"""Spectral mixture with input-dependent weights, lengthscales and frequencies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.utils.transforms import inv_softplus
from torch import Tensor, nn
from torch.nn.functional import softplus

from gpytorch_nkn._devices import on_cpu, uniform
from gpytorch_nkn.kernels.batch_kernel import BatchKernel, check_columns
from gpytorch_nkn.kernels.distances import squared_distances
from gpytorch_nkn.linalg import check_counts

__all__ = ["GeneralizedSpectralMixtureKernel"]

_START_SCALE = 0.1  # scale of the last layer's start weights: the kernel starts nearly stationary
_MIN_LENGTHSCALE = 1e-6  # lower bound, because softplus can underflow to zero


class GeneralizedSpectralMixtureKernel(BatchKernel):
    r"""Sum of :math:`Q` quasi-periodic components with input-dependent parameters.

    .. math::
        k(x, x') = \sum_{q=1}^{Q} w_q(x)\, w_q(x')
            \Bigl(\frac{2 \ell_q(x) \ell_q(x')}{\ell_q(x)^2 + \ell_q(x')^2}\Bigr)^{D/2}
            \exp\Bigl(-\frac{\lVert x - x' \rVert^2}{\ell_q(x)^2 + \ell_q(x')^2}\Bigr)
            \cos 2\pi \bigl(\mu_q(x)^\top x - \mu_q(x')^\top x'\bigr)

    A neural network computes :math:`w_q`, :math:`\ell_q` and :math:`\mu_q`. The factors are a
    product :math:`w_q(x) w_q(x')`, the Gibbs kernel in :math:`D` dimensions and the cosine of a
    phase difference. Each factor is valid for any functions, hence also the sum of their products.

    The local frequency is not :math:`\mu_q(x)` but the gradient of the phase in cycles,
    :math:`\mu_q(x) + J_q(x)^\top x`, with the Jacobian :math:`J_q`. Standardise inputs: far from
    the origin, small changes of :math:`\mu_q` cause large changes of the phase.

    Args:
        num_mixtures: Number of components ``Q``.
        input_dim: Number of input columns ``D``.
        hidden: Widths of the hidden layers of tanh units.
        seed: Seed of the network's start values.
        batch_shape, active_dims: As in :class:`gpytorch.kernels.Kernel`.

    Raises:
        TypeError: A size is not an integer.
        ValueError: A size is below one.
        ValueError: On evaluation, inputs do not have ``input_dim`` columns.

    Reference: Remes, Heinonen and Kaski (2017), Non-Stationary Spectral Kernels, section 4, which
    uses Gaussian processes in place of the network.
    """

    is_stationary = False

    def __init__(
        self,
        num_mixtures: int,
        input_dim: int,
        *,
        hidden: Sequence[int] = (16,),
        seed: int = 0,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ):
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        hidden = tuple(hidden)
        widths: dict[str, Any] = {f"hidden[{number}]": width for number, width in enumerate(hidden)}
        check_counts(1, num_mixtures=num_mixtures, input_dim=input_dim, **widths)
        self.num_mixtures = num_mixtures
        self._register_network((input_dim, *hidden, num_mixtures * (input_dim + 2)), seed)

    def _register_network(self, widths: Sequence[int], seed: int) -> None:
        # the kernel holds the network's parameters, because batch expansion skips other modules
        generator = torch.Generator().manual_seed(seed)
        self.num_layers = len(widths) - 1
        for layer, (fan_in, fan_out) in enumerate(zip(widths[:-1], widths[1:], strict=True)):
            for name, shape in (("weight", (fan_out, fan_in)), ("bias", (fan_out,))):
                shape = (*self.batch_shape, *shape)
                draws = uniform(shape, generator)
                start = (2 * draws - 1) / math.sqrt(fan_in)
                if layer == self.num_layers - 1:
                    start = _START_SCALE * start
                    if name == "bias":
                        start = start + _start_values(self.num_mixtures, widths[0]).flatten()
                start = start.to(torch.get_default_device(), torch.get_default_dtype())
                self.register_parameter(f"{name}_{layer}", nn.Parameter(start))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return values ``... x N x M`` (``... x N`` with ``diag``)."""
        w1, ell1, phase1 = self._components(x1)  # each ... x N x Q
        w2, ell2, phase2 = self._components(x2)  # each ... x M x Q
        sq_dist = squared_distances(x1, x2, diag).unsqueeze(-1)
        if not diag:  # align to ... x N x M x Q
            w1, ell1, phase1 = (t.unsqueeze(-2) for t in (w1, ell1, phase1))
            w2, ell2, phase2 = (t.unsqueeze(-3) for t in (w2, ell2, phase2))
        ell_sq = ell1.square() + ell2.square()
        gibbs = (2 * ell1 * ell2 / ell_sq) ** (x1.size(-1) / 2) * (-sq_dist / ell_sq).exp()
        return (w1 * w2 * gibbs * torch.cos(phase1 - phase2)).sum(-1)

    def components(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r"""Return weights, lengthscales and frequencies at the inputs.

        Args:
            x: Inputs ``... x N x D`` with the columns in ``active_dims``.

        Returns:
            :math:`w` and :math:`\ell`, each ``... x N x Q``, and :math:`\mu`, ``... x N x Q x D``,
            in cycles per unit of the input.
        """
        raw = self._network(x)
        lengthscale = softplus(raw[..., 1]).clamp_min(_MIN_LENGTHSCALE)
        return softplus(raw[..., 0]), lengthscale, raw[..., 2:]

    def _components(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        weight, lengthscale, frequency = self.components(x)
        return weight, lengthscale, 2 * math.pi * (frequency * x.unsqueeze(-2)).sum(-1)

    def _network(self, x: Tensor) -> Tensor:
        """Return raw values ``... x N x Q x (D + 2)``."""
        input_dim = self.weight_0.size(-1)
        check_columns(self, x, input_dim)
        x = x.to(torch.promote_types(x.dtype, self.dtype))
        for layer in range(self.num_layers):
            weight, bias = getattr(self, f"weight_{layer}"), getattr(self, f"bias_{layer}")
            x = (x.tanh() if layer else x) @ weight.mT.to(x) + bias.unsqueeze(-2)
        return x.unflatten(-1, (self.num_mixtures, input_dim + 2))


@on_cpu()
def _start_values(num_mixtures: int, input_dim: int) -> Tensor:
    """Return raw values ``Q x (D + 2)``: variances 1 / Q, lengthscales 1, distinct frequencies."""
    weight = inv_softplus(torch.tensor(1 / math.sqrt(num_mixtures), dtype=torch.float64))
    lengthscale = inv_softplus(torch.tensor(1.0, dtype=torch.float64))
    size = 0.3 * torch.arange(1, num_mixtures + 1, dtype=torch.float64) / num_mixtures
    odd = torch.arange(num_mixtures).unsqueeze(-1) * torch.arange(input_dim) % 2
    frequency = size.unsqueeze(-1) * (1 - 2 * odd) / math.sqrt(input_dim)
    return torch.cat(
        [weight.expand(num_mixtures, 1), lengthscale.expand_as(size[:, None]), frequency], -1
    )
