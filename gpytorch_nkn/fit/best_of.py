"""Fit an exact GP from several starts and keep the best restart."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, RQKernel
from gpytorch.models import ExactGP
from joblib import effective_n_jobs
from torch import nn
from tqdm import tqdm

from gpytorch_nkn.fit.minimize import FlatParameters, Recipe, check_recipe, minimize
from gpytorch_nkn.fit.objective import check_model
from gpytorch_nkn.fit.parallel import as_finished, is_lost
from gpytorch_nkn.fit.result import FitResult, RestartRecord, copy_model
from gpytorch_nkn.fit.session import Session
from gpytorch_nkn.fit.sizes import check_dense
from gpytorch_nkn.initialization import initialize_model
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.evaluation import unwrap_scales
from gpytorch_nkn.linalg import check_counts

__all__ = ["fit_best_of"]

# Kernel classes with dense matrices.
_DENSE = (NeuralKernelNetwork, MaternKernel, PeriodicKernel, RBFKernel, RQKernel)

_QUICK_EVALUATION = 0.05  # seconds; an evaluation this short may exceed the budget
_START_TIME = 0.3  # time for start values: fraction of the remaining time, and least seconds
_SEED_STRIDE = 1_000_003  # distance between random states of two seeds, above any restart number


@dataclass
class _Run:
    """A restart during the fit."""

    number: int
    origin: str
    model: ExactGP
    loss: float = math.inf
    evaluations: int = 0
    seconds: float = 0.0
    status: str = "ok"
    trace: np.ndarray = field(default_factory=lambda: np.empty(0))

    def record(self, otherwise: str) -> RestartRecord:
        """Return the record of the restart; ``otherwise`` is the reason for an infinite loss."""
        is_known = math.isfinite(self.loss) or self.status.startswith("failed")
        status = self.status if is_known else f"failed: {otherwise}"
        numbers = self.evaluations, self.seconds, status, self.trace
        return RestartRecord(self.number, self.origin, self.loss, *numbers)


@torch.inference_mode(False)
@torch.enable_grad()
def fit_best_of(
    model: ExactGP | Callable[[], ExactGP],
    *,
    restarts: int = 4,
    initialize: str | Callable[[ExactGP, int, int], None] | None = "data",
    recipe: Recipe | None = None,
    budget: float | None = None,
    seed: int = 0,
    n_jobs: int | None = 1,
    progress: bool = True,
) -> FitResult:
    """Train an exact GP from several starts, and select the start with the highest posterior.

    Each restart maximises the log marginal likelihood plus the log prior density by Adam and then
    L-BFGS. If a restart fails (an error in the model, or an infinite loss), the others continue.
    Ctrl-C or the end of the budget stops the training with the best parameters so far.

    Args:
        model: An exact GP with a Gaussian likelihood for one or several tasks (including
            SingleTaskGP and MultiTaskGP), or a :class:`gpytorch_nkn.models.LaplaceGP`, trained in
            place. A function that makes such a model is called once per restart, with a random
            state determined by ``seed``.
        restarts: Number of starts.
        initialize: Start values of each restart. ``"data"`` computes them from the training data
            (:func:`gpytorch_nkn.initialization.initialize_model`). ``None`` keeps the values in
            the model. A function receives the model, the seed and the number of the restart, and
            sets its parameters.
        recipe: Optimiser settings; ``Recipe.paper()`` for the paper's settings.
        budget: Wall time in seconds of the whole call. The loss is evaluated at least once;
            restarts that have no time for an evaluation are recorded as failed.
        seed: Determines all random draws, independently of the global random state.
        n_jobs: Number of processes; ``None`` for the setting of ``joblib.parallel_config``, which
            also selects threads, Dask or Ray. If a worker is lost, its restart begins again.
        progress: Show a progress bar if standard error is a terminal.

    Raises:
        TypeError: The model is not one of the supported GPs.
        MemoryError: The covariance matrices do not fit into free memory.
        ValueError: An option is invalid, the data are not finite, or all restarts have equal start
            values.
        RuntimeError: Every restart failed; the message lists why.
        KeyboardInterrupt: Ctrl-C was pressed before any restart had taken a step.
    """
    check_recipe(recipe)
    recipe = Recipe() if recipe is None else recipe
    n_jobs = effective_n_jobs(None) if n_jobs is None else n_jobs
    _check_options(restarts, initialize, n_jobs)
    session = Session(budget=budget, seed=seed, progress=progress)
    single_model = model if isinstance(model, nn.Module) or not callable(model) else None
    if single_model is not None:
        check_model(single_model)
        _check_size(single_model)
    runs = _prepare(model, restarts, initialize, session)
    if initialize is None and restarts > 1 and _have_equal_starts(runs):
        raise ValueError(
            f"{restarts} restarts would have equal start values: use restarts=1, "
            "initialize='data' or a function that draws start values."
        )
    pending = [run for run in runs if run.status == "ok"]
    steps = (recipe.adam_steps + recipe.lbfgs_iterations) * restarts
    with session.bar(steps, "fit", "step") as bar, session.interruptible():
        if n_jobs == 1 or len(pending) == 1:
            for run in pending:
                if _is_too_late(runs, session.seconds_left):
                    run.status = "failed: interrupted by the budget before its first step"
                    continue
                _train(run, recipe, session.end, bar.update)
        else:
            _train_in_processes(runs, pending, recipe, session, n_jobs, bar)
    reason = "interrupted before its first step" if session.interrupted else "no finite loss"
    records = [run.record(reason) for run in runs]
    members = {r.number: r.model for r, c in zip(runs, records, strict=True) if not c.failed}
    if not members and session.interrupted:
        raise KeyboardInterrupt
    if not members:
        reasons = "; ".join(f"{record.number}: {record.status}" for record in records)
        raise RuntimeError(f"Every restart failed ({reasons}).")
    best = min(members, key=lambda n: records[n].loss / members[n].train_targets.numel())
    chosen = copy_model(members[best]) if single_model is None else single_model
    chosen.load_state_dict(members[best].state_dict())
    chosen.train()  # a BoTorch model transforms its inputs again, with its learned transforms
    chosen.eval()
    return FitResult(chosen, records, best, members, interrupted=session.interrupted)


def _check_options(restarts: int, initialize: object, n_jobs: int) -> None:
    check_counts(1, restarts=restarts)
    check_counts(None, n_jobs=n_jobs)
    is_data = isinstance(initialize, str) and initialize == "data"
    if not (initialize is None or is_data or callable(initialize)):
        raise ValueError(f"initialize must be 'data', None or a function, got {initialize!r}.")


def _check_size(model: ExactGP) -> None:
    """Raise a MemoryError if dense covariance matrices do not fit into memory."""
    kernel, _ = unwrap_scales(getattr(model, "covar_module", None))
    if isinstance(kernel, _DENSE):
        check_dense("An exact GP", model.train_targets.size(-1), model.train_targets)


def _prepare(
    model: ExactGP | Callable[[], ExactGP],
    restarts: int,
    initialize: str | Callable[[ExactGP, int, int], None] | None,
    session: Session,
) -> list[_Run]:
    """Create each restart's model with start values; restarts that run out of time fail."""
    runs: list[_Run] = []
    seed = session.seed
    end = time.monotonic() + max(_START_TIME * session.seconds_left, _START_TIME)
    for number in range(restarts):
        if number > 1 and time.monotonic() > end:  # two restarts show whether all are equal
            status = "failed: interrupted by the budget before its start values"
            runs.append(_Run(number, runs[0].origin, runs[0].model, status=status))
            continue
        with torch.random.fork_rng():
            torch.manual_seed(seed * _SEED_STRIDE + number)
            made = model if isinstance(model, nn.Module) else model()
        check_model(made)
        # a copy, because the models of restarts must not share a kernel
        run = _Run(number, "given" if made is model else "make_model", copy_model(made))
        run.model.train()
        try:
            if initialize == "data":
                run.origin = "data"
                initialize_model(run.model, seed=seed, restart=number)
            elif callable(initialize):
                run.origin = "callable"
                with torch.random.fork_rng():
                    torch.manual_seed(seed * _SEED_STRIDE + number)
                    initialize(run.model, seed, number)
        except Exception as error:
            run.status = f"failed: {type(error).__name__}: {error}"
        runs.append(run)
    return runs


