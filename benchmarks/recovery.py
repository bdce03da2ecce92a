"""How often a method finds the composition of kernels that its data were drawn from.

``python -m benchmarks.recovery`` draws data from Gaussian processes with known kernels, gives them
to a compositional kernel search (Duvenaud et al. 2013) and to a Neural Kernel Network, and counts
how often the leading terms of the answer are the true ones. Each finished run is added to a
JSON-lines file, so that a second call goes on where the first one ended. Seeds 0 to 4 are for
tuning, 100 to 119 for the report.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy and torch read them; the processes inherit them

import argparse  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable, Iterable, Sequence  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from functools import cache  # noqa: E402
from importlib import metadata  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from gpytorch.constraints import GreaterThan  # noqa: E402
from gpytorch.distributions import MultivariateNormal  # noqa: E402
from gpytorch.kernels import Kernel, LinearKernel, PeriodicKernel, ScaleKernel  # noqa: E402
from gpytorch.likelihoods import GaussianLikelihood  # noqa: E402
from gpytorch.means import ZeroMean  # noqa: E402
from gpytorch.models import ExactGP  # noqa: E402
from joblib import Parallel, delayed  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks.compositional_search import search  # noqa: E402
from benchmarks.recovery_cases import CASES, Term, draw  # noqa: E402
from gpytorch_nkn.fit import fit_best_of  # noqa: E402
from gpytorch_nkn.interpretation import decompose, simplify  # noqa: E402
from gpytorch_nkn.kernels import (  # noqa: E402
    CenteredLinearKernel,
    NeuralKernelNetwork,
    ZeroMeanPeriodicKernel,
)
from gpytorch_nkn.layers import log_normal_prior  # noqa: E402

__all__ = [
    "METHODS",
    "MethodOutcome",
    "canonical",
    "main",
    "ours",
    "ranked_terms",
    "score",
    "variance_shares",
]

_LIBRARIES = ("torch", "gpytorch", "numpy", "scipy", "gpytorch_nkn")


@dataclass(frozen=True)
class MethodOutcome:
    """What a method answers.

    Attributes:
        terms: Its terms but for constants, the one with the largest share of the variance first:
            kinds out of LIN, PER, RBF, RQ and SMOOTH for one input, columns from 0 for several.
        seconds: CPU time of the process.
    """

    terms: Sequence[Term]
    seconds: float


def variance_shares(model: ExactGP, groups: Sequence[Sequence[Kernel]]) -> list[float]:
    r"""Share of each group of terms in the variance of the posterior mean.

    .. math::
        \frac{\operatorname{cov}(m_j, m)}{\operatorname{var}(m)}, \qquad
        m_j = K_j (K + \sigma^2 I)^{-1} (y - \mu)

    at the training inputs. The shares of all terms of the kernel add up to one. Constant terms
    have none.

    Args:
        model: A fitted exact GP with ``covar_module``; its mode is left as it was.
        groups: The kernels that belong together, terms of the model's covariance.
    """
    (x,) = model.train_inputs
    mode = model.training
    model.train()  # in eval mode a call at the training inputs is a prediction
    try:
        with torch.no_grad():
            output = model.likelihood(model.forward(x))
            factor = torch.linalg.cholesky(output.lazy_covariance_matrix.to_dense())
            residual = (model.train_targets - output.mean).unsqueeze(-1)
            weights = torch.cholesky_solve(residual, factor)
            whole = model.covar_module(x).to_dense() @ weights
            parts = [sum(kernel(x).to_dense() @ weights for kernel in group) for group in groups]
    finally:
        model.train(mode)
    centered = torch.stack([part - part.mean() for part in parts]).squeeze(-1)
    total = (whole - whole.mean()).squeeze(-1)
    return ((centered @ total) / (total @ total)).tolist()


def ranked_terms(model: ExactGP, terms: Sequence[Term], kernels: Sequence[Kernel]) -> list[Term]:
    """Canonical terms but for constants, largest share of the posterior mean's variance first.

    Kernels of equal canonical terms count together.

    Args:
        model: A fitted exact GP.
        terms: What each kernel is, see :func:`canonical`.
        kernels: As many kernels, whose sum is the model's covariance.
    """
    groups: dict[Term, list[Kernel]] = {}
    for term, kernel in zip(terms, kernels, strict=True):
        if canonical(term):
            groups.setdefault(canonical(term), []).append(kernel)
    if not groups:
        return []
    shares = variance_shares(model, list(groups.values()))
    ranked = sorted(zip(shares, groups, strict=True), key=lambda pair: -pair[0])
    return [term for _, term in ranked]


def canonical(term: Iterable) -> Term:
    """A product with its factors sorted, RBF and RQ as SMOOTH, and equal factors as one but LIN.

    Powers of LIN are other functions than LIN; products of smooth or of periodic functions are
    smooth or periodic. CONST is dropped.
    """
    kinds = ["SMOOTH" if kind in ("RBF", "RQ") else kind for kind in term if kind != "CONST"]
    kept = [kind for i, kind in enumerate(kinds) if kind == "LIN" or kind not in kinds[:i]]
    return tuple(sorted(kept))


def score(terms: Sequence[Term], truth: Sequence[Term]) -> tuple[bool, float]:
    """Whether the leading terms are the true ones, and how many of them lie within a true one.

    Args:
        terms: Terms in the order of their rank; constants and repetitions are passed over.
        truth: The true terms; as many of the leading ones are looked at.

    Returns:
        Whether they are the same set, and the share of true places that hold a term all of whose
        factors are those of one true term.
    """
    found = [term for term in dict.fromkeys(map(canonical, terms)) if term][: len(truth)]
    true = [canonical(term) for term in truth]
    within = sum(any(set(term) <= set(other) for other in true) for term in found)
    return set(found) == set(true), within / len(true)


def ours(x: Tensor, y: Tensor, seed: int) -> MethodOutcome:
    """Terms of a Neural Kernel Network.

    For a series, of the few terms that ``simplify`` keeps of a network with a sparse prior; for
    several columns, those that the components of a network of one-dimensional kernels link.

    Args:
        x: Inputs ``N x D``: a series for ``D = 1``, else columns that may form groups.
        y: Targets ``N``.
        seed: Determines every random draw.
    """
    start = time.process_time()
    terms: Sequence[Term]
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    if x.size(-1) == 1:
        network = NeuralKernelNetwork.time_series(sparsity="l1")
        model = fit_best_of(_StandardisedGP(x, y, network), restarts=1, seed=seed, progress=False)
        found = simplify(model, max_candidates=10, zero_mean=True)
        kinds = [tuple(map(_kind, term.factors)) for term in found.terms]
        kernels = [ScaleKernel(term.kernel).double() for term in found.terms]
        for kernel, term in zip(kernels, found.terms, strict=True):
            kernel.outputscale = float(term.weight)
        terms = ranked_terms(found.model, kinds, kernels)
    else:
        network = NeuralKernelNetwork.additive(x.size(-1), priors=False)
        model = fit_best_of(_StandardisedGP(x, y, network), restarts=2, seed=seed, progress=False)
        terms = decompose(model, by="columns", max_components=1000).column_groups()
    return MethodOutcome(terms, time.process_time() - start)


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


def _search(x: Tensor, y: Tensor, seed: int) -> MethodOutcome:
    start = time.process_time()
    single = x.size(-1) == 1
    if single:
        found = search(x, y, max_depth=12, restarts=4, seed=seed)
    else:  # a round has over a hundred children here, and one has to come for every column
        found = search(x, y, max_depth=25, restarts=1, seed=seed)
    terms: list[Term] = list(found.terms)
    if not single:
        terms = [tuple(int(kind[4:]) - 1 for kind in term) for term in found.terms]
    ranked = ranked_terms(found.model, terms, found.term_kernels)
    return MethodOutcome(ranked, time.process_time() - start)


METHODS: dict[str, Callable[[Tensor, Tensor, int], MethodOutcome]] = {
    "search": _search,
    "ours": ours,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing in the results file and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recovery",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, default=tuple(CASES))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=tuple(METHODS))
    parser.add_argument("--first-seed", type=int, default=100, metavar="S")
    parser.add_argument("--draws", type=int, default=20, metavar="K", help="seeds S to S + K - 1")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes of one core")
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/recovery.jsonl"), metavar="FILE"
    )
    args = parser.parse_args(argv)
    wanted = [
        (case, method, seed)
        for seed in range(args.first_seed, args.first_seed + args.draws)
        for case in args.cases
        for method in args.methods
    ]
    records = _read(args.out)
    missing = [key for key in wanted if key not in records]
    print(f"{len(wanted) - len(missing)} of {len(wanted)} runs are in {args.out}.", file=sys.stderr)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    pool = Parallel(n_jobs=args.jobs, return_as="generator_unordered")
    failures = 0
    for key, record, fault in pool(delayed(_run)(*key) for key in missing):
        if record is None:
            failures += 1
            print(f"{key} failed: {fault}", file=sys.stderr)
            continue
        with args.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        records[key] = record
        print(f"{key}: {record['right']}, {record['cpu_seconds']:.1f} s", file=sys.stderr)
    print(_table([records[key] for key in wanted if key in records]))
    return 1 if failures else 0


def _read(path: Path) -> dict[tuple[str, str, int], dict]:
    if not path.exists():
        return {}
    records = map(json.loads, filter(None, path.read_text(encoding="utf-8").splitlines()))
    return {(record["case"], record["method"], record["seed"]): record for record in records}


def _run(case: str, method: str, seed: int) -> tuple[tuple[str, str, int], dict | None, str]:
    torch.set_num_threads(1)
    key = case, method, seed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _warm_up()
        data = draw(case, seed)
        try:
            outcome = METHODS[method](data.x, data.y, seed)
        except Exception as error:  # the other runs go on
            return key, None, f"{type(error).__name__}: {error}"
    right, within = score(outcome.terms, data.truth)
    record = {
        "case": case,
        "method": method,
        "seed": seed,
        "num_points": len(data.y),
        "truth": data.truth,
        "shares": data.shares,
        "terms": outcome.terms,
        "right": right,
        "within": within,
        "cpu_seconds": outcome.seconds,
        "versions": {name: metadata.version(name) for name in _LIBRARIES},
    }
    return key, record, ""


@cache
def _warm_up() -> None:
    """Once in a process: imports and compilation are not what is measured."""
    x = torch.linspace(0, 1, 20, dtype=torch.float64)
    search(x, torch.sin(9 * x), max_depth=1, restarts=1)
    ours(x.unsqueeze(-1), torch.sin(9 * x) + 0.1 * torch.cos(77 * x), 0)


def _table(records: Sequence[dict]) -> str:
    if not records:
        return "No results."
    runs: dict[str, dict[str, list[dict]]] = {}
    for record in records:
        runs.setdefault(record["case"], {}).setdefault(record["method"], []).append(record)
    lines = [
        "| case | method | right | within a true term | mean CPU s | in those of search |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for case, methods in runs.items():
        for method, own in methods.items():
            right = f"{sum(run['right'] for run in own)} of {len(own)}"
            within = f"{np.mean([run['within'] for run in own]):.0%}"
            seconds = _mean_seconds(own)
            base = methods.get("search")
            ratio = "" if base is None else f"{seconds / _mean_seconds(base):.2f}"
            lines.append(f"| {case} | {method} | {right} | {within} | {seconds:.1f} | {ratio} |")
    versions = ", ".join(f"{k} {v}" for k, v in records[-1]["versions"].items())
    return "\n".join([*lines, "", f"{versions}. One thread per run."])


def _mean_seconds(runs: Sequence[dict]) -> float:
    return float(np.mean([run["cpu_seconds"] for run in runs]))


if __name__ == "__main__":
    from benchmarks import recovery  # the name by which the processes find what they run

    sys.exit(recovery.main())
