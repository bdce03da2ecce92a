"""Non-negative linear combinations of kernels."""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

import torch
from gpytorch.constraints import Positive
from gpytorch.module import Module
from gpytorch.priors import NormalPrior, Prior
from gpytorch.utils.transforms import inv_softplus
from torch import Tensor, nn

from gpytorch_nkn._devices import uniform
from gpytorch_nkn.layers.layer import Layer
from gpytorch_nkn.linalg import broadcasts, check_flags, check_number

_NO_BATCH = torch.Size([1, 1, 1, 1])  # dimensions of size one, more than any batch of data has
_LOG_OF_ZERO = -1e3  # finite, but its softmax or softplus is exactly 0

__all__ = ["Linear", "add_prior", "positive"]


class Linear(Layer):
    r"""Non-negative linear combinations of the input kernels plus a non-negative constant.

    .. math::
        k_o = b_o + \sum_{i} W_{oi} k_i, \qquad W \ge 0,\; b \ge 0

    Sums of kernels with non-negative weights are kernels, and so are non-negative constants. A
    weight set to zero stays zero, because its gradient vanishes: the connection is pruned. Priors
    on raw weights ignore pruned weights. The log density of a log-normal prior is not finite at
    zero, so losses before and after pruning are not comparable.

    With ``weights="softplus"``, as in the paper, weights and biases are the softplus of the raw
    values. With ``weights="simplex"``, the weights and the bias of a unit are the softmax of the
    raw values. Such convex combinations preserve unit variance, so that layers have no redundant
    scales. Setting the weights then sets the bias to one minus their sum; setting the bias rescales
    the weights.

    Args:
        in_features: Number of input units, ``C``.
        out_features: Number of output units, ``O``.
        weights: ``"softplus"`` or ``"simplex"``.
        bias: Learn a non-negative constant per unit.
        batch_shape: Batch shape of independent copies of the layer.
        weight_prior: Prior on the weights ``... x O x C``; samples must be positive
            (LogNormalPrior, GammaPrior). On a simplex, prior on the raw weights (NormalPrior).
        bias_prior: Prior on the biases ``... x O``; on a simplex, on the raw biases.
        initial_bias: Start value of the biases; on a simplex, before weights and bias are divided
            by their sum. With biases, later products also contain lower-order terms: at 1 a network
            starts near a sum of its primitives, at 0.01 near a product.
        seed: Seed of the start weights, uniform in [1 / 2C, 3 / 2C]. The global random state does
            not change. Units with equal weights would stay equal during training.

    Raises:
        TypeError: A prior is not a GPyTorch prior, or a width is not an integer.
        ValueError: A width is below 1, ``weights`` is unknown, ``bias_prior`` is given with
            ``bias=False``, or ``initial_bias`` is negative or not finite.

    Reference: Sun et al. (2018), Differentiable Compositional Kernel Learning, section 3.1. Start
    weights follow the authors' code.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        weights: Literal["softplus", "simplex"] = "softplus",
        bias: bool = True,
        batch_shape: torch.Size | None = None,
        weight_prior: Prior | None = None,
        bias_prior: Prior | None = None,
        initial_bias: float = 0.01,
        seed: int = 0,
    ):
        super().__init__(in_features, out_features, batch_shape=batch_shape)
        check_flags(bias=bias)
        if weights not in ("softplus", "simplex"):
            raise ValueError(f"weights must be 'softplus' or 'simplex', got {weights!r}.")
        if bias_prior is not None and not bias:
            raise ValueError("bias_prior needs bias=True, got bias=False.")
        check_number("initial_bias", initial_bias, positive=False)
        self.weights = weights
        self.initial_bias = initial_bias
        shape = (*self.batch_shape, out_features, in_features)
        self.register_parameter("raw_weight", nn.Parameter(torch.zeros(shape)))
        self.register_parameter("raw_bias", nn.Parameter(torch.zeros(shape[:-1])) if bias else None)
        if not self.is_simplex:
            self.register_constraint("raw_weight", _non_negative())
            if bias:
                self.register_constraint("raw_bias", _non_negative())
        self.reset_parameters(torch.Generator().manual_seed(int(seed)))
        raw = "raw_" if self.is_simplex else ""
        for name, prior in (("weight", weight_prior), ("bias", bias_prior)):
            if not isinstance(prior, Prior | None):
                raise TypeError(f"{name}_prior must be a gpytorch.priors.Prior, got {prior!r}.")
            if prior is not None:
                add_prior(self, raw + name, prior)

    @property
    def is_simplex(self) -> bool:
        """Whether the weights of a unit and its bias sum to one."""
        return self.weights == "simplex"

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw new start weights from ``generator`` and reset the biases."""
        start = uniform(self.raw_weight.shape, generator)
        weight = (0.5 + start) / self.in_features
        if self.is_simplex:
            bias = 0.0 if self.raw_bias is None else self.initial_bias
            self.weight = weight / (weight.sum(-1, keepdim=True) + bias)
            return
        self.weight = weight
        if self.raw_bias is not None:
            self.bias = self.initial_bias

    def add_raw_priors(self) -> None:
        """Register normal priors on raw weights and biases of a simplex, at their present values.

        Raw values are log weights up to a constant; their standard deviation is 1.

        Raises:
            ValueError: The weights are not on a simplex.
        """
        if not self.is_simplex:
            raise ValueError(f"add_raw_priors needs weights='simplex', got {self.weights!r}.")
        for name in ("raw_weight", "raw_bias"):
            raw = getattr(self, name)
            if raw is not None:
                center = raw.detach()[(0,) * len(self.batch_shape)].clone()
                add_prior(self, name, NormalPrior(center, torch.ones_like(center)))

    @property
    def fractions(self) -> Tensor:
        """Weights (and biases, if any) on a simplex, ``... x O x (C + 1)`` or ``... x O x C``."""
        raw = self.raw_weight
        if self.raw_bias is not None:
            raw = torch.cat([raw, self.raw_bias.unsqueeze(-1)], -1)
        return raw.softmax(-1)

    @property
    def weight(self) -> Tensor:
        """Weights ``... x O x C``, non-negative."""
        if self.is_simplex:
            return self.fractions[..., : self.in_features]
        return self.raw_weight_constraint.transform(self.raw_weight)

    @weight.setter
    def weight(self, value: Tensor | float) -> None:
        value = self._checked("weight", value)
        if self.is_simplex:
            value = value.expand(self.raw_weight.shape)
            self._set_fractions(value, 1 - value.sum(-1))
        else:
            constraint = self.raw_weight_constraint
            self.initialize(raw_weight=constraint.inverse_transform(value))

    @property
    def bias(self) -> Tensor | None:
        """Biases ``... x O``, non-negative; None without biases."""
        if self.raw_bias is None:
            return None
        if self.is_simplex:
            return self.fractions[..., self.in_features]
        return self.raw_bias_constraint.transform(self.raw_bias)

    @bias.setter
    def bias(self, value: Tensor | float) -> None:
        if self.raw_bias is None:
            raise ValueError(f"A layer with bias=False has no bias to set, got {value!r}.")
        value = self._checked("bias", value)
        if not self.is_simplex:
            self.initialize(raw_bias=self.raw_bias_constraint.inverse_transform(value))
            return
        if bool((value > 1).any()):
            raise ValueError(f"On a simplex a bias must be at most 1, got {value}.")
        fraction = self.raw_weight.detach().softmax(-1)  # weights relative to their sum
        value = value.expand(self.raw_bias.shape)
        self._set_fractions((1 - value).unsqueeze(-1) * fraction, value)

    def _set_fractions(self, weight: Tensor, bias: Tensor) -> None:
        tolerance = 1e-5 if weight.dtype == torch.float32 else 1e-9
        lowest = -tolerance if self.raw_bias is not None else -math.inf
        if bool((bias < lowest).any()) or (self.raw_bias is None and bias.abs().max() > tolerance):
            raise ValueError(
                "On a simplex the weights of a unit must sum to "
                f"{'at most 1' if self.raw_bias is not None else '1'}, got {weight.sum(-1)}."
            )
        if self.raw_bias is None:
            self.initialize(raw_weight=_finite_log(weight))
            return
        logits = _finite_log(torch.cat([weight, bias.clamp_min(0.0).unsqueeze(-1)], -1))
        self.initialize(raw_weight=logits[..., :-1], raw_bias=logits[..., -1])

    def _checked(self, name: str, value: Tensor | float) -> Tensor:
        raw = getattr(self, f"raw_{name}")
        value = torch.as_tensor(value, dtype=raw.dtype, device=raw.device)
        if not bool((value >= 0).all() and value.isfinite().all()):
            raise ValueError(f"{name} must be finite and non-negative, got {value}.")
        shape = (self.out_features, self.in_features)[: 2 if name == "weight" else 1]
        if not broadcasts(value.shape[-len(shape) :], shape):  # initialize would reshape it
            raise ValueError(f"{name} must have the shape ... x {shape}, got {tuple(value.shape)}.")
        return value

    def forward(self, values: Tensor) -> Tensor:
        """Map values ``... x C x E``, real or complex, to ``... x O x E``."""
        real = values.real if values.is_complex() else values
        if real.dtype != self.raw_weight.dtype:
            raise ValueError(
                f"Kernel values must have the dtype {self.raw_weight.dtype}, got {real.dtype}: "
                "convert the network (.double(), .float()) or the inputs."
            )
        weight, bias = self.weight, self.bias
        if values.is_complex():  # apply real weights to interleaved real and imaginary parts
            parts = torch.view_as_real(values)
            mixed = weight @ parts.flatten(-2)
            out = torch.view_as_complex(mixed.unflatten(-1, (-1, 2)).contiguous())
        else:
            out = weight @ values
        return out if bias is None else out + bias.unsqueeze(-1)

    def extra_repr(self) -> str:
        simplex = ", weights='simplex'" if self.is_simplex else ""
        return super().extra_repr() + simplex + (", bias=False" if self.raw_bias is None else "")


