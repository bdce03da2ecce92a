"""Bayesian optimisation as it is in use: noise, constraints, categories, several objectives.

``python -m benchmarks.bo_real_loops`` does for these functions what
:mod:`benchmarks.bayesian_optimization` does for values without noise, with its surrogates,
settings, seeds and files. Every outcome has a surrogate of its own, in a ``ModelListGP``. The
acquisition function is the logarithmic noisy expected improvement where values are noisy or
constrained, that of the hypervolume with several objectives, the expected improvement else; over
categories it is searched by BoTorch's ``optimize_acqf_mixed_alternating``. What is compared is,
after so many evaluations, the smallest value without its noise, the smallest that keeps the
constraints, or minus the hypervolume.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path

from benchmarks import bayesian_optimization as harness  # first: it sets the number of threads

import numpy as np  # isort: skip
import torch
from botorch.acquisition import AcquisitionFunction, LogExpectedImprovement
from botorch.acquisition.logei import qLogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.acquisition.objective import GenericMCObjective
from botorch.models import MixedSingleTaskGP, ModelListGP
from botorch.optim import optimize_acqf_mixed_alternating
from botorch.sampling import SobolQMCNormalSampler
from botorch.test_functions import (
    Hartmann,
    Penicillin,
    PressureVessel,
    SpeedReducer,
    VehicleSafety,
    WeldedBeamSO,
)
from botorch.utils.multi_objective.box_decompositions import DominatedPartitioning
from botorch.utils.multi_objective.pareto import is_non_dominated
from joblib import Parallel, delayed
from sklearn.datasets import load_diabetes
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    QuantileTransformer,
    StandardScaler,
)
from sklearn.svm import SVR
from torch import Tensor
from tqdm import tqdm

from benchmarks.bo_calibration import mixed_calibration
from benchmarks.bo_report import report
from benchmarks.bo_surrogates import (
    INITIAL_POINTS,
    SURROGATES,
    AcquisitionSettings,
    Search,
    Surrogate,
    make_surrogate,
)
from gpytorch_nkn.models import NKNSingleTaskGP, StructureEnsembleGP

__all__ = ["REAL_PROBLEMS", "RealProblem", "main", "make_real_problem", "run"]


@dataclass(frozen=True)
class RealProblem:
    """Outcomes on a box, called with points of the unit cube and codes of categories.

    Attributes:
        name: Key of ``REAL_PROBLEMS``.
        function: Outcomes ``... x M`` at points ``... x D`` of the box: objectives, to be
            minimised, then constraints, which are kept where they are not negative.
        bounds: Lower and upper bounds ``2 x D``; 0 and 1 of a column of codes.
        optimum: Smallest score, or a bound of it.
        objectives: Number of objectives.
        constraints: Number of constraints.
        noise: Standard deviation of what is added to each outcome.
        levels: Number of categories of each categorical column, with the codes from 0 on.
        reference: With several objectives, the point from which hypervolumes are measured.
        penalty: Score of a point that breaks a constraint.
    """

    name: str
    function: Callable[[Tensor], Tensor]
    bounds: Tensor
    optimum: float
    objectives: int = 1
    constraints: int = 0
    noise: float = 0.0
    levels: Mapping[int, int] = field(default_factory=dict)
    reference: tuple[float, ...] = ()
    penalty: float = math.nan
    groups: None = None

    @property
    def dim(self) -> int:
        """Number of input columns."""
        return self.bounds.size(-1)

    def __call__(self, x: Tensor) -> Tensor:
        """Outcomes ``N x M`` at points ``N x D``, without noise."""
        lower, upper = self.bounds
        return self.function(lower + (upper - lower) * x)

    def initial_points(self, seed: int) -> Tensor:
        """Random points ``10 x D``, the same for every surrogate."""
        generator = harness._generator(self.name, seed, 0)
        x = torch.rand(INITIAL_POINTS, self.dim, generator=generator, dtype=torch.float64)
        for column, count in self.levels.items():
            x[:, column] = (count * x[:, column]).floor()
        return x

    def scores(self, outcomes: Tensor) -> list[float]:
        """A number for each row of outcomes ``N x M``, the less the better."""
        if self.objectives > 1:
            reference = -torch.tensor(self.reference).to(outcomes)
            found = []
            for count in range(1, len(outcomes) + 1):
                rows = -outcomes[:count]
                found.append(-DominatedPartitioning(reference, rows).compute_hypervolume().item())
            return found
        kept = (outcomes[:, 1:] >= 0).all(-1)
        return torch.where(kept, outcomes[:, 0], self.penalty).tolist()


def _noisyhartmann6() -> RealProblem:
    function = Hartmann(6)._evaluate_true
    bounds = torch.tensor([[0.0] * 6, [1.0] * 6], dtype=torch.float64)
    optimum = -3.32236801141551
    return RealProblem("noisyhartmann6", lambda x: function(x)[:, None], bounds, optimum, noise=0.2)


def _constrained(name: str, make: Callable, optimum: float | None = None) -> RealProblem:
    """One of BoTorch's, with its own optimum where none is given."""
    problem = make()

    def function(x: Tensor) -> Tensor:
        values = problem._evaluate_true(x).view(len(x), 1)
        return torch.cat([values, problem._evaluate_slack_true(x)], -1)

    bounds = problem.bounds.double()
    # no point of a random sample is worse
    sample = torch.quasirandom.SobolEngine(bounds.size(-1), scramble=True, seed=0).draw(1024)
    worst = function(bounds[0] + (bounds[1] - bounds[0]) * sample)[:, 0].max().item()
    return RealProblem(
        name,
        function,
        bounds,
        problem._optimal_value if optimum is None else optimum,
        constraints=problem.num_constraints,
        penalty=worst,
    )


