"""Several restarts of a fit, of which the best is kept."""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import cloudpickle
import numpy as np
import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, RQKernel
from gpytorch.models import ExactGP
from joblib import effective_n_jobs
from torch import Tensor, nn
from tqdm import tqdm

from gpytorch_nkn.fit.batching import can_stack, stack_models, unstack_model
from gpytorch_nkn.fit.objective import Objective, check_model, noisy_prior
from gpytorch_nkn.fit.optimize import (
    FlatParameters,
    Recipe,
    check_recipe,
    has_closed_form,
    run_adam,
    run_lbfgs,
)
from gpytorch_nkn.fit.parallel import WORKER_LOST, as_finished
from gpytorch_nkn.fit.result import FitResult, RestartRecord, copy_model
from gpytorch_nkn.fit.session import Session, check_counts
from gpytorch_nkn.fit.sizes import check_dense
from gpytorch_nkn.initialization import initialize_model
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.evaluation import is_compiled, unwrap_scales
from gpytorch_nkn.linalg import ExactPosterior

__all__ = ["CRITERIA", "evaluate_criterion", "fit_best_of"]

Criterion = Literal["marginal_likelihood", "loo", "blocked_cv"]
CRITERIA: tuple[Criterion, ...] = get_args(Criterion)

# Kernels whose matrices have no structure.
_DENSE = (NeuralKernelNetwork, MaternKernel, PeriodicKernel, RBFKernel, RQKernel)

# Seconds up to which what no training has time for is still done at its end.
_QUICK = 0.05

# Share of the time that is left in which restarts are given start values, and least seconds.
_PREPARING, _LEAST_PREPARING = 0.3, 0.3

# Points from which on restarts in closed form are trained one by one without compiled code, too.
_ALONE = 50


@dataclass
class _Run:
    """One restart on its way."""

    number: int
    origin: str
    model: ExactGP
    loss: float = math.inf
    evaluations: int = 0
    seconds: float = 0.0
    status: str = "ok"
    trace: np.ndarray = field(default_factory=lambda: np.empty(0))


