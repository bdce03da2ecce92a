"""How low a value Bayesian optimisation finds with one surrogate model or another.

``python -m benchmarks.bayesian_optimization`` minimises every function with every surrogate: 10
random points that all surrogates of one seed share, then the maximiser of the logarithmic expected
improvement, observed without noise, until there are 100 points. Inputs are scaled to the unit cube,
targets standardised by the models, the noise is inferred. Each run has a file in the folder of the
results, rewritten every 10 evaluations, so that a second call goes on where the first one ended:
every evaluation draws from a generator of its own seed, and an interrupted run gives the same
points as another. Seeds 0 to 4 are for tuning, 100 to 109 for the report. ``--suite wide`` takes
more functions, ``--functions`` any of them.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy and torch read them; the processes inherit them

import argparse  # noqa: E402
import json  # noqa: E402
import math  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
import zlib  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from dataclasses import asdict  # noqa: E402
from functools import cache  # noqa: E402
from importlib import metadata  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from botorch.acquisition import LogExpectedImprovement  # noqa: E402
from botorch.models import SingleTaskGP  # noqa: E402
from joblib import Parallel, delayed  # noqa: E402
from torch import Tensor  # noqa: E402
from tqdm import tqdm  # noqa: E402

from benchmarks.bo_calibration import calibration  # noqa: E402
from benchmarks.bo_problems import PROBLEMS, SUITES, Problem, make_problem  # noqa: E402
from benchmarks.bo_report import report  # noqa: E402
from benchmarks.bo_surrogates import (  # noqa: E402
    INITIAL_POINTS,
    SURROGATES,
    AcquisitionSettings,
    Search,
    Surrogate,
    make_surrogate,
)

__all__ = ["INITIAL_POINTS", "initial_points", "main", "read_records", "record_path", "run"]

_CHECKPOINT_EVERY = 10
_LIBRARIES = ("torch", "gpytorch", "botorch", "numpy", "scipy", "gpytorch_nkn")


def initial_points(problem: Problem, seed: int) -> Tensor:
    """Random points ``10 x D`` of the unit cube, the same for every surrogate."""
    generator = _generator(problem.name, seed, 0)
    return torch.rand(INITIAL_POINTS, problem.dim, generator=generator, dtype=torch.float64)


def run(
    function: str,
    surrogate: str,
    seed: int,
    *,
    evaluations: int = 100,
    out: Path,
    acquisition: AcquisitionSettings | None = None,
) -> dict:
    """Minimise a function, from the start or from where its file ends.

    An iteration whose fit or acquisition fails takes a random point instead, and is recorded.

    Args:
        function: Key of ``PROBLEMS``.
        surrogate: Key of ``SURROGATES``.
        seed: Determines the function, where it is random, and every draw.
        evaluations: Evaluations of the function in all, the initial ones included.
        out: Folder of the results.
        acquisition: How the acquisition function is optimised.

    Returns:
        The record, which is in the file too.

    Raises:
        ValueError: The file comes from other settings of the acquisition.
    """
    acquisition = AcquisitionSettings() if acquisition is None else acquisition
    problem = make_problem(function, seed)
    way = make_surrogate(surrogate, problem, acquisition)
    path = record_path(out, function, surrogate, seed)
    record = _open(path, problem, surrogate, seed, acquisition)
    x = torch.tensor(record["x"], dtype=torch.float64)
    y = torch.tensor(record["y"], dtype=torch.float64)
    previous = _restored(way, x, y, record["model"])
    while len(y) < evaluations:
        point, previous = _next_point(way, x, y, previous, record, seed)
        x = torch.cat([x, point])
        y = torch.cat([y, problem(point)])
        record["x"].append(point.squeeze(0).tolist())
        record["y"].append(y[-1].item())
        if len(y) % _CHECKPOINT_EVERY == 0 or len(y) == evaluations:
            record["model"] = _state(way, previous)
            _write(path, record)
    return record


def _next_point(
    way: Surrogate,
    x: Tensor,
    y: Tensor,
    previous: SingleTaskGP | None,
    record: dict,
    seed: int,
) -> tuple[Tensor, SingleTaskGP | None]:
    """The next point ``1 x D`` and the model that chose it; adds times and failures to the record.

    A model that fails leaves its predecessor.
    """
    iteration = len(y)
    generator = _generator(record["function"], seed, iteration)
    bounds = torch.stack([torch.zeros_like(x[0]), torch.ones_like(x[0])])
    stage, model, point = "fit", previous, None
    wall, start, fitted = time.perf_counter(), time.process_time(), None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())
        try:
            model = way.fit(x, -y.unsqueeze(-1), previous if way.uses_previous else None)
            fitted = time.process_time()
            stage = "acquisition"
            acqf = LogExpectedImprovement(model, best_f=-y.min())
            point = way.propose(Search(model, acqf, bounds, x, -y))
            if point.shape != x[:1].shape or not point.isfinite().all():
                raise RuntimeError(f"expected one finite point, got {point.tolist()}")
            point = point.detach().clamp(0, 1)
        except Exception as error:  # the run goes on
            fault = f"{type(error).__name__}: {error}"[:500]
            record["failures"].append({"n": iteration, "stage": stage, "error": fault})
            point = torch.rand(x[:1].shape, generator=generator, dtype=x.dtype)
    end = time.process_time()
    fitted = end if fitted is None else fitted
    record["fit_seconds"].append(fitted - start)
    record["acquisition_seconds"].append(end - fitted)
    record["wall_seconds"] += time.perf_counter() - wall
    return point, model


def _open(
    path: Path, problem: Problem, surrogate: str, seed: int, acquisition: AcquisitionSettings
) -> dict:
    """What the file holds, or a record of the initial points."""
    if path.exists():
        record = json.loads(path.read_text(encoding="utf-8"))
        if {"q": 1, **record["acquisition"]} != asdict(acquisition):
            raise ValueError(
                f"{path} has the acquisition settings {record['acquisition']}, expected "
                f"{asdict(acquisition)}; take another folder."
            )
        return record
    x = initial_points(problem, seed)
    return {
        "function": problem.name,
        "surrogate": surrogate,
        "seed": seed,
        "optimum": problem.optimum,
        "groups": problem.groups,
        "acquisition": asdict(acquisition),
        "x": x.tolist(),
        "y": problem(x).tolist(),
        "fit_seconds": [],
        "acquisition_seconds": [],
        "wall_seconds": 0.0,
        "failures": [],
        "model": None,
        "versions": {name: metadata.version(name) for name in _LIBRARIES},
    }


def _write(path: Path, record: dict) -> None:
    """In one step, so that a run that is killed leaves a whole file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(record), encoding="utf-8")
    part.replace(path)


