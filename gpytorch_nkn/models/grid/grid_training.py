"""Steps that train a Gaussian process on a grid."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from gpytorch_nkn._devices import permutation
from gpytorch_nkn.fit import Best, Session, Start, adam, log_prior, warn_user
from gpytorch_nkn.initialization import assign, rescale_kernel
from gpytorch_nkn.linalg import GridLikelihood, HeldOutBlocks
from gpytorch_nkn.linalg.grid import Solution
from gpytorch_nkn.models.grid.kronecker_grid_gp import KroneckerGridGP
from gpytorch_nkn.models.grid.log_adam import LogParameters, period_counts

__all__ = ["GridRestart", "GridTraining"]

_RATE = 0.05  # learning rate of Adam, in the logarithms of positive parameters
_TOLERANCE = 1e-2  # of solves in training; a smaller one changes the third digit of results
_TOLERATED = 10.0  # multiples of the tolerance that do not harm gradients
_MAX_ITERATIONS = 200  # of conjugate gradients; the next step continues from their solution
_BLOCKS_PER_STEP = 2
_LATE_BLOCKS = 2  # number of blocks that calibrate the variances after the end of the budget
_WARM_UP = 5  # steps over which the learning rate on held-out blocks rises
_LAST_RATE = 0.1  # fraction of the learning rate in the last step
_CHECK_EVERY = 10  # steps between evaluations of all blocks
_LEAST_GAIN = 0.01  # relative decrease of their error that continues the steps on the likelihood


@dataclass
class GridRestart(Start):
    """Record of one start.

    Attributes:
        number: Number of the restart.
        likelihood: Log marginal likelihood per observed cell in the last step that maximised it
            (biased if cells are missing), NaN without such steps.
        block_error: Smallest mean squared error of held-out blocks of transformed targets, by
            default in units of their variance; NaN without blocks.
        seconds: Wall time.
        status: ``"done"``, ``"budget"``, ``"interrupted"``, ``"failed: ..."``, or
            ``"stopped: ..."`` after an error in the steps on blocks.
    """

    number: int
    likelihood: float = math.nan
    block_error: float = math.nan
    seconds: float = 0.0
    status: str = "done"


class GridTraining:
    """Steps on a model's marginal likelihood and on the errors of held-out blocks."""

    def __init__(
        self,
        model: KroneckerGridGP,
        blocks: Tensor | None,
        further: Tensor | None,
        session: Session,
    ):
        self.model = model
        self.session = session
        self._best: Best[Tensor] = Best()
        self.best_number = 0  # number of the best restart
        self._current: tuple[GridRestart, LogParameters] | None = None
        self._unsolved: list[float] = []  # residuals of solves that missed the tolerance by far
        options: dict[str, Any] = {
            "tolerance": _TOLERANCE,
            "max_iterations": min(model.max_iterations, _MAX_ITERATIONS),
            "report": self._note,
        }
        self.likelihood = GridLikelihood(model.grid, **options)
        self.blocks, self.further = (
            None if some is None else HeldOutBlocks(model.grid, some, **options)
            for some in (blocks, further)
        )

    def maximize(self, record: GridRestart, steps: int, on_step: Callable[[], object]) -> None:
        """Maximise the marginal likelihood from the model's parameters."""
        error = math.inf
        with self._steps(record, self._likelihood_loss, "failed") as flat:
            self._current = record, flat
            for step, loss in enumerate(adam(flat, steps, lambda _: _RATE), 1):
                record.likelihood = -loss
                on_step()
                late = 2 * step >= steps and step % _CHECK_EVERY == 0
                if self.blocks is not None and late:
                    error, last = self._block_error(), error
                    self._keep(error, record, flat)
                    if error > (1 - _LEAST_GAIN) * last:
                        break
            if not flat.has_time:
                record.status = "budget"
                if not self.has_best():
                    self._keep(math.inf, record, flat)
            elif self.blocks is None:
                self._keep(-record.likelihood if steps else 0.0, record, flat)
            elif not math.isfinite(error):
                self._keep(self._block_error(), record, flat)
        self._current = None

    def tune(self, record: GridRestart, steps: int, on_step: Callable[[], object]) -> None:
        """Minimise the errors of held-out blocks from the best parameters."""
        self.use_best()
        order, step = self._order(steps), 0
        with self._steps(record, lambda: self._block_loss(order[step]), "stopped") as flat:
            rates = lambda number: _RATE * _rate(number, steps)  # noqa: E731
            for step, _ in enumerate(adam(flat, len(order), rates), 1):
                on_step()
                if step % (2 * _CHECK_EVERY) == 0 or step == steps:
                    self._keep(self._block_error(), record, flat)
            if not flat.has_time:
                record.status = "budget"

    @contextmanager
    def _steps(
        self, record: GridRestart, loss: Callable[[], Tensor], word: str
    ) -> Iterator[LogParameters]:
        """Give the parameters to optimise; record time and errors of the steps."""
        begin, model = time.monotonic(), self.model
        cycles = period_counts(model.kernels, model.train_coordinates)
        flat = LogParameters(model, loss, cycles, end=self.session.end)
        try:
            yield flat
        except (ArithmeticError, RuntimeError) as problem:
            record.status = f"{word}: {problem}"
        finally:
            flat.release(flat.values.clone())
            record.seconds += time.monotonic() - begin

    def _keep(self, score: float, record: GridRestart, flat: LogParameters) -> None:
        """Keep the parameters if they have the best score."""
        if self.blocks is not None and math.isfinite(score):
            known = not math.isnan(record.block_error)
            record.block_error = min(score, record.block_error) if known else score
        if self._best.update(-score, flat.values.clone):
            self.best_number = record.number

    def _note(self, solution: Solution, tolerance: float, what: str) -> None:
        if not solution.residual <= _TOLERATED * tolerance:
            self._unsolved.append(solution.residual)

    def has_best(self) -> bool:
        """Whether a step has kept parameters."""
        return self._best.state is not None

    def reached(self) -> bool:
        """Keep the parameters of an interrupted first start; whether there are any."""
        if self._current is not None and not self.has_best():
            record, flat = self._current
            if not math.isnan(record.likelihood):
                self._keep(math.inf, record, flat)
        return self.has_best()

    def warn_of_residuals(self) -> None:
        """Warn once of all solves that missed the tolerance by far."""
        if self._unsolved:
            warn_user(
                f"{len(self._unsolved)} solves in training ended with relative residuals of up to "
                f"{max(self._unsolved):.2g}: gradients, or the scale of the variances, may be "
                "wrong. Use more noise, more max_iterations or float64.",
                NumericalWarning,
            )

    def use_best(self) -> None:
        """Set the parameters of the model to the best ones."""
        assert self._best.state is not None
        trained = [p for p in self.model.parameters() if p.requires_grad]
        parts = self._best.state.split([p.numel() for p in trained])
        for parameter, part in zip(trained, parts, strict=True):
            parameter.data.copy_(part.view(parameter.shape))

    def calibrate(self) -> float:
        """Calibrate all variances to the errors of blocks; returns the factor."""
        model = self.model
        if self.further is None:
            return 1.0
        with torch.no_grad():
            factors, noise = model.factor_matrices(), model.noise_variance()
            late = self.session.is_over
            chosen = range(min(_LATE_BLOCKS, len(self.further.parts))) if late else None
            ratio = self.further.scale(model.residual(), noise, factors, chosen=chosen)
            noise_covar = model.likelihood.noise_covar
            if not noise_covar.raw_noise.requires_grad:
                return 1.0
            for kernel in model.kernels:
                own = ratio  # one for each grid of a batch, if each has its own kernel
                shape: torch.Size = kernel.batch_shape  # type: ignore[assignment]
                if not ratio.shape == noise.shape == shape:
                    own = ratio.mean().expand(shape)
                if not bool((own.isfinite() & (own > 0)).all()):
                    warn_user(
                        "The variances could not be calibrated to the errors of held-out blocks: "
                        f"expected positive ratios, got {ratio}.",
                        NumericalWarning,
                    )
                    return 1.0
                own = own ** (1 / sum(kernel is other for other in model.kernels))
                if rescale_kernel(kernel, own):
                    factor = ratio if ratio.shape == noise.shape == shape else ratio.mean()
                    assign(noise_covar, "noise", noise_covar.noise * factor.unsqueeze(-1))
                    return float(ratio.mean())
        return 1.0

    def _likelihood_loss(self) -> Tensor:
        model = self.model
        value = self.likelihood(model.residual(), model.noise_variance(), model.factor_matrices())
        value = value.sum() - log_prior(model, value)
        return value / self.likelihood.grid.num_observed.sum()

    def _block_loss(self, chosen: list[int] | None = None) -> Tensor:
        assert self.blocks is not None
        model = self.model
        return self.blocks(
            model.residual(), model.noise_variance(), model.factor_matrices(), chosen
        ).mean()

    @torch.no_grad()
    def _block_error(self) -> float:
        error = float(self._block_loss())
        return error if math.isfinite(error) else math.inf

    def _order(self, steps: int) -> list[list[int]]:
        """Blocks of each step, from random permutations of all blocks."""
        if self.blocks is None:
            return []
        generator = self.session.generator()
        count = len(self.blocks.parts)
        waiting: list[int] = []
        order = []
        for _ in range(steps):
            if len(waiting) < min(_BLOCKS_PER_STEP, count):
                waiting = permutation(count, generator).tolist()
            order.append([waiting.pop() for _ in range(min(_BLOCKS_PER_STEP, count))])
        return order


def _rate(step: int, steps: int) -> float:
    """Fraction of the learning rate: a short warm-up, then a linear decay to a tenth."""
    return min(1.0, (step + 1) / _WARM_UP) * (1 - (1 - _LAST_RATE) * step / steps)