def positive(value: Tensor) -> Tensor:
    """Replace zeros (underflow of softplus) by the smallest positive number."""
    if bool(value.all()):  # usual, and much cheaper than a differentiable clamp
        return value
    return value.clamp_min(torch.finfo(value.dtype).tiny)


def for_prior(module: Module, value: Tensor) -> Tensor:
    """Prepend dimensions of size one to a parameter without batch dimensions, for its prior.

    Otherwise, for a batch of data and a kernel without a batch, GPyTorch would treat parameter
    dimensions as batch dimensions of the log density.
    """
    batch_shape = vars(module).get("_batch_shape")  # a kernel's batch_shape visits its sub-kernels
    # likelihoods may have no batch_shape
    has_batch = getattr(module, "batch_shape", ()) if batch_shape is None else batch_shape
    return value if has_batch else value.view(*_NO_BATCH, *value.shape)


def from_prior(old: Tensor, value: Tensor | float) -> Tensor | float:
    """Remove the dimensions that :func:`for_prior` added from a sample of the prior."""
    width = len(_NO_BATCH)
    if not isinstance(value, Tensor) or value.dim() - old.dim() < width:
        return value
    for start in range(value.dim() - width + 1):  # Pyro prepends sample dimensions
        if value.shape[start : start + width] == _NO_BATCH:
            return value.reshape(value.shape[:start] + value.shape[start + width :])
    return value


