"""A loop of Bayesian optimisation, the same for every surrogate model and every problem.

All surrogates of one seed start from the same 10 random points. Further points maximise an
acquisition function: logarithmic expected improvement, its noisy form for noisy or constrained
values, or its hypervolume form for several objectives. Every outcome has its own model.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction, LogExpectedImprovement
from botorch.acquisition.logei import qLogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.acquisition.objective import GenericMCObjective
from botorch.fit import fit_gpytorch_mll
from botorch.models import MixedSingleTaskGP, ModelListGP, SingleTaskGP
from botorch.models.utils.gpytorch_modules import (
    get_gaussian_likelihood_with_gamma_prior,
    get_matern_kernel_with_gamma_prior,
)
from botorch.optim import optimize_acqf, optimize_acqf_mixed_alternating
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.multi_objective.box_decompositions import DominatedPartitioning
from botorch.utils.multi_objective.pareto import is_non_dominated
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from gpytorch_nkn.bo import coordinate_sweep_initial_conditions
from gpytorch_nkn.models import StructureEnsembleGP, fit_structure_ensemble_gp

__all__ = ["INITIAL_POINTS", "SURROGATES", "Problem", "initial_points", "next_points", "run_loop"]

INITIAL_POINTS = 10
_SEARCH = {"num_restarts": 8, "raw_samples": 256}
_BATCH, _ITERATIONS = 8, 100  # restarts in parallel, and largest number of iterations
Surrogate = Callable[..., Any]  # returns a fitted model of inputs and targets


@dataclass(frozen=True)
class Problem:
    """A function on a box, called with points of the unit cube and codes of categories.

    It returns values ``...`` at points ``... x D`` of the box; or outcomes ``... x M``:
    objectives, then constraints, which are satisfied where they are not negative.
    """

    name: str  # of a BBOB function, or key of ``bo_real_loops.PROBLEMS``
    function: Callable[[Tensor], Tensor]
    bounds: Tensor  # lower and upper bounds 2 x D; 0 and 1 for a column of codes
    optimum: float  # smallest score, or a lower bound
    objectives: int = 1
    constraints: int = 0
    noise: float = 0.0  # standard deviation of the noise of each outcome
    levels: Mapping[int, int] = field(default_factory=dict)  # numbers of categories by column
    reference: tuple[float, ...] = ()  # point from which hypervolumes are measured
    penalty: float = math.nan  # score of a point that violates a constraint

    @property
    def dim(self) -> int:
        """Number of input columns."""
        return self.bounds.size(-1)

    def __call__(self, x: Tensor) -> Tensor:
        """Values ``...`` at points ``... x D`` of the unit cube."""
        lower, upper = self.bounds
        return self.function(lower + (upper - lower) * x)


def _fitted(make: Callable[..., SingleTaskGP]) -> Surrogate:
    def fit(X: Tensor, Y: Tensor, **options: Any) -> SingleTaskGP:
        mixed = "cat_dims" in options and make is SingleTaskGP
        model = MixedSingleTaskGP(X, Y, **options) if mixed else make(X, Y, **options)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model

    return fit


def _matern(X: Tensor, Y: Tensor) -> SingleTaskGP:
    kernel = get_matern_kernel_with_gamma_prior(X.size(-1))
    likelihood = get_gaussian_likelihood_with_gamma_prior()
    return SingleTaskGP(X, Y, covar_module=kernel, likelihood=likelihood)


SURROGATES: dict[str, Surrogate] = {
    "singletask": _fitted(SingleTaskGP),
    "matern": _fitted(_matern),
    "structures": lambda *data, **o: fit_structure_ensemble_gp(StructureEnsembleGP(*data, **o)),
}


def _generator(*entropy: Any) -> torch.Generator:
    """Return a seed for each evaluation, so that an interrupted run gives the same points."""
    words = [zlib.crc32(word.encode()) if isinstance(word, str) else word for word in entropy]
    (value,) = np.random.SeedSequence(words).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(value) >> 1)


def _random_points(problem: Problem, count: int, generator: torch.Generator) -> Tensor:
    x = torch.rand(count, problem.dim, generator=generator, dtype=torch.float64)
    for column, levels in problem.levels.items():
        x[:, column] = (levels * x[:, column]).floor()
    return x


def initial_points(problem: Problem, seed: int) -> Tensor:
    """Return the points ``10 x D`` that all methods share."""
    return _random_points(problem, INITIAL_POINTS, _generator(problem.name, seed, 0))


def run_loop(problem: Problem, surrogate: str, seed: int, evaluations: int, batch: int = 1) -> dict:
    """Minimise a problem with ``batch`` points in each iteration.

    Returns ``y``, the scores of all points in their order (lower is better); seconds of each
    iteration's fit and search; the number of iterations that failed and took random points.
    """

    def outcomes(points: Tensor) -> tuple[Tensor, Tensor]:
        exact = problem(points).reshape(len(points), -1)
        generator = _generator(f"{problem.name} noise", seed, len(x))
        noise = torch.randn(exact.shape, generator=generator, dtype=exact.dtype)
        return exact, exact + problem.noise * noise

    x = initial_points(problem, seed)
    exact, observed = outcomes(x)
    fitting, searching, failures = [], [], 0
    while len(x) < evaluations:
        generator = _generator(problem.name, seed, len(x))
        begin = time.process_time()
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(generator.initial_seed())
                points, fitted = next_points(problem, surrogate, x, observed, batch)
        except Exception:  # the run goes on
            failures += 1
            points, fitted = _random_points(problem, batch, generator), time.process_time()
        fitting.append(fitted - begin)
        searching.append(time.process_time() - fitted)
        x = torch.cat([x, points])
        values, noisy = outcomes(points)
        exact, observed = torch.cat([exact, values]), torch.cat([observed, noisy])
    return {
        "y": _scores(problem, exact),
        "optimum": problem.optimum,
        "fit": fitting,
        "search": searching,
        "failures": failures,
    }


def _scores(problem: Problem, outcomes: Tensor) -> list[float]:
    if problem.objectives > 1:
        reference = -torch.tensor(problem.reference).to(outcomes)
        return [
            -DominatedPartitioning(reference, -outcomes[:count]).compute_hypervolume().item()
            for count in range(1, len(outcomes) + 1)
        ]
    is_feasible = (outcomes[:, 1:] >= 0).all(-1)
    return torch.where(is_feasible, outcomes[:, 0], problem.penalty).tolist()


def next_points(
    problem: Problem, surrogate: str, x: Tensor, outcomes: Tensor, batch: int = 1
) -> tuple[Tensor, float]:
    """Return the next points ``q x D``, and the times at which their models were fitted."""
    signs = torch.tensor([-1.0] * problem.objectives + [1.0] * problem.constraints)
    targets = outcomes * signs.to(outcomes)  # objectives to be maximised, constraints
    options = {"cat_dims": list(problem.levels)} if problem.levels else {}
    fit = SURROGATES[surrogate]
    models = [fit(x, column[:, None], **options) for column in targets.unbind(-1)]
    fitted = time.process_time()
    acqf = _acquisition(problem, models, x, targets, batch)
    upper = torch.ones_like(x[0])
    for column, count in problem.levels.items():
        upper[column] = count - 1
    bounds = torch.stack([torch.zeros_like(upper), upper])
    if problem.levels:
        codes = {c: [float(v) for v in range(n)] for c, n in problem.levels.items()}
        search = {"batch_limit": _BATCH, "maxiter_continuous": _ITERATIONS}
        points, _ = optimize_acqf_mixed_alternating(
            acqf, bounds, cat_dims=codes, q=batch, options=search, **_SEARCH
        )
    else:
        starts: dict[str, Any] = {}
        if surrogate == "structures":
            best = x[_values(problem, targets).argsort(descending=True, stable=True)[:5]]
            starts["ic_generator"] = partial(coordinate_sweep_initial_conditions, incumbent=best)
        search = {"batch_limit": _BATCH, "maxiter": _ITERATIONS}
        points, _ = optimize_acqf(
            acqf, bounds, q=batch, sequential=batch > 1, options=search, **_SEARCH, **starts
        )
        points = points.clamp(0, 1)
    if points.shape != (batch, problem.dim) or not points.isfinite().all():
        raise RuntimeError(f"expected {batch} finite points, got {points.tolist()}")
    return points.detach(), fitted


def _values(problem: Problem, targets: Tensor) -> Tensor:
    if problem.objectives > 1:
        return is_non_dominated(targets).to(targets)
    return torch.where((targets[:, 1:] >= 0).all(-1), targets[:, 0], -math.inf)


def _acquisition(
    problem: Problem, models: Sequence[Any], x: Tensor, targets: Tensor, batch: int
) -> AcquisitionFunction:
    model = models[0] if len(models) == 1 else ModelListGP(*models)
    multi_objective = problem.objectives > 1
    # BoTorch takes its default number of draws from every member; here the members share it
    members = models[0].num_members if isinstance(models[0], StructureEnsembleGP) else 1
    sampler = SobolQMCNormalSampler(torch.Size([(128 if multi_objective else 512) // members]))
    if multi_objective:
        reference = [-value for value in problem.reference]
        return qLogNoisyExpectedHypervolumeImprovement(
            model, reference, x, sampler=sampler, prune_baseline=True
        )
    if problem.constraints:
        numbers = range(1, 1 + problem.constraints)
        constraints = [lambda values, number=number: -values[..., number] for number in numbers]
        objective = GenericMCObjective(lambda values, X=None: values[..., 0])
        return qLogNoisyExpectedImprovement(
            model, x, sampler=sampler, objective=objective, constraints=constraints
        )
    if problem.noise:
        return qLogNoisyExpectedImprovement(model, x, sampler=sampler)
    if batch > 1:
        return qLogExpectedImprovement(model, best_f=targets.max(), sampler=sampler)
    return LogExpectedImprovement(model, best_f=targets.max())
