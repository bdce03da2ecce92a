"""Training of a GP of frequency pairs, guarded by rows that are left out."""

from __future__ import annotations

import math
import operator
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, Likelihood
from gpytorch.means import Mean
from torch import Tensor
from tqdm import tqdm

from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.fit.objective import Objective
from gpytorch_nkn.fit.optimize import FlatParameters, run_lbfgs
from gpytorch_nkn.kernels import NonStationarySpectralKernel
from gpytorch_nkn.models.spectral_rows import Rows, RowsGP

if TYPE_CHECKING:
    from gpytorch_nkn.models.spectral_gp import SpectralGP

__all__ = ["OPTIONS", "fit_spectral_gp"]

OPTIONS = {
    "restarts",
    "start_rows",
    "max_iterations",
    "validation_fraction",
    "folds",
    "budget",
    "seed",
    "progress",
}
_START_SHARE = 0.4  # of a budget
_FEWEST, _MOST = 20, 2000  # rows left out
_PATIENCE = 6  # iterations without a better density of those
_WARM_UP = 10  # iterations before it counts
_LEAST_GAIN = 1e-4  # of a mean log density
_SHARE = 0.1  # of the variance, with which pairs start beside an RBF kernel
_STANDARD_ERRORS = 1.0  # of the gain in left-out density, which pairs must exceed
_REFIT = 30  # iterations of an RBF kernel that starts near its best
_RATE = 0.02  # of Adam
_CHECK_EVERY = 10  # steps
_OFF = 1e-8  # outputscale of pairs that do not


def fit_spectral_gp(
    model: SpectralGP,
    *,
    restarts: int = 2,
    start_rows: int = 1000,
    max_iterations: int = 100,
    validation_fraction: float = 0.1,
    folds: int = 3,
    budget: float | None = None,
    seed: int = 0,
    progress: bool = False,
) -> SpectralGP:
    """Train a GP of frequency pairs in place.

    Frequencies that are free to fit all rows fit their noise, too. An RBF kernel with a lengthscale
    per column is trained first, and the frequencies start from its spectral density.

    Alone, the pairs are trained by L-BFGS on the marginal likelihood of nine tenths of the rows,
    until the tenth that is left out is foretold no better. The noise is raised to the level
    under which these rows are most likely, and predictions use all rows.

    Beside an RBF kernel they must earn their place: both kernels are trained without each third of
    the rows in turn, by steps of Adam, whose number is that after which left-out rows are foretold
    best. The pairs stay only if the gain in log density exceeds its standard error. Otherwise the
    model is that of the RBF kernel.

    Ctrl-C and the budget end the training; what was reached by then counts. Input transforms that
    learn stay as they are.

    Args:
        model: The model.
        restarts: Starts of the RBF kernel.
        start_rows: Rows, drawn at random, on which it is trained at first.
        max_iterations: Largest number of iterations of L-BFGS, or of steps of Adam.
        validation_fraction: Share of the rows to be left out (20 to 2000), where the pairs are
            alone; 0 for none, with all iterations on all rows.
        folds: Parts of the rows, each left out once, beside an RBF kernel; 0 keeps the pairs
            whether they earn it or not, after all steps.
        budget: Wall time in seconds.
        seed: Determines every draw; the global random state is left alone.
        progress: Show a progress bar, if standard error is a terminal.

    Returns:
        The same model, in eval mode.

    Raises:
        TypeError: The model is no SpectralGP.
        ValueError: An option has no meaning, or the data are not finite.
        RuntimeError: Every start of the RBF kernel failed.
        KeyboardInterrupt: Ctrl-C came before there was anything better than the start.
    """
    _check_options(model, restarts, start_rows, max_iterations, validation_fraction, folds, budget)
    model.train()
    try:
        with torch.inference_mode(False), torch.enable_grad():
            training = _Training(model, max_iterations, restarts, budget, seed, progress)
            with training.bar:
                if model.rbf_kernel is None:
                    _learn_alone(model, training, start_rows, validation_fraction)
                else:
                    _learn_beside(model, training, start_rows, folds)
    finally:
        model.train().eval()  # forgets what was computed with other parameters
    return model


