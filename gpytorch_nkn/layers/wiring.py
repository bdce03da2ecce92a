"""Layers from the paper's notation, such as ``Linear8-Product4-Linear1``."""

from __future__ import annotations

import math
import re

import torch
from gpytorch.priors import GammaPrior, LogNormalPrior

from gpytorch_nkn.layers.layer import Layer
from gpytorch_nkn.layers.linear import Linear, get_weight, set_weight
from gpytorch_nkn.layers.product import Product

__all__ = ["PAPER_WIRING", "log_normal_prior", "parse_wiring"]

PAPER_WIRING = "Linear8-Product4-Linear4-Product2-Linear1"


def log_normal_prior(mode: float, scale: float) -> LogNormalPrior:
    """Log-normal prior whose density is highest at ``mode``.

    The mode of a log-normal lies at exp(location - scale^2): a wide one centred by its median
    would pull a maximum a posteriori far below it. With this location the log density is, up to
    a constant, -(log value - log mode)^2 / (2 scale^2).
    """
    return LogNormalPrior(math.log(mode) + scale**2, scale)


def parse_wiring(
    wiring: str,
    in_features: int,
    *,
    batch_shape: torch.Size | None = None,
    priors: bool = False,
) -> list[Layer]:
    """Make the layers that a wiring names; each number is the width that goes out.

    Args:
        wiring: ``Linear`` and ``Product`` with a width each, joined by hyphens.
        in_features: Number of primitives.
        batch_shape: Batch shape of the Linear layers.
        priors: Weak priors: log-normal ones on weights around 1 / C, where C units come in, and
            on biases around 0.01, and an exponential one of rate 2 that draws the weights of
            connections which the data do not ask for towards zero.

    Raises:
        ValueError: The text is not a wiring, or a Product width does not divide what comes in.

    Reference: Sun et al. (2018), sections 5.1 to 5.3 and appendix J.
    """
    layers: list[Layer] = []
    width = in_features
    for position, token in enumerate(wiring.split("-")):
        match = re.fullmatch(r"(Linear|Product)([1-9]\d*)", token)
        if match is None:
            raise ValueError(
                "A wiring is a chain of 'Linear' or 'Product' with a width each, such as "
                f"{PAPER_WIRING!r}; got {token!r} in {wiring!r}."
            )
        out_features = int(match[2])
        if match[1] == "Linear":
            layer: Layer = Linear(
                width,
                out_features,
                batch_shape=batch_shape,
                weight_prior=log_normal_prior(1 / width, 1.5) if priors else None,
                bias_prior=log_normal_prior(0.01, 2.0) if priors else None,
                seed=position,
            )
            if priors:
                layer.register_prior(
                    "weight_shrinkage_prior", GammaPrior(1.0, 2.0), get_weight, set_weight
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
