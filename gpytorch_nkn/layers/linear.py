"""Non-negative linear combinations of kernels."""

from __future__ import annotations

import math

import torch
from gpytorch.constraints import Positive
from gpytorch.priors import Prior
from gpytorch.utils.transforms import inv_softplus
from torch import Tensor, nn

from gpytorch_nkn.layers.layer import Layer

__all__ = ["Linear", "get_weight", "positive", "set_weight"]


class Linear(Layer):
    r"""Non-negative linear combinations of the incoming kernels, plus a non-negative constant.

    .. math::
        k_o = b_o + \sum_{i} W_{oi} k_i, \qquad W = \mathrm{softplus}(A) \ge 0,\; b \ge 0

    Sums of kernels with non-negative weights are kernels, and so is a non-negative constant.
    A weight may be set to exactly zero, which prunes the connection (its gradient vanishes).

    Args:
        in_features: Number of units that come in, ``C``.
        out_features: Number of units that go out, ``O``.
        bias: Learn a non-negative constant per unit.
        batch_shape: Shape of the batch of independent layers.
        weight_prior: Prior on the weights ``... x O x C``. It must have positive support to be
            sampled (LogNormalPrior, GammaPrior).
        bias_prior: Prior on the biases ``... x O``.
        initial_bias: Start value of the biases. A constant beside the kernels keeps each of them
            in the products that follow on its own, too: from 1 a network starts near a sum of its
            primitives, from 0.01 near a product.
        seed: Start weights are drawn uniformly from [1 / 2C, 3 / 2C] with a generator of their
            own: equal seeds give equal weights, and the global random state is left alone.
            Different units must start differently, or their gradients stay equal for ever.

    Raises:
        TypeError: A prior is not a GPyTorch prior.
        ValueError: A width is below one, ``bias_prior`` comes with ``bias=False``, or
            ``initial_bias`` is negative or not finite.

    Reference: Sun et al. (2018), Differentiable Compositional Kernel Learning, section 3.1. The
    interval of the start weights is that of the authors' published code; the paper is silent.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        batch_shape: torch.Size | None = None,
        weight_prior: Prior | None = None,
        bias_prior: Prior | None = None,
        initial_bias: float = 0.01,
        seed: int = 0,
    ):
        super().__init__(in_features, out_features, batch_shape=batch_shape)
        for name, prior in (("weight_prior", weight_prior), ("bias_prior", bias_prior)):
            if prior is not None and not isinstance(prior, Prior):
                raise TypeError(f"{name} must be a gpytorch.priors.Prior, got {prior!r}.")
        if bias_prior is not None and not bias:
            raise ValueError("bias_prior needs bias=True, got bias=False.")
        if not 0 <= initial_bias < math.inf:
            raise ValueError(f"initial_bias must be finite and not negative, got {initial_bias}.")
        self.initial_bias = initial_bias
        shape = (*self.batch_shape, out_features, in_features)
        self.register_parameter("raw_weight", nn.Parameter(torch.zeros(shape)))
        self.register_constraint("raw_weight", _non_negative())
        self.register_parameter("raw_bias", nn.Parameter(torch.zeros(shape[:-1])) if bias else None)
        if bias:
            self.register_constraint("raw_bias", _non_negative())
        self.reset_parameters(torch.Generator().manual_seed(seed))
        if weight_prior is not None:
            self.register_prior("weight_prior", weight_prior, get_weight, set_weight)
        if bias_prior is not None:
            self.register_prior("bias_prior", bias_prior, _get_bias, _set_bias)

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw new start weights from ``generator``; biases go back to their start."""
        start = torch.rand(self.raw_weight.shape, generator=generator, dtype=torch.float64)
        self.weight = (0.5 + start) / self.in_features
        if self.raw_bias is not None:
            self.bias = self.initial_bias

    @property
    def weight(self) -> Tensor:
        """Weights ``... x O x C``, non-negative."""
        return self.raw_weight_constraint.transform(self.raw_weight)

    @weight.setter
    def weight(self, value: Tensor | float) -> None:
        self._set("weight", value)

    @property
    def bias(self) -> Tensor | None:
        """Constants ``... x O``, non-negative; None without bias."""
        return None if self.raw_bias is None else self.raw_bias_constraint.transform(self.raw_bias)

    @bias.setter
    def bias(self, value: Tensor | float) -> None:
        if self.raw_bias is None:
            raise ValueError(f"This layer was made with bias=False, got the bias {value!r}.")
        self._set("bias", value)

    def _set(self, name: str, value: Tensor | float) -> None:
        raw = getattr(self, f"raw_{name}")
        value = torch.as_tensor(value, dtype=raw.dtype, device=raw.device)
        if not bool((value >= 0).all() and value.isfinite().all()):
            raise ValueError(f"{name} must be finite and non-negative, got {value}.")
        shape = (self.out_features, self.in_features)[: 2 if name == "weight" else 1]
        trailing = tuple(value.shape)[-len(shape) :]  # initialize would reshape a transposed one
        if any(
            got not in (1, want) for got, want in zip(trailing[::-1], shape[::-1], strict=False)
        ):
            raise ValueError(f"{name} must have the shape ... x {shape}, got {tuple(value.shape)}.")
        constraint = getattr(self, f"raw_{name}_constraint")
        self.initialize(**{f"raw_{name}": constraint.inverse_transform(value)})

    def forward(self, values: Tensor) -> Tensor:
        """Map values ``... x C x E``, real or complex, to ``... x O x E``."""
        real = values.real if values.is_complex() else values
        if real.dtype != self.raw_weight.dtype:
            raise ValueError(
                f"The network is in {self.raw_weight.dtype} and its kernels gave {real.dtype}: "
                "convert the network (.double(), .float()) or the inputs."
            )
        if values.is_complex():  # real weights act on the interleaved real and imaginary parts
            parts = torch.view_as_real(values)
            mixed = self.weight @ parts.flatten(-2)
            out = torch.view_as_complex(mixed.unflatten(-1, (-1, 2)).contiguous())
        else:
            out = self.weight @ values
        bias = self.bias
        return out if bias is None else out + bias.unsqueeze(-1)

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.raw_bias is not None else ", bias=False")


def positive(value: Tensor) -> Tensor:
    """Value for a log-normal prior, whose support ends where softplus underflows to zero."""
    if bool((value > 0).all()):  # nearly always, and much cheaper than a clamp with its gradient
        return value
    return value.clamp_min(torch.finfo(value.dtype).tiny)


def get_weight(layer: Linear) -> Tensor:
    """Closure of a prior on the weights (at module level, because a lambda does not pickle)."""
    return positive(layer.weight)


def set_weight(layer: Linear, value: Tensor | float) -> None:
    """Setting closure of a prior on the weights."""
    layer.weight = value


def _get_bias(layer: Linear) -> Tensor | None:
    return None if layer.bias is None else positive(layer.bias)


def _set_bias(layer: Linear, value: Tensor | float) -> None:
    layer.bias = value


def _inv_softplus_with_zero(value: Tensor) -> Tensor:
    """Inverse of softplus that maps 0 to a finite number whose softplus is exactly 0."""
    return torch.where(value > 0, inv_softplus(value.clamp_min(1e-300)), -1e3)


def _non_negative() -> Positive:
    return Positive(inv_transform=_inv_softplus_with_zero)