def _several(name: str, make: Callable) -> RealProblem:
    """BoTorch's functions have three objectives, of which all are kept."""
    problem = make()
    return RealProblem(
        name,
        problem._evaluate_true,
        problem.bounds.double(),
        -problem._max_hv,
        objectives=problem.num_objectives,
        reference=tuple(problem._ref_point),
    )


_SCALERS = (FunctionTransformer, StandardScaler, MinMaxScaler, QuantileTransformer)
_SVR_KERNELS = ("linear", "poly", "rbf", "sigmoid")
_LOSSES = ("squared_error", "absolute_error", "huber", "quantile")
_CRITERIA = ("friedman_mse", "squared_error")


def _tunesvr() -> RealProblem:
    """A support vector machine on scikit-learn's diabetes data.

    Columns: logarithms of the cost, of the width of the tube and of the scale of the kernel, its
    offset, its degree; kernel and scaling of the columns.
    """
    bounds = torch.tensor([[-1.0, -3.0, -4.0, 0.0, 1.0, 0, 0], [3.0, 0.0, 1.0, 2.0, 4.49, 1, 1]])

    def model(cost, tube, scale, offset, degree, kernel, scaler):
        options = {"n_quantiles": 100} if _SCALERS[int(scaler)] is QuantileTransformer else {}
        machine = SVR(
            kernel=_SVR_KERNELS[int(kernel)],
            C=10**cost,
            epsilon=10**tube,
            gamma=10**scale,
            coef0=offset,
            degree=round(degree),
            max_iter=20_000,
        )
        return make_pipeline(_SCALERS[int(scaler)](**options), machine)

    return RealProblem(
        "tunesvr", partial(_errors, model), bounds.double(), 0.0, levels={5: 4, 6: 4}
    )


def _tuneboosting() -> RealProblem:
    """Boosted trees on scikit-learn's diabetes data.

    Columns: logarithms of the rate and of the number of trees, their depth, the least rows of a
    leaf, the shares of rows and of columns that a tree sees; loss and criterion.
    """
    bounds = torch.tensor(
        [[-2.5, 1.0, 0.51, 1.0, 0.3, 0.1, 0, 0], [0.0, 2.3, 6.49, 40.0, 1.0, 1.0, 1, 1]]
    )

    def model(rate, trees, depth, leaf, rows, columns, loss, criterion):
        return GradientBoostingRegressor(
            learning_rate=10**rate,
            n_estimators=round(10**trees),
            max_depth=round(depth),
            min_samples_leaf=round(leaf),
            subsample=rows,
            max_features=columns,
            loss=_LOSSES[int(loss)],
            alpha=0.5,
            criterion=_CRITERIA[int(criterion)],
            random_state=0,
        )

    return RealProblem(
        "tuneboosting", partial(_errors, model), bounds.double(), 0.0, levels={6: 4, 7: 2}
    )


