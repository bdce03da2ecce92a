"""A kernel with a learned factor beside its base kernel, in Gaussian processes on small tables.

``python -m benchmarks.dank_gp`` fits, on the 20 standard splits of four tables, an RBF kernel with
a lengthscale per column, and the same kernel as the base of a DataAdaptiveHadamardKernel. Both have
equal budgets: two starts of the RBF kernel by L-BFGS, and then two more runs of L-BFGS, of which
the one of better leave-one-out density counts. For the RBF kernel alone these go on from both
starts; with the factor they go on from the better start, with fixed and with learned lengthscales
of the factor. (Going on matters: L-BFGS often stops early, and what a second run gains must not
count as the factor's.) Every pair of runs adds
two lines to a JSON-lines file, so that a second call goes on where the first one ended. One thread.
The environment variable GPYTORCH_NKN_DATA names the folder of the tables.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy and torch read them

import argparse  # noqa: E402
import json  # noqa: E402
import math  # noqa: E402
import time  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from copy import deepcopy  # noqa: E402
from importlib import metadata  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from botorch.models import SingleTaskGP  # noqa: E402
from gpytorch.kernels import RBFKernel, ScaleKernel  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks.data import data_folder  # noqa: E402
from gpytorch_nkn.fit import FitResult, Recipe, fit_best_of  # noqa: E402
from gpytorch_nkn.kernels import DataAdaptiveHadamardKernel  # noqa: E402

__all__ = ["gp_report", "main", "run_gp", "run_pair"]

SETS = ("yacht", "boston", "energy", "concrete")
SPLITS = range(20)
_FIRST = Recipe(adam_steps=0, lbfgs_iterations=200)
_SECOND = Recipe(adam_steps=0, lbfgs_iterations=100)
_VERSIONS = ("torch", "gpytorch", "botorch", "numpy", "scipy", "gpytorch_nkn")


def run_gp(sets: Sequence[str], splits: Sequence[int], results: Path) -> list[dict]:
    """Run the pairs that a file of results lacks.

    Args:
        sets: Names of tables.
        splits: Numbers of splits, 0 to 19.
        results: The file, one line per run; lines are added to it.

    Returns:
        All records of the file.
    """
    torch.set_num_threads(1)
    records = read_records(results)
    done = {(record["set"], record["split"]) for record in records if record["method"] == "dank"}
    results.parent.mkdir(parents=True, exist_ok=True)
    for split in splits:
        for name in sets:
            if (name, split) in done:
                continue
            pair = run_pair(name, split)
            with results.open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps(record) + "\n" for record in pair))
            records += pair
            print(*map(_line, pair), sep="\n", flush=True)
    return records


def read_records(results: Path) -> list[dict]:
    """Lines of a file of results; a line that is only half written does not count."""
    records = []
    for line in results.read_text(encoding="utf-8").splitlines() if results.exists() else ():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def run_pair(name: str, split: int) -> list[dict]:
    """Both kernels on one split: the two lines of the file.

    Args:
        name: Of the table.
        split: Number of the split.
    """
    x, y, test_x, test_y, unit = _standardized(name, split)
    start = time.process_time()
    starts = [_plain_model(x, y, share * math.sqrt(x.size(-1))) for share in (1.0, 0.5)]
    first = _fit(starts, _FIRST)
    shared = time.process_time() - start
    records = []
    for method in ("rbf", "dank"):
        start = time.process_time()
        trained = list(first.members.values())
        models = trained if method == "rbf" else _with_factors(first.model, x, y)
        result = _fit(models, _SECOND)
        seconds = shared + time.process_time() - start
        mean, variance = (part.squeeze(-1) for part in result.predict(test_x))
        density = torch.distributions.Normal(mean, variance.sqrt()).log_prob(test_y)
        record = {
            "set": name,
            "split": split,
            "method": method,
            "rows": len(x),
            "columns": x.size(-1),
            "nll": -density.mean().item() + math.log(unit),
            "rmse": (mean - test_y).square().mean().sqrt().item() * unit,
            "coverage": ((mean - test_y).abs() < 1.96 * variance.sqrt()).double().mean().item(),
            "chosen": result.best,
            "loss": result.restarts[result.best].loss,
            "leave_one_out": [record.criterion for record in result.restarts],
            "evaluations": sum(r.evaluations for r in (*first.restarts, *result.restarts)),
            "noise": result.model.likelihood.noise.item(),
            "seconds": seconds,
            "versions": {package: metadata.version(package) for package in _VERSIONS},
        }
        if method == "dank":
            with torch.no_grad():
                factors = result.model.covar_module.factors(x)
            record["mean_squared_factor"] = factors.square().sum(-1).mean().item()
        records.append(record)
    return records


def _plain_model(x: Tensor, y: Tensor, lengthscale: float) -> SingleTaskGP:
    kernel = ScaleKernel(RBFKernel(ard_num_dims=x.size(-1)))
    model = SingleTaskGP(x, y.unsqueeze(-1), covar_module=kernel, outcome_transform=None)
    kernel.base_kernel.lengthscale = lengthscale
    kernel.outputscale = 1.0
    model.likelihood.noise = 0.01
    return model


def _with_factors(fitted: SingleTaskGP, x: Tensor, y: Tensor) -> list[SingleTaskGP]:
    """The fitted model with factors that start near one."""
    options: list[dict] = [{}, {"learn_lengthscale": True, "weight_prior": 0.3, "seed": 1}]
    models = []
    for option in options:
        parts = deepcopy(fitted)
        kernel = DataAdaptiveHadamardKernel.from_data(parts.covar_module, x, **option)
        models.append(
            SingleTaskGP(
                x,
                y.unsqueeze(-1),
                covar_module=kernel,
                likelihood=parts.likelihood,
                mean_module=parts.mean_module,
                outcome_transform=None,
            )
        )
    return models


def _fit(models: Sequence[SingleTaskGP], recipe: Recipe) -> FitResult:
    """The model of the best leave-one-out density, trained."""
    candidates = iter([deepcopy(model) for model in models])
    return fit_best_of(
        lambda: next(candidates),
        restarts=len(models),
        criterion="loo",
        initialize=None,
        recipe=recipe,
        progress=False,
    )


def _standardized(name: str, split: int) -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
    """Inputs and targets for training and testing, and the unit of the targets."""
    with np.load(data_folder() / "uci_regression" / f"{name}.npz", allow_pickle=False) as file:
        x, y = file["X"].astype(float), file["y"].astype(float).ravel()
        test = np.zeros(len(y), dtype=bool)
        test[file["test_idx"][split]] = True
    offset, scale = x[~test].mean(0), x[~test].std(0)
    scale = np.where(scale > 1e-12, scale, 1.0)
    level, unit = y[~test].mean(), y[~test].std()
    x, y = torch.from_numpy((x - offset) / scale), torch.from_numpy((y - level) / unit)
    return x[~test], y[~test], x[test], y[test], float(unit)


def _line(record: dict) -> str:
    return (
        f"{record['set']} {record['split']} {record['method']}: NLL {record['nll']:.3f}, "
        f"RMSE {record['rmse']:.4g}, loss {record['loss']:.1f}, {record['seconds']:.0f} CPU s"
    )


def gp_report(records: Sequence[dict]) -> str:
    """A table with a line per set: what the factor changes, paired over splits.

    Args:
        records: Of :func:`run_gp`.
    """
    head = (
        "| set (splits) | rows | NLL, RBF | DANK less RBF | better on | RMSE, RBF | "
        "DANK less RBF | coverage of 95 % | CPU s, RBF | DANK |"
    )
    lines = [head, "| --- |" + " --- |" * 9]
    for name in dict.fromkeys(record["set"] for record in records):
        here = {(r["split"], r["method"]): r for r in records if r["set"] == name}
        splits = [
            s
            for s in sorted({s for s, _ in here})
            if len({(s, "rbf"), (s, "dank")} & set(here)) == 2
        ]
        if not splits:
            continue
        rbf, dank = ([here[s, method] for s in splits] for method in ("rbf", "dank"))
        nll, rmse = (
            [d[key] - r[key] for d, r in zip(dank, rbf, strict=True)] for key in ("nll", "rmse")
        )
        mean = {
            key: [np.mean([r[key] for r in runs]) for runs in (rbf, dank)]
            for key in rbf[0]
            if isinstance(rbf[0][key], float)
        }
        lines.append(
            f"| {name} ({len(splits)}) | {rbf[0]['rows']:,} | {mean['nll'][0]:.3f} | "
            f"{_paired(nll)} | {sum(gap < 0 for gap in nll)} of {len(nll)} | "
            f"{mean['rmse'][0]:.3f} | {_paired(rmse)} | "
            f"{mean['coverage'][0]:.0%}, {mean['coverage'][1]:.0%} | "
            f"{mean['seconds'][0]:.1f} | {mean['seconds'][1]:.1f} |"
        )
    return "\n".join(lines)


def _paired(gaps: Sequence[float]) -> str:
    """Mean and its standard error."""
    if len(gaps) < 2:
        return f"{np.mean(gaps):+.3f}"
    return f"{np.mean(gaps):+.3f} ± {np.std(gaps, ddof=1) / np.sqrt(len(gaps)):.3f}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing in the file of results, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dank_gp",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS, metavar="NAME")
    parser.add_argument(
        "--splits", nargs="+", type=int, choices=SPLITS, default=SPLITS, metavar="S"
    )
    parser.add_argument("--results", type=Path, default=Path("benchmarks/dank_gp.jsonl"))
    parser.add_argument("--report", action="store_true", help="only print the table")
    args = parser.parse_args(argv)
    if args.report:
        records = read_records(args.results)
    else:
        records = run_gp(args.sets, args.splits, args.results)
    print(gp_report(records))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