def _state(way: Surrogate, model: SingleTaskGP | None) -> dict | None:
    """The values of a model from which the next one starts, as plain lists; they are exact."""
    if not way.uses_previous or model is None:
        return None
    values = {
        name: value.tolist()
        for name, value in model.state_dict().items()
        if isinstance(value, Tensor)
    }
    return {"num_points": model.train_targets.size(-1), "values": values}


def _restored(way: Surrogate, x: Tensor, y: Tensor, state: dict | None) -> SingleTaskGP | None:
    if state is None:
        return None
    number = state["num_points"]
    model = way.make(x[:number], -y[:number].unsqueeze(-1))
    values = {
        name: torch.tensor(state["values"][name], dtype=value.dtype).reshape(value.shape)
        if isinstance(value, Tensor)
        else value
        for name, value in model.state_dict().items()
    }
    model.load_state_dict(values)
    return model.eval()


def _generator(function: str, seed: int, iteration: int) -> torch.Generator:
    entropy = [zlib.crc32(function.encode()), seed, iteration]
    (value,) = np.random.SeedSequence(entropy).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(value) >> 1)


def record_path(out: Path, function: str, surrogate: str, seed: int) -> Path:
    """The file of a run."""
    return out / f"{function}-{surrogate}-{seed}.json"


def read_records(
    out: Path, functions: Sequence[str], surrogates: Sequence[str], seeds: Sequence[int]
) -> list[dict]:
    """The records of those runs that have a file, by function, surrogate and seed."""
    paths = [
        record_path(out, function, surrogate, seed)
        for function in functions
        for surrogate in surrogates
        for seed in seeds
    ]
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bayesian_optimization",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--suite", choices=SUITES, default="paper")
    parser.add_argument("--functions", nargs="+", choices=PROBLEMS, help="instead of a suite")
    parser.add_argument("--surrogates", nargs="+", choices=SURROGATES, default=tuple(SURROGATES))
    parser.add_argument("--seeds", type=int, nargs="+", default=tuple(range(100, 110)), metavar="S")
    parser.add_argument("--evaluations", type=int, default=100, metavar="N")
    parser.add_argument("--workers", type=int, default=1, metavar="W", help="processes of one core")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/.bo"), metavar="DIR")
    parser.add_argument("--report", action="store_true", help="only print the tables")
    parser.add_argument(
        "--calibration", action="store_true", help="only print how well the surrogates predict"
    )
    parser.add_argument(
        "--iteration", type=int, metavar="N", help="only time iterations with up to N points"
    )
    args = parser.parse_args(argv)
    args.functions = args.functions or SUITES[args.suite]
    if args.evaluations <= INITIAL_POINTS:
        parser.error(f"--evaluations must exceed {INITIAL_POINTS}, got {args.evaluations}.")
    if args.calibration:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            print(calibration(args.functions, args.surrogates, args.seeds))
        return 0
    if args.iteration is not None:
        if args.iteration <= INITIAL_POINTS:
            parser.error(f"--iteration must exceed {INITIAL_POINTS}, got {args.iteration}.")
        print(_iteration_times(args.functions, args.surrogates, args.seeds[0], args.iteration))
        return 0
    failures = 0 if args.report else _run_missing(args)
    records = read_records(args.out, args.functions, args.surrogates, args.seeds)
    print(report(records, evaluations=args.evaluations))
    return 1 if failures else 0