@torch.enable_grad()
def fit_best_of(
    model: ExactGP | Callable[[], ExactGP],
    *,
    restarts: int = 4,
    criterion: Criterion = "marginal_likelihood",
    num_blocks: int = 8,
    initialize: str | Callable[[ExactGP, int, int], None] | None = "auto",
    recipe: Recipe | None = None,
    budget: float | None = None,
    seed: int = 0,
    n_jobs: int | None = 1,
    progress: bool = True,
) -> FitResult:
    """Train an exact GP from several starts and keep the best by a criterion.

    Each restart maximises the log marginal likelihood plus the log density of the model's priors
    (maximum a posteriori; maximum likelihood for a model without priors), by Adam and then
    L-BFGS. Covariances are factorised exactly. Small problems run all restarts in one batch
    (up to 80,000 covariance entries together), larger ones one after another or in processes.

    A restart that fails (a matrix that is not positive definite, a loss that is not finite, an
    error in the model) is recorded and the others go on. Ctrl-C and the budget end the training;
    what was reached by then counts.

    Args:
        model: An exact GP with a Gaussian likelihood (SingleTaskGP too), fitted in place; or a
            function that makes one, called once per restart with a random state that ``seed``
            determines.
        restarts: Number of starts.
        criterion: ``"marginal_likelihood"``, ``"loo"`` or ``"blocked_cv"``; see
            ``gpytorch_nkn.fit.evaluate_criterion``. For series and extrapolation
            ``"blocked_cv"`` guards against a restart that has over-fitted: what lies in a block
            must be predicted from the other blocks.
        num_blocks: Contiguous blocks of ``"blocked_cv"``.
        initialize: Start values of each restart: ``"data"`` takes them from the training data
            (:func:`gpytorch_nkn.initialization.initialize_model`); ``None`` keeps those of the
            model; a function gets the model, the seed and the restart's number and sets them.
            ``"auto"`` is ``"data"`` for a model, and for a function whose models all start alike
            (a preset always starts from the same values); else it is ``None``.
        recipe: Optimiser settings; ``Recipe.paper()`` for those of the paper.
        budget: Wall time in seconds of the whole call. One evaluation of the loss takes place in
            any case; restarts that have no time left, or none for start values, are tried as they
            start where that is quick, and else recorded as failed. What is planned are times that
            were just measured: other work on the same cores delays the end.
        seed: Determines every random draw; the global random state is left as it was.
        n_jobs: Processes; ``None`` for what ``joblib.parallel_config`` says, which chooses threads,
            Dask or Ray, too. Restarts whose worker is lost begin anew.
        progress: Show a progress bar, if standard error is a terminal.

    Returns:
        The record of the fit. Its model is in eval mode with the best parameters.

    Raises:
        TypeError: The model is not an exact GP with a Gaussian likelihood.
        MemoryError: Its covariance matrices do not fit into the memory that is free.
        ValueError: An option has no meaning, the data are not finite, or several restarts would
            all start alike.
        RuntimeError: Every restart failed; the message lists why.
        KeyboardInterrupt: Ctrl-C came before any restart had taken a step.
    """
    check_recipe(recipe)
    recipe = Recipe() if recipe is None else recipe
    n_jobs = effective_n_jobs(None) if n_jobs is None else n_jobs
    _check_options(restarts, criterion, num_blocks, initialize)
    session = Session(budget=budget, seed=seed, progress=progress)
    given = model if isinstance(model, nn.Module) else None
    if given is not None:
        check_model(given)
        _check_size(given)
    automatic = initialize == "auto"
    if automatic:
        initialize = "data" if given is not None else None
    if initialize is None and given is not None and restarts > 1:
        raise ValueError(
            f"initialize=None keeps the model's values, so {restarts} restarts would all start "
            "alike; take restarts=1, initialize='data' or a function that makes models."
        )
    runs = _prepare(model, restarts, initialize, seed, session)
    if initialize is None and restarts > 1 and _start_alike(runs):
        if not automatic:
            raise ValueError(
                f"The function makes models that start alike, so {restarts} restarts would be one; "
                "let it draw start values, or take initialize='data'."
            )
        runs = _prepare(model, restarts, "data", seed, session)
    pending = [run for run in runs if run.status == "ok"]
    steps = (recipe.adam_steps + recipe.lbfgs_iterations) * restarts
    with session.bar(steps, "fit", "step") as bar, session.interruptible():
        rest = recipe
        if n_jobs == 1 and recipe.adam_steps:
            stacked = _stack([run.model for run in pending])
            if stacked is not None:
                _adam_in_one_batch(stacked, pending, recipe, session.end, bar)
                rest = replace(recipe, adam_steps=0)
        if n_jobs == 1 or len(pending) == 1:
            for number, run in enumerate(pending, 1):
                spare = 0 if criterion == "marginal_likelihood" else number  # to judge them
                late = _is_too_late(runs, session.seconds_left, 1 + spare)
                if late and not math.isfinite(run.loss):
                    run.status = "failed: interrupted by the budget before its first step"
                    continue
                _train(run, rest, session.end, bar.update, spare)
        else:
            _train_in_processes(runs, pending, rest, session, n_jobs, bar)
    records = []
    for run in runs:
        if session.interrupted and not math.isfinite(run.loss):
            run.status = "failed: interrupted before its first step"
        value = math.nan
        with session.interruptible():
            value = _judge(run, criterion, num_blocks)
        if math.isnan(value) and not run.status.startswith("failed"):
            run.status = "failed: interrupted before its criterion"
        records.append(_record(run, value))
    members = {r.number: r.model for r, c in zip(runs, records, strict=True) if not c.failed}
    if not members and session.interrupted:
        raise KeyboardInterrupt
    if not members:
        reasons = "; ".join(f"{record.number}: {record.status}" for record in records)
        raise RuntimeError(f"Every restart failed ({reasons}).")
    best = max(members, key=lambda number: records[number].criterion)
    chosen = copy_model(members[best]) if given is None else given
    chosen.load_state_dict(members[best].state_dict())
    chosen.train()  # a BoTorch model transforms its inputs anew, by what its transforms learned
    chosen.eval()
    return FitResult(chosen, records, best, criterion, members, interrupted=session.interrupted)


