"""Training of an exact GP on a subset of rows first, and on blocks of rows for large data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from gpytorch.means import Mean
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn._devices import permutation
from gpytorch_nkn.fit.best_of import fit_best_of
from gpytorch_nkn.fit.minimize import Recipe, check_recipe
from gpytorch_nkn.fit.objective import Objective, check_model
from gpytorch_nkn.fit.result import FitResult, HeldOut, RestartRecord
from gpytorch_nkn.fit.session import Session
from gpytorch_nkn.kernels import lazy_covariance
from gpytorch_nkn.linalg import check_counts

__all__ = ["Rows", "RowsGP", "fit_in_stages"]

_START_ROWS = 350  # number of rows of a subset
_MAX_SUBSET = 0.7  # largest fraction of the rows for which a subset saves time
_ON_SUBSET = 2 / 3  # fraction of the iterations on the subset
_FOLDS = 3  # number of folds; each start holds one out
_MIN_ROWS = 15  # smaller data have one stage, on all rows
_FOLDS_TIME = 0.5  # fraction of the budget for the first stage, if starts hold out folds
_MIN_STEPS = 10  # least number of steps of the last stage


@torch.inference_mode(False)
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
    r"""Train an exact GP from several starts, in much less time than :func:`fit_best_of`.

    Each start spends two thirds of its iterations on a subset of the rows, and the rest on all
    rows. Below 500 rows each start has its own subset, two thirds of the rows. From 500 rows on,
    the subset has 350 random rows. Above ``2 * block_size`` rows only the best start continues,
    with a composite likelihood that treats random blocks b of rows as independent:

    .. math:: \sum_{b} \log p(y_b \mid X_b, \theta) + \log p(\theta)

    Like the gradient of the full likelihood, the gradient of this sum has expectation zero at the
    true parameters. An evaluation takes :math:`O(N B^2)` instead of :math:`O(N^3)` time for blocks
    of B rows. Only training ignores correlations between blocks; predictions condition on all rows.

    Args:
        model: An exact GP with inputs ``N x D`` and targets ``N``, trained in place. Up to
            ``2 * block_size`` rows, targets may be ``K x N`` and the model a ``LaplaceGP``.
            Parameters must not have a batch dimension.
        block_size: Number of rows per block.
        max_blocks: Largest number of blocks. Training ignores all other rows, and uses fewer blocks
            if the budget requires it.
        recipe: Optimiser settings of a start; ``None`` for 120 iterations of L-BFGS.
        restarts, budget, seed, n_jobs, progress: As in :func:`fit_best_of`.

    Returns:
        Result of the last stage that took a step, marked ``interrupted`` if it did not finish.
        Losses are sums over the rows of that stage; members are conditioned on all rows. The model
        is in eval mode. From 15 to ``2 * block_size`` rows, ``held_out`` has the rows outside the
        subset, and the parameters learned from the subset.

    Raises:
        TypeError, ValueError, RuntimeError, KeyboardInterrupt: As in :func:`fit_best_of`.
        ValueError: ``block_size`` is below 2 or ``max_blocks`` below 1, or the model has a batch
            dimension.

    Reference: Varin, Reid and Firth (2011), An overview of composite likelihood methods.
    """
    check_counts(2, block_size=block_size)
    check_counts(1, max_blocks=max_blocks, restarts=restarts)
    check_model(model)
    model.train()  # reverts the input transform
    inputs, targets = model.train_inputs[0], model.train_targets
    dims = (1, 2) if len(inputs) <= 2 * block_size else (1,)
    if len(model.train_inputs) != 1 or inputs.dim() != 2 or targets.dim() not in dims:
        raise ValueError(
            "The model must have one tensor of inputs N x D and targets N (or K x N up to "
            f"{2 * block_size} rows), got shapes {[tuple(x.shape) for x in model.train_inputs]} "
            f"and {tuple(targets.shape)}."
        )
    check_recipe(recipe)
    recipe = Recipe(adam_steps=0, lbfgs_iterations=120) if recipe is None else recipe
    session = Session(budget=budget, seed=seed, progress=progress)
    options: dict[str, Any] = {"seed": seed, "n_jobs": n_jobs, "progress": progress}
    num_rows = targets.size(-1)
    if num_rows < _MIN_ROWS:
        return fit_best_of(model, restarts=restarts, recipe=recipe, budget=budget, **options)
    is_few, is_many = _is_few(num_rows), num_rows > 2 * block_size
    rows = permutation(num_rows, session.generator()).to(inputs.device)
    folds = [rows.tensor_split(_FOLDS)[number % _FOLDS] for number in range(restarts)]
    subsets = [rows[~torch.isin(rows, fold)] if is_few else rows[:_START_ROWS] for fold in folds]
    data = Rows.of(model)
    try:
        result = fit_best_of(
            _in_turn((model, data[subset]) for subset in subsets),
            restarts=restarts,
            initialize="data",
            recipe=_part_of(recipe, _ON_SUBSET),
            budget=session.part(_FOLDS_TIME if is_few else 1.0),
            **options,
        )
    finally:
        data.set_on(model)
    session.interrupted = result.interrupted
    held_out = {
        number: HeldOut(rows[~torch.isin(rows, subsets[number])], deepcopy(member.state_dict()))
        for number, member in result.members.items()
        if not is_many
    }
    num_blocks = _affordable_blocks(result, session, num_rows, block_size, max_blocks)
    if not session.is_over and num_blocks:
        starts, last = result.members, data
        # keep the result on the subset if the last stage fails
        with suppress(RuntimeError), session.interruptible():
            if is_many:
                blocks = rows[: min(num_blocks, num_rows // block_size) * block_size]
                last = data[blocks.view(-1, block_size)]
                starts = {0: _select_on(list(starts.values()), last)}
            final = fit_best_of(
                _in_turn((start, last) for start in starts.values()),
                restarts=len(starts),
                initialize=None,
                recipe=_part_of(recipe, 1 - _ON_SUBSET),
                budget=session.part(),
                **options,
            )
            failed = [] if is_many else [record for record in result.restarts if record.failed]
            result = _renumber(final, list(starts), failed)
    if session.interrupted:
        records = [r if r.failed else replace(r, status="interrupted") for r in result.restarts]
        result.restarts, result.interrupted = records, True
    for member in result.members.values():
        data.set_on(member.train())
        member.eval()
    result.held_out = held_out
    model.load_state_dict(result.members[result.best].state_dict())
    result.model = model.eval()
    return result


def _affordable_blocks(
    result: FitResult, session: Session, num_rows: int, block_size: int, max_blocks: int
) -> int:
    """Return the number of blocks of the last stage; 0 if there is no time for this stage.

    The time is extrapolated from the ``result`` of the first stage.
    """
    evaluations = sum(record.evaluations for record in result.restarts)
    seconds = _MIN_STEPS * (result.seconds / max(evaluations, 1) + 1e-9)  # with all overhead
    if num_rows > 2 * block_size:
        seconds_per_block = seconds * (block_size / _START_ROWS) ** 2
        return int(min(max_blocks, session.seconds_left / seconds_per_block))
    if _is_few(num_rows):
        return max_blocks
    enough = session.seconds_left >= seconds * (num_rows / _START_ROWS) ** 2
    return max_blocks if enough else 0


def _is_few(num_rows: int) -> bool:
    return _MAX_SUBSET * num_rows < _START_ROWS


def _renumber(final: FitResult, numbers: list[int], failed: list[RestartRecord]) -> FitResult:
    """Restore the numbers that the starts had in the first stage, and add failed starts."""
    done = [replace(record, number=numbers[record.number]) for record in final.restarts]
    final.restarts = sorted([*failed, *done], key=lambda record: record.number)
    final.members = {numbers[index]: member for index, member in final.members.items()}
    final.best = numbers[final.best]
    return final


def _part_of(recipe: Recipe, share: float) -> Recipe:
    """Return a recipe with a fraction of the iterations, at least one per optimiser in use."""
    adam, lbfgs = recipe.adam_steps, recipe.lbfgs_iterations
    return replace(
        recipe,
        adam_steps=max(round(share * adam), min(adam, 1)),
        lbfgs_iterations=max(round(share * lbfgs), min(lbfgs, 1)),
    )


@dataclass(frozen=True, eq=False)
class Rows:
    """Training data of a model, or some of its rows."""

    x: Tensor  # inputs ... x N x D
    y: Tensor  # targets ... x N
    noise: Tensor | None = None  # known noise variances ... x N, if any

    @classmethod
    def of(cls, model: ExactGP) -> Rows:
        """Return all rows of a model in training mode."""
        has_known_noise = isinstance(model.likelihood, FixedNoiseGaussianLikelihood)
        noise = model.likelihood.noise_covar.noise if has_known_noise else None
        return cls(model.train_inputs[0], model.train_targets, noise)

    def __getitem__(self, rows: Tensor | slice) -> Rows:
        noise = None if self.noise is None else self.noise[..., rows]
        return Rows(self.x[..., rows, :], self.y[..., rows], noise)

    def __len__(self) -> int:
        return self.y.size(-1)

    def likelihood(self, given: Likelihood) -> Likelihood:
        """Return the given likelihood or, for known noise, a likelihood of these rows.

        The noise that the given likelihood learns is in addition to the known noise.
        """
        if self.noise is None:
            return given
        made = FixedNoiseGaussianLikelihood(torch.ones_like(self.noise))
        made.noise_covar.noise = self.noise  # GPyTorch rounds up small noise in the constructor
        is_known = isinstance(given, FixedNoiseGaussianLikelihood)
        made.second_noise_covar = given.second_noise_covar if is_known else given.noise_covar
        return made

    def set_on(self, model: ExactGP) -> None:
        """Set the data of a model, and the noise if it is known."""
        model.set_train_data(self.x, self.y, strict=False)
        if self.noise is not None:
            model.likelihood.noise_covar.noise = self.noise


class RowsGP(ExactGP):
    """Exact GP of rows with the given kernel, mean and likelihood, and with known noise if any."""

    def __init__(self, rows: Rows, kernel: Kernel, mean: Mean, likelihood: Likelihood):
        super().__init__(rows.x, rows.y, rows.likelihood(likelihood))
        self.mean_module, self.covar_module = mean, kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Return the prior at inputs ``... x N x D``."""
        return MultivariateNormal(self.mean_module(x), lazy_covariance(self.covar_module, x))


def _select_on(models: list[ExactGP], data: Rows) -> ExactGP:
    """Return the model with the highest posterior density on blocks of mostly new rows."""
    losses = []
    for model in models:
        data.set_on(model.train())
        with torch.no_grad():
            losses.append(Objective(model)().item())
    finite = [loss if math.isfinite(loss) else math.inf for loss in losses]
    return models[finite.index(min(finite))]


def _in_turn(models: Iterable[tuple[ExactGP, Rows]]) -> Callable[[], ExactGP]:
    """Return a function that returns the next model, with its data set, at each call."""

    def with_data() -> Iterator[ExactGP]:
        for model, data in models:
            data.set_on(model.train())
            yield model

    return with_data().__next__
