"""Training of an exact GP on some of its rows first, and on blocks of rows where they are many."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn._devices import permutation
from gpytorch_nkn.fit.best_of import fit_best_of
from gpytorch_nkn.fit.minimize import Recipe, check_recipe
from gpytorch_nkn.fit.objective import Objective, check_model
from gpytorch_nkn.fit.result import (
    FitResult,
    HeldOut,
    RestartRecord,
    copy_model,
    predict_observations,
)
from gpytorch_nkn.fit.session import Session, check_counts
from gpytorch_nkn.initialization import initialize_model

__all__ = ["fit_in_stages"]

_START_ROWS = 350
_WORTH_IT = 0.7  # of all rows: starts on more than this share of them save no time
_SHARE_OF_STARTS = 2 / 3  # of the iterations
_FOLDS = 3  # of which a start does not see one; fewer rows than so many are not divided
_FEW_ROWS = 15
_FEWEST_STEPS = 10  # of a last stage: the time of fewer would go into finding its loss


@torch.enable_grad()
def fit_in_stages(
    model: ExactGP,
    *,
    block_size: int = 1000,
    max_blocks: int = 10,
    restarts: int = 2,
    recipe: Recipe | None = None,
    budget: float | None = None,
    seed: int = 0,
    n_jobs: int = 1,
    progress: bool = True,
) -> FitResult:
    r"""Train an exact GP from several starts, in far less time than :func:`fit_best_of` takes.

    Every start takes two thirds of its iterations on some of the rows, and the rest on all of them.
    Below 500 rows these are two thirds of the rows, other ones for every start, and it predicts the
    rest before it sees it: leave-one-out densities of few rows flatter flexible kernels, whose
    hyperparameters have seen every row, and these predictions do not. From 500 rows on they are 350
    random rows, where an iteration costs little. Beyond ``2 * block_size`` rows the rest is
    left to one start alone, and to a composite likelihood of random blocks of rows b that are
    taken to be independent:

    .. math:: \sum_{b} \log p(y_b \mid X_b, \theta) + \log p(\theta)

    Its gradient has the expectation zero at the true parameters, as that of the likelihood has,
    and one evaluation costs :math:`O(N B^2)` in place of :math:`O(N^3)` for blocks of B rows.
    What it gives up is the correlation between blocks. It also chooses the start that goes on.
    The model conditions on all its rows.

    Args:
        model: An exact GP over inputs ``N x D`` and targets ``N`` whose parameters have no batch
            dimension, fitted in place.
        block_size: Rows of a block.
        max_blocks: Number of blocks, fewer where the budget asks for it; rows beyond take no part
            in the training.
        recipe: Optimiser settings of a start; ``None`` for 120 iterations of L-BFGS.
        restarts, budget, seed, n_jobs, progress: As in :func:`fit_best_of`.

    Returns:
        The record of the last stage that took a step, ``interrupted`` if it was to go on. Its
        losses are summed over the rows of that stage; its members have all rows. The model is in
        eval mode. ``held_out`` has the predictions of starts below 500 rows (and from 15 on).

    Raises:
        TypeError, ValueError, RuntimeError, KeyboardInterrupt: As :func:`fit_best_of`.
        ValueError: ``block_size`` is below 2 or ``max_blocks`` below 1, or the model has a batch
            dimension.

    Reference: Varin, Reid and Firth (2011), An overview of composite likelihood methods.
    """
    check_counts(2, block_size=block_size)
    check_counts(1, max_blocks=max_blocks, restarts=restarts)
    check_model(model)
    model.train()  # the inputs before their transform
    inputs, targets = model.train_inputs[0], model.train_targets
    if len(model.train_inputs) != 1 or inputs.dim() != 2 or targets.dim() != 1:
        raise ValueError(
            "The model must have one tensor of inputs N x D and targets N, got shapes "
            f"{[tuple(x.shape) for x in model.train_inputs]} and {tuple(targets.shape)}."
        )
    check_recipe(recipe)
    recipe = Recipe(adam_steps=0, lbfgs_iterations=120) if recipe is None else recipe
    session = Session(budget=budget, seed=seed, progress=progress)
    options: dict[str, Any] = {"seed": seed, "n_jobs": n_jobs, "progress": progress}
    num_rows = targets.numel()
    if num_rows < _FEW_ROWS:
        return fit_best_of(model, restarts=restarts, recipe=recipe, budget=budget, **options)
    rows = permutation(num_rows, session.generator())
    rows = rows.to(inputs.device)
    if _WORTH_IT * num_rows < _START_ROWS:
        return _fit_in_folds(model, rows, restarts, recipe, session, options)
    try:
        some = rows[:_START_ROWS]
        model.set_train_data(inputs[some], targets[some], strict=False)
        result = fit_best_of(
            model,
            restarts=restarts,
            recipe=_part_of(recipe, _SHARE_OF_STARTS),
            budget=budget,
            **options,
        )
        session.interrupted = result.interrupted
        step = _seconds_of_a_step(result)
        blocks_left = max_blocks
        if num_rows > 2 * block_size:
            share = session.seconds_left / (_FEWEST_STEPS * step * (block_size / some.numel()) ** 2)
            blocks_left = int(min(max_blocks, share))
        elif session.seconds_left < _FEWEST_STEPS * step * (num_rows / some.numel()) ** 2:
            blocks_left = 0
        if not session.is_over and blocks_left:
            last_inputs, last_targets = inputs, targets
            starts = [result.members[number] for number in sorted(result.members)]
            # without anything better, what some of the rows gave stands
            with suppress(RuntimeError), session.interruptible():
                if num_rows > 2 * block_size:
                    blocks = rows[: min(blocks_left, num_rows // block_size) * block_size]
                    blocks = blocks.view(-1, block_size)
                    last_inputs, last_targets = inputs[blocks], targets[blocks]
                    starts = [_best_on(starts, last_inputs, last_targets)]
                result = fit_best_of(
                    _next_of(starts, last_inputs, last_targets),
                    restarts=len(starts),
                    initialize=None,
                    recipe=_part_of(recipe, 1 - _SHARE_OF_STARTS),
                    budget=session.part(),
                    **options,
                )
            if session.interrupted:
                result.restarts = [replace(r, status="interrupted") for r in result.restarts]
                result.interrupted = True
    finally:
        model.set_train_data(inputs, targets, strict=False)
    for member in result.members.values():
        member.set_train_data(inputs, targets, strict=False)
    model.load_state_dict(result.members[result.best].state_dict())
    result.model = model.eval()
    return result


def _fit_in_folds(
    model: ExactGP,
    rows: Tensor,
    restarts: int,
    recipe: Recipe,
    session: Session,
    options: dict[str, Any],
) -> FitResult:
    """Starts that see all ``rows`` but one of the folds first, and predict that."""
    inputs, targets = model.train_inputs[0], model.train_targets
    folds = rows.tensor_split(_FOLDS)
    starts: dict[int, ExactGP] = {}
    held_out: dict[int, HeldOut] = {}
    records: list[RestartRecord] = []
    for number in range(restarts):
        if session.is_over and starts:
            break
        fold = folds[number % len(folds)]
        seen = rows[~torch.isin(rows, fold)]
        start = copy_model(model)
        start.set_train_data(inputs[seen], targets[seen], strict=False)

        def initialize(made: ExactGP, seed: int, _: int, number: int = number) -> None:
            initialize_model(made, seed=seed, restart=number)

        try:
            with session.interruptible(lambda: starts):
                result = fit_best_of(
                    start,
                    restarts=1,
                    initialize=initialize,
                    recipe=_part_of(recipe, _SHARE_OF_STARTS),
                    budget=session.part(1 / (2 * (restarts - number))),
                    **options,
                )
        except RuntimeError as error:
            records.append(_failed(number, str(error)))
            continue
        if session.interrupted:
            break
        session.interrupted = result.interrupted
        mean, variance = predict_observations(start, inputs[fold])
        held_out[number] = HeldOut(fold, mean, variance)
        starts[number] = start
        (record,) = result.restarts
        records.append(replace(record, number=number))
    if not starts:
        raise RuntimeError(f"Every restart failed ({'; '.join(r.status for r in records)}).")
    last = None
    if not session.is_over:
        # without anything better, what some of the rows gave stands
        with suppress(RuntimeError), session.interruptible():
            last = fit_best_of(
                _next_of(list(starts.values()), inputs, targets),
                restarts=len(starts),
                initialize=None,
                recipe=_part_of(recipe, 1 - _SHARE_OF_STARTS),
                budget=session.part(),
                **options,
            )
    if last is not None:
        numbers = list(starts)
        starts = {numbers[place]: member for place, member in last.members.items()}
        done = [replace(r, number=numbers[r.number]) for r in last.restarts]
        records = [r for r in records if r.number not in numbers] + done
        session.interrupted = last.interrupted
    elif session.interrupted:
        records = [replace(r, status="interrupted") if r.number in starts else r for r in records]
    records.sort(key=lambda record: record.number)
    by_number = {record.number: record for record in records}
    best = max(starts, key=lambda number: by_number[number].criterion)
    for member in starts.values():
        member.set_train_data(inputs, targets, strict=False)
        member.eval()
    model.load_state_dict(starts[best].state_dict())
    held_out = {number: held_out[number] for number in starts}
    return FitResult(
        model.eval(), records, best, "marginal_likelihood", starts, held_out, session.interrupted
    )


def _seconds_of_a_step(result: FitResult) -> float:
    """Wall time of an evaluation of the loss, all that came with it included."""
    evaluations = sum(record.evaluations for record in result.restarts)
    return sum(record.seconds for record in result.restarts) / max(evaluations, 1) + 1e-9


def _failed(number: int, why: str) -> RestartRecord:
    nan = math.nan
    return RestartRecord(number, "callable", math.inf, nan, 0, 0.0, f"failed: {why}")


def _part_of(recipe: Recipe, share: float) -> Recipe:
    """A recipe with a share of the iterations, at least one of those that it has."""
    adam, lbfgs = recipe.adam_steps, recipe.lbfgs_iterations
    return replace(
        recipe,
        adam_steps=max(round(share * adam), min(adam, 1)),
        lbfgs_iterations=max(round(share * lbfgs), min(lbfgs, 1)),
    )


def _best_on(models: list[ExactGP], inputs: Tensor, targets: Tensor) -> ExactGP:
    """The model of the highest posterior given blocks of rows, most of which none of them saw."""
    losses = []
    for model in models:
        model.train().set_train_data(inputs, targets, strict=False)
        with torch.no_grad():
            losses.append(Objective(model)().item())
    finite = [loss if math.isfinite(loss) else math.inf for loss in losses]
    return models[finite.index(min(finite))]


def _next_of(models: list[ExactGP], inputs: Tensor, targets: Tensor) -> Callable[[], ExactGP]:
    """A function that gives the models one after another, with other data."""

    def with_data() -> Iterator[ExactGP]:
        for model in models:
            model.set_train_data(inputs, targets, strict=False)
            yield model

    return with_data().__next__
