"""Training of a GP on a grid by marginal likelihood and held-out blocks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.module import Module
from torch import Tensor
from torch.nn.functional import softplus

from gpytorch_nkn._devices import permutation
from gpytorch_nkn.fit import (
    Best,
    Fit,
    FlatParameters,
    Session,
    Start,
    adam,
    check_counts,
    log_prior,
    warn_of_size,
)
from gpytorch_nkn.initialization import assign, initialize_grid_kernels, rescale_kernel
from gpytorch_nkn.kernels.evaluation import has_softplus
from gpytorch_nkn.linalg import GridLikelihood, HeldOutBlocks
from gpytorch_nkn.models.base_gp import trains
from gpytorch_nkn.models.grid.grid_blocks import hole_blocks, is_scattered
from gpytorch_nkn.models.grid.kronecker_grid_gp import KroneckerGridGP

__all__ = ["GridFit", "GridRestart", "LogParameters", "fit_grid_gp"]

_USUAL_CELLS = 300_000  # largest grid without a warning
_FEW = 8  # number of blocks below which training and calibration use the same blocks
_LATE_BLOCKS = 2  # number of calibration blocks after the end of the budget
_NOISE = 0.1  # start value of the noise variance of standardised targets
_RATE = 0.05  # learning rate of Adam, for logarithms of positive parameters
_TOLERANCE = 1e-2  # relative residual of solves; smaller residuals change the third digit
_MAX_ITERATIONS = 200  # conjugate gradient iterations; the next step starts from the solution
_BLOCKS_PER_STEP = 2
_WARM_UP = 5  # steps of increasing learning rate on held-out blocks
_LAST_RATE = 0.1  # fraction of the learning rate in the last step
_CHECK_EVERY = 10  # steps between evaluations of all blocks
_LEAST_GAIN = 0.01  # least relative decrease of the block error between evaluations


@dataclass
class GridRestart(Start):
    """Record of a start.

    Attributes:
        number: Number of the restart.
        likelihood: Last log marginal likelihood per observed cell, approximate if cells are
            missing; NaN without likelihood steps.
        block_error: Smallest mean squared error of held-out blocks, of transformed targets; NaN
            without blocks.
        seconds: Wall time.
        status: ``"ok"``, ``"budget"``, ``"interrupted"``, ``"failed: ..."``, or ``"stopped: ..."``
            after an error in the steps on blocks.
    """

    number: int
    likelihood: float = math.nan
    block_error: float = math.nan
    seconds: float = 0.0
    status: str = "ok"


@dataclass
class GridFit(Fit[GridRestart]):
    """Result of :func:`fit_grid_gp`.

    Attributes:
        model: Trained model in eval mode.
        restarts: One record per start.
        best: Number of the start with the smallest block error or, without blocks, the highest
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