class _Training:
    """Data, options and time of a training.

    Attributes:
        rows: All rows, in a random order.
        interrupted: Ctrl-C was pressed.
    """

    def __init__(
        self,
        model: SpectralGP,
        max_iterations: int,
        restarts: int,
        budget: float | None,
        seed: int,
        progress: bool,
    ):
        with torch.no_grad():
            x = model.transform_inputs(model.train_inputs[0]).detach()
        y, likelihood = model.train_targets, model.likelihood
        known = isinstance(likelihood, FixedNoiseGaussianLikelihood)
        noise = likelihood.noise.detach().expand(y.shape) if known else None
        for name, values in (("inputs", x), ("targets", y)):
            if not bool(values.isfinite().all()):
                raise ValueError(f"The training {name} contain NaN or infinite values.")
        order = torch.randperm(y.size(-1), generator=torch.Generator().manual_seed(seed))
        self.rows = Rows(x, y, noise)[order.to(y.device)]
        self.max_iterations, self.restarts, self.seed = max_iterations, restarts, seed
        self.budget, self._begin = budget, time.monotonic()
        self.interrupted = False
        shown = progress and sys.stderr.isatty()
        self.bar = tqdm(desc="pairs of frequencies", unit="steps", disable=not shown, leave=False)

    @property
    def deadline(self) -> float:
        """Time of the monotonic clock at which to stop."""
        return math.inf if self.budget is None else self._begin + self.budget

    @property
    def is_over(self) -> bool:
        """Whether no more training is due."""
        return self.interrupted or time.monotonic() > self.deadline

    def learn_rbf(self, rows: Rows, kernel: Kernel, mean: Mean, likelihood: Likelihood) -> None:
        """Train parts in place, with an RBF kernel, from start values that the rows give."""
        gp = RowsGP(rows, deepcopy(kernel), deepcopy(mean), deepcopy(likelihood))
        result = fit_best_of(
            gp,
            restarts=self.restarts,
            recipe=Recipe(adam_steps=0, lbfgs_iterations=150),
            budget=None if self.budget is None else _START_SHARE * self.budget,
            seed=self.seed,
            progress=False,
        )
        best = result.model
        kernel.load_state_dict(best.covar_module.state_dict())
        mean.load_state_dict(best.mean_module.state_dict())
        if rows.noise is None:
            likelihood.load_state_dict(best.likelihood.state_dict())
        self.interrupted = any("interrupted" in record.status for record in result.restarts)

    def maximize(self, gp: RowsGP, iterations: int, watch: _Watch | None = None) -> None:
        """Iterations of L-BFGS on the parts of a GP, in place.

        Args:
            gp: The GP.
            iterations: Their largest number.
            watch: What ends the training, and says where it was best; ``None`` for the likelihood.
        """
        flat = FlatParameters(Objective(gp.train()))

        def on_step() -> None:
            self.bar.update()
            if watch is not None:
                watch(flat.values)

        with self._released(flat, watch):
            run_lbfgs(flat, iterations=iterations, deadline=self.deadline, on_step=on_step)

    def descend(self, gp: RowsGP, steps: int, check: Callable[[int], None] | None = None) -> None:
        """The first steps of Adam, out of as many as there may be, on the parts of a GP.

        Args:
            gp: The GP, which is left where the last step ends.
            steps: Their number.
            check: Is called after each of them with its number.
        """
        flat = FlatParameters(Objective(gp.train()))
        mean, square = torch.zeros_like(flat.values), torch.zeros_like(flat.values)
        with self._released(flat):
            for step in range(1, steps + 1):
                if not bool(flat.evaluate().isfinite()):
                    break
                flat.best_values = flat.values.clone()
                mean.lerp_(flat.gradients, 0.1)
                square.lerp_(flat.gradients.square(), 0.001)
                rate = _RATE * 0.5 * (1 + math.cos(math.pi * step / self.max_iterations))
                slope = (square / (1 - 0.999**step)).sqrt().add_(1e-8)
                flat.values.sub_(rate * mean / (1 - 0.9**step) / slope)
                torch.clamp(flat.values, *flat.bounds, out=flat.values)
                flat.best_values = flat.values.clone()
                self.bar.update()
                if check is not None:
                    check(step)
                if time.monotonic() > self.deadline:
                    break

    @contextmanager
    def _released(self, flat: FlatParameters, watch: _Watch | None = None) -> Iterator[None]:
        """Leave the model at the best point, whatever ends the training."""
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True
            if flat.evaluations == 0:
                raise
            warnings.warn(
                f"Interrupted after {flat.evaluations} evaluations; the best parameters so far "
                "are kept.",
                stacklevel=6,
            )
        finally:
            if watch is not None:
                flat.best_values = watch.best_values
            flat.release()


