"""Data drawn from Gaussian processes with known compositions of kernels.

Series have 100, 200 or 300 points on a regular grid over a span of 1; their kernels are products of

- RBF: lengthscale 0.25 to 0.4 spans (0.25 to 0.5 in a product with PER),
- PER without its constant part (Lloyd et al. 2014), so that a product with it contains none of the
  other factors alone: 6 to 12 cycles, GPyTorch's lengthscale 0.3 to 1.5,
- LIN: around the middle of the span.

``groups`` is a sum over groups of 10 columns, uniform on [0, 1], 300 points: RBF kernels with a
lengthscale of 0.3 to 0.5 times the root of the group's size, for each column. Output scales are 0.5
to 2, all numbers log-uniform. A draw in which a term has less than 15 % of the variance of the
signal is drawn again. The standard deviation of the noise is 10 % of the signal's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from gpytorch.kernels import Kernel, LinearKernel, RBFKernel
from torch import Tensor

from gpytorch_nkn.kernels import ZeroMeanPeriodicKernel

__all__ = ["CASES", "Draw", "Term", "draw"]

# A product: kinds of base kernels (for one input) or columns (for several), sorted. Equal terms
# are one term, and so no product is in a list twice.
Term = tuple[str, ...] | tuple[int, ...]

CASES: dict[str, list[tuple[str, ...]]] = {
    "RBF + PER": [("SMOOTH",), ("PER",)],
    "LIN + RBF*PER": [("LIN",), ("PER", "SMOOTH")],
    "RBF + PER*LIN": [("SMOOTH",), ("LIN", "PER")],
    "groups": [],  # drawn
}
_SIZES = (100, 200, 300)  # points of a series, in rotation
_COLUMNS, _POINTS = 10, 300  # of groups
_PARTITIONS = ((1, 2, 3, 4), (2, 2, 3, 3), (1, 3, 3, 3), (2, 4, 4), (3, 3, 4), (1, 2, 2, 2, 3))
_VISIBLE = 0.15  # least share of the signal's variance
_NOISE = 0.1  # in standard deviations of the signal


@dataclass(frozen=True)
class Draw:
    """Inputs ``N x D``, noisy targets ``N``, and the terms of the kernel they were drawn from."""

    x: Tensor
    y: Tensor
    truth: list[Term]


def draw(case: str, seed: int) -> Draw:
    """Data of a case, a function of the seed alone."""
    rng = np.random.default_rng([seed, list(CASES).index(case)])
    if case == "groups":
        x = torch.from_numpy(rng.random((_POINTS, _COLUMNS)))
        sizes = _PARTITIONS[rng.integers(len(_PARTITIONS))]
        order = iter(rng.permutation(_COLUMNS).tolist())
        truth: list[Term] = [tuple(sorted(next(order) for _ in range(size))) for size in sizes]
    else:
        x = torch.linspace(0, 1, _SIZES[seed % len(_SIZES)], dtype=torch.float64).unsqueeze(-1)
        truth = list(CASES[case])
    while True:
        kernels = [_random_kernel(rng, term).double() for term in truth]
        parts = torch.stack([_sample(rng, kernel, x) for kernel in kernels])
        signal = parts.sum(0)
        if min(_shares(parts)) >= _VISIBLE:
            break
    noise = torch.from_numpy(rng.standard_normal(len(x)))
    return Draw(x, signal + _NOISE * signal.std() * noise, truth)


def _random_kernel(rng: np.random.Generator, term: Term) -> Kernel:
    """A product of base kernels, with random parameters and variance one."""
    if not isinstance(term[0], str):
        kernel = RBFKernel(ard_num_dims=len(term), active_dims=term)
        low, high = (end * math.sqrt(len(term)) for end in (0.3, 0.5))
        kernel.lengthscale = torch.tensor([_log_uniform(rng, low, high) for _ in term])
        return kernel
    parts: list[Kernel] = []
    for kind in term:
        if kind == "LIN":
            # x - 1/2 has a variance of 1/12 over the span
            parts.append(_Centered().initialize(variance=12.0))
        elif kind == "PER":
            part = ZeroMeanPeriodicKernel()
            part.period_length = 1 / _log_uniform(rng, 6, 12)
            part.lengthscale = _log_uniform(rng, 0.3, 1.5)
            parts.append(part)
        else:
            widest = 0.5 if "PER" in term else 0.4
            parts.append(RBFKernel().initialize(lengthscale=_log_uniform(rng, 0.25, widest)))
    return math.prod(parts[1:], start=parts[0])


class _Centered(LinearKernel):
    """Linear around the middle of the span."""

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params):
        return super().forward(x1 - 0.5, x2 - 0.5, diag=diag, **params)


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _sample(rng: np.random.Generator, kernel: Kernel, x: Tensor) -> Tensor:
    """Values ``N`` of a process with a random output scale."""
    with torch.no_grad():
        eigenvalues, vectors = torch.linalg.eigh(kernel(x).to_dense())
    roots = (_log_uniform(rng, 0.5, 2.0) * eigenvalues.clamp_min(0)).sqrt()
    return vectors @ (roots * torch.from_numpy(rng.standard_normal(len(x))))


def _shares(parts: Tensor) -> list[float]:
    """Covariance of each part ``J x N`` with the sum of all, over the variance of the sum."""
    centered = parts - parts.mean(-1, keepdim=True)
    total = centered.sum(0)
    return ((centered @ total) / (total @ total)).tolist()