def _check_options(restarts: int, criterion: str, num_blocks: int, initialize: object) -> None:
    check_counts(1, restarts=restarts)
    if criterion not in CRITERIA:
        raise ValueError(f"criterion must be one of {CRITERIA}, got {criterion!r}.")
    check_counts(2, num_blocks=num_blocks)
    if isinstance(initialize, str) and initialize not in ("auto", "data"):
        raise ValueError(
            f"initialize must be 'auto', 'data', None or a function, got {initialize!r}."
        )


def _check_size(model: ExactGP) -> None:
    """Refuse dense covariance matrices that do not fit into memory; others have structure."""
    kernel, _ = unwrap_scales(getattr(model, "covar_module", None))
    if isinstance(kernel, _DENSE):
        check_dense("An exact GP", model.train_targets.size(-1), model.train_targets)


def _prepare(
    model: ExactGP | Callable[[], ExactGP],
    restarts: int,
    initialize: str | Callable[[ExactGP, int, int], None] | None,
    seed: int,
    session: Session,
) -> list[_Run]:
    """A model with start values for every restart; for some of them if many take too long."""
    runs: list[_Run] = []
    end = time.monotonic() + max(_PREPARING * session.seconds_left, _LEAST_PREPARING)
    for number in range(restarts):
        if number > 1 and time.monotonic() > end:  # two show whether all start alike
            status = "failed: interrupted by the budget before its start values"
            runs.append(_Run(number, runs[0].origin, runs[0].model, status=status))
            continue
        if isinstance(model, nn.Module):
            check_model(model)
            candidate, origin = copy_model(model), "given"
        else:
            with torch.random.fork_rng():
                torch.manual_seed(seed * 1_000_003 + number)
                candidate, origin = model(), "make_model"
            check_model(candidate)
            candidate = copy_model(candidate)  # models that share a kernel would train it together
        run = _Run(number, origin, candidate)
        candidate.train()
        try:
            if initialize == "data":
                run.origin = "data"
                initialize_model(candidate, seed=seed, restart=number)
            elif callable(initialize):
                run.origin = "callable"
                with torch.random.fork_rng():
                    torch.manual_seed(seed * 1_000_003 + number)
                    initialize(candidate, seed, number)
        except Exception as error:
            run.status = f"failed: {type(error).__name__}: {error}"
        runs.append(run)
    return runs


def _start_alike(runs: Sequence[_Run]) -> bool:
    first = list(runs[0].model.parameters())
    return all(
        all(torch.equal(a, b) for a, b in zip(first, run.model.parameters(), strict=False))
        for run in runs[1:]
        if run.status == "ok"
    )


def _stack(models: Sequence[ExactGP]) -> ExactGP | None:
    """The models as one batch, or None where that does not pay or does not give their losses.

    Where the loss has a closed form there is little left for a batch to save.
    """
    if not can_stack(models):
        return None
    fast = is_compiled() or models[0].train_targets.numel() >= _ALONE
    if fast and has_closed_form(models[0]):
        return None
    try:
        # Compared away from the start too, where a parameter of zero hides what it would do.
        for shift in (0.05, 0.0):
            moved = [_shifted(model, shift) for model in models]
            stacked = stack_models(moved)
            with torch.no_grad():
                together = Objective(stacked, len(models))()
                apart = torch.cat([Objective(model)() for model in moved])
            if not torch.allclose(together, apart, rtol=1e-6):
                return None
    except Exception:  # a forward that knows nothing of batches, or one that fails by itself
        return None
    return stacked


def _shifted(model: ExactGP, shift: float) -> ExactGP:
    moved = copy_model(model)
    for number, parameter in enumerate(moved.parameters()):
        wave = torch.arange(parameter.numel(), device=parameter.device).to(parameter) + number
        parameter.data += shift * (1 + wave.cos().view(parameter.shape))
    return moved