class _Watch:
    """The parameters that give left-out rows the highest density."""

    def __init__(self, gp: RowsGP, rows: Rows):
        self._gp, self._rows = gp, rows
        self.best_values = torch.cat([p.detach().reshape(-1) for p in _trained(gp)])
        self._best = self._density()
        self._steps = self._since = 0

    def __call__(self, values: Tensor) -> None:
        density = self._density()
        self._steps += 1
        self._since += 1
        if density > self._best + _LEAST_GAIN:
            self._best, self.best_values, self._since = density, values.clone(), 0
        if self._steps >= _WARM_UP and self._since >= _PATIENCE:
            raise StopIteration

    def _density(self) -> float:
        try:
            density = self._gp.log_density(self._rows)
        except (ArithmeticError, RuntimeError):  # not positive definite
            return -math.inf
        mean = density.mean(-1).sum().item()
        return mean if math.isfinite(mean) else -math.inf


def _trained(gp: RowsGP) -> list[Tensor]:
    return [p for p in gp.parameters() if p.requires_grad]


def _learn_alone(
    model: SpectralGP, training: _Training, start_rows: int, validation_fraction: float
) -> None:
    """Pairs that start from an RBF kernel of some rows, and stop by those that are left out."""
    rows, kernel = training.rows, model.spectral_kernel
    count = len(rows)
    num_left = round(validation_fraction * count)
    if num_left:
        num_left = min(max(num_left, _FEWEST), _MOST, count // 2)
    order = torch.arange(count, device=rows.y.device)
    left, kept = rows[order[:num_left]], rows[order[num_left:]]
    start = kept[order[: min(start_rows, len(kept))]]
    rbf = model.make_rbf_kernel()
    training.learn_rbf(start, rbf, model.mean_module, model.likelihood)
    _start(kernel, rbf, rows, 1.0)
    gp = RowsGP(kept, kernel, model.mean_module, model.likelihood)
    if not training.is_over and training.max_iterations:
        watch = _Watch(gp, left) if num_left else None
        training.maximize(gp, training.max_iterations, watch)
    if num_left:
        _calibrate(gp, left)


def _learn_beside(model: SpectralGP, training: _Training, start_rows: int, folds: int) -> None:
    """An RBF kernel, and pairs beside it for outputs whose left-out rows they foretell better."""
    rows, rbf, kernel = training.rows, model.rbf_kernel, model.spectral_kernel
    assert rbf is not None
    mean, likelihood = model.mean_module, model.likelihood
    few = rows[torch.arange(min(start_rows, len(rows)), device=rows.y.device)]
    training.learn_rbf(few, rbf, mean, likelihood)
    if len(few) < len(rows) and not training.is_over:
        training.maximize(RowsGP(rows, rbf, mean, likelihood), _REFIT)
    _start(kernel, rbf, rows, _SHARE)
    shape = kernel.batch_shape
    steps = torch.full(shape, training.max_iterations, device=rows.y.device)
    if folds:
        steps = _steps_by_folds(model, training, min(folds, len(rows)))
    parts = (model.covar_module, mean, likelihood)
    for number in steps.unique().tolist():  # outputs whose pairs take as many steps
        if number == 0 or training.is_over:
            continue
        covariance, own_mean, own_likelihood = (deepcopy(part) for part in parts)
        training.descend(RowsGP(rows, covariance, own_mean, own_likelihood), number)
        for part, trained in zip(parts, (covariance, own_mean, own_likelihood), strict=True):
            _copy_elements(part, trained, steps == number)
        steps = torch.where(steps == number, -1, steps)  # done
    with torch.no_grad():
        kernel.outputscale = torch.where(steps == -1, kernel.outputscale, _OFF)


def _steps_by_folds(model: SpectralGP, training: _Training, folds: int) -> Tensor:
    """Steps ``...`` after which pairs foretell left-out rows best, 0 where they do not at all."""
    rows, shape = training.rows, model.spectral_kernel.batch_shape
    none = torch.zeros(shape, dtype=torch.long, device=rows.y.device)
    position = torch.arange(len(rows), device=rows.y.device)
    gains: list[Tensor] = []  # one per fold: checks x ... x rows
    for fold in range(folds):
        left, kept = rows[position % folds == fold], rows[position % folds != fold]
        parts = (model.covar_module, model.mean_module, model.likelihood)
        covariance, mean, likelihood = (deepcopy(part) for part in parts)
        assert isinstance(covariance, AdditiveKernel)
        rbf = RowsGP(kept, covariance.kernels[0], mean, likelihood)
        training.maximize(rbf, _REFIT)
        before = rbf.log_density(left)
        both = RowsGP(kept, covariance, mean, likelihood)
        checks: list[Tensor] = []

        def check(step: int, gp: RowsGP = both, left: Rows = left, to: list = checks) -> None:
            if step % _CHECK_EVERY == 0:
                to.append(gp.log_density(left))

        training.descend(both, training.max_iterations, check)
        if training.is_over or not checks:
            return none
        gains.append(torch.stack(checks) - before)
    gain = torch.cat(gains, -1).nan_to_num(-math.inf)
    mean_gain, best = gain.mean(-1).max(0)
    at_best = gain.gather(0, best[None, ..., None].expand(1, *gain.shape[1:])).squeeze(0)
    error = at_best.std(-1) / math.sqrt(at_best.size(-1))
    return torch.where(mean_gain > _STANDARD_ERRORS * error, _CHECK_EVERY * (best + 1), none)


def _start(kernel: NonStationarySpectralKernel, rbf: ScaleKernel, rows: Rows, share: float) -> None:
    """Let pairs start as random Fourier features of an RBF kernel."""
    with torch.no_grad():
        kernel.initialize(
            center=rows.x.mean(-2, keepdim=True).expand(kernel.center.shape),
            lengthscale=rbf.base_kernel.lengthscale,
        )
        kernel.outputscale = share * rbf.outputscale


def _copy_elements(module: torch.nn.Module, other: torch.nn.Module, elements: Tensor) -> None:
    """Set some elements of the batch of all parameters to those of another module."""
    with torch.no_grad():
        for own, value in zip(module.parameters(), other.parameters(), strict=True):
            own[elements] = value[elements]


def _calibrate(gp: RowsGP, left: Rows) -> None:
    likelihood = gp.likelihood
    if not isinstance(likelihood, GaussianLikelihood):  # its noise is known
        return
    factors = gp.noise_factors(left).to(likelihood.noise).view(likelihood.noise.shape)
    high = likelihood.noise_covar.raw_noise_constraint.upper_bound
    with torch.no_grad():
        likelihood.noise = (likelihood.noise * factors).clamp_max(high)


def _check_options(
    model: object,
    restarts: int,
    start_rows: int,
    max_iterations: int,
    validation_fraction: float,
    folds: int,
    budget: float | None,
) -> None:
    from gpytorch_nkn.models.spectral_gp import SpectralGP

    if not isinstance(model, SpectralGP):
        raise TypeError(f"model must be a SpectralGP, got {type(model).__name__}.")
    least = {"restarts": 1, "start_rows": 2, "max_iterations": 0, "folds": 0}
    given = (restarts, start_rows, max_iterations, folds)
    for (name, bound), value in zip(least.items(), given, strict=True):
        if operator.index(value) < bound or (name == "folds" and value == 1):
            other = " and not 1" if name == "folds" else ""
            raise ValueError(f"{name} must be at least {bound}{other}, got {value}.")
    if not 0 <= validation_fraction < 1:
        raise ValueError(
            f"validation_fraction must be at least 0 and below 1, got {validation_fraction}."
        )
    if budget is not None and not budget > 0:
        raise ValueError(f"budget must be a positive number of seconds, got {budget}.")