@trains(KroneckerGridGP, likelihood=GaussianLikelihood)
def fit_grid_gp(
    model: KroneckerGridGP,
    *,
    start: Literal["spectrum"] | None = "spectrum",
    restarts: int = 1,
    likelihood_steps: int = 80,
    block_steps: int = 40,
    blocks: int = 12,
    budget: float | None = None,
    seed: int = 0,
    progress: bool = True,
) -> GridFit:
    """Train a Gaussian process on a grid in place.

    From each start, Adam maximises the marginal likelihood, which is a poor measure of errors in
    holes. Blocks of observed cells with the shape of the holes are therefore held out. From the
    start with the smallest errors in these blocks, Adam then minimises the errors, and keeps the
    best parameters. Finally the variances are calibrated to the errors of half as many additional
    blocks, unless noise variances are known. With fewer than 8 blocks, the calibration uses the
    same blocks.

    Ctrl-C or the end of the budget stops the training with the best parameters so far.

    Args:
        model: Model to train.
        start: ``"spectrum"`` for start values from the data (see
            :func:`gpytorch_nkn.initialization.initialize_grid_kernels`), ``None`` for the model's
            parameters.
        restarts: Number of starts.
        likelihood_steps: Largest number of steps on the marginal likelihood. The second half ends
            early if the block error stops decreasing.
        block_steps: Steps on held-out blocks; always 0 if the missing cells are scattered.
        blocks: Number of blocks. With 0, on a complete grid, or if the holes are too large,
            training only uses the marginal likelihood, without calibration.
        budget: Wall time of the steps in seconds, without the calibration.
        seed, progress: As in :func:`gpytorch_nkn.fit.fit_best_of`.

    A :class:`NumericalWarning` means that 200 iterations of conjugate gradients per solve were too
    few for accurate gradients.

    Raises:
        TypeError: The model is not a KroneckerGridGP.
        ValueError: An option is invalid.
        RuntimeError: Every start failed.
        KeyboardInterrupt: Ctrl-C was pressed before the first step.
    """
    if start not in ("spectrum", None):
        raise ValueError(f"start must be 'spectrum' or None, got {start!r}.")
    check_counts(1, restarts=restarts)
    check_counts(0, likelihood_steps=likelihood_steps, block_steps=block_steps, blocks=blocks)
    session = Session(budget=budget, seed=seed, progress=progress)
    block_steps *= not is_scattered(_missing(model))
    if budget is None:
        warn_of_size(
            "KroneckerGridGP",
            math.prod(x.size(0) for x in model.coordinates),
            _USUAL_CELLS,
            "each step takes seconds; train on a part of the grid, or with a budget.",
            unit="cells",
        )
    model.train()
    training = _Training(model, blocks, session)
    fit = GridFit(model)
    total = restarts * likelihood_steps + block_steps
    message = "The training was interrupted; the best parameters so far are kept."

    def has_steps() -> bool:
        return not all(math.isnan(record.likelihood) for record in fit.restarts)

    try:
        with session.interruptible(has_steps, message):
            with session.bar(total, "grid") as bar:
                for number in range(restarts):
                    record = GridRestart(number)
                    fit.restarts.append(record)
                    if start is not None:
                        _initialize(model, seed, number)
                    training.maximize(record, likelihood_steps, bar.update)
                    if record.status == "budget":
                        break
                if all(record.status.startswith("failed") for record in fit.restarts):
                    raise RuntimeError(f"Every start failed: {fit.restarts[0].status}.")
                if fit.restarts[-1].status != "budget":
                    bar.n = restarts * likelihood_steps
                    training.tune(fit.restarts[training.best_number], block_steps, bar.update)
            training.use_best()
            fit.scale = training.calibrate()
        if session.interrupted:
            fit.restarts[-1].status = "interrupted"
            training.use_best()
    finally:
        fit.best = training.best_number
        model.train().eval()  # clears caches
    return fit


def _initialize(model: KroneckerGridGP, seed: int, number: int) -> None:
    # between the rows of a coarser grid, shorter lengthscales fit but predict the mean
    steps = [
        float(x.amax() - x.amin()) / max(len(x) - 1, 1) if 2 * len(x) <= len(every) + 1 else 0.0
        for every, x in zip(model.coordinates, model.train_coordinates, strict=True)
    ]
    with torch.no_grad():
        initialize_grid_kernels(
            list(model.kernels),
            model.train_coordinates,
            model.residual(),
            model.grid.observed,
            shortest=steps,
            seed=seed,
            restart=number,
        )
        noise = model.likelihood.noise_covar
        if noise.raw_noise.requires_grad:
            assign(noise, "noise", torch.full_like(noise.noise, _NOISE))


def _missing(model: KroneckerGridGP) -> np.ndarray:
    """Return the cells that are missing in any grid of the batch."""
    missing = model.missing
    return missing.reshape(-1, *missing.shape[-model.num_dims :]).any(0).cpu().numpy()


