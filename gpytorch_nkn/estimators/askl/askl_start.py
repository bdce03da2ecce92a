"""Start values of spectral features, from the data they see."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gpytorch_nkn.estimators.askl.askl_network import SpectralNetwork
from gpytorch_nkn.estimators.askl.leave_one_out import GAMMAS, affordable_rows, kernel_ridge

__all__ = ["GAMMA_RULES", "METHODS", "Method", "NetworkStart", "start_network"]

GAMMA_RULES = ("auto", "median")

_LEAST_ROWS = 100  # that choose a gamma
_MAX_ROWS = 800  # pairs of as many rows determine a median well enough
# Change of an angle by a step of Adam: small steps generalise better where targets are noisy, and
# many columns, of which each one says little, want larger ones.
_REGRESSION_STEP, _CLASS_STEP, _FEW_COLUMNS = 0.15, 0.5, 100
_SGD_STEP = 0.02  # and of gradient descent, as a share of what would be too much
_APART = 0.3  # deviation of Omega' from Omega, in units of theirs


class Method(NamedTuple):
    """A row of the paper's table 1."""

    stationary: bool
    learned: bool
    trace_norm: bool


METHODS = {
    "SK": Method(True, False, False),
    "NSK": Method(False, False, False),
    "SKL": Method(True, True, False),
    "NSKL": Method(False, True, False),
    "ASKL": Method(False, True, True),
}


class NetworkStart(NamedTuple):
    """A network before its training.

    Attributes:
        network: The network, whose outputs are zero.
        gamma: Of each layer, in ``exp(-gamma r^2)``.
        rates: Learning rate of the frequencies of each layer.
    """

    network: SpectralNetwork
    gamma: list[float]
    rates: list[float]


def start_network(
    x: Tensor,
    num_outputs: int,
    method: Method,
    *,
    num_features: int,
    depth: int,
    gamma: float | str,
    ridge_targets: Tensor,
    intercept: bool,
    solver: str,
    classes: bool,
    rng: np.random.RandomState,
    device: torch.device,
    end: float = math.inf,
) -> NetworkStart:
    """Draw frequencies from the Gaussian spectral density of an RBF kernel, layer by layer.

    Args:
        x: Float64 rows ``N x d`` on the host.
        num_outputs: Number of outputs.
        method: What is stationary and what is learned.
        num_features: Features of each layer.
        depth: Number of layers.
        gamma: Of the first layer's kernel ``exp(-gamma r^2)``, or a rule; further layers, whose
            inputs are features, follow the rule ``"median"``.
        ridge_targets: Float64 targets ``N x K`` for the rule ``"auto"``.
        solver: Name of the optimiser that the rates are for.
        classes: Whether they are for classes.
        intercept: Whether outputs have one.
        rng: Where draws come from.
        device: Where the network is to be.
        end: Time of the monotonic clock until which ``"auto"`` may search, with as many rows as
            there is time for; with too few it is the rule ``"median"``.
    """
    if len(x) > _MAX_ROWS:
        chosen = torch.from_numpy(rng.choice(len(x), _MAX_ROWS, replace=False))
        x, ridge_targets = x[chosen], ridge_targets[chosen]
    terms = 1 if method.stationary else 2
    frequencies: list[Tensor] = []
    phases: list[Tensor] = []
    gammas, rates = [], []
    for layer in range(depth):
        rows = 0
        if layer == 0 and gamma == "auto":
            left = end - time.monotonic()
            rows = affordable_rows(x, ridge_targets, len(GAMMAS), left, len(x)) if left > 0 else 0
        if rows >= min(_LEAST_ROWS, len(x)):
            some = torch.linspace(0, len(x) - 1, rows).long()
            gammas.append(kernel_ridge(x[some], ridge_targets[some]).gamma)
        elif layer == 0 and not isinstance(gamma, str):
            gammas.append(float(gamma))
        else:
            gammas.append(_median_gamma(x))
        if solver == "adam":
            step = _CLASS_STEP if classes else _REGRESSION_STEP
            if classes and layer == 0:
                step *= max(1.0, math.sqrt(x.size(1) / _FEW_COLUMNS))
            rates.append(step / max(float(x.abs().sum(1).mean()), 1e-12))
        else:
            rates.append(_SGD_STEP * num_features / max(float(x.square().sum(1).mean()), 1e-12))
        draws = rng.standard_normal((terms, num_features, x.size(1)))
        if terms == 2:
            draws[1] = math.sqrt(1 - _APART**2) * draws[0] + _APART * draws[1]
        frequencies.append(torch.from_numpy(math.sqrt(2 * gammas[-1]) * draws))
        phases.append(torch.from_numpy(rng.uniform(0, 2 * math.pi, num_features)))
        if layer + 1 < depth:
            last = SpectralNetwork(
                frequencies[-1:],
                phases[-1:],
                1,
                learned=False,
                intercept=False,
                device=torch.device("cpu"),
            )
            x = torch.cat(list(last.features_in_double(x)))
    network = SpectralNetwork(
        frequencies,
        phases,
        num_outputs,
        learned=method.learned,
        intercept=intercept,
        device=device,
    )
    return NetworkStart(network, gammas, rates)


def _median_gamma(x: Tensor) -> float:
    """Half the inverse square of the median distance between two rows that differ."""
    distances = torch.pdist(x)
    distances = distances[distances > 0]
    median = float(distances.median()) if len(distances) else 1.0
    return 0.5 / median**2