def _errors(model: Callable, x: Tensor) -> Tensor:
    """Mean squared errors ``N x 1`` on three folds, in parts of the variance, at most 4."""
    data, targets = _diabetes()
    folds, found = KFold(3, shuffle=True, random_state=0), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that an optimiser has stopped
        for row in x.tolist():
            scores = cross_val_score(model(*row), data, targets, cv=folds, scoring="r2")
            found.append(min(1 - float(np.mean(scores)), 4.0))
    return torch.tensor(found, dtype=torch.float64)[:, None]


@cache
def _diabetes() -> tuple[np.ndarray, np.ndarray]:
    data, targets = load_diabetes(return_X_y=True)
    return data, (targets - targets.mean()) / targets.std()


REAL_PROBLEMS: dict[str, Callable[[], RealProblem]] = {
    "noisyhartmann6": _noisyhartmann6,
    "weldedbeam": partial(_constrained, "weldedbeam", WeldedBeamSO),
    # thicknesses are rounded in the cost and not in the constraints: 6,059.9 is not the least
    "pressurevessel": partial(_constrained, "pressurevessel", PressureVessel, 5633.95),
    "speedreducer": partial(_constrained, "speedreducer", SpeedReducer),
    "tunesvr": _tunesvr,
    "tuneboosting": _tuneboosting,
    "vehiclesafety": partial(_several, "vehiclesafety", VehicleSafety),
    "penicillin": partial(_several, "penicillin", Penicillin),
}


def make_real_problem(name: str) -> RealProblem:
    """The problem of that name."""
    if name not in REAL_PROBLEMS:
        raise ValueError(f"name must be one of {', '.join(REAL_PROBLEMS)}; got {name!r}.")
    return REAL_PROBLEMS[name]()


_MIXED = {
    "singletask": MixedSingleTaskGP,
    "sobol": MixedSingleTaskGP,
    "ours": NKNSingleTaskGP,
    "structures": StructureEnsembleGP,
}


def _surrogate(name: str, problem: RealProblem, acquisition: AcquisitionSettings) -> Surrogate:
    """A surrogate of one outcome, which knows what is categorical.

    Raises:
        ValueError: It has no kernel of categories, or is for one outcome.
    """
    way = make_surrogate(name, problem, acquisition)  # type: ignore[arg-type]
    if problem.levels:
        make = _MIXED.get(name)
        if make is None:
            raise ValueError(f"{name} has no kernel of categories, which {problem.name} needs.")
        way.make = partial(make, cat_dims=list(problem.levels))
    if name == "turbo" and problem.objectives + problem.constraints > 1:
        raise ValueError(f"turbo is for one outcome, and {problem.name} has several.")
    return way


def run(
    function: str,
    surrogate: str,
    seed: int,
    *,
    evaluations: int = 100,
    out: Path,
    acquisition: AcquisitionSettings | None = None,
) -> dict:
    """As :func:`benchmarks.bayesian_optimization.run`, for a key of ``REAL_PROBLEMS``."""
    acquisition = AcquisitionSettings() if acquisition is None else acquisition
    problem = make_real_problem(function)
    way = _surrogate(surrogate, problem, acquisition)
    path = harness.record_path(out, function, surrogate, seed)
    record = _open(path, problem, surrogate, seed, acquisition)
    x, outcomes = (torch.tensor(record[name], dtype=torch.float64) for name in ("x", "outcomes"))
    previous: list = [None] * outcomes.size(-1)
    if record["model"]:
        signs = zip(_targets(problem, outcomes).unbind(-1), record["model"], strict=True)
        previous = [harness._restored(way, x, -target, state) for target, state in signs]
    while len(x) < evaluations:
        points, previous = _next_points(way, problem, x, outcomes, previous, record, seed)
        x = torch.cat([x, points])
        exact = problem(points)
        noisy = exact + _noise(problem, seed, len(x), exact)
        outcomes = torch.cat([outcomes, noisy])
        record["x"] += points.tolist()
        record["exact"] += exact.tolist()
        record["outcomes"] += noisy.tolist()
        if len(x) % 10 < len(points) or len(x) >= evaluations:
            record["y"] = problem.scores(torch.tensor(record["exact"], dtype=torch.float64))
            states = [harness._state(way, model) for model in previous]
            record["model"] = None if None in states else states
            harness._write(path, record)
    return record