class _Training:
    """Steps on a model's marginal likelihood and on the errors of held-out blocks."""

    def __init__(self, model: KroneckerGridGP, num_blocks: int, session: Session):
        self.model = model
        self.session = session
        self._best: Best[list[Tensor]] = Best()
        self.best_number = 0  # number of the best restart
        options: dict[str, Any] = {
            "tolerance": _TOLERANCE,
            "max_iterations": min(model.max_iterations, _MAX_ITERATIONS),
            "max_residual": model.max_residual,
        }
        self.likelihood = GridLikelihood(model.grid, **options)
        self.blocks: HeldOutBlocks | None = None
        total = num_blocks + (num_blocks + 1) // 2
        blocks = torch.from_numpy(hole_blocks(_missing(model), total, seed=session.seed))
        if len(blocks):
            inside = model.trimmed(blocks.to(model.missing.device))
            self.blocks = HeldOutBlocks(model.grid, inside, **options)
        numbers = range(len(blocks))
        few = len(blocks) < _FEW
        self.training_blocks = [i for i in numbers if few or i % 3 != 2]
        self.calibration_blocks = [i for i in numbers if few or i % 3 == 2]

    def maximize(self, record: GridRestart, steps: int, on_step: Callable[[], object]) -> None:
        """Maximise the marginal likelihood from the model's parameters."""
        error = math.inf
        with self._steps(record, self._likelihood_loss, "failed") as flat:
            for step, loss in enumerate(adam(flat, steps, lambda _: _RATE), 1):
                record.likelihood = -loss
                on_step()
                late = 2 * step >= steps and step % _CHECK_EVERY == 0
                if self.blocks is not None and late:
                    error, last = self._block_error(), error
                    self._keep(error, record)
                    if error > (1 - _LEAST_GAIN) * last:
                        break
            if not flat.has_time:
                record.status = "budget"
            elif self.blocks is None:
                self._keep(-record.likelihood if steps else 0.0, record)
            elif not math.isfinite(error):
                self._keep(self._block_error(), record)

    def tune(self, record: GridRestart, steps: int, on_step: Callable[[], object]) -> None:
        """Minimise the errors of held-out blocks from the best parameters."""
        self.use_best()
        order = self._order()
        with self._steps(record, lambda: self._block_loss(next(order)), "stopped") as flat:
            steps = 0 if self.blocks is None else steps
            for step, _ in enumerate(adam(flat, steps, partial(_rate, steps)), 1):
                on_step()
                if step % (2 * _CHECK_EVERY) == 0 or step == steps:
                    self._keep(self._block_error(), record)
            if not flat.has_time:
                record.status = "budget"

    @contextmanager
    def _steps(
        self, record: GridRestart, loss: Callable[[], Tensor], word: str
    ) -> Iterator[LogParameters]:
        """Yield the parameters to optimise, and record time and errors of the steps."""
        begin, model = time.monotonic(), self.model
        cycles = _period_counts(model.kernels, model.train_coordinates)
        flat = LogParameters(model, loss, cycles, end=self.session.end)
        try:
            yield flat
        except (ArithmeticError, RuntimeError) as problem:
            record.status = f"{word}: {problem}"
        finally:
            flat.release(flat.values.clone())
            record.seconds += time.monotonic() - begin

    def _keep(self, score: float, record: GridRestart) -> None:
        """Keep the parameters if they have the best score."""
        if self.blocks is not None and math.isfinite(score):
            has_block_error = not math.isnan(record.block_error)
            record.block_error = min(score, record.block_error) if has_block_error else score
        if self._best.update(-score, lambda: [p.detach().clone() for p in self._trained()]):
            self.best_number = record.number

    def _trained(self) -> Iterator[Tensor]:
        return (p for p in self.model.parameters() if p.requires_grad)

    def use_best(self) -> None:
        """Set the parameters of the model to the best ones, if any were kept."""
        for parameter, value in zip(self._trained(), self._best.state or (), strict=False):
            parameter.data.copy_(value)

    @torch.no_grad()
    def calibrate(self) -> float:
        """Calibrate all variances to the errors of blocks, and return the factor."""
        model, noise_covar = self.model, self.model.likelihood.noise_covar
        fixed = not noise_covar.raw_noise.requires_grad or model.grid.extra is not None
        if self.blocks is None or fixed:
            return 1.0
        chosen = self.calibration_blocks[: _LATE_BLOCKS if self.session.is_over else None]
        ratio = self.blocks.scale(*model.loss_inputs(), chosen)
        shapes = {kernel.batch_shape for kernel in model.kernels}
        if {*shapes, model.noise_variance().shape} != {ratio.shape}:
            ratio = ratio.mean()  # grids of a batch share the noise or a kernel
        if not bool(((ratio > 0) & ratio.isfinite()).all()):  # constant targets, or failed solves
            return 1.0
        for kernel in model.kernels:
            shape: torch.Size = kernel.batch_shape  # type: ignore[assignment]
            count = sum(kernel is other for other in model.kernels)
            if rescale_kernel(kernel, (ratio ** (1 / count)).expand(shape)):
                assign(noise_covar, "noise", noise_covar.noise * ratio.unsqueeze(-1))
                return float(ratio.mean())
        return 1.0

    def _likelihood_loss(self) -> Tensor:
        model = self.model
        value = self.likelihood(*model.loss_inputs())
        value = value.sum() - log_prior(model, value)
        return value / self.likelihood.grid.num_observed.sum()

    def _block_loss(self, chosen: list[int]) -> Tensor:
        assert self.blocks is not None
        return self.blocks(*self.model.loss_inputs(), chosen).mean()

    @torch.no_grad()
    def _block_error(self) -> float:
        error = float(self._block_loss(self.training_blocks))
        return error if math.isfinite(error) else math.inf

    def _order(self) -> Iterator[list[int]]:
        """Yield the blocks of each step, from random permutations of all blocks."""
        generator, blocks = self.session.generator(), torch.tensor(self.training_blocks)
        while True:
            order = blocks[permutation(len(blocks), generator).flip(0)]
            yield from (some.tolist() for some in order.split(_BLOCKS_PER_STEP))


