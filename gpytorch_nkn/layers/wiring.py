"""Layers from the paper's notation, such as ``Linear8-Product4-Linear1``."""

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

__all__ = ["PAPER_WIRING", "parse_wiring"]

#: Layers of the paper's networks for toy data, regression and optimisation (Sun et al., 2018).
PAPER_WIRING = "Linear8-Product4-Linear4-Product2-Linear1"

# What a sparse prior asks of a layer into which C units come: both scale with its start weights,
# which lie around 1 / C.
_SHRINKAGE_RATE = 2.0
_L1_RATE = 3.0  # times C


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
    """Make the layers that a wiring names; each number is the width that goes out.

    Args:
        wiring: ``Linear`` and ``Product`` with a width each, joined by hyphens.
        in_features: Number of primitives.
        batch_shape: Batch shape of the Linear layers.
        priors: Weak priors: log-normal ones on weights around 1 / C, where C units come in, and
            on biases around 0.01. That on weights is multiplied by an exponential density of
            rate 2, which draws the weights of connections that the data do not ask for towards
            zero.
        sparsity: ``"l1"`` for few connections that matter: an exponential prior of rate 3 C on the
            weights in place of that one, with or without ``priors``.
        hidden_bias: Start value of the biases of all Linear layers but the last, and mode of
            their prior.
        weights: ``"softplus"`` or ``"simplex"``, see :class:`Linear`. The priors here are for
            weights that are positive: on a simplex there are none.
        skip: The last layer, a Linear one, takes the primitives as well.

    Raises:
        ValueError: The text is not a wiring, a Product width does not divide what comes in,
            ``sparsity`` or ``hidden_bias`` has no meaning, priors are asked for on a simplex, or
            a wiring with ``skip`` does not end in a Linear layer after another layer.

    Reference: Sun et al. (2018), sections 5.1 to 5.3 and appendix J.
    """
    if sparsity not in (None, "l1"):
        raise ValueError(f"sparsity must be 'l1' or None, got {sparsity!r}.")
    if not 0 < hidden_bias < math.inf:
        raise ValueError(f"hidden_bias must be positive and finite, got {hidden_bias}.")
    if weights == "simplex" and (priors or sparsity is not None):
        raise ValueError(f"No priors on a simplex, got priors={priors}, sparsity={sparsity!r}.")
    layers: list[Layer] = []
    width = in_features
    tokens = wiring.split("-")
    if skip and (len(tokens) < 2 or not tokens[-1].startswith("Linear")):
        raise ValueError(f"A skip connection needs a last Linear layer, got {wiring!r}.")
    last = max((n for n, token in enumerate(tokens) if token.startswith("Linear")), default=0)
    for position, token in enumerate(tokens):
        match = re.fullmatch(r"(Linear|Product)([1-9]\d*)", token)
        if match is None:
            raise ValueError(
                "A wiring is a chain of 'Linear' or 'Product' with a width each, such as "
                f"{PAPER_WIRING!r}; got {token!r} in {wiring!r}."
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
                f"{token} in {wiring!r} gets {width} units, which {out_features} does not divide."
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
