"""What steps and predictions cost on a GPU.

Runs on the first CUDA device; without one, it measures nothing. (The results there are checked
by ``make test DEVICE=cuda``.) Ways take turns; figures are medians of the turns of a way's
time divided by that of the first way, with the lowest and highest. Memory is the highest that was
allocated in a step, in N x N matrices; waits are how often a step made the device wait for Python.
``--device cpu`` tries the command itself on small sizes.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import torch
from botorch.models import SingleTaskGP
from torch import Tensor

from benchmarks.grid_speed import waves_iteration
from benchmarks.report import Table
from benchmarks.runner import Axis, Benchmark, ratios_in_turn
from benchmarks.step import training_step
from gpytorch_nkn.models import NKNSingleTaskGP

__all__ = ["BENCHMARK"]

Step = Callable[[], object]
# A comparison: its title, makers of steps by name, and bytes of a matrix.
Comparison = tuple[str, dict[str, Callable[[], Step]], int]


# Ways of ``benchmarks.step``.
_WAYS = {
    "RBF, stock": "RBF, stock",
    "RBF, our likelihood": "RBF, our likelihood",
    "network, stock": "drop-in",
    "network, our likelihood": "our likelihood",
}


def _steps(device: torch.device, small: bool) -> Iterator[Comparison]:
    """A training step (loss and gradient) of exact GPs over 8 columns."""
    for dtype in (torch.float32, torch.float64):
        options: dict = {"lazily": True, "dtype": dtype, "device": device}
        for size in (200, 400) if small else (2_000, 5_000, 10_000, 20_000, 40_000):
            makes: dict[str, Callable[[], Step]] = {
                name: partial(training_step, way, 8, size, **options) for name, way in _WAYS.items()
            }
            title = f"N = {size:,}, {str(dtype).removeprefix('torch.')}"
            yield title, makes, size**2 * dtype.itemsize


def _grids(device: torch.device, small: bool) -> Iterator[Comparison]:
    """An iteration of training on grids with a hole."""
    sizes = ("24x24",) if small else ("224x224", "1024x1024", "2048x2048", "256x256x256")
    for size in sizes:
        makes = {"CPU": lambda s=size: waves_iteration(s, torch.device("cpu"))}
        makes["device"] = lambda s=size: waves_iteration(s, device)
        yield f"grid {size}", makes, 0


def _botorch(device: torch.device, small: bool) -> Iterator[Comparison]:
    """Posteriors of BoTorch's models at 1,000 points with gradients."""
    for size in (30,) if small else (100, 500, 2_000):
        x = torch.rand(size, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        x, y = x.to(device), torch.sin(9 * x.mean(-1, keepdim=True)).to(device)
        points = x[:1].expand(100 if small else 1_000, 1, 8).clone().requires_grad_()

        def posterior(cls: Any, x: Tensor = x, y: Tensor = y, at: Tensor = points) -> Step:
            model = cls(x, y).eval()

            def run() -> None:
                answer = model.posterior(at)
                torch.autograd.grad((answer.mean + answer.variance).sum(), at)

            return run

        classes = {"SingleTaskGP": SingleTaskGP, "NKNSingleTaskGP": NKNSingleTaskGP}
        makes = {name: lambda c=cls, m=posterior: m(c) for name, cls in classes.items()}
        yield f"posterior, N = {size:,}", makes, 0


def _compare(comparison: Comparison, device: torch.device, turns: int) -> list[dict]:
    """Ways in turn; what runs out of memory is said to, and the others go on."""
    title, makes, matrix = comparison
    steps: dict[str, Step] = {}
    lines = {}
    on_gpu = device.type == "cuda"
    for name, make in makes.items():
        lines[name] = {"what": title, "way": name, "ms": "out of memory"}
        try:
            step = make()
            step()  # first call, with set-up
            if on_gpu:
                torch.cuda.synchronize(device)
                torch.cuda.reset_peak_memory_stats(device)
                before = torch.cuda.memory_allocated(device)
                lines[name]["waits"] = str(_waits(step))
                peak = torch.cuda.max_memory_allocated(device) - before
                lines[name]["N x N matrices"] = f"{peak / matrix:.1f}" if matrix else ""
            steps[name] = step
        except torch.cuda.OutOfMemoryError:
            continue

    def clock() -> float:
        if on_gpu:
            torch.cuda.synchronize(device)
        return time.perf_counter()

    if not steps:
        return list(lines.values())
    first = next(iter(steps))
    seconds = ratios_in_turn(steps, first, turns, clock)
    for name, own in seconds.items():
        ratios = [one / two for one, two in zip(own, seconds[first], strict=True)]
        lines[name]["ms"] = f"{1e3 * median(own):.4g}"
        cell = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        lines[name]["x the first"] = cell
    return list(lines.values())


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


_PARTS: dict[str, Callable[[torch.device, bool], Iterator[Comparison]]] = {
    "steps": _steps,
    "grids": _grids,
    "botorch": _botorch,
}


def run(part: str, device: str, turns: int) -> dict:
    """A line for each way of the comparisons of a part."""
    place = torch.device(device)
    found = _PARTS[part](place, place.type == "cpu")
    return {"lines": [line for one in found for line in _compare(one, place, turns)]}


def tables(rows: list[dict]) -> dict[str, Table]:
    """All lines."""
    return {"gpu": Table.of([line for row in rows for line in row["lines"]])}


BENCHMARK = Benchmark(
    {"part": Axis(list(_PARTS))},
    run,
    tables,
    settings={"device": "cuda", "turns": 5},
    possible=lambda job: job["device"] == "cpu" or torch.cuda.is_available(),
    one_thread=False,
)

if __name__ == "__main__":
    BENCHMARK.command()