def _rate(steps: int, step: int) -> float:
    """Return the learning rate of a step: a short warm-up, then a linear decay to a tenth."""
    return _RATE * min(1.0, (step + 1) / _WARM_UP) * (1 - (1 - _LAST_RATE) * step / steps)


class LogParameters(FlatParameters):
    """Parameters whose Adam steps are proportional to their values.

    A step of a positive parameter (softplus of a raw value) is a step of its logarithm to first
    order. A change of the period shifts the last cycle in the data by this change times the number
    of cycles. Steps of periods and frequencies are therefore divided by the number of cycles. Equal
    steps of raw values give larger errors in holes.

    ``cycles`` has the number of periods by the id of a parameter that is a period or a frequency.
    """

    def __init__(
        self,
        model: Module,
        loss: Callable[[], Tensor],
        cycles: dict[int, Tensor],
        *,
        end: float = math.inf,
    ):
        super().__init__(model, loss, end=end)
        positive, rates = [], []
        for _, parameter, constraint in model.named_parameters_and_constraints():
            if not parameter.requires_grad:
                continue
            bounded = constraint is None or bool(constraint.upper_bound.isfinite().any())
            softplus_of_raw = not bounded and constraint.enforced and has_softplus(constraint)
            positive.append(torch.full((parameter.numel(),), softplus_of_raw))
            count = cycles.get(id(parameter), torch.ones(1)).detach().double().cpu()
            rates.append(1 / count.clamp_min(1.0).reshape(-1).expand(parameter.numel()))
        self._positive = torch.cat(positive).to(self.values.device)
        self._rates = torch.cat(rates).to(self.values)

    def step_sizes(self) -> Tensor:
        """Return the derivatives of raw values with respect to logarithms, per period."""
        above = softplus(self.values).clamp_min(torch.finfo(self.values.dtype).tiny)
        return self._rates * torch.where(self._positive, -above / torch.expm1(-above), 1.0)


def _period_counts(kernels: Iterable[Module], coordinates: Iterable[Tensor]) -> dict[int, Tensor]:
    """Count the periods in the data, for raw parameters that are periods or frequencies."""
    cycles: dict[int, Tensor] = {}
    for kernel, x in zip(kernels, coordinates, strict=True):
        span = (x.amax(0) - x.amin(0)).amax()
        for module in kernel.modules():
            if not isinstance(module, Kernel):
                continue
            raw = module._parameters
            if "raw_period_length" in raw:
                cycles[id(raw["raw_period_length"])] = span / module.period_length
            if "raw_mixture_means" in raw:
                cycles[id(raw["raw_mixture_means"])] = span * module.mixture_means
            if "frequency" in raw:
                cycles[id(raw["frequency"])] = (span / (2 * math.pi)).expand_as(raw["frequency"])
    return cycles
