"""Initial frequencies and phases of spectral features."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gpytorch_nkn.estimators.askl.askl_network import SpectralNetwork
from gpytorch_nkn.estimators.askl.leave_one_out import kernel_ridge

__all__ = ["METHODS", "Method", "start_network"]

_MAX_ROWS = 800  # largest number of rows for the choice of gamma
# Change of an angle per Adam step: small in regression, because targets are noisy; for classes
# times sqrt(d / 100) with d > 100 columns.
_REGRESSION_STEP, _CLASS_STEP, _FEW_COLUMNS = 0.15, 0.5, 100
_INDEPENDENT = 0.3  # independent part of Omega', in standard deviations of Omega


class Method(NamedTuple):
    """Properties of a method in table 1 of the paper."""

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


def start_network(
    x: Tensor,
    num_outputs: int,
    method: Method,
    *,
    num_features: int,
    gamma: float | str,
    ridge_targets: Tensor,
    classes: bool,
    rng: np.random.RandomState,
    device: torch.device,
) -> tuple[SpectralNetwork, float, float]:
    """Draw frequencies of an RBF kernel; return network, ``gamma`` and their learning rate.

    Rows ``N x d`` and targets ``N x K`` are float64 on the CPU.
    """
    if len(x) > _MAX_ROWS:
        chosen = torch.from_numpy(rng.choice(len(x), _MAX_ROWS, replace=False))
        x, ridge_targets = x[chosen], ridge_targets[chosen]
    gamma = kernel_ridge(x, ridge_targets).gamma if isinstance(gamma, str) else float(gamma)
    step = _REGRESSION_STEP
    if classes:
        step = _CLASS_STEP * max(1.0, math.sqrt(x.size(1) / _FEW_COLUMNS))
    rate = step / max(float(x.abs().sum(1).mean()), 1e-12)
    draws = rng.standard_normal((1 if method.stationary else 2, num_features, x.size(1)))
    if not method.stationary:
        draws[1] = math.sqrt(1 - _INDEPENDENT**2) * draws[0] + _INDEPENDENT * draws[1]
    frequencies = torch.from_numpy(math.sqrt(2 * gamma) * draws)
    phases = torch.from_numpy(rng.uniform(0, 2 * math.pi, num_features))
    network = SpectralNetwork(
        frequencies, phases, num_outputs, learned=method.learned, device=device
    )
    return network, gamma, rate
