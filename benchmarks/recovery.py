"""How often a Neural Kernel Network finds the composition of kernels that its data were drawn from.

Data from Gaussian processes with known kernels (``benchmarks.recovery_cases``) are given to a
network, of which ``simplify`` keeps few terms (for several columns: whose ``effects`` of pairs link
the columns); right is an answer whose leading terms are the true ones. Seeds 0 to 7 are for tuning,
100 to 119 for the report.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import cache

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel, LinearKernel, PeriodicKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.models import ExactGP
from torch import Tensor

from benchmarks.recovery_cases import CASES, Term, draw
from benchmarks.report import Table, mean, summary
from benchmarks.runner import Axis, Benchmark, timed
from gpytorch_nkn.fit import fit_best_of
from gpytorch_nkn.interpretation import Effects, effects, simplify
from gpytorch_nkn.kernels import CenteredLinearKernel, NeuralKernelNetwork, ZeroMeanPeriodicKernel
from gpytorch_nkn.layers import log_normal_prior

__all__ = ["BENCHMARK", "canonical", "score"]

_VISIBLE = 1e-3  # total index from which on a column has an effect


def run(case: str, seed: int) -> dict:
    """Whether the leading terms are the true ones."""
    _warm_up()
    data = draw(case, seed)
    terms, seconds = timed(lambda: _terms(data.x, data.y, seed))
    right, within = score(terms, data.truth)
    return {"right": right, "within": within, "seconds": seconds, "terms": terms}


@cache
def _warm_up() -> None:
    """Once in a process: imports and compilation are not what is measured."""
    x = torch.linspace(0, 1, 20, dtype=torch.float64)
    _terms(x.unsqueeze(-1), torch.sin(9 * x) + 0.1 * torch.cos(77 * x), 0)


def _terms(x: Tensor, y: Tensor, seed: int) -> list[Term]:
    """Terms but for constants, the one with the largest share of the variance first.

    They are products of LIN, PER, RBF, RQ and SMOOTH for one input, columns from 0 for several.
    """
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    if x.size(-1) > 1:
        network = NeuralKernelNetwork.additive(x.size(-1), priors=False)
        model = fit_best_of(_StandardisedGP(x, y, network), restarts=2, seed=seed, progress=False)
        return _groups(effects(model, max_effects=x.size(-1) ** 2, seed=seed))
    network = NeuralKernelNetwork.time_series(sparsity="l1")
    model = fit_best_of(_StandardisedGP(x, y, network), restarts=1, seed=seed, progress=False)
    found = simplify(model, max_candidates=10, zero_mean=True)
    shares: dict[Term, float] = {}
    for part in found.parts:
        term = canonical(map(_kind, part.factors))
        shares[term] = shares.get(term, 0.0) + part.posterior_share
    shares.pop((), None)
    return sorted(shares, key=shares.__getitem__, reverse=True)


def _groups(found: Effects) -> list[Term]:
    """Columns with an effect, in groups that pairs of them with an interaction link."""
    groups = [{column} for column in (found.total_order >= _VISIBLE).nonzero()[0].tolist()]
    for pair in found.pairs:
        linked = [group for group in groups if group & set(pair.columns)]
        groups = [group for group in groups if group not in linked]
        groups.append(set(pair.columns).union(*linked))
    groups.sort(key=lambda group: -sum(found.total_order[column] for column in group))
    return [tuple(sorted(group)) for group in groups]


class _StandardisedGP(ExactGP):
    """Without a mean: a constant of the kernel stands for the level."""

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
    """A product with its factors sorted, RBF and RQ as SMOOTH, and equal factors as one but LIN.

    Powers of LIN are other functions than LIN; products of smooth or of periodic functions are
    smooth or periodic. CONST is dropped.
    """
    kinds = ["SMOOTH" if kind in ("RBF", "RQ") else kind for kind in term if kind != "CONST"]
    kept = [kind for i, kind in enumerate(kinds) if kind == "LIN" or kind not in kinds[:i]]
    return tuple(sorted(kept))


def score(terms: Sequence[Term], truth: Sequence[Term]) -> tuple[bool, float]:
    """Whether the leading terms are the true ones, and the share that lies within a true one."""
    found = [term for term in dict.fromkeys(map(canonical, terms)) if term][: len(truth)]
    true = [canonical(term) for term in truth]
    within = sum(any(set(term) <= set(other) for other in true) for term in found)
    return set(found) == set(true), within / len(true)


def tables(rows: list[dict]) -> dict[str, Table]:
    """Counts of right answers."""
    cells = {
        "method": lambda runs: "network",
        "right": lambda runs: f"{sum(row['right'] for row in runs)} of {len(runs)}",
        "leading terms within a true one": mean("within", ".0%"),
        "mean CPU s": mean("seconds", ".1f"),
    }
    return {"recovery": summary(rows, ("case",), cells)}


BENCHMARK = Benchmark(
    "recovery", __doc__, {"case": Axis(list(CASES)), "seed": Axis(range(100, 120))}, run, tables
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
