"""Training of a GP of frequency pairs, guarded by held-out rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from gpytorch.means import Mean
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn._devices import permutation
from gpytorch_nkn.fit import (
    FlatParameters,
    Recipe,
    Session,
    adam,
    check_counts,
    fit_best_of,
    lbfgs,
    warn_of_size,
)
from gpytorch_nkn.initialization import assign, initialize_model
from gpytorch_nkn.kernels import NonStationarySpectralKernel
from gpytorch_nkn.models.base_gp import event_dims, trains
from gpytorch_nkn.models.spectral.spectral_gp import SpectralGP
from gpytorch_nkn.models.spectral.spectral_rows import Rows, RowsGP

__all__ = ["best_check", "fit_spectral_gp"]

_START_ROWS = 1000  # rows that the RBF kernel learns from at first
_HELD_OUT, _FEWEST, _MOST = 0.1, 20, 2000  # held-out rows of low-rank models: fraction, limits
_FOLDS = 3  # folds of dense models
# Variance of the pairs at the start, relative to the RBF kernel. Pairs of dense models take few
# steps; pairs of low-rank models are best after many.
_SCALE, _LOW_RANK_SCALE = 0.1, 1.0
_STANDARD_ERRORS = 2.0  # of the gain in held-out density that pairs must exceed
_INDUCING = 50  # iterations of an RBF kernel with its inducing points
_REFIT = 30  # iterations of an RBF kernel that starts near its optimum
_USUAL_ROWS = 100_000
_CHECK_EVERY = 10  # steps
_OFF = 1e-8  # outputscale of pairs that are switched off
_START_SHARE = 0.4  # fraction of the budget for the first RBF kernel
_FIRST = 150  # iterations of an RBF kernel from start values
_PATIENCE = 30  # iterations without a better density of held-out rows that end the training
_WARM_UP = 40  # iterations before the patience counts
_LEAST_GAIN = 1e-4  # smallest improvement of the mean log density
_RATE = 0.02  # learning rate of Adam
_SHORT = 0.15  # factor of the lengthscales in every second start


@trains(SpectralGP)
def fit_spectral_gp(
    model: SpectralGP,
    *,
    restarts: int = 3,
    max_iterations: int = 100,
    budget: float | None = None,
    seed: int = 0,
    progress: bool = True,
) -> SpectralGP:
    """Train a GP of frequency pairs in place.

    Frequencies can fit noise. An RBF kernel with a lengthscale per column is therefore trained
    first, the frequencies start from its spectral density, and pairs must improve predictions of
    held-out rows.

    Up to 2000 rows, three-fold cross-validation chooses the number of steps of Adam. The pairs stay
    only if the gain in held-out log density exceeds two standard errors. For more rows, L-BFGS
    trains both kernels with one tenth of the rows (20 to 2000) held out, and keeps the parameters,
    possibly of the RBF kernel alone, that predict the held-out rows best.

    Ctrl-C and the budget end the training with the best parameters so far. Parameters of input
    transforms are not trained.

    Args:
        model: The model.
        restarts: Starts of the RBF kernel.
        max_iterations: Largest number of L-BFGS iterations or steps of Adam.
        budget: Wall time in seconds.
        seed: Determines every draw; the global random state is left alone.
        progress: Show a progress bar, if standard error is a terminal.

    Returns:
        The same model, in eval mode.

    Raises:
        TypeError: The model is not a SpectralGP.
        ValueError: An option is invalid, or the data are not finite.
        RuntimeError: Every start of the RBF kernel failed.
        KeyboardInterrupt: Ctrl-C came before the first improvement.
    """
    check_counts(0, max_iterations=max_iterations)
    check_counts(1, restarts=restarts)
    session = Session(budget=budget, seed=seed, progress=progress)
    warn_of_size(
        "SpectralGP",
        model.train_targets.size(-1),
        _USUAL_ROWS,
        "every step passes over all of them; use fewer num_features, a random part of the rows, or "
        "VariationalNKNGP, which trains on mini-batches.",
    )
    model.train()
    try:
        with torch.inference_mode(False), torch.enable_grad():
            training = _Training(model, max_iterations, restarts, session)
            with training.bar:
                dense = isinstance(model.covar_module, AdditiveKernel)
                (_learn_dense if dense else _learn_low_rank)(model, training)
    finally:
        model.train().eval()  # clears caches of other parameters
    return model


def _learn_low_rank(model: SpectralGP, training: _Training) -> None:
    """Train pairs from an RBF kernel of some rows, and stop early by held-out rows."""
    rows, pairs = training.rows, model.spectral_kernel
    mean, likelihood = model.mean_module, model.likelihood
    count = len(rows)
    num_held_out = min(max(round(_HELD_OUT * count), _FEWEST), _MOST, count // 2)
    order = torch.arange(count, device=rows.y.device)
    held_out, kept = rows[order[:num_held_out]], rows[order[num_held_out:]]
    rbf = model.rbf_kernel
    kernel = model.make_rbf_kernel() if rbf is None else rbf
    training.learn_rbf(kept[order[: min(_START_ROWS, len(kept))]], kernel, mean, likelihood)
    _start(pairs, kernel, 1.0 if rbf is None else _OFF)
    if rbf is not None and not training.session.is_over:
        alone = model.covar_module.kernels[0]
        training.maximize(RowsGP(kept, alone, mean, likelihood), _INDUCING)
        _start(pairs, kernel, _OFF)
    if training.session.is_over or not training.max_iterations:
        return
    points = [] if rbf is None else [model.covar_module.kernels[0].inducing_points]
    points = [p for p in points if p.requires_grad]  # trained by now
    for parameter in points:
        parameter.requires_grad_(False)
    gp = RowsGP(kept, model.covar_module, mean, likelihood)
    watch = _Watch(gp, held_out) if num_held_out else None  # starts with the RBF kernel
    if rbf is not None:
        _start(pairs, kernel, _LOW_RANK_SCALE)
    try:
        with training.session.interruptible(message="Interrupted; the pairs are not trained."):
            training.maximize(gp, training.max_iterations, watch)
            return
        _start(pairs, kernel, 1.0 if rbf is None else _OFF)  # interrupted before the first step
    finally:
        for parameter in points:
            parameter.requires_grad_(True)


def _learn_dense(model: SpectralGP, training: _Training) -> None:
    """Train an RBF kernel, and pairs for outputs whose held-out rows they predict better."""
    rows, rbf, kernel = training.rows, model.rbf_kernel, model.spectral_kernel
    assert rbf is not None
    mean, likelihood = model.mean_module, model.likelihood
    few = rows[torch.arange(min(_START_ROWS, len(rows)), device=rows.y.device)]
    training.learn_rbf(few, rbf, mean, likelihood)
    _start(kernel, rbf, _OFF)  # until they improve predictions
    with training.session.interruptible(
        message="Interrupted; the model keeps its RBF kernel alone."
    ):
        if len(few) < len(rows) and not training.session.is_over:
            training.maximize(RowsGP(rows, rbf, mean, likelihood), _REFIT)
            _start(kernel, rbf, _OFF)
        steps = _steps_by_folds(model, training)
        parts = (model.covar_module, mean, likelihood)
        for number in steps.unique().tolist():  # outputs with equal numbers of steps
            if number == 0 or training.session.is_over:
                continue
            trained = tuple(deepcopy(part) for part in parts)
            _start(trained[0].kernels[1], trained[0].kernels[0], _SCALE)
            for _ in training.descend(RowsGP(rows, *trained), number):
                pass
            for part, own in zip(parts, trained, strict=True):
                _copy_elements(part, own, steps == number)


def _steps_by_folds(model: SpectralGP, training: _Training) -> Tensor:
    """Find the steps ``...`` after which pairs predict held-out rows best; 0 for none."""
    rows, shape = training.rows, model.spectral_kernel.batch_shape
    none = torch.zeros(shape, dtype=torch.long, device=rows.y.device)
    count = training.max_iterations // _CHECK_EVERY
    if len(rows) < _FEWEST or count == 0:
        return none
    position = torch.arange(len(rows), device=rows.y.device)
    gains = []  # for each fold, checks x ... x rows
    for fold in range(_FOLDS):
        if training.session.is_over:
            return none
        held_out, kept = rows[position % _FOLDS == fold], rows[position % _FOLDS != fold]
        parts = (model.covar_module, model.mean_module, model.likelihood)
        covariance, mean, likelihood = (deepcopy(part) for part in parts)
        assert isinstance(covariance, AdditiveKernel)
        alone, pairs = covariance.kernels
        rbf = RowsGP(kept, alone, mean, likelihood)
        training.maximize(rbf, _REFIT)
        if training.session.is_over:
            return none
        before = _held_out_density(rbf, held_out)
        _start(pairs, alone, _SCALE)
        both = RowsGP(kept, covariance, mean, likelihood)
        found = before.new_full((count, *before.shape), -math.inf)

        for step in training.descend(both, training.max_iterations):
            if step % _CHECK_EVERY == 0:
                found[step // _CHECK_EVERY - 1] = _held_out_density(both, held_out)
        if training.session.is_over:
            return none
        gains.append(found - before)
    return _CHECK_EVERY * best_check(torch.cat(gains, -1))


def best_check(gain: Tensor) -> Tensor:
    """Return the number ``...``, from 1, of the check with the largest mean gain.

    Gains are ``checks x ... x rows``. The number is 0 if that gain is within two standard errors.
    """
    mean_gain, best = gain.mean(-1).nan_to_num(-math.inf).max(0)
    at_best = gain.gather(0, best[None, ..., None].expand(1, *gain.shape[1:])).squeeze(0)
    error = at_best.std(-1) / math.sqrt(at_best.size(-1))
    return torch.where(mean_gain > _STANDARD_ERRORS * error, best + 1, 0)


def _start(kernel: NonStationarySpectralKernel, rbf: ScaleKernel, scale: float) -> None:
    """Start pairs as random Fourier features of an RBF kernel; frozen parameters do not change."""
    with torch.no_grad():
        if kernel.raw_lengthscale.requires_grad:
            assign(kernel, "lengthscale", rbf.base_kernel.lengthscale.clone())
        if kernel.raw_outputscale.requires_grad:
            assign(kernel, "outputscale", scale * rbf.outputscale)


def _copy_elements(module: torch.nn.Module, other: torch.nn.Module, elements: Tensor) -> None:
    """Copy some elements of the batch of all parameters from another module.

    Parameters without a batch are copied as a whole.
    """
    with torch.no_grad():
        pairs = zip(module.named_parameters(), other.parameters(), strict=True)
        for (name, own), value in pairs:
            events = event_dims(module, name)
            batch = own.shape[: elements.dim() if events is None else own.dim() - events]
            if batch == elements.shape:
                own[elements] = value[elements]
            elif bool(elements.any()):
                own.copy_(value)


class _Training:
    """Data in a random order of rows, options and budget of a training."""

    def __init__(
        self,
        model: SpectralGP,
        max_iterations: int,
        restarts: int,
        session: Session,
    ):
        with torch.no_grad():
            x = model.transform_inputs(model.train_inputs[0]).detach()
        y, likelihood = model.train_targets.detach(), model.likelihood
        known = isinstance(likelihood, FixedNoiseGaussianLikelihood)
        noise = likelihood.noise_covar.noise.detach().expand(y.shape) if known else None
        if x.size(-2) != y.size(-1):
            raise ValueError(
                f"Inputs and targets must have the same number of rows, got {x.size(-2)} and "
                f"{y.size(-1)}."
            )
        if not bool(x.isfinite().all() and y.isfinite().all()):
            raise ValueError("Training data must be finite, got NaN or infinite values.")
        order = permutation(y.size(-1), session.generator())
        self.rows = Rows(x, y, noise)[order.to(y.device)]
        self.max_iterations, self.restarts, self.session = max_iterations, restarts, session
        self.bar = session.bar(None, "pairs of frequencies", "steps")

    def learn_rbf(self, rows: Rows, kernel: Kernel, mean: Mean, likelihood: Likelihood) -> None:
        """Train an RBF kernel, mean and likelihood in place from start values of the rows."""
        gp = RowsGP(rows, deepcopy(kernel), deepcopy(mean), deepcopy(likelihood))
        if not _trained(gp):
            return
        result = fit_best_of(
            gp,
            restarts=self.restarts,
            initialize=_start_rbf,
            recipe=Recipe(adam_steps=0, lbfgs_iterations=_FIRST),
            budget=self.session.part(_START_SHARE),
            seed=self.session.seed,
            progress=False,
        )
        best = result.model
        kernel.load_state_dict(best.covar_module.state_dict())
        mean.load_state_dict(best.mean_module.state_dict())
        learned = dict(best.likelihood.named_parameters())
        for name, parameter in likelihood.named_parameters():
            parameter.data.copy_(learned[name])
        self.session.interrupted = result.interrupted

    def maximize(self, gp: RowsGP, iterations: int, watch: _Watch | None = None) -> None:
        """Take iterations of L-BFGS on the parameters of a GP, unless the training is over.

        A watch ends the training and chooses the best iteration.
        """
        if self.session.is_over or not _trained(gp):
            return
        flat = FlatParameters(gp.train(), end=self.session.end)

        def on_step() -> None:
            self.bar.update()
            if watch is not None:
                watch(flat.values)

        with self._released(flat, watch):
            lbfgs(flat, iterations, on_step)

    def descend(self, gp: RowsGP, steps: int) -> Iterator[int]:
        """Take the first ``steps`` of ``max_iterations`` steps of Adam on the parameters of a GP.

        Yields the number of each step, at the point to which it leads. The GP ends at the last
        point with a finite loss.
        """
        if not _trained(gp):
            return
        flat = FlatParameters(gp.train(), end=self.session.end)
        with self._released(flat):
            last = flat.values.clone()
            for step, _ in enumerate(adam(flat, steps, self._rate), 1):
                self.bar.update()
                yield step
                flat.best_values, last = last, flat.values.clone()
            if flat.has_time and math.isfinite(flat.evaluate()):
                flat.best_values = last  # the last point, not the one with the smallest loss

    def _rate(self, step: int) -> float:
        return _RATE * 0.5 * (1 + math.cos(math.pi * step / self.max_iterations))

    @contextmanager
    def _released(self, flat: FlatParameters, watch: _Watch | None = None) -> Iterator[None]:
        """Set the model to the best point in the end."""

        def message() -> str:
            return (
                f"Interrupted after {flat.evaluations} evaluations; the best parameters are kept."
            )

        try:
            with self.session.interruptible(lambda: flat.evaluations, message):
                yield
        finally:
            if watch is not None:
                flat.best_values = watch.best_values
            flat.release()


def _start_rbf(gp: ExactGP, seed: int, restart: int) -> None:
    """Set start values from the data, with short lengthscales in every second start."""
    initialize_model(gp, seed=seed, restart=restart)
    if restart % 2:
        base = gp.covar_module.base_kernel
        if base.raw_lengthscale.requires_grad:
            assign(base, "lengthscale", _SHORT * base.lengthscale.detach())


class _Watch:
    """Keeps the parameters that give held-out rows the highest density."""

    def __init__(self, gp: RowsGP, rows: Rows):
        self._gp, self._rows = gp, rows
        trained = [p.detach().reshape(-1) for p in _trained(gp)]
        self.best_values = torch.cat([rows.y.new_empty(0), *trained])
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
        return _held_out_density(self._gp, self._rows).mean(-1).sum().item()


def _trained(gp: RowsGP) -> list[Tensor]:
    return [p for p in gp.parameters() if p.requires_grad]


def _held_out_density(gp: RowsGP, rows: Rows) -> Tensor:
    """Log densities of held-out rows, minus infinity where they cannot be computed."""
    try:
        return gp.log_density(rows).nan_to_num(nan=-math.inf)
    except (ArithmeticError, RuntimeError):  # a matrix that is not positive definite
        return torch.full_like(rows.y, -math.inf)