def _have_equal_starts(runs: Sequence[_Run]) -> bool:
    first = list(runs[0].model.parameters())
    return all(
        all(torch.equal(a, b) for a, b in zip(first, run.model.parameters(), strict=False))
        for run in runs[1:]
        if run.status == "ok"
    )


def _is_too_late(runs: Sequence[_Run], seconds_left: float) -> bool:
    """Return whether an evaluation would exceed the budget, once a restart has finished."""
    done = [run for run in runs if math.isfinite(run.loss) and run.evaluations]
    seconds = max((run.seconds / run.evaluations for run in done), default=0.0)
    return seconds > _QUICK_EVALUATION and seconds > seconds_left


def _train(run: _Run, recipe: Recipe, end: float, on_step: Callable[[], object]) -> None:
    """Train one restart until a time of the monotonic clock; record a failure in its status."""
    start = time.monotonic()
    flat = FlatParameters(run.model, end=end)
    run.status = "interrupted"  # replaced at the end of the training
    try:
        minimize(flat, recipe, on_step)
        if flat.evaluations == 0:
            flat.evaluate()  # the recipe has no steps
        if flat.has_time:
            run.status = "ok"
    except Exception as error:  # a model's forward may raise any error; other restarts continue
        run.status = f"failed: {type(error).__name__}: {error}"
    finally:
        flat.release()
        run.loss, run.evaluations = flat.best_loss, flat.evaluations
        run.trace = np.array(flat.trace)
        run.seconds = time.monotonic() - start


def _train_in_processes(
    runs: list[_Run],
    pending: Sequence[_Run],
    recipe: Recipe,
    session: Session,
    n_jobs: int,
    bar: tqdm,
) -> None:
    # wall time, because monotonic clocks of machines have different origins
    end = time.time() + session.seconds_left
    jobs = ((run, recipe, end) for run in pending)
    try:
        for _, run in as_finished(_train_in_worker, jobs, n_jobs):
            runs[run.number] = run
            bar.update(recipe.adam_steps + recipe.lbfgs_iterations)
    except Exception as error:
        if not is_lost(error):
            raise
        for run in pending:
            if runs[run.number] is run and not math.isfinite(run.loss):
                # lost repeatedly; the results of other workers are kept
                run.status = f"failed: its worker was lost ({type(error).__name__})"


def _train_in_worker(run: _Run, recipe: Recipe, end: float) -> _Run:
    _train(run, recipe, time.monotonic() + end - time.time(), lambda: None)
    return run
