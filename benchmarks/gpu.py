"""What a GPU gives: right results, then what steps, fits and predictions cost there.

``python -m benchmarks.gpu`` runs on the first CUDA device; where there is none, it says so and
ends well. First the contracts of kernels, models, trainers and estimators run there
(``make test DEVICE=cuda``), which compare with the CPU in float64 and float32. Then ways take
turns, so that whatever else the machine does meets them alike; figures are medians over the turns
of a way's time divided by that of the first way, with the lowest and highest. Memory is the highest
that was allocated in a step, in N x N matrices; waits are how often a step made the device wait for
Python. ``--device cpu`` tries the command itself on small sizes.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import gpytorch
import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks import grid_speed
from benchmarks.step import Regression
from gpytorch_nkn.estimators import ASKLRegressor
from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.fit.minimize import FlatParameters
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.models import NKNSingleTaskGP

__all__ = ["main"]

CONTRACTS = (
    "tests/kernels",
    "tests/layers",
    "tests/models/test_contract.py",
    "tests/fit/test_trainers.py",
    "tests/estimators/test_contract.py",
)
PARTS = ("contracts", "steps", "grids", "botorch", "askl", "restarts")
Step = Callable[[], object]


def _steps(args: argparse.Namespace) -> list[dict]:
    """A training step (loss and gradient) of exact GPs over 8 columns."""
    sizes = args.sizes or ([200, 400] if args.small else [2_000, 5_000, 10_000, 20_000, 40_000])
    found = []
    for dtype in (torch.float32, torch.float64):
        for size in sizes:
            makes: dict[str, Callable[[], Step]] = {
                "RBF, stock": lambda s=size, d=dtype: _stock(_rbf(RBFKernel), s, d, args.device),
                "RBF, fused loss": lambda s=size, d=dtype: _fused(
                    _rbf(RBFKernel), s, d, args.device
                ),
                "network, fused loss": lambda s=size, d=dtype: _fused(
                    NeuralKernelNetwork.regression(8, priors=False), s, d, args.device
                ),
                "network, stock": lambda s=size, d=dtype: _stock(
                    NeuralKernelNetwork.regression(8, priors=False), s, d, args.device
                ),
            }
            if find_spec("pykeops"):
                from gpytorch.kernels.keops import RBFKernel as KeopsRBF

                makes["RBF, KeOps (conjugate gradients)"] = (
                    lambda s=size, d=dtype, kernel=KeopsRBF: _stock(
                        _rbf(kernel), s, d, args.device, cholesky=False
                    )
                )
            label = f"N = {size:,}, {str(dtype).removeprefix('torch.')}"
            found += _compare(label, makes, args, matrix=size**2 * dtype.itemsize)
    return found


def _rbf(cls: type[Kernel]) -> Kernel:
    return ScaleKernel(cls(ard_num_dims=8))


def _table(size: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.rand(size, 8, generator=generator, dtype=torch.float64)
    y = torch.sin(3 * x.mean(-1)) + 0.1 * torch.randn(size, generator=generator).double()
    return x.to(device, dtype), y.to(device, dtype)


def _stock(
    kernel: Kernel, size: int, dtype: torch.dtype, device: torch.device, *, cholesky: bool = True
) -> Step:
    x, y = _table(size, dtype, device)
    model = Regression(x, y, kernel).to(device, dtype).train()
    mll = ExactMarginalLogLikelihood(model.likelihood, model)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        with gpytorch.settings.max_cholesky_size(10**6 if cholesky else 0):
            (-mll(model(x), y)).backward()

    return step


def _fused(kernel: Kernel, size: int, dtype: torch.dtype, device: torch.device) -> Step:
    model = Regression(*_table(size, dtype, device), kernel).to(device, dtype).train()
    return FlatParameters(model).evaluate


def _grids(args: argparse.Namespace) -> list[dict]:
    """An iteration of training on complete grids with a hole."""
    sizes = ["24x24"] if args.small else ["224x224", "512x512", "1024x1024", "2048x2048"]
    sizes += [] if args.small else ["128x128x128", "256x256x256"]
    options = ["--device", str(args.device), "--turns", str(args.turns), "--train", "3"]
    grid_speed.main([*options, "--sizes", *sizes])
    return []


def _botorch(args: argparse.Namespace) -> list[dict]:
    """Fits of BoTorch's models, and their posteriors at 1,000 points with gradients."""
    found = []
    for size in (30,) if args.small else (100, 500, 2_000):
        x, y = _table(size, torch.float64, args.device)
        x, y = x / 3, y.unsqueeze(-1)
        points = x[:1].expand(100 if args.small else 1_000, 1, 8).clone().requires_grad_()

        def fit(cls: Any, x: Tensor = x, y: Tensor = y) -> Step:
            def run() -> Any:
                model = cls(x, y)
                options = {"max_iterations": 20} if cls is NKNSingleTaskGP else {}
                limit = {} if options else {"optimizer_kwargs": {"options": {"maxiter": 20}}}
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # 20 iterations are all that is asked for
                    mll = ExactMarginalLogLikelihood(model.likelihood, model)
                    fit_gpytorch_mll(mll, **(options or {**limit, "max_attempts": 1}))
                return model

            return run

        def posterior(cls: Any, x: Tensor = x, y: Tensor = y, at: Tensor = points) -> Step:
            model = cls(x, y).eval()

            def run() -> None:
                answer = model.posterior(at)
                torch.autograd.grad((answer.mean + answer.variance).sum(), at)

            return run

        classes = {"SingleTaskGP": SingleTaskGP, "NKNSingleTaskGP": NKNSingleTaskGP}
        for what, make in (("fit, 20 iterations", fit), ("posterior", posterior)):
            makes = {name: lambda m=make, c=cls: m(c) for name, cls in classes.items()}
            found += _compare(f"{what}, N = {size:,}", makes, args)
    return found


