"""Training of a Gaussian process on a grid: marginal likelihood, then held-out blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from gpytorch_nkn.fit import Fit, Session, check_counts, warn_of_size
from gpytorch_nkn.initialization import assign, initialize_grid_kernels
from gpytorch_nkn.models.base_gp import trains
from gpytorch_nkn.models.grid.grid_blocks import hole_blocks, is_scattered
from gpytorch_nkn.models.grid.grid_training import GridRestart, GridTraining
from gpytorch_nkn.models.grid.kronecker_grid_gp import KroneckerGridGP

__all__ = ["GridFit", "GridRestart", "fit_grid_gp"]

_BLOCK_STEPS = 40
_USUAL_CELLS = 300_000
_FEW = 8  # fewer blocks serve both training and calibration
_NOISE = 0.1  # variance of the noise at the start, of standardised targets


@dataclass
class GridFit(Fit[GridRestart]):
    """The record of :func:`fit_grid_gp`.

    Attributes:
        model: The trained model, in eval mode, with the best parameters.
        restarts: One record per start.
        best: Number of the best start: the smallest block error or, without blocks, the highest
            likelihood.
        scale: Calibration factor of all variances.
    """

    model: KroneckerGridGP
    restarts: list[GridRestart] = field(default_factory=list)
    best: int = 0
    scale: float = 1.0

    _columns: ClassVar = (
        ("likelihood", "likelihood", "11.4f"),
        ("block error", "block_error", "12.4f"),
        ("s", "seconds", "7.1f"),
    )


@trains(KroneckerGridGP)
def fit_grid_gp(
    model: KroneckerGridGP,
    *,
    start: Literal["spectrum"] | None = "spectrum",
    restarts: int = 1,
    likelihood_steps: int = 80,
    block_steps: int | None = None,
    blocks: int | Tensor = 12,
    budget: float | None = None,
    seed: int = 0,
    progress: bool = True,
) -> GridFit:
    """Train a Gaussian process on a grid in place.

    From each start, steps of Adam maximise the marginal likelihood. It is a poor measure of how
    well the model fills a hole. Blocks of observed cells, of the shape of the holes, are therefore
    held out, and the start with the smallest errors in them takes steps that minimise these errors.
    Both gradients are in closed form. The parameters with the smallest block error are kept.
    Finally the variances are calibrated to the errors of further blocks, half as many, or of the
    same blocks if there are fewer than 8 or the caller gives them.

    Ctrl-C and the budget end the training with the best parameters so far.

    Args:
        model: The model.
        start: ``"spectrum"`` for start values from the data (see
            :func:`gpytorch_nkn.initialization.initialize_grid_kernels`), ``None`` for the model's
            parameters.
        restarts: Number of starts.
        likelihood_steps: Largest number of steps on the marginal likelihood. The second half ends
            early when the block error stops falling.
        block_steps: Steps on held-out blocks; ``None`` for 40, or for 0 if the missing cells are
            scattered, which the marginal likelihood suits.
        blocks: Number of blocks, or the blocks ``B x n_1 x ... x n_P``. With 0, or without room for
            blocks, training uses the marginal likelihood alone.
        budget: Wall time of the steps in seconds, without the calibration.
        seed: Determines every draw; the global random state is left alone.
        progress: Show a progress bar, if standard error is a terminal.

    Returns:
        The record, with the model in eval mode.

    A :class:`NumericalWarning` says that conjugate gradients, of at most 200 iterations per solve
    in training, were too inaccurate for the gradients.

    Raises:
        TypeError: The model is not a KroneckerGridGP.
        ValueError: An option is invalid.
        RuntimeError: Every start failed.
        KeyboardInterrupt: Ctrl-C came before the first step.
    """
    if start not in ("spectrum", None):
        raise ValueError(f"start must be 'spectrum' or None, got {start!r}.")
    check_counts(1, restarts=restarts)
    check_counts(0, likelihood_steps=likelihood_steps)
    if block_steps is not None:
        check_counts(0, block_steps=block_steps)
    session = Session(budget=budget, seed=seed, progress=progress)
    if block_steps is None:
        block_steps = 0 if is_scattered(_missing(model)) else _BLOCK_STEPS
    warn_of_size(
        "KroneckerGridGP",
        math.prod(x.size(0) for x in model.coordinates),
        _USUAL_CELLS,
        "each step takes seconds; train on a part of the grid, or with a budget.",
        unit="cells",
    )
    model.train()
    training = GridTraining(model, *_blocks(model, blocks, seed), session)
    fit = GridFit(model)
    total = restarts * likelihood_steps + block_steps
    message = "The training was interrupted; the best parameters so far are kept."
    try:
        with session.interruptible(training.reached, message):
            with session.bar(total, "grid") as bar:
                for number in range(restarts):
                    record = GridRestart(number)
                    fit.restarts.append(record)
                    if start is not None:
                        _initialize(model, seed, number)
                    training.maximize(record, likelihood_steps, bar.update)
                    if record.status == "budget":
                        break
                if not training.has_best():
                    raise RuntimeError(f"Every start failed: {fit.restarts[0].status}.")
                if fit.restarts[-1].status != "budget":
                    bar.n = restarts * likelihood_steps
                    training.tune(fit.restarts[training.best_number], block_steps, bar.update)
            training.use_best()
            fit.scale = training.calibrate()
            training.warn_of_residuals()
        if session.interrupted:
            fit.restarts[-1].status = "interrupted"
            training.use_best()
    finally:
        if training.has_best():
            fit.best = training.best_number
        model.train().eval()  # clears caches of other parameters
    return fit


def _initialize(model: KroneckerGridGP, seed: int, number: int) -> None:
    with torch.no_grad():
        initialize_grid_kernels(
            list(model.kernels),
            model.train_coordinates,
            model.residual(),
            model.grid.observed,
            seed=seed,
            restart=number,
        )
        noise = model.likelihood.noise_covar
        if noise.raw_noise.requires_grad:
            assign(noise, "noise", torch.full_like(noise.noise, _NOISE))


def _blocks(
    model: KroneckerGridGP, blocks: int | Tensor, seed: int
) -> tuple[Tensor | None, Tensor | None]:
    """Return blocks for training and for calibration, on slices with an observed cell."""
    if isinstance(blocks, Tensor):
        sizes = tuple(x.size(0) for x in model.coordinates)
        if blocks.dtype != torch.bool or tuple(blocks.shape[1:]) != sizes:
            raise ValueError(
                f"blocks must be a number or a boolean tensor of shape {('B', *sizes)}, got "
                f"{blocks.dtype} of shape {tuple(blocks.shape)}."
            )
        own = model.trimmed(blocks.to(model.missing.device))
        return own, own
    check_counts(0, blocks=blocks)
    if not blocks:
        return None, None
    count = blocks + (blocks + 1) // 2
    found = model.trimmed(hole_blocks(_missing(model), count, seed=seed))
    if not len(found):
        return None, None
    if len(found) < _FEW:
        return found, found
    further = torch.arange(len(found)) % 3 == 2
    return found[~further], found[further]


def _missing(model: KroneckerGridGP) -> Tensor:
    """Return the cells that are missing in any grid of the batch."""
    sizes = [x.size(0) for x in model.coordinates]
    return model.missing.reshape(-1, *sizes).any(0)
