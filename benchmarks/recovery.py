"""Recovery of known kernels by a Neural Kernel Network.

A network is trained on data from Gaussian processes with known kernels. ``simplify`` keeps few
terms; for several columns, ``effects`` of pairs group the columns. An answer is right if its
leading terms are the true terms. Seeds 0 to 7 are for tuning, 100 to 119 for the report.

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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel, LinearKernel, PeriodicKernel, RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.models import ExactGP
from torch import Tensor

from benchmarks.report import Table, mean, summary
from benchmarks.runner import Axis, Benchmark, timed
from gpytorch_nkn.fit import fit_best_of
from gpytorch_nkn.interpretation import Effects, effects, simplify
from gpytorch_nkn.kernels import CenteredLinearKernel, NeuralKernelNetwork, ZeroMeanPeriodicKernel
from gpytorch_nkn.layers import log_normal_prior

__all__ = ["BENCHMARK", "score"]

# A product: kinds of base kernels (for one input) or columns (for several), sorted. Equal terms
# are one term, and so no product is in a list twice.
Term = tuple[str, ...] | tuple[int, ...]

CASES: dict[str, list[tuple[str, ...]]] = {
    "RBF + PER": [("SMOOTH",), ("PER",)],
    "LIN + RBF*PER": [("LIN",), ("PER", "SMOOTH")],
    "RBF + PER*LIN": [("SMOOTH",), ("LIN", "PER")],
    "groups": [],  # drawn
}
_LENGTHS = (100, 200, 300)  # points of a series, in rotation
_COLUMNS, _ROWS = 10, 300  # columns and rows of "groups"
_PARTITIONS = ((1, 2, 3, 4), (2, 2, 3, 3), (1, 3, 3, 3), (2, 4, 4), (3, 3, 4), (1, 2, 2, 2, 3))
_LEAST_SHARE = 0.15  # smallest share of a term in the signal's variance
_NOISE = 0.1  # standard deviation of the noise, relative to the signal's


@dataclass(frozen=True)
class Draw:
    """Inputs ``N x D``, noisy targets ``N``, and the terms of their kernel."""

    x: Tensor
    y: Tensor
    truth: list[Term]


def draw(case: str, seed: int) -> Draw:
    """Return the data of a case, determined by the seed."""
    rng = np.random.default_rng([seed, list(CASES).index(case)])
    if case == "groups":
        x = torch.from_numpy(rng.random((_ROWS, _COLUMNS)))
        sizes = _PARTITIONS[rng.integers(len(_PARTITIONS))]
        order = iter(rng.permutation(_COLUMNS).tolist())
        truth: list[Term] = [tuple(sorted(next(order) for _ in range(size))) for size in sizes]
    else:
        x = torch.linspace(0, 1, _LENGTHS[seed % len(_LENGTHS)], dtype=torch.float64).unsqueeze(-1)
        truth = list(CASES[case])
    while True:
        kernels = [_random_kernel(rng, term).double() for term in truth]
        parts = torch.stack([_sample(rng, kernel, x) for kernel in kernels])
        signal = parts.sum(0)
        if min(_shares(parts)) >= _LEAST_SHARE:
            break
    noise = torch.from_numpy(rng.standard_normal(len(x)))
    return Draw(x, signal + _NOISE * signal.std() * noise, truth)


def _random_kernel(rng: np.random.Generator, term: Term) -> Kernel:
    """Create a product of base kernels, with random parameters and variance one."""
    if not isinstance(term[0], str):
        kernel = RBFKernel(ard_num_dims=len(term), active_dims=term)
        low, high = (end * math.sqrt(len(term)) for end in (0.3, 0.5))
        kernel.lengthscale = torch.tensor([_log_uniform(rng, low, high) for _ in term])
        return kernel
    factors: list[Kernel] = []
    for kind in term:
        if kind == "LIN":
            # x - 1/2 has a variance of 1/12 over the span
            factors.append(_Centered().initialize(variance=12.0))
        elif kind == "PER":
            periodic = ZeroMeanPeriodicKernel()
            periodic.period_length = 1 / _log_uniform(rng, 6, 12)
            periodic.lengthscale = _log_uniform(rng, 0.3, 1.5)
            factors.append(periodic)
        else:
            widest = 0.5 if "PER" in term else 0.4
            factors.append(RBFKernel().initialize(lengthscale=_log_uniform(rng, 0.25, widest)))
    return math.prod(factors[1:], start=factors[0])


class _Centered(LinearKernel):
    """Create a linear kernel with its centre in the middle of the span."""

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params):
        return super().forward(x1 - 0.5, x2 - 0.5, diag=diag, **params)


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _sample(rng: np.random.Generator, kernel: Kernel, x: Tensor) -> Tensor:
    """Draw values ``N`` of a process with a random output scale."""
    with torch.no_grad():
        eigenvalues, vectors = torch.linalg.eigh(kernel(x).to_dense())
    roots = (_log_uniform(rng, 0.5, 2.0) * eigenvalues.clamp_min(0)).sqrt()
    return vectors @ (roots * torch.from_numpy(rng.standard_normal(len(x))))


def _shares(parts: Tensor) -> list[float]:
    """Return covariances of parts ``J x N`` with their sum, divided by the variance of the sum."""
    centered = parts - parts.mean(-1, keepdim=True)
    total = centered.sum(0)
    return ((centered @ total) / (total @ total)).tolist()


_VISIBLE = 1e-3  # total index from which on a column has an effect


def run(case: str, seed: int) -> dict:
    """Return whether the leading terms are the true ones."""
    data = draw(case, seed)
    terms, seconds = timed(lambda: _terms(data.x, data.y, seed))
    right, within = score(terms, data.truth)
    return {"right": right, "within": within, "seconds": seconds, "terms": terms}


def _warm_up(method: str) -> None:
    x = torch.linspace(0, 1, 20, dtype=torch.float64)
    _terms(x.unsqueeze(-1), torch.sin(9 * x) + 0.1 * torch.cos(77 * x), 0)


def _terms(x: Tensor, y: Tensor, seed: int) -> list[Term]:
    """Return terms without constants, by decreasing share of the variance.

    They are products of LIN, PER and SMOOTH for one input, columns from 0 for several.
    """
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    if x.size(-1) > 1:
        network = NeuralKernelNetwork.additive(x.size(-1), priors=False)
        model = fit_best_of(_StandardisedGP(x, y, network), restarts=2, seed=seed, progress=False)
        return _groups(effects(model, max_effects=x.size(-1) ** 2, seed=seed))
    network = NeuralKernelNetwork.time_series(sparsity="l1")
    model = fit_best_of(_StandardisedGP(x, y, network), restarts=1, seed=seed, progress=False)
    simplified = simplify(model, max_candidates=10, zero_mean=True)
    shares: dict[Term, float] = {}
    for part in simplified.parts:
        term = canonical(map(_kind, part.factors))
        shares[term] = shares.get(term, 0.0) + part.posterior_share
    shares.pop((), None)
    return sorted(shares, key=shares.__getitem__, reverse=True)


def _groups(effects: Effects) -> list[Term]:
    """Return columns with an effect, grouped by interactions of pairs."""
    groups = [{column} for column in (effects.total_order >= _VISIBLE).nonzero()[0].tolist()]
    for pair in effects.pairs:
        linked = [group for group in groups if group & set(pair.columns)]
        groups = [group for group in groups if group not in linked]
        groups.append(set(pair.columns).union(*linked))
    groups.sort(key=lambda group: -sum(effects.total_order[column] for column in group))
    return [tuple(sorted(group)) for group in groups]


class _StandardisedGP(ExactGP):
    """An exact GP without a mean: a constant of the kernel models the level."""

    def __init__(self, x: Tensor, y: Tensor, kernel: Kernel):
        noise = {"noise_prior": log_normal_prior(0.01, 2.0), "noise_constraint": GreaterThan(1e-6)}
        super().__init__(x, y, GaussianLikelihood(**noise))
        self.mean_module = ZeroMean()
        self.covar_module = kernel
        self.double()

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def _kind(kernel: Kernel) -> str:
    if isinstance(kernel, LinearKernel | CenteredLinearKernel):
        return "LIN"
    return "PER" if isinstance(kernel, PeriodicKernel | ZeroMeanPeriodicKernel) else "SMOOTH"


def canonical(term: Iterable) -> Term:
    """Return a product with sorted factors, without repetitions except of LIN.

    Powers of LIN are other functions than LIN; products of smooth or of periodic functions are
    smooth or periodic.
    """
    kinds = list(term)
    return tuple(sorted(k for i, k in enumerate(kinds) if k == "LIN" or k not in kinds[:i]))


def score(terms: Sequence[Term], truth: Sequence[Term]) -> tuple[bool, float]:
    """Return whether leading terms are the true ones, and the share that is within a true one."""
    leading = [term for term in dict.fromkeys(map(canonical, terms)) if term][: len(truth)]
    true = [canonical(term) for term in truth]
    within = sum(any(set(term) <= set(other) for other in true) for term in leading)
    return set(leading) == set(true), within / len(true)


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return counts of right answers."""
    cells = {
        "method": lambda runs: "network",
        "right": lambda runs: f"{sum(row['right'] for row in runs)} of {len(runs)}",
        "leading terms within a true one": mean("within", ".0%"),
        "mean CPU s": mean("seconds", ".1f"),
    }
    return {"recovery": summary(rows, ("case",), cells)}


BENCHMARK = Benchmark(
    {"case": Axis(list(CASES)), "seed": Axis(range(100, 120))}, run, tables, warm_up=_warm_up
)

if __name__ == "__main__":
    BENCHMARK.command()