def _askl(args: argparse.Namespace) -> list[dict]:
    """Epochs of ASKLRegressor here and on the CPU."""
    rows, epochs = (300, 2) if args.small else (20_000, 5)
    x, y = (part.numpy() for part in _table(rows, torch.float64, torch.device("cpu")))

    def make(device: str | None) -> Step:
        options: dict[str, Any] = {"n_components": 50 if args.small else 1_000, "gamma": 0.5}
        model = ASKLRegressor(max_iter=epochs, random_state=0, device=device, **options)
        return lambda: model.fit(x, y)

    makes = {"CPU": lambda: make(None), "device": lambda: make(str(args.device))}
    return _compare(f"ASKLRegressor, {epochs} epochs of {rows:,} rows", makes, args)


def _restarts(args: argparse.Namespace) -> list[dict]:
    """20 restarts of 144 points at once, as a series of 12 years of months has."""
    restarts, steps = (2, 1) if args.small else (20, 100)
    times = torch.linspace(-1.7, 1.7, 144, dtype=torch.float64).unsqueeze(-1)
    y = torch.sin(9 * times[:, 0]) + 0.5 * times[:, 0]
    recipe = Recipe(adam_steps=steps, lbfgs_iterations=0)

    def make(device: torch.device) -> Step:
        model = Regression(times.to(device), y.to(device), NeuralKernelNetwork.time_series())
        model = model.to(device, torch.float64)
        return lambda: fit_best_of(
            copy.deepcopy(model), restarts=restarts, recipe=recipe, progress=False
        )

    makes = {"CPU": lambda: make(torch.device("cpu")), "device": lambda: make(args.device)}
    return _compare(f"{restarts} restarts, N = 144, {steps} steps of Adam", makes, args)


def _compare(
    label: str,
    makes: dict[str, Callable[[], Step]],
    args: argparse.Namespace,
    matrix: int | None = None,
) -> list[dict]:
    """Ways in turn; what runs out of memory is said to, and the others go on."""
    steps: dict[str, Step] = {}
    rows: dict[str, dict] = {}
    on_gpu = args.device.type == "cuda"
    for name, make in makes.items():
        rows[name] = row = {"what": label, "way": name, "seconds": []}
        try:
            step = make()
            step()  # sets things up
            if on_gpu:
                before = _begin_peak(args.device)
                row["waits"] = _waits(step)
                row["bytes"] = torch.cuda.max_memory_allocated(args.device) - before
            steps[name] = step
        except torch.cuda.OutOfMemoryError:
            row["seconds"] = None
    for _ in range(args.turns):
        for name, step in steps.items():
            _finish(args.device)
            begin = time.perf_counter()
            step()
            _finish(args.device)
            rows[name]["seconds"].append(time.perf_counter() - begin)
    steps.clear()
    if on_gpu:
        torch.cuda.empty_cache()
    first = next(iter(rows.values()))["seconds"]
    for name, row in rows.items():
        print(f"| {label} | {name} | {_cells(row, first, matrix)} |", flush=True)
    return list(rows.values())


def _cells(row: dict, first: list[float] | None, matrix: int | None) -> str:
    own = row["seconds"]
    if not own:
        return "out of memory | - | - | -"
    ratio = "-"
    if first:
        ratios = [one / two for one, two in zip(own, first, strict=True)]
        ratio = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    memory = "-" if matrix is None or "bytes" not in row else f"{row['bytes'] / matrix:.1f}"
    return f"{1e3 * median(own):.4g} | {ratio} | {memory} | {row.get('waits', '-')}"


def _begin_peak(device: torch.device) -> int:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def _waits(step: Step) -> int:
    """How often the device waited for Python in a step."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in found)


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _contracts(args: argparse.Namespace) -> list[dict]:
    """The contract tests; small, those of layers alone."""
    chosen = CONTRACTS[1:2] if args.small else CONTRACTS
    command = [sys.executable, "-m", "pytest", "-q", "--disable-warnings", "--tb=short"]
    run = subprocess.run(
        [*command, "--device", str(args.device), *chosen],
        cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False,
    )  # fmt: skip
    print(run.stdout if run.returncode else run.stdout.strip().splitlines()[-1], flush=True)
    return [{"what": "contracts", "passed": run.returncode == 0}]


def main(argv: Sequence[str] | None = None) -> int:
    """Print tables; 1 if a contract is broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", help="cuda, cuda:1, ...; cpu for small sizes (default: cuda)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--sizes", type=int, nargs="+", help="rows of the training steps")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the results as JSON")
    args = parser.parse_args(argv)
    if args.device is None and not torch.cuda.is_available():
        print("There is no CUDA device here: nothing was measured.")
        return 0
    args.device = torch.device(args.device or "cuda")
    args.small = args.device.type == "cpu"
    name = torch.cuda.get_device_name(args.device) if args.device.type == "cuda" else "CPU"
    versions = {n: metadata.version(n) for n in ("torch", "gpytorch", "botorch", "gpytorch_nkn")}
    print(f"{name}; {', '.join(f'{k} {v}' for k, v in versions.items())}.\n")
    np.random.seed(0)
    results: list[dict] = []
    for part in args.parts:
        if part not in ("contracts", "grids"):
            print("\n| what | way | ms | x the first | N x N matrices | waits |")
            print("| --- | --- | --- | --- | --- | --- |")
        results += globals()[f"_{part}"](args)
    if args.out is not None:
        content = {"device": name, "versions": versions, "results": results}
        args.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return int(not all(row.get("passed", True) for row in results))


if __name__ == "__main__":
    sys.exit(main())