def _adam_in_one_batch(
    stacked: ExactGP, runs: Sequence[_Run], recipe: Recipe, deadline: float, bar: tqdm
) -> None:
    start = time.monotonic()
    models = [run.model for run in runs]
    flat = FlatParameters(Objective(stacked, len(runs)))
    for run in runs:
        run.status = "interrupted"  # unless it comes to its end
    try:
        run_adam(
            flat,
            steps=recipe.adam_steps,
            learning_rate=recipe.learning_rate,
            anneal=recipe.anneal,
            deadline=deadline,
            on_step=lambda: bar.update(len(runs)),
        )
        for run in runs:
            run.status = "ok"
    finally:  # an interruption keeps the best points as well
        flat.release()
        unstack_model(stacked, models)
        for run, loss, trace in zip(runs, flat.best_loss.tolist(), flat.trace().T, strict=True):
            run.loss, run.evaluations, run.trace = loss, flat.evaluations, trace.copy()
            run.seconds = (time.monotonic() - start) / len(runs)


def _is_too_late(runs: Sequence[_Run], seconds_left: float, evaluations: int) -> bool:
    """Whether a restart has a loss, and more evaluations take long, and longer than there is."""
    done = [run for run in runs if math.isfinite(run.loss) and run.evaluations]
    seconds = max((run.seconds / run.evaluations for run in done), default=0.0)
    return seconds > _QUICK and evaluations * seconds > seconds_left


def _train(
    run: _Run,
    recipe: Recipe,
    deadline: float,
    on_step: Callable[[], object],
    spare: int = 0,
) -> None:
    """Train one restart as far as the deadline lets it; a failure goes into its status.

    What comes after the training takes as long as ``spare`` evaluations.
    """
    start = time.monotonic()
    flat = FlatParameters(Objective(run.model))
    flat.spare, flat.deadline = spare, deadline
    run.status = "interrupted"  # unless it comes to its end
    try:
        if recipe.adam_steps and start < deadline:
            run_adam(
                flat,
                steps=recipe.adam_steps,
                learning_rate=recipe.learning_rate,
                anneal=recipe.anneal,
                deadline=deadline,
                on_step=on_step,
            )
        if recipe.lbfgs_iterations and time.monotonic() < deadline:
            run_lbfgs(flat, iterations=recipe.lbfgs_iterations, deadline=deadline, on_step=on_step)
        if flat.evaluations == 0 and not math.isfinite(run.loss):
            flat.evaluate()  # no steps, or no time for one: it stands as it began
        if flat.has_time:
            run.status = "ok"
    except Exception as error:  # whatever a model's forward may raise: the others go on
        run.status = f"failed: {type(error).__name__}: {error}"
    finally:
        flat.release()
        trace = np.minimum(flat.trace()[:, 0], run.loss)  # a batch may have come before
        run.trace = np.concatenate([run.trace, trace])
        run.loss = min(run.loss, flat.best_loss.item())
        run.evaluations += flat.evaluations
        run.seconds += time.monotonic() - start
    if run.status == "ok" and not math.isfinite(run.loss):
        run.status = "failed: no finite loss"


def _train_in_processes(
    runs: list[_Run],
    pending: Sequence[_Run],
    recipe: Recipe,
    session: Session,
    n_jobs: int,
    bar: tqdm,
) -> None:
    # wall time: the monotonic clock of another machine has another zero
    end = time.time() + session.seconds_left
    # All restarts have the same data as a rule, which then travel once and not with each of them.
    data = _data_of(pending[0].model)
    jobs = ((_Traveller(run, _have(run.model, data)), recipe, end) for run in pending)
    try:
        for number, traveller in as_finished(_train_in_worker, jobs, n_jobs, shared=data):
            run = traveller.run
            if run.model.train_inputs is None:
                _set_data(run.model, _data_of(pending[number].model))
            runs[run.number] = run
            bar.update(recipe.adam_steps + recipe.lbfgs_iterations)
    except WORKER_LOST as error:  # again and again: what the others have reached is kept
        for run in pending:
            if runs[run.number] is run and not math.isfinite(run.loss):
                run.status = f"failed: its worker was lost ({type(error).__name__})"