def _targets(problem: RealProblem, outcomes: Tensor) -> Tensor:
    """What is modelled ``N x M``: objectives to be maximised, and constraints."""
    signs = [-1.0] * problem.objectives + [1.0] * problem.constraints
    return outcomes * torch.tensor(signs).to(outcomes)


def _next_points(
    way: Surrogate,
    problem: RealProblem,
    x: Tensor,
    outcomes: Tensor,
    previous: list,
    record: dict,
    seed: int,
) -> tuple[Tensor, list]:
    """The next points ``q x D`` and the models that chose them, as in the other harness."""
    iteration = len(x)
    generator = harness._generator(problem.name, seed, iteration)
    targets = _targets(problem, outcomes)
    shape = (way.acquisition.q, problem.dim)
    stage, models, points = "fit", previous, None
    wall, start, fitted = time.perf_counter(), time.process_time(), None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())
        try:
            models = [
                way.fit(x, column[:, None], last if way.uses_previous else None)
                for column, last in zip(targets.unbind(-1), previous, strict=True)
            ]
            fitted, stage = time.process_time(), "acquisition"
            points = _propose(way, problem, models, x, targets).detach()
            if points.shape != shape or not points.isfinite().all():
                raise RuntimeError(f"expected {shape[0]} finite points, got {points.tolist()}")
        except Exception as error:  # the run goes on
            fault = f"{type(error).__name__}: {error}"[:500]
            record["failures"].append({"n": iteration, "stage": stage, "error": fault})
            points = torch.rand(shape, generator=generator, dtype=x.dtype)
            for column, count in problem.levels.items():
                points[:, column] = (count * points[:, column]).floor()
    end = time.process_time()
    fitted = end if fitted is None else fitted
    record["fit_seconds"].append(fitted - start)
    record["acquisition_seconds"].append(end - fitted)
    record["wall_seconds"] += time.perf_counter() - wall
    return points, models


def _propose(
    way: Surrogate, problem: RealProblem, models: list, x: Tensor, targets: Tensor
) -> Tensor:
    acqf = _acquisition(problem, models, x, targets, way.acquisition.q)
    upper = torch.ones_like(x[0])
    for column, count in problem.levels.items():
        upper[column] = count - 1
    bounds = torch.stack([torch.zeros_like(upper), upper])
    settings = way.acquisition
    if problem.levels:
        candidate, _ = optimize_acqf_mixed_alternating(
            acqf,
            bounds,
            cat_dims={c: [float(v) for v in range(n)] for c, n in problem.levels.items()},
            q=settings.q,
            num_restarts=settings.num_restarts,
            raw_samples=settings.raw_samples,
            options={"batch_limit": settings.batch_limit, "maxiter_continuous": settings.maxiter},
        )
        return candidate
    if problem.objectives > 1:
        values = is_non_dominated(targets).to(targets)
    else:
        kept = (targets[:, 1:] >= 0).all(-1)
        values = torch.where(kept, targets[:, 0], -math.inf)
    return way.propose(Search(models[0], acqf, bounds, x, values)).clamp(0, 1)  # type: ignore[arg-type]


