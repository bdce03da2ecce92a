"""What a training iteration on a grid with a hole costs.

One iteration (loss, gradient, a step of Adam) of networks of kernels, one per dimension, on the
metal plate with the paper's hole: of this package, of the paper's formulation
(``benchmarks.paper_grid``) and, without the step, of BoTorch's LatentKroneckerGP under the settings
of its own fit. All start from the same kernels, which some iterations have trained, and from each
of several noise variances, and take turns. Grids other than ``plate`` are waves with a hole, in
float32, with the highest memory above that of a small grid. GPYTORCH_NKN_DATA names the folder of
the data.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor, nn

from benchmarks.data import load_texture
from benchmarks.paper_grid import PaperGrid, latent_kronecker_loss, standardized_grid, start_kernels
from benchmarks.report import Table
from benchmarks.runner import Axis, Benchmark, peak_gigabytes, ratios_in_turn
from gpytorch_nkn.linalg import GridLikelihood
from gpytorch_nkn.models import KroneckerGridGP

__all__ = ["BENCHMARK", "waves_iteration"]

Grid = tuple[list[Tensor], Tensor, Tensor]
_OURS = "ours, float64"
_SMALL, _HOLE = "32x32", (60 / 224, 80 / 224, 80 / 224)  # the paper's hole, as shares of the sides
_RATE, _TOLERANCE = 0.01, 1e-2  # those of fit_grid_gp
# Method, dtype, options.
_WAYS: dict[str, tuple[str, torch.dtype, dict]] = {
    _OURS: ("ours", torch.float64, {}),
    "ours, float32": ("ours", torch.float32, {}),
    "paper, float64": ("paper", torch.float64, {}),
    "paper, float32": ("paper", torch.float32, {}),
    "paper, warm start, float64": ("paper", torch.float64, {"warm_start": True}),
    "LatentKroneckerGP, float64": ("latent", torch.float64, {}),
}


class _OurGrid(nn.Module):
    """The loss by which ``fit_grid_gp`` trains a model of a grid."""

    def __init__(self, grid: Grid, kernels: Sequence[Kernel], noise: float):
        super().__init__()
        coordinates, targets, missing = grid
        likelihood = GaussianLikelihood(noise_constraint=GreaterThan(1e-6))
        self.model = KroneckerGridGP(
            coordinates,
            targets,
            kernels,
            missing=missing,
            likelihood=likelihood,
            outcome_transform=None,
        )
        self.model.likelihood.noise = noise
        self.loss = GridLikelihood(self.model.grid, tolerance=_TOLERANCE)

    def forward(self) -> Tensor:
        model = self.model
        value = self.loss(model.residual(), model.noise_variance(), model.factor_matrices())
        return value / self.loss.grid.num_observed


def _iteration(grid: Grid, kernels: Sequence[Kernel], way: str, noise: float) -> Callable:
    """A function that does one iteration from a copy of the kernels."""
    method, dtype, options = _WAYS[way]
    coordinates, targets, missing = grid
    grid = [x.to(dtype) for x in coordinates], targets.to(dtype), missing
    kernels = [copy.deepcopy(kernel).to(targets.device, dtype) for kernel in kernels]
    if method == "latent":
        return latent_kronecker_loss(*grid, kernels, noise=noise)
    if method == "paper":
        model: nn.Module = PaperGrid(*grid, kernels, noise=noise, **options)
    else:
        model = _OurGrid(grid, kernels, noise)
    optimizer = torch.optim.Adam(model.parameters(), lr=_RATE)

    def step() -> None:
        optimizer.zero_grad()
        model().backward()
        optimizer.step()

    return step


def _plate() -> Grid:
    texture = load_texture("plate")
    return standardized_grid(texture.image, texture.mask)


def waves_iteration(size: str, device: torch.device) -> Callable[[], object]:
    """A function that does one iteration, in float32, on waves with a hole of so many values.

    Args:
        size: As ``"512x512"``.
        device: Of the computation.
    """
    shape = tuple(int(side) for side in size.split("x"))
    axes = np.meshgrid(*(np.arange(side) for side in shape), indexing="ij", sparse=True)
    waves = sum(np.sin(2 * np.pi * x / (11 + 3 * d)) for d, x in enumerate(axes))
    values = waves + 0.3 * np.random.default_rng(0).standard_normal(shape)
    mask = np.zeros(shape, dtype=bool)
    share = zip(shape, _HOLE, strict=False)
    mask[tuple(slice(side // 4, side // 4 + round(part * side)) for side, part in share)] = True
    grid = standardized_grid(values, mask, dtype=torch.float32)
    kernels = [kernel.to(device) for kernel in start_kernels(*grid)]
    coordinates, targets, missing = grid
    grid = [x.to(device) for x in coordinates], targets.to(device), missing.to(device)
    return _iteration(grid, kernels, "ours, float32", 0.1)


def run(grid: str, way: str, noise: float, turns: int, train: int) -> dict:
    """Milliseconds of a way and of ours in turn; memory of a larger grid."""
    if grid != "plate":
        waves_iteration(_SMALL, torch.device("cpu"))()
        before = peak_gigabytes()
        step = waves_iteration(grid, torch.device("cpu"))
        for _ in range(train):
            step()
        own = ratios_in_turn({way: step}, way, turns, time.process_time)[way]
        memory = 1e9 * (peak_gigabytes() - before) / 2**20
        return {"ms": [1e3 * seconds for seconds in own], "MiB": memory}
    plate = _plate()
    kernels = start_kernels(*plate)
    step = _iteration(plate, kernels, _OURS, 0.1)
    for _ in range(train):
        step()
    base = _OURS if way.endswith("float64") else "ours, float32"
    steps = {name: _iteration(plate, kernels, name, noise) for name in dict.fromkeys((base, way))}
    count = min(turns, 2) if way.startswith("Latent") else turns
    seconds = ratios_in_turn(steps, base, count, time.process_time)
    ratio = median(seconds[way]) / median(seconds[base])
    return {"ms": [1e3 * s for s in seconds[way]], "ratio": ratio}


def tables(rows: list[dict]) -> dict[str, Table]:
    """Medians with the lowest and highest, and ratios to ours in the same dtype."""
    plate: dict[str, dict] = {}
    sizes = []
    for row in rows:
        texts = [f"{f(row['ms']):.3g}" for f in (median, min, max)]
        cell = f"{texts[0]} ({texts[1]} to {texts[2]})"
        if row["grid"] == "plate":
            if row["way"] not in (_OURS, "ours, float32"):
                cell += f", {row['ratio']:.2f}x"
            line = plate.setdefault(row["way"], {"way": row["way"]})
            line[f"noise {row['noise']:g}"] = cell
        else:
            cells = {"ms per iteration, float32": cell, "peak memory, MiB": f"{row['MiB']:.0f}"}
            sizes.append({"grid": row["grid"], **cells})
    found = {"grid_speed": Table.of(list(plate.values()))} if plate else {}
    return found | ({"grid_sizes": Table.of(sizes)} if sizes else {})


def _possible(job: dict) -> bool:
    return job["grid"] == "plate" or (job["way"] == "ours, float32" and job["noise"] == 0.1)


BENCHMARK = Benchmark(
    "grid_speed",
    __doc__,
    {
        "grid": Axis(["plate", "512x512", "1024x1024", "64x64x64", "128x128x128"]),
        "way": Axis(list(_WAYS)),
        "noise": Axis([1.0, 0.1, 0.01]),
    },
    run,
    tables,
    settings={"turns": 20, "train": 20},
    possible=_possible,
    fresh=True,
    one_thread=False,
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