def _run_missing(args: argparse.Namespace) -> int:
    """Every run that is not at its end, one seed of all functions after another."""
    structured = {name for name in args.functions if make_problem(name, 0).groups is not None}
    wanted = [
        (function, surrogate, seed)
        for surrogate in args.surrogates
        for seed in args.seeds
        for function in args.functions
        if surrogate != "oracle" or function in structured
    ]
    present = read_records(args.out, args.functions, args.surrogates, args.seeds)
    done = {
        (record["function"], record["surrogate"], record["seed"])
        for record in present
        if len(record["y"]) >= args.evaluations
    }
    missing = [key for key in wanted if key not in done]
    print(f"{len(wanted) - len(missing)} of {len(wanted)} runs are in {args.out}.", file=sys.stderr)
    pool = Parallel(n_jobs=args.workers, return_as="generator_unordered")
    outcomes = pool(delayed(_guarded)(*key, args.evaluations, args.out) for key in missing)
    failures = 0
    for key, line, failed in tqdm(outcomes, total=len(missing), unit="run", disable=None):
        failures += failed
        tqdm.write(f"{' '.join(map(str, key))}: {line}", file=sys.stderr)
    return failures


def _guarded(
    function: str, surrogate: str, seed: int, evaluations: int, out: Path
) -> tuple[tuple[str, str, int], str, bool]:
    torch.set_num_threads(1)
    key = function, surrogate, seed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            _warm_up(surrogate)
            record = run(*key, evaluations=evaluations, out=out)
        except Exception as error:  # the other runs go on
            return key, f"failed: {type(error).__name__}: {error}", True
    seconds = math.fsum(record["fit_seconds"] + record["acquisition_seconds"])
    line = f"{min(record['y']):.5g}, {len(record['failures'])} failures, {seconds:.0f} CPU s"
    return key, line, False


def _iteration_times(
    functions: Sequence[str], surrogates: Sequence[str], seed: int, size: int
) -> str:
    """A Markdown table of CPU seconds of three iterations, of which the first has no previous one.

    Half of the points are uniform, the others lie around the best of these, as in a loop.
    """
    torch.set_num_threads(1)
    sizes = (size - 2, size - 1, size)
    lines = [" | ".join(["function", "surrogate", *(f"{n} points" for n in sizes)]), "--- | " * 5]
    for function in functions:
        problem = make_problem(function, seed)
        generator = _generator(function, seed, size)
        x = torch.rand(size, problem.dim, generator=generator, dtype=torch.float64)
        half = size // 2
        steps = torch.randn(size - half, problem.dim, generator=generator, dtype=torch.float64)
        x[half:] = (x[problem(x[:half]).argmin()] + 0.1 * steps).clamp(0, 1)
        y = problem(x)
        for surrogate in surrogates:
            record: dict = {"function": function, "failures": [], "wall_seconds": 0.0}
            record |= {"fit_seconds": [], "acquisition_seconds": []}
            way, previous = make_surrogate(surrogate, problem), None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                _warm_up(surrogate)
                for n in sizes:
                    _, previous = _next_point(way, x[:n], y[:n], previous, record, seed)
            pairs = zip(record["fit_seconds"], record["acquisition_seconds"], strict=True)
            cells = [f"{fit:.1f} + {acquisition:.1f}" for fit, acquisition in pairs]
            failed = [f"{len(record['failures'])} failed"] if record["failures"] else []
            lines.append(" | ".join([function, surrogate, *cells, *failed]))
    head = "CPU seconds of an iteration, fit + acquisition; the first one starts without a model."
    return "\n".join([head, "", *(f"| {line.rstrip(' |')} |" for line in lines)])


@cache
def _warm_up(surrogate: str) -> None:
    """Once in a process: imports and compilation are not what is measured."""
    problem = make_problem("stybtang", 0)
    x = initial_points(problem, 0)
    record: dict = {"function": problem.name, "failures": [], "wall_seconds": 0.0}
    record |= {"fit_seconds": [], "acquisition_seconds": []}
    _next_point(make_surrogate(surrogate, problem), x, problem(x), None, record, 0)
    if record["failures"]:
        raise RuntimeError(record["failures"][0]["error"])


if __name__ == "__main__":
    from benchmarks import bayesian_optimization  # the name by which the processes find it

    sys.exit(bayesian_optimization.main())
