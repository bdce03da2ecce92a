"""Parser of wirings in the paper's notation, such as ``Linear8-Product4-Linear1``."""

from __future__ import annotations

import math
import re
from typing import Literal

import torch
from gpytorch.priors import GammaPrior, Prior

from gpytorch_nkn.layers.layer import Layer
from gpytorch_nkn.layers.linear import Linear
from gpytorch_nkn.layers.log_normal_prior import log_normal_prior
from gpytorch_nkn.layers.product import Product
from gpytorch_nkn.layers.shrunk_log_normal_prior import ShrunkLogNormalPrior
from gpytorch_nkn.linalg import check_flags

__all__ = ["PAPER_WIRING", "parse_wiring"]

#: Wiring of the paper's networks for toy data, regression and optimisation (Sun et al., 2018).
PAPER_WIRING = "Linear8-Product4-Linear4-Product2-Linear1"

_SHRINKAGE_RATE = 2.0  # rate of the exponential factor of the weak prior on weights
_L1_RATE = 3.0  # rate of the sparse prior divided by C; start weights are near 1 / C


def parse_wiring(
    wiring: str,
    in_features: int,
    *,
    batch_shape: torch.Size | None = None,
    priors: bool = False,
    sparsity: Literal["l1"] | None = None,
    hidden_bias: float = 0.01,
    weights: Literal["softplus", "simplex"] = "softplus",
    skip: bool = False,
) -> list[Layer]:
    """Create the layers of a wiring.

    Args:
        wiring: ``Linear`` and ``Product`` layers joined by hyphens, each with its output width.
        in_features: Number of primitives.
        batch_shape: Batch shape of the Linear layers.
        priors: Use weak log-normal priors with mode 1 / C for weights of C input units, and mode
            0.01 for biases. An exponential factor of rate 2 shrinks weights of connections that
            the data do not support.
        sparsity: ``"l1"`` replaces the prior on weights by an exponential prior of rate 3 C, which
            leaves few connections.
        hidden_bias: Start value, and prior mode, of the biases of all Linear layers but the last.
        weights: ``"softplus"`` or, without priors, ``"simplex"``; see :class:`Linear`.
        skip: Connect the primitives to the last layer, which must be a Linear layer.

    Raises:
        ValueError: The wiring cannot be parsed, a Product width does not divide its input width,
            or ``sparsity`` or ``hidden_bias`` is invalid. Priors are given with a simplex. With
            ``skip``, the wiring does not end in a Linear layer after another layer.

    Reference: Sun et al. (2018), sections 5.1 to 5.3 and appendix J.
    """
    check_flags(priors=priors, skip=skip)
    if sparsity not in (None, "l1"):
        raise ValueError(f"sparsity must be 'l1' or None, got {sparsity!r}.")
    if not 0 < hidden_bias < math.inf:
        raise ValueError(f"hidden_bias must be positive and finite, got {hidden_bias}.")
    if weights == "simplex" and (priors or sparsity is not None):
        raise ValueError(
            "weights='simplex' needs priors=False and sparsity=None, got "
            f"priors={priors}, sparsity={sparsity!r}."
        )
    layers: list[Layer] = []
    width = in_features
    tokens = str(wiring).split("-")
    if skip and (len(tokens) < 2 or not tokens[-1].startswith("Linear")):
        raise ValueError(f"skip=True needs a last Linear layer after others, got {wiring!r}.")
    last = max((n for n, token in enumerate(tokens) if token.startswith("Linear")), default=0)
    for position, token in enumerate(tokens):
        match = re.fullmatch(r"(Linear|Product)([1-9]\d*)", token)
        if match is None:
            raise ValueError(
                "wiring must consist of Linear and Product layers with their widths, such as "
                f"{PAPER_WIRING!r}, got {token!r} in {wiring!r}."
            )
        out_features = int(match[2])
        if match[1] == "Linear":
            bias = 0.01 if position == last else hidden_bias
            width += in_features if skip and position == last else 0
            layer: Layer = Linear(
                width,
                out_features,
                weights=weights,
                batch_shape=batch_shape,
                weight_prior=_weight_prior(width, priors, sparsity),
                bias_prior=log_normal_prior(bias, 2.0) if priors else None,
                initial_bias=bias,
                seed=position,
            )
        elif width % out_features:
            raise ValueError(
                f"The width of {token} in {wiring!r} must divide its {width} input units."
            )
        else:
            layer = Product(width, out_features)
        layers.append(layer)
        width = out_features
    return layers


def _weight_prior(in_features: int, priors: bool, sparsity: str | None) -> Prior | None:
    if sparsity == "l1":
        return GammaPrior(1.0, _L1_RATE * in_features)
    if not priors:
        return None
    return ShrunkLogNormalPrior(log_normal_prior(1 / in_features, 1.5), _SHRINKAGE_RATE)