def _train_in_worker(data: tuple, traveller: _Traveller, recipe: Recipe, end: float) -> _Traveller:
    run = traveller.run
    if run.model.train_inputs is None:
        _set_data(run.model, data)
    _train(run, recipe, time.monotonic() + end - time.time(), lambda: None)
    return traveller


@dataclass(eq=False)
class _Traveller:
    """A restart, whose pickle is without the data if all have the same."""

    run: _Run
    is_light: bool

    def __reduce__(self) -> tuple:
        # In place, as hooks of a copied module would still hold the one with the data.
        model = self.run.model
        data = _data_of(model)
        if self.is_light:
            _set_data(model, (None, None))
        try:
            return _unpack, (cloudpickle.dumps(self.run), self.is_light)
        finally:
            _set_data(model, data)


def _unpack(content: bytes, is_light: bool) -> _Traveller:
    return _Traveller(pickle.loads(content), is_light)


def _data_of(model: ExactGP) -> tuple[tuple[Tensor, ...] | None, Tensor | None]:
    return model.train_inputs, model.train_targets


def _set_data(model: ExactGP, data: tuple[tuple[Tensor, ...] | None, Tensor | None]) -> None:
    model.train_inputs, model.train_targets = data


def _have(model: ExactGP, data: tuple) -> bool:
    inputs, targets = model.train_inputs, model.train_targets
    if inputs is None or len(inputs) != len(data[0]) or not torch.equal(targets, data[1]):
        return False
    return all(torch.equal(one, two) for one, two in zip(inputs, data[0], strict=True))


def _judge(run: _Run, criterion: str, num_blocks: int) -> float:
    """Value of the criterion; a failure goes into the status of the run."""
    if run.status.startswith("failed"):
        return math.nan
    try:
        value = evaluate_criterion(run.model, criterion, run.loss, num_blocks)
    except Exception as error:
        run.status = f"failed: {type(error).__name__}: {error}"
        return math.nan
    if not math.isfinite(value):
        run.status = f"failed: its criterion is {value}"
    return value


def evaluate_criterion(model: ExactGP, criterion: str, loss: float, num_blocks: int) -> float:
    """Value of a criterion for a trained model in training mode.

    ``marginal_likelihood`` is the log posterior per point (with the priors, if there are any).
    ``loo`` is the leave-one-out log predictive density. ``blocked_cv`` leaves out contiguous
    blocks along the first input column instead. Both condition with the hyperparameters fixed,
    which costs one inverse; a restart that has over-fitted its hyperparameters shows in them,
    because what lies in a block must be predicted from the other blocks.
    """
    if criterion == "marginal_likelihood":
        return -loss / model.train_targets.numel()
    with torch.no_grad():
        mean, covariance = noisy_prior(model)
    targets = model.train_targets
    try:
        posterior = ExactPosterior(covariance, targets - mean)
    except torch.linalg.LinAlgError:
        return math.nan
    if criterion == "loo":
        center, variance = posterior.leave_one_out()
    else:
        n = mean.size(-1)
        column = model.train_inputs[0].reshape(-1, n, model.train_inputs[0].size(-1))[0, :, 0]
        blocks = list(column.argsort(stable=True).tensor_split(min(num_blocks, n)))
        parts = zip(*posterior.leave_blocks_out(blocks), strict=True)
        back = torch.cat(blocks).argsort()
        center, variance = (torch.cat(part, -1)[..., back] for part in parts)
    error = posterior.residual - center
    density = -0.5 * (error.square() / variance + variance.log() + math.log(2 * math.pi))
    return density.mean().item()


def _record(run: _Run, value: float) -> RestartRecord:
    return RestartRecord(
        number=run.number,
        origin=run.origin,
        loss=run.loss,
        criterion=value,
        evaluations=run.evaluations,
        seconds=run.seconds,
        status=run.status,
        trace=run.trace,
    )
