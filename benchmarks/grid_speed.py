"""What a training iteration on a grid with a hole costs.

``python -m benchmarks.grid_speed`` times one iteration (loss, gradient, a step of Adam) of networks
of kernels, one per dimension, on the metal plate with the paper's hole: of this package, of the
paper's formulation (:class:`benchmarks.paper_grid.PaperGrid`) and, without the step, of BoTorch's
LatentKroneckerGP under the settings of its own fit. All start from the same kernels, which some
iterations have trained, and from each of several noise variances. The ways take turns, so that
whatever else the machine does meets them alike; figures are medians over the turns, with the lowest
and highest, of the processor's time with one thread and of wall time otherwise. ``--sizes`` times
this package on larger grids instead, and measures, in a process of its own for each of them, the
highest memory above that of a small grid. The environment variable GPYTORCH_NKN_DATA names the
folder of the data.
"""

import os
import sys

_THREADS = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv else "1"
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = _THREADS  # before NumPy and torch read them

import argparse  # noqa: E402
import copy  # noqa: E402
import json  # noqa: E402
import platform  # noqa: E402
import resource  # noqa: E402
import subprocess  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from dataclasses import dataclass, field  # noqa: E402
from importlib import metadata  # noqa: E402
from pathlib import Path  # noqa: E402
from statistics import median  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from gpytorch.constraints import GreaterThan  # noqa: E402
from gpytorch.kernels import Kernel  # noqa: E402
from gpytorch.likelihoods import GaussianLikelihood  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from benchmarks.data import load_texture  # noqa: E402
from benchmarks.paper_grid import (  # noqa: E402
    PaperGrid,
    latent_kronecker_loss,
    standardized_grid,
    start_kernels,
)
from gpytorch_nkn.fit import adam  # noqa: E402
from gpytorch_nkn.linalg import GridLikelihood  # noqa: E402
from gpytorch_nkn.models import KroneckerGridGP  # noqa: E402
from gpytorch_nkn.models.grid.log_adam import LogParameters  # noqa: E402

__all__ = ["main", "our_iteration", "waves_iteration"]

Grid = tuple[list[Tensor], Tensor, Tensor]

_NOISES = (1.0, 0.1, 0.01)
_SIZES = ("512x512", "1024x1024", "64x64x64", "128x128x128")
_SMALL = "32x32"  # an iteration on it takes what any does: libraries and their workspaces
_HOLE = (60 / 224, 80 / 224, 80 / 224)  # the paper's, as shares of the sides
_LEARNING_RATE = 0.01
_TOLERANCE = 1e-2  # that of fit_grid_gp, and of LatentKroneckerGP


@dataclass(frozen=True)
class _Way:
    """How an iteration is computed."""

    method: str
    dtype: torch.dtype = torch.float64
    options: dict = field(default_factory=dict)

    @property
    def is_slow(self) -> bool:
        return self.method == "latent"


_OURS = "ours, float64"
_WAYS = {
    _OURS: _Way("ours"),
    "ours, float32": _Way("ours", torch.float32),
    "paper, float64": _Way("paper"),
    "paper, float32": _Way("paper", torch.float32),
    "paper, warm start, float64": _Way("paper", options={"warm_start": True}),
    "LatentKroneckerGP, float64": _Way("latent"),
}


class _OurGrid(nn.Module):
    """The loss by which :func:`gpytorch_nkn.models.fit_grid_gp` trains a model of a grid."""

    def __init__(self, grid: Grid, kernels: Sequence[Kernel], noise: float):
        super().__init__()
        coordinates, targets, missing = grid
        self.model = KroneckerGridGP(
            coordinates,
            targets,
            kernels,
            missing=missing,
            likelihood=GaussianLikelihood(noise_constraint=GreaterThan(1e-6)),
            outcome_transform=None,
        )
        self.model.likelihood.noise = noise
        self.loss = GridLikelihood(
            self.model.grid,
            tolerance=_TOLERANCE,
        )

    def forward(self) -> Tensor:
        model = self.model
        value = self.loss(model.residual(), model.noise_variance(), model.factor_matrices())
        return value / self.loss.grid.num_observed


def our_iteration(grid: Grid, kernels: Sequence[Kernel], *, noise: float) -> Callable[[], _OurGrid]:
    """A function that does one training iteration of this package."""
    loss = _OurGrid(grid, kernels, noise)
    steps = adam(LogParameters(loss.model, loss, {}), sys.maxsize, lambda _: _LEARNING_RATE)

    def step() -> _OurGrid:
        next(steps)
        return loss

    return step


