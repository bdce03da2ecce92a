"""Time and memory of steps and predictions on a GPU.

The benchmark runs on the first CUDA device; without a device it measures nothing. (``make test
DEVICE=cuda`` checks the results.) Methods alternate; a ratio is the median over the rounds, with
minimum and maximum. Memory is the peak of a step; waits count how often the device waited for
Python. ``--device cpu`` tests the command itself on small sizes.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import torch
from botorch.models import SingleTaskGP

from benchmarks.grid_speed import waves_iteration
from benchmarks.report import Table
from benchmarks.runner import Axis, Benchmark, ratios_in_turn
from benchmarks.step import training_step
from gpytorch_nkn.models import NKNSingleTaskGP

__all__ = ["BENCHMARK"]

Step = Callable[[], object]
Comparison = tuple[str, dict[str, Callable[[], Step]]]  # a title, makers of steps by name


def _steps(device: torch.device, small: bool) -> Iterator[Comparison]:
    """Yield training steps (loss and gradient) of exact GPs over 8 columns."""
    ways = ("RBF, stock", "RBF, our likelihood", "drop-in", "our likelihood")
    for dtype in (torch.float32, torch.float64):
        for size in (200, 400) if small else (2_000, 5_000, 10_000, 20_000, 40_000):
            make = partial(training_step, lazily=True, dtype=dtype, device=device)
            makes = {way: partial(make, way, 8, size) for way in ways}
            yield f"N = {size:,}, {str(dtype).removeprefix('torch.')}", makes


def _grids(device: torch.device, small: bool) -> Iterator[Comparison]:
    """An iteration of training on grids with a hole."""
    for shape in ((24,) * 2,) if small else ((224,) * 2, (1_024,) * 2, (2_048,) * 2, (256,) * 3):
        places = {"CPU": "cpu", "device": device}
        makes = {name: partial(waves_iteration, *shape, device=at) for name, at in places.items()}
        yield f"grid of {shape}", makes


def _botorch(device: torch.device, small: bool) -> Iterator[Comparison]:
    """Posteriors of BoTorch's models at 1,000 points with gradients."""

    def posterior(cls: type[SingleTaskGP], size: int) -> Step:
        x = torch.rand(size, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        x = x.to(device)
        points = x[:1].expand(100 if small else 1_000, 1, 8).clone().requires_grad_()
        model = cls(x, torch.sin(9 * x.mean(-1, keepdim=True))).eval()

        def run() -> None:
            answer = model.posterior(points)
            torch.autograd.grad((answer.mean + answer.variance).sum(), points)

        return run

    for size in (30,) if small else (100, 500, 2_000):
        makes = {cls.__name__: partial(posterior, cls, size) for cls in _MODELS}
        yield f"posterior, N = {size:,}", makes


_MODELS = (SingleTaskGP, NKNSingleTaskGP)
_PARTS = {"steps": _steps, "grids": _grids, "botorch": _botorch}


def run(part: str, device: str, turns: int) -> dict:
    """A line for each way of the comparisons of a part."""
    place = torch.device(device)
    cases = _PARTS[part](place, place.type == "cpu")
    return {"lines": [line for case in cases for line in _compare(*case, place, turns)]}


def _compare(title: str, makes: dict, device: torch.device, turns: int) -> list[dict]:
    """Ways in turn; the others go on if one runs out of memory."""
    steps: dict[str, Step] = {}
    lines = {name: {"what": title, "way": name, "ms": "out of memory"} for name in makes}
    on_gpu = device.type == "cuda"

    def clock() -> float:
        if on_gpu:
            torch.cuda.synchronize(device)
        return time.perf_counter()

    for name, make in makes.items():
        try:
            step = make()
            step()  # first call, with set-up
            if on_gpu:
                torch.cuda.reset_peak_memory_stats(device)
                lines[name]["waits"] = str(_waits(step))
                lines[name]["peak GB"] = f"{torch.cuda.max_memory_allocated(device) / 1e9:.2f}"
            steps[name] = step
        except torch.cuda.OutOfMemoryError:
            continue
    seconds = ratios_in_turn(steps, turns, clock) if steps else {}
    for name, times in seconds.items():
        ratios = [a / b for a, b in zip(times, next(iter(seconds.values())), strict=True)]
        lines[name]["ms"] = f"{1e3 * median(times):.4g}"
        lines[name]["x the first"] = f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
    return list(lines.values())


def _waits(step: Step) -> int:
    """Count how often the device waited for Python in a step."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in caught)


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return all lines."""
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