def add_prior(module: Module, name: str, prior: Prior, prior_name: str | None = None) -> None:
    """Register a prior on a parameter, or on its raw values; its closures can be pickled."""
    is_signed = isinstance(prior, NormalPrior)
    closures = partial(_get, name=name, is_signed=is_signed), partial(_set, name=name)
    module.register_prior(prior_name or f"{name.removeprefix('raw_')}_prior", prior, *closures)


def _get(module: Module, name: str, is_signed: bool) -> Tensor | None:
    value = getattr(module, name)
    if value is None:
        return None
    if not name.startswith("raw_"):
        return for_prior(module, value if is_signed else positive(value))
    pruned = value <= _LOG_OF_ZERO  # priors ignore pruned weights
    return for_prior(module, value.masked_fill(pruned, 0.0) if bool(pruned.any()) else value)


def _set(module: Module, value: Tensor | float, name: str) -> None:
    module.initialize(**{name: from_prior(getattr(module, name), value)})


def _finite_log(fraction: Tensor) -> Tensor:
    """Return centred logarithms; 0 is mapped to a finite number whose softmax is exactly 0."""
    positive = fraction > 0
    logs = fraction.clamp_min(1e-30).log()
    mean = (logs * positive).sum(-1, keepdim=True) / positive.sum(-1, keepdim=True)
    return torch.where(positive, logs - mean, _LOG_OF_ZERO)


def _inv_softplus_with_zero(value: Tensor) -> Tensor:
    """Invert softplus; 0 is mapped to a finite number whose softplus is exactly 0."""
    return torch.where(value > 0, inv_softplus(value.clamp_min(1e-300)), _LOG_OF_ZERO)


def _non_negative() -> Positive:
    return Positive(inv_transform=_inv_softplus_with_zero)
