"""Time of a training iteration on a grid with a hole.

One iteration (loss, gradient, a step of Adam) of networks of kernels, one per dimension, on the
metal plate with the paper's hole. Compared are this package, the paper's formulation and, without
the step, BoTorch's LatentKroneckerGP with the settings of its own fit. All start from the same
partly trained kernels and from each of several noise variances, and alternate. GPYTORCH_NKN_DATA
names the folder of the data. (``benchmarks.scaling`` has larger grids.)

The paper's formulation (Sun et al. 2018, appendix J.4, after Wilson et al. 2014) is written
directly in PyTorch: imaginary observations with noise 1e6 complete the grid, conjugate gradients
solve the system scaled by D^(-1/2), and scaled eigenvalues approximate the log-determinant.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np
import torch
from botorch.models.latent_kronecker_gp import LatentKroneckerGP
from botorch.optim.closures import get_loss_closure_with_grads
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor, nn

from benchmarks.data import load_texture
from benchmarks.report import Table
from benchmarks.runner import Axis, Benchmark, ratios_in_turn
from gpytorch_nkn.initialization import initialize_grid_kernels
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.linalg import GridLikelihood
from gpytorch_nkn.models import KroneckerGridGP

__all__ = ["BENCHMARK", "waves_iteration"]

_EPSILON = 1e-6  # precision of the imaginary observations
# Conjugate gradients, as in the authors' code: their criterion on the squared residual amounts to
# about 1e-4.
_MAX_ITERATIONS, _PAPER_TOLERANCE = 100, 1e-4
Grid = tuple[list[Tensor], Tensor, Tensor]  # coordinates, targets, missing cells


class PaperGrid(nn.Module):
    """Gaussian process on a complete grid ``n_1 x n_2``; missing cells are imaginary."""

    def __init__(self, grid: Grid, kernels: Sequence[Kernel], noise: float):
        super().__init__()
        self.coordinates, targets, self.missing = grid
        self.kernels = nn.ModuleList(kernels)
        self.likelihood = GaussianLikelihood(noise_constraint=GreaterThan(1e-6)).to(targets)
        self.likelihood.noise = noise
        self.targets = torch.where(self.missing, 0.0, targets)
        self.num_observed = int((~self.missing).sum())

    def forward(self) -> Tensor:
        """Return the negative log marginal likelihood per observation, differentiable."""
        rows, columns = self._factors()
        noise = self.likelihood.noise
        diagonal = torch.where(self.missing, noise + 1 / _EPSILON, noise)
        with torch.no_grad():
            weights = self._solve(rows, columns, diagonal)
        # value y' A^-1 y and gradient -a' dA a, without the steps of conjugate gradients
        product = rows @ weights @ columns + diagonal * weights
        quadratic = 2 * (self.targets * weights).sum() - (weights * product).sum()
        count = self.num_observed
        spectra = [torch.linalg.eigvalsh(factor).clamp_min(0) for factor in (rows, columns)]
        largest = torch.outer(*spectra).flatten().topk(count, sorted=False).values
        log_det = torch.log(largest * (count / self.targets.numel()) + noise).sum()
        return (quadratic + log_det + count * math.log(2 * math.pi)) / (2 * count)

    def _factors(self) -> list[Tensor]:
        pairs = zip(self.kernels, self.coordinates, strict=True)
        return [kernel(x).to_dense() for kernel, x in pairs]

    def _solve(self, rows: Tensor, columns: Tensor, diagonal: Tensor) -> Tensor:
        """Solve ``(K + D) a = y`` as ``C (K + D) C z = C y`` with ``a = C z``, ``C = D^(-1/2)``."""
        scale = diagonal.rsqrt()
        right_side = scale * self.targets
        largest = _PAPER_TOLERANCE * right_side.norm()
        solution, residual = torch.zeros_like(right_side), right_side.clone()
        direction, square = residual.clone(), residual.square().sum()
        iterations = 0
        while iterations < _MAX_ITERATIONS and square.sqrt() > largest:
            product = direction + scale * (rows @ (scale * direction) @ columns)
            step = square / (direction * product).sum()
            solution += step * direction
            residual -= step * product
            last, square = square, residual.square().sum()
            direction = residual + square / last * direction
            iterations += 1
        return scale * solution


def latent_kronecker_loss(
    grid: Grid, kernels: Sequence[Kernel], noise: float
) -> Callable[[], Tensor]:
    """Return a function that computes loss and gradient like the fit of LatentKroneckerGP."""
    coordinates, targets, missing = grid
    likelihood = GaussianLikelihood(noise_constraint=GreaterThan(1e-6))
    parts = dict(zip(("covar_module_X", "covar_module_T"), kernels, strict=True))
    parts |= {"likelihood": likelihood, "outcome_transform": None}
    model = LatentKroneckerGP(*coordinates, torch.where(missing, torch.nan, targets), **parts)
    likelihood.noise = noise
    mll = ExactMarginalLogLikelihood(likelihood, model).train()
    parameters = {n: p for n, p in mll.named_parameters() if p.requires_grad}
    closure = get_loss_closure_with_grads(mll, parameters)

    def loss() -> Tensor:
        with model.use_iterative_methods():
            return closure()[0]

    return loss


def standardized_grid(
    image: np.ndarray, mask: np.ndarray, *, dtype: torch.dtype = torch.float64
) -> Grid:
    """Return standardised coordinates ``n_p x 1`` and targets, and missing cells, of an image."""
    coordinates = []
    for size in image.shape:
        x = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
        coordinates.append((x / x.std(correction=0)).unsqueeze(-1).to(dtype))
    missing = torch.as_tensor(mask)
    values = torch.as_tensor(image, dtype=torch.float64)
    observed = values[~missing]
    targets = (values - observed.mean()) / observed.std(correction=0)
    return coordinates, targets.to(dtype), missing


def start_kernels(
    coordinates: Sequence[Tensor], targets: Tensor, missing: Tensor
) -> list[NeuralKernelNetwork]:
    """Create a texture network per dimension, with start values from the data."""
    kernels = [NeuralKernelNetwork.texture(priors=False).to(targets.dtype) for _ in coordinates]
    initialize_grid_kernels(kernels, coordinates, targets, ~missing)
    return kernels


_OURS = "ours, float64"
_HOLE = (60 / 224, 80 / 224)  # the paper's hole, as fractions of the sides
_RATE, _TOLERANCE = 0.01, 1e-2  # as in fit_grid_gp
_WAYS = {
    _OURS: ("ours", torch.float64),
    "ours, float32": ("ours", torch.float32),
    "paper, float64": ("paper", torch.float64),
    "paper, float32": ("paper", torch.float32),
    "LatentKroneckerGP, float64": ("latent", torch.float64),
}


class _OurGrid(nn.Module):
    """Return the loss that ``fit_grid_gp`` minimises."""

    def __init__(self, grid: Grid, kernels: Sequence[Kernel], noise: float):
        super().__init__()
        coordinates, targets, missing = grid
        likelihood = GaussianLikelihood(noise_constraint=GreaterThan(1e-6))
        options = {"likelihood": likelihood, "outcome_transform": None}
        targets = targets.masked_fill(missing, math.nan)
        self.model = KroneckerGridGP(coordinates, targets, kernels, **options)
        self.model.likelihood.noise = noise
        self.loss = GridLikelihood(self.model.grid, tolerance=_TOLERANCE)

    def forward(self) -> Tensor:
        return self.loss(*self.model.loss_inputs()) / self.loss.grid.num_observed


def _iteration(grid: Grid, kernels: Sequence[Kernel], way: str, noise: float) -> Callable:
    """Return a function that runs one iteration from a copy of the kernels."""
    method, dtype = _WAYS[way]
    coordinates, targets, missing = grid
    grid = [x.to(dtype) for x in coordinates], targets.to(dtype), missing
    kernels = [copy.deepcopy(kernel).to(dtype) for kernel in kernels]
    if method == "latent":
        return latent_kronecker_loss(grid, kernels, noise)
    if method == "paper":
        model: nn.Module = PaperGrid(grid, kernels, noise)
    else:
        model = _OurGrid(grid, kernels, noise)
    optimizer = torch.optim.Adam(model.parameters(), lr=_RATE)

    def step() -> None:
        optimizer.zero_grad()
        model().backward()
        optimizer.step()

    return step


def waves_iteration(*shape: int, device: torch.device | str = "cpu") -> Callable[[], object]:
    """Return a function that runs one iteration, in float32, on sinusoids with a hole."""
    axes = np.meshgrid(*(np.arange(side) for side in shape), indexing="ij", sparse=True)
    waves = sum(np.sin(2 * np.pi * x / (11 + 3 * d)) for d, x in enumerate(axes))
    values = waves + 0.3 * np.random.default_rng(0).standard_normal(shape)
    mask = np.zeros(shape, dtype=bool)
    share = zip(shape, _HOLE, strict=False)
    mask[tuple(slice(side // 4, side // 4 + round(frac * side)) for side, frac in share)] = True
    coordinates, targets, missing = grid = standardized_grid(values, mask, dtype=torch.float32)
    kernels = [kernel.to(device) for kernel in start_kernels(*grid)]
    grid = [x.to(device) for x in coordinates], targets.to(device), missing.to(device)
    return _iteration(grid, kernels, "ours, float32", 0.1)


def run(way: str, noise: float, turns: int, train: int) -> dict:
    """Return milliseconds of a method and of ours, measured alternately."""
    plate = standardized_grid(*load_texture("plate"))
    kernels = start_kernels(*plate)
    step = _iteration(plate, kernels, _OURS, 0.1)
    for _ in range(train):
        step()
    base = _OURS if way.endswith("float64") else "ours, float32"
    steps = {name: _iteration(plate, kernels, name, noise) for name in dict.fromkeys((base, way))}
    count = min(turns, 2) if way.startswith("Latent") else turns
    seconds = ratios_in_turn(steps, count)
    ratio = median(seconds[way]) / median(seconds[base])
    return {"ms": [1e3 * s for s in seconds[way]], "ratio": ratio}


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return medians with minimum and maximum, and ratios to ours in the same dtype."""
    lines: dict[str, dict] = {}
    for row in rows:
        middle, low, high = (f"{f(row['ms']):.3g}" for f in (median, min, max))
        cell = f"{middle} ({low} to {high})"
        if not row["way"].startswith("ours"):
            cell += f", {row['ratio']:.2f}x"
        lines.setdefault(row["way"], {"way": row["way"]})[f"noise {row['noise']:g}"] = cell
    return {"grid_speed": Table.of(list(lines.values()))}


BENCHMARK = Benchmark(
    {"way": Axis(list(_WAYS)), "noise": Axis([1.0, 0.1, 0.01])},
    run,
    tables,
    settings={"turns": 20, "train": 20},
    fresh=True,
    one_thread=False,
)

if __name__ == "__main__":
    BENCHMARK.command()