def _acquisition(
    problem: RealProblem, models: list, x: Tensor, targets: Tensor, q: int
) -> AcquisitionFunction:
    model = models[0] if len(models) == 1 else ModelListGP(*models)
    several = problem.objectives > 1
    # BoTorch draws its default number from every member of an ensemble: here so many in all
    members = models[0].num_members if isinstance(models[0], StructureEnsembleGP) else 1
    sampler = SobolQMCNormalSampler(torch.Size([(128 if several else 512) // members]))
    if several:
        reference = [-value for value in problem.reference]
        return qLogNoisyExpectedHypervolumeImprovement(
            model, reference, x, sampler=sampler, prune_baseline=True
        )
    if problem.constraints:
        numbers = range(1, 1 + problem.constraints)
        return qLogNoisyExpectedImprovement(
            model,
            x,
            sampler=sampler,
            objective=GenericMCObjective(lambda values, X=None: values[..., 0]),
            constraints=[lambda values, number=number: -values[..., number] for number in numbers],
        )
    if problem.noise:
        return qLogNoisyExpectedImprovement(model, x, sampler=sampler)
    if q > 1:
        return qLogExpectedImprovement(model, best_f=targets.max(), sampler=sampler)
    return LogExpectedImprovement(model, best_f=targets.max())


def _noise(problem: RealProblem, seed: int, number: int, like: Tensor) -> Tensor:
    generator = harness._generator(f"{problem.name} noise", seed, number)
    return problem.noise * torch.randn(like.shape, generator=generator, dtype=like.dtype)


def _open(
    path: Path, problem: RealProblem, surrogate: str, seed: int, acquisition: AcquisitionSettings
) -> dict:
    if path.exists():
        record = json.loads(path.read_text(encoding="utf-8"))
        if {"q": 1, **record["acquisition"]} != asdict(acquisition):
            raise ValueError(
                f"{path} has the acquisition settings {record['acquisition']}, expected "
                f"{asdict(acquisition)}; take another folder."
            )
        return record
    x = problem.initial_points(seed)
    exact = problem(x)
    return {
        "function": problem.name,
        "surrogate": surrogate,
        "seed": seed,
        "optimum": problem.optimum,
        "acquisition": asdict(acquisition),
        "x": x.tolist(),
        "exact": exact.tolist(),
        "outcomes": (exact + _noise(problem, seed, 0, exact)).tolist(),
        "y": problem.scores(exact),
        "fit_seconds": [],
        "acquisition_seconds": [],
        "wall_seconds": 0.0,
        "failures": [],
        "model": None,
        "versions": {name: harness.metadata.version(name) for name in harness._LIBRARIES},
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bo_real_loops",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = tuple(REAL_PROBLEMS)
    parser.add_argument("--functions", nargs="+", choices=names, default=names)
    peers = tuple(name for name in SURROGATES if name != "oracle")
    parser.add_argument("--surrogates", nargs="+", choices=peers, default=peers)
    parser.add_argument("--seeds", type=int, nargs="+", default=tuple(range(100, 110)), metavar="S")
    parser.add_argument("--evaluations", type=int, default=100, metavar="N")
    parser.add_argument("--batch", type=int, default=1, metavar="Q", help="points of an iteration")
    parser.add_argument("--workers", type=int, default=1, metavar="W", help="processes of one core")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/.bo_real"), metavar="DIR")
    parser.add_argument("--report", action="store_true", help="only print the tables")
    parser.add_argument(
        "--calibration", action="store_true", help="only print how well categories are predicted"
    )
    args = parser.parse_args(argv)
    if args.calibration:
        able = [name for name in args.surrogates if name in _MIXED and name != "sobol"]
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            print(mixed_calibration(able, args.seeds))
        return 0
    if args.evaluations <= INITIAL_POINTS:
        parser.error(f"--evaluations must exceed {INITIAL_POINTS}, got {args.evaluations}.")
    if args.batch < 1 or (args.evaluations - INITIAL_POINTS) % args.batch:
        parser.error(
            f"--evaluations must be {INITIAL_POINTS} and a multiple of --batch, got "
            f"{args.evaluations} and {args.batch}."
        )
    acquisition = AcquisitionSettings(q=args.batch)
    keys = [
        (function, surrogate, seed)
        for seed in args.seeds
        for function in args.functions
        for surrogate in args.surrogates
        if not args.report
    ]
    pool = Parallel(n_jobs=args.workers, return_as="generator_unordered")
    failures = 0
    runs = pool(delayed(_guarded)(*key, args.evaluations, args.out, acquisition) for key in keys)
    for line, failed in tqdm(runs, total=len(keys), unit="run", disable=None):
        failures += failed
        tqdm.write(line, file=sys.stderr)
    records = harness.read_records(args.out, args.functions, args.surrogates, args.seeds)
    print(report(records, evaluations=args.evaluations))
    return 1 if failures else 0


def _guarded(
    function: str,
    surrogate: str,
    seed: int,
    evaluations: int,
    out: Path,
    acquisition: AcquisitionSettings,
) -> tuple[str, bool]:
    torch.set_num_threads(1)
    key = f"{function} {surrogate} {seed}"
    try:
        _surrogate(surrogate, make_real_problem(function), acquisition)
    except ValueError as error:
        return f"{key}: left out, {error}", False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            record = run(
                function, surrogate, seed, evaluations=evaluations, out=out, acquisition=acquisition
            )
        except Exception as error:  # the other runs go on
            return f"{key}: failed: {type(error).__name__}: {error}", True
    return f"{key}: {min(record['y']):.5g}, {len(record['failures'])} failures", False


if __name__ == "__main__":
    from benchmarks import bo_real_loops  # the name by which the processes find it

    sys.exit(bo_real_loops.main())
