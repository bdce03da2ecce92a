"""Non-negative linear combinations of kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from gpytorch.constraints import Positive
from gpytorch.module import Module
from gpytorch.priors import NormalPrior, Prior
from gpytorch.utils.transforms import inv_softplus
from torch import Tensor, nn

from gpytorch_nkn._devices import uniform
from gpytorch_nkn.layers.layer import Layer

_NO_BATCH = torch.Size([1, 1, 1, 1])  # as many dimensions as no batch has
_LOG_OF_ZERO = -1e3  # a finite number whose softmax beside others is exactly 0

__all__ = ["Linear", "for_prior", "from_prior", "positive", "prior_closures"]


class Linear(Layer):
    r"""Non-negative linear combinations of the incoming kernels, plus a non-negative constant.

    .. math::
        k_o = b_o + \sum_{i} W_{oi} k_i, \qquad W \ge 0,\; b \ge 0

    Sums of kernels with non-negative weights are kernels, and so is a non-negative constant.
    A weight may be set to exactly zero, which prunes the connection (its gradient vanishes). A
    prior on raw weights leaves it alone; the density of a log-normal prior has no finite value
    there, so that losses before and after pruning do not compare.

    With ``weights="softplus"`` (the paper's) weights and biases are the softplus of the raw
    values. With ``weights="simplex"`` the weights of a unit and its bias are the softmax of the
    raw values: a convex combination, so that kernels with a variance of one give a kernel with a
    variance of one and no scale can move from one layer to another. Setting the weights then
    gives the bias what is missing to a sum of one; setting the bias scales the weights.

    Args:
        in_features: Number of units that come in, ``C``.
        out_features: Number of units that go out, ``O``.
        weights: ``"softplus"`` or ``"simplex"``.
        bias: Learn a non-negative constant per unit.
        batch_shape: Shape of the batch of independent layers.
        weight_prior: Prior on the weights ``... x O x C``. It must have positive support to be
            sampled (LogNormalPrior, GammaPrior). On a simplex: prior on the raw weights, of any
            support (NormalPrior).
        bias_prior: Prior on the biases ``... x O``, on a simplex on the raw ones.
        initial_bias: Start value of the biases; on a simplex before weights and bias are divided
            by their sum. A constant beside the kernels keeps each of them
            in the products that follow on its own, too: from 1 a network starts near a sum of its
            primitives, from 0.01 near a product.
        seed: Start weights are drawn uniformly from [1 / 2C, 3 / 2C] with a generator of their
            own: equal seeds give equal weights, and the global random state is left alone.
            Different units must start differently, or their gradients stay equal for ever.

    Raises:
        TypeError: A prior is not a GPyTorch prior.
        ValueError: A width is below one, ``weights`` is unknown, ``bias_prior`` comes with
            ``bias=False``, or ``initial_bias`` is negative or not finite.

    Reference: Sun et al. (2018), Differentiable Compositional Kernel Learning, section 3.1. The
    interval of the start weights is that of the authors' published code; the paper is silent.
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
        if weights not in ("softplus", "simplex"):
            raise ValueError(f"weights must be 'softplus' or 'simplex', got {weights!r}.")
        for name, prior in (("weight_prior", weight_prior), ("bias_prior", bias_prior)):
            if prior is not None and not isinstance(prior, Prior):
                raise TypeError(f"{name} must be a gpytorch.priors.Prior, got {prior!r}.")
        if bias_prior is not None and not bias:
            raise ValueError("bias_prior needs bias=True, got bias=False.")
        if not 0 <= initial_bias < math.inf:
            raise ValueError(f"initial_bias must be finite and not negative, got {initial_bias}.")
        self.weights = weights
        self.initial_bias = initial_bias
        shape = (*self.batch_shape, out_features, in_features)
        self.register_parameter("raw_weight", nn.Parameter(torch.zeros(shape)))
        self.register_parameter("raw_bias", nn.Parameter(torch.zeros(shape[:-1])) if bias else None)
        if not self.is_simplex:
            self.register_constraint("raw_weight", _non_negative())
            if bias:
                self.register_constraint("raw_bias", _non_negative())
        self.reset_parameters(torch.Generator().manual_seed(seed))
        raw = "raw_" if self.is_simplex else ""
        for name, prior in (("weight", weight_prior), ("bias", bias_prior)):
            if prior is not None:
                self.register_prior(f"{name}_prior", prior, *prior_closures(raw + name))

    @property
    def is_simplex(self) -> bool:
        """Whether the weights of a unit and its bias sum to one."""
        return self.weights == "simplex"

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw new start weights from ``generator``; biases go back to their start."""
        start = uniform(self.raw_weight.shape, generator)
        weight = (0.5 + start) / self.in_features
        if self.is_simplex:
            bias = 0.0 if self.raw_bias is None else self.initial_bias
            self.weight = weight / (weight.sum(-1, keepdim=True) + bias)
            return
        self.weight = weight
        if self.raw_bias is not None:
            self.bias = self.initial_bias

    def add_raw_priors(self, scale: float = 1.0) -> None:
        """Normal priors on the raw weights and biases of a simplex, around where they are.

        Args:
            scale: Standard deviation, in logarithms of ratios of weights.

        Raises:
            ValueError: The weights are no simplex, or ``scale`` is not positive.
        """
        if not self.is_simplex or not 0 < scale < math.inf:
            raise ValueError(
                f"Needs a simplex and a positive scale, got weights={self.weights!r}, {scale}."
            )
        for name in ("weight", "bias"):
            raw = getattr(self, f"raw_{name}")
            if raw is not None:
                center = raw.detach()[(0,) * len(self.batch_shape)].clone()
                prior = NormalPrior(center, torch.full_like(center, scale))
                self.register_prior(f"{name}_prior", prior, *prior_closures(f"raw_{name}"))

    @property
    def shares(self) -> Tensor:
        """Weights of a simplex, and its biases behind them, ``... x O x (C + 1)``.

        Without bias ``... x O x C``.
        """
        raw = self.raw_weight
        if self.raw_bias is not None:
            raw = torch.cat([raw, self.raw_bias.unsqueeze(-1)], -1)
        return raw.softmax(-1)

    @property
    def weight(self) -> Tensor:
        """Weights ``... x O x C``, non-negative."""
        if self.is_simplex:
            return self.shares[..., : self.in_features]
        return self.raw_weight_constraint.transform(self.raw_weight)

    @weight.setter
    def weight(self, value: Tensor | float) -> None:
        value = self._checked("weight", value)
        if self.is_simplex:
            value = value.expand(self.raw_weight.shape)
            self._set_shares(value, 1 - value.sum(-1))
        else:
            constraint = self.raw_weight_constraint
            self.initialize(raw_weight=constraint.inverse_transform(value))

    @property
    def bias(self) -> Tensor | None:
        """Constants ``... x O``, non-negative; None without bias."""
        if self.raw_bias is None:
            return None
        if self.is_simplex:
            return self.shares[..., self.in_features]
        return self.raw_bias_constraint.transform(self.raw_bias)

    @bias.setter
    def bias(self, value: Tensor | float) -> None:
        if self.raw_bias is None:
            raise ValueError(f"This layer was made with bias=False, got the bias {value!r}.")
        value = self._checked("bias", value)
        if not self.is_simplex:
            self.initialize(raw_bias=self.raw_bias_constraint.inverse_transform(value))
            return
        if bool((value > 1).any()):
            raise ValueError(f"On a simplex a bias must be at most 1, got {value}.")
        share = self.raw_weight.detach().softmax(-1)  # among the weights
        value = value.expand(self.raw_bias.shape)
        self._set_shares((1 - value).unsqueeze(-1) * share, value)

    def _set_shares(self, weight: Tensor, bias: Tensor) -> None:
        slack = 1e-5 if weight.dtype == torch.float32 else 1e-9
        least = -slack if self.raw_bias is not None else -math.inf
        if bool((bias < least).any()) or (self.raw_bias is None and bias.abs().max() > slack):
            raise ValueError(
                "On a simplex the weights of a unit sum to "
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
        trailing = tuple(value.shape)[-len(shape) :]  # initialize would reshape a transposed one
        if any(
            got not in (1, want) for got, want in zip(trailing[::-1], shape[::-1], strict=False)
        ):
            raise ValueError(f"{name} must have the shape ... x {shape}, got {tuple(value.shape)}.")
        return value

    def forward(self, values: Tensor) -> Tensor:
        """Map values ``... x C x E``, real or complex, to ``... x O x E``."""
        real = values.real if values.is_complex() else values
        if real.dtype != self.raw_weight.dtype:
            raise ValueError(
                f"The network is in {self.raw_weight.dtype} and its kernels gave {real.dtype}: "
                "convert the network (.double(), .float()) or the inputs."
            )
        weight, bias = self._weight_and_bias()
        if values.is_complex():  # real weights act on the interleaved real and imaginary parts
            parts = torch.view_as_real(values)
            mixed = weight @ parts.flatten(-2)
            out = torch.view_as_complex(mixed.unflatten(-1, (-1, 2)).contiguous())
        else:
            out = weight @ values
        return out if bias is None else out + bias.unsqueeze(-1)

    def _weight_and_bias(self) -> tuple[Tensor, Tensor | None]:
        if not self.is_simplex:
            return self.weight, self.bias
        shares, width = self.shares, self.in_features
        return shares[..., :width], None if self.raw_bias is None else shares[..., width]

    def extra_repr(self) -> str:
        simplex = ", weights='simplex'" if self.is_simplex else ""
        return (
            super().extra_repr() + simplex + ("" if self.raw_bias is not None else ", bias=False")
        )


def positive(value: Tensor) -> Tensor:
    """Value for a log-normal prior, whose support ends where softplus underflows to zero."""
    if bool(value.all()):  # nearly always, and much cheaper than a clamp with its gradient
        return value
    return value.clamp_min(torch.finfo(value.dtype).tiny)


def for_prior(module: Module, value: Tensor) -> Tensor:
    """A parameter as a prior is to read it: without a batch, behind dimensions of one.

    GPyTorch takes as many first dimensions of a prior's values as the data have for those of the
    batch. A weight ``O x C`` of a kernel without a batch, whose prior counts for every data set of
    a batch, must not lend it its own dimensions.
    """
    return value if module.batch_shape else value.view(*_NO_BATCH, *value.shape)


def from_prior(old: Tensor, value: Tensor | float) -> Tensor | float:
    """A value that a prior draws for a parameter, without the dimensions of ``for_prior``."""
    width = len(_NO_BATCH)
    if not isinstance(value, Tensor) or value.dim() - old.dim() < width:
        return value
    for start in range(value.dim() - width + 1):  # Pyro's draws have dimensions before these
        if value.shape[start : start + width] == _NO_BATCH:
            return value.reshape(value.shape[:start] + value.shape[start + width :])
    return value


def prior_closures(name: str) -> tuple[Callable[..., Any], Callable[..., None]]:
    """What a prior on a parameter, or on its raw values, reads and sets; they pickle."""
    return partial(_get, name=name), partial(_set, name=name)


def _get(module: Module, name: str) -> Tensor | None:
    value = getattr(module, name)
    if value is None:
        return None
    if not name.startswith("raw_"):
        return for_prior(module, positive(value))
    pruned = value <= _LOG_OF_ZERO  # stands for a weight of zero, which priors leave alone
    return for_prior(module, value.masked_fill(pruned, 0.0) if bool(pruned.any()) else value)


def _set(module: Module, value: Tensor | float, name: str) -> None:
    value = from_prior(getattr(module, name), value)
    if name.startswith("raw_"):
        module.initialize(**{name: value})
    else:
        setattr(module, name, value)


def _finite_log(share: Tensor) -> Tensor:
    """Logarithm that maps 0 to a finite number whose softmax beside others is exactly 0."""
    positive = share > 0
    logs = share.clamp_min(1e-30).log()
    mean = (logs * positive).sum(-1, keepdim=True) / positive.sum(-1, keepdim=True)
    return torch.where(positive, logs - mean, _LOG_OF_ZERO)


def _inv_softplus_with_zero(value: Tensor) -> Tensor:
    """Inverse of softplus that maps 0 to a finite number whose softplus is exactly 0."""
    return torch.where(value > 0, inv_softplus(value.clamp_min(1e-300)), -1e3)


def _non_negative() -> Positive:
    return Positive(inv_transform=_inv_softplus_with_zero)