def _training_step(model: nn.Module) -> Callable[[], object]:
    optimizer = torch.optim.Adam(model.parameters(), lr=_LEARNING_RATE)

    def step() -> nn.Module:
        optimizer.zero_grad()
        model().backward()
        optimizer.step()
        return model

    return step


def _make_step(way: _Way, grid: Grid, kernels: Sequence[Kernel], noise: float) -> Callable:
    """A function that does one iteration from a copy of the kernels."""
    coordinates, targets, missing = grid
    grid = [x.to(way.dtype) for x in coordinates], targets.to(way.dtype), missing
    kernels = [copy.deepcopy(kernel).to(targets.device, way.dtype) for kernel in kernels]
    if way.method == "ours":
        return our_iteration(grid, kernels, noise=noise, **way.options)
    if way.method == "paper":
        return _training_step(PaperGrid(*grid, kernels, noise=noise, **way.options))
    return latent_kronecker_loss(*grid, kernels, noise=noise)


def _run(step: Callable[[], object], device: torch.device) -> float:
    """Seconds of a step: of the processor with one thread, else on the wall."""
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if alone else time.perf_counter
    start = clock()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - start


def _time(
    names: Sequence[str], grid: Grid, kernels: Sequence[Kernel], noise: float, turns: int, slow: int
) -> dict[str, list[float]]:
    """Seconds of every turn; slow ways take part in the first ones only."""
    device = grid[1].device
    steps = {name: _make_step(_WAYS[name], grid, kernels, noise) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        if not _WAYS[name].is_slow:
            for _ in range(3):  # sets things up, and gives warm starts something to start from
                _run(steps[name], device)
    for turn in range(turns):
        for name in names:
            if turn < slow or not _WAYS[name].is_slow:
                seconds[name].append(_run(steps[name], device))
    for name in names:
        if _WAYS[name].method == "paper":
            model = steps[name]()
            text = f"{model.iterations} iterations of conjugate gradients to {model.residual:.0e}"
            print(f"noise {noise:g}, {name}: {text}", file=sys.stderr)
    return seconds


def _trained_kernels(grid: Grid, steps: int) -> list[Kernel]:
    """Kernels after some iterations of training, noise included."""
    kernels = start_kernels(*grid)
    step = our_iteration(grid, kernels, noise=0.1)
    for _ in range(steps):
        step()
    return list(kernels)


def _plate(device: torch.device) -> Grid:
    texture = load_texture("plate")
    return _on(standardized_grid(texture.image, texture.mask), device)


def _waves(size: str, device: torch.device, dtype: torch.dtype) -> Grid:
    """Noisy waves on a grid with a hole of the paper's share in every dimension."""
    shape = tuple(int(side) for side in size.split("x"))
    axes = np.meshgrid(*(np.arange(side) for side in shape), indexing="ij", sparse=True)
    waves = sum(np.sin(2 * np.pi * x / (11 + 3 * d)) for d, x in enumerate(axes))
    values = waves + 0.3 * np.random.default_rng(0).standard_normal(shape)
    mask = np.zeros(shape, dtype=bool)
    share = zip(shape, _HOLE, strict=False)
    mask[tuple(slice(side // 4, side // 4 + round(part * side)) for side, part in share)] = True
    return _on(standardized_grid(values, mask, dtype=dtype), device)


def _on(grid: Grid, device: torch.device) -> Grid:
    coordinates, targets, missing = grid
    return [x.to(device) for x in coordinates], targets.to(device), missing.to(device)


def waves_iteration(size: str, device: torch.device) -> Callable[[], object]:
    """A function that does one iteration, in float32, on waves with a hole of so many values.

    Args:
        size: As ``"512x512"``.
        device: Of the computation.
    """
    grid = _waves(size, device, torch.float32)
    kernels = [kernel.to(grid[1]) for kernel in start_kernels(*grid)]
    return our_iteration(grid, kernels, noise=0.1)


def _peak(size: str, args: argparse.Namespace) -> float:
    """Highest memory above that of a small grid, in MiB."""
    for _ in range(2):
        _run(waves_iteration(_SMALL, args.device), args.device)
    if args.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(args.device)
        before = torch.cuda.max_memory_allocated(args.device)
    else:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step = waves_iteration(size, args.device)
    for _ in range(3):
        _run(step, args.device)
    if args.device.type == "cuda":
        return (torch.cuda.max_memory_allocated(args.device) - before) / 2**20
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (after - before) * (1 if sys.platform == "darwin" else 1024) / 2**20


def _peak_elsewhere(size: str, args: argparse.Namespace) -> float:
    command = [sys.executable, "-m", "benchmarks.grid_speed", "--threads", str(args.threads)]
    command += ["--device", str(args.device), "--peak", size]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grid_speed", description=__doc__)
    parser.add_argument("--noises", type=float, nargs="+", default=_NOISES, metavar="V")
    parser.add_argument("--ways", nargs="+", choices=_WAYS, default=list(_WAYS), metavar="WAY")
    parser.add_argument("--turns", type=int, default=20, metavar="T")
    parser.add_argument("--slow-turns", type=int, default=2, metavar="T", help="LatentKroneckerGP")
    parser.add_argument("--train", type=int, default=20, metavar="N", help="iterations before")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch and BLAS")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument(
        "--sizes", nargs="*", metavar="AxB", help=f"larger grids ({' '.join(_SIZES)})"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the results as JSON")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    warnings.filterwarnings("ignore", message="Sparse invariant checks", category=UserWarning)
    if args.peak is not None:
        print(_peak(args.peak, args))
        return 0
    results = _time_sizes(args) if args.sizes is not None else _time_ways(args)
    versions = {n: metadata.version(n) for n in ("torch", "gpytorch", "botorch", "gpytorch_nkn")}
    place = f"{args.threads} thread(s) of {platform.machine()}"
    if args.device.type == "cuda":
        place = torch.cuda.get_device_name(args.device)
    print(f"\n{', '.join(f'{k} {v}' for k, v in versions.items())}; {place}.")
    if args.out is not None:
        content = {"place": place, "versions": versions, "results": results}
        args.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return 0


def _time_ways(args: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    names = args.ways if _OURS in args.ways else [_OURS, *args.ways]
    grid = _plate(args.device)
    kernels = _trained_kernels(grid, args.train)
    found = {
        f"{noise:g}": _time(names, grid, kernels, noise, args.turns, args.slow_turns)
        for noise in args.noises
    }
    print(f"Plate, 224 x 224, kernels after {args.train} iterations; ms per iteration, and ratio")
    print("to ours in the same dtype:\n")
    print("| way | " + " | ".join(f"noise {noise}" for noise in found) + " |")
    print("| --- |" + " --- |" * len(found))
    for name in names:
        cells = [_cell(name, seconds) for seconds in found.values()]
        print(f"| {name} | " + " | ".join(cells) + " |")
    return found


def _cell(name: str, seconds: dict[str, list[float]]) -> str:
    own = seconds[name]
    if not own:
        return "-"
    text = f"{_ms(own)} ({_ms([min(own)])} to {_ms([max(own)])})"
    base = next((n for n in seconds if n == f"ours, {name.split(', ')[-1]}"), None)
    if base is None or base == name:
        return text
    return f"{text}, {median(own) / median(seconds[base]):.2f}x"


def _ms(seconds: Sequence[float]) -> str:
    return f"{1e3 * median(seconds):.3g}" if median(seconds) < 1 else f"{1e3 * median(seconds):.0f}"


def _time_sizes(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    results = {}
    sizes = args.sizes or _SIZES
    # First, as a process begins with the highest resident size of the one that starts it.
    peaks = {size: _peak_elsewhere(size, args) for size in sizes}
    print(f"After {args.train} iterations of training from noise 0.1:\n")
    print("| grid | ms per iteration, float32 | peak memory, MiB |")
    print("| --- | --- | --- |")
    for size, peak in peaks.items():
        step = waves_iteration(size, args.device)
        for _ in range(args.train):
            _run(step, args.device)
        seconds = [_run(step, args.device) for _ in range(args.turns)]
        del step
        cell = f"{_ms(seconds)} ({_ms([min(seconds)])} to {_ms([max(seconds)])})"
        print(f"| {size} | {cell} | {peak:.0f} |", flush=True)
        results[size] = {"seconds": median(seconds), "peak_mib": peak}
    return results


if __name__ == "__main__":
    sys.exit(main())
