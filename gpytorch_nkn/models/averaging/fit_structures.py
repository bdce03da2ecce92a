"""Training of every structure of an ensemble, and their weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial

import torch
from gpytorch import settings
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from torch import Tensor
from torch.nn.functional import normalize

from gpytorch_nkn.averaging import stacking_weights
from gpytorch_nkn.bo import fresh_start, tell_failures
from gpytorch_nkn.fit import (
    Objective,
    Recipe,
    Session,
    check_counts,
    check_number,
    copy_model,
    fit_best_of,
    noisy_prior,
    warn_user,
)
from gpytorch_nkn.linalg import ExactPosterior
from gpytorch_nkn.models.averaging.member_warp import fit_warp, secant, warp_slope, warped
from gpytorch_nkn.models.averaging.structure_ensemble_gp import StructureEnsembleGP
from gpytorch_nkn.models.base_gp import trains
from gpytorch_nkn.models.common import PartsGP

__all__ = ["fit_structure_ensemble_gp"]

_ITERATIONS = 75
_MANY_ROWS, _MANY_COLUMNS = 200, 100  # from where on an iteration of a loop does less
_LEAST_EVALUATIONS = 4  # that a fresh start must have time for
_BEHIND = 0.1  # nats of a row by which it may be behind after a half of them
_OF_KERNELS = "covar_module.kernels."  # what a state dict must have, and
_OF_STRUCTURES = ("part_values", "trained_rows", "started_rows", "is_warped")
_FEW_NEW = 0.01  # share of new rows for which all but one structure can wait


@trains(StructureEnsembleGP)
def fit_structure_ensemble_gp(
    model: StructureEnsembleGP,
    *,
    previous: StructureEnsembleGP | Mapping[str, Tensor] | None = None,
    fresh_starts: int = 1,
    max_iterations: int | None = None,
    prior_points: float = 4.0,
    budget: float | None = None,
    seed: int = 0,
    progress: bool = True,
) -> StructureEnsembleGP:
    r"""Train every structure, and weigh them by how well their mixture predicts left-out points.

    Each structure is trained as :func:`gpytorch_nkn.bo.fit_bo_model` trains a model: the posterior
    of its parameters is maximised by L-BFGS from the parameters of ``previous`` and from fresh
    starts. The weights maximise the leave-one-out log density of the mixture, the parameters
    being kept, with a prior that draws them together
    (:func:`gpytorch_nkn.averaging.stacking_weights`).

    Args:
        model: Model to train in place.
        previous: The model of the iteration before, with the same structures and fewer or other
            data, or its ``state_dict``, whose parameters are the first start; ``None`` starts from
            those of ``model``.
        fresh_starts: Further starts of each structure; with ``previous`` of one structure only, of
            that which has not had any for longest. With many rows or columns a loop does less. From
            400 rows or 200 columns on, fresh starts come with every second new row at most, from
            600 or 300 on with every third, and so on, and structures of which ``previous`` has no
            member are trained once in as many new rows as there are structures. From 400 rows on a
            fresh start beside ``previous`` is trained with a half of the rows, drawn from ``seed``;
            if it is not far behind by then it has as few iterations with all of them as
            ``previous``. The other structures wait for it, unless they have not seen more than a
            hundredth of the rows. Where ``previous`` has other data, all are trained.
        max_iterations: L-BFGS iterations of each start; ``None`` for 75, or for 300 (in inverse
            proportion from 200 rows on) where there are categorical columns and no ``previous``:
            sums of two joint kernels take longer to settle. With ``previous`` alone to start from
            they are fewer from 200 rows or 100 columns on, in inverse proportion: what is left to
            gain comes with the next rows.
        prior_points: So many points that all structures predict equally well are added to the
            data: weights are drawn together while there are few, and settle. 0 for none.
        budget: Wall time in seconds; structures for which none is left stay as they are, and
            are the first in the next training.
        seed: Determines the fresh starts; the global random state is left alone.
        progress: Show progress bars, if standard error is a terminal.

    Returns:
        ``model``, in eval mode. Structures whose training failed have no weight, with a warning.

    Raises:
        TypeError: ``model`` or ``previous`` is not a StructureEnsembleGP (or a ``state_dict``).
        ValueError: ``previous`` has other structures or columns, ``model`` is a fantasy, or an
            option has no meaning.
        RuntimeError: The training of every structure failed.
        KeyboardInterrupt: Ctrl-C came before any structure had taken a step; later it ends the
            training with what was reached.
    """
    check_counts(0, fresh_starts=fresh_starts, seed=seed)
    if max_iterations is not None:
        check_counts(1, max_iterations=max_iterations)
    check_number("prior_points", prior_points, positive=False)
    if model.train_targets.dim() != 2:
        raise ValueError(
            "model must hold one data set, got targets of shape "
            f"{tuple(model.train_targets.shape)}: fantasies keep the parameters of their model."
        )
    model.eval()  # makes the transformed inputs the training inputs
    model.check_members()
    model.part_values = model.structure_values()
    if isinstance(previous, Mapping):
        previous = _from_state(model, previous)
    if previous is not None:
        _take_parameters(model, previous)
    session = Session(budget=budget, seed=seed, progress=progress)
    data = model.common_data()
    model.warps[model.is_warped] = fit_warp(data[1], model.maximize)
    parts = [_part(model, number, *data) for number in range(len(model.structures))]
    num_rows, num_columns = data[0].shape
    share = min(1.0, _MANY_ROWS / num_rows, _MANY_COLUMNS / num_columns)
    if max_iterations is None:
        slow = bool(model.cat_dims) and previous is None
        max_iterations = max(_ITERATIONS, math.ceil(share * 4 * _ITERATIONS) if slow else 0)
    few = math.ceil(share * max_iterations)
    order, afresh = _schedule(model, previous, data, fresh_starts)
    failures, done = {}, 0
    for place, number in enumerate(order):
        if place and session.is_over:
            break
        part = parts[number]
        restarts = 1 + (fresh_starts if number in afresh else 0)
        quick = previous is not None and (num_rows >= 2 * _MANY_ROWS or number not in afresh)
        recipe = Recipe(adam_steps=0, lbfgs_iterations=few if quick else max_iterations)
        own = Session(budget=session.part(1 / (len(order) - place)), seed=seed, progress=progress)
        with torch.enable_grad(), session.interruptible(lambda done=done: done):  # type: ignore[misc]
            try:
                if not any(parameter.requires_grad for parameter in part.parameters()):
                    pass  # all is frozen
                elif quick and restarts > 1:
                    _fit_with_halves(part, restarts, recipe, max_iterations, own)
                else:
                    result = fit_best_of(
                        part,
                        restarts=restarts,
                        initialize=fresh_start,
                        recipe=recipe,
                        budget=own.part(),
                        seed=seed,
                        progress=progress,
                    )
                    tell_failures(result)
                    own.interrupted = result.interrupted
                done += 1
                model.trained_rows[number] = num_rows
            except RuntimeError as error:
                failures[model.structures[number]] = str(error)
        if number in afresh:
            model.started_rows[number] = num_rows
        if session.interrupted or own.interrupted:
            break
    pairs = zip(parts, model.warps, strict=True)
    densities = torch.stack([_leave_one_out(part, *data[1:], warp) for part, warp in pairs])
    for name in failures:
        densities[model.structures.index(name)] = -math.inf
    if not densities.isfinite().any():
        raise RuntimeError(f"The training of every structure failed: {failures}.")
    for name, reason in failures.items():
        warn_user(f"The structure {name!r} has no weight: {reason}", RuntimeWarning)
    model.part_values = torch.stack([_values_of(part, model) for part in parts])
    weights = stacking_weights(
        densities.double().cpu().numpy(), evenness=prior_points / len(data[1])
    )
    model.set_weights(torch.from_numpy(weights))
    return model.eval()


def _fit_with_halves(
    part: PartsGP, restarts: int, recipe: Recipe, iterations: int, session: Session
) -> None:
    """Train from the present parameters, and then, in what time is left, from fresh starts.

    These have seen a half of the rows before, and go no further if they are far behind by then: of
    22 such ones (500 and 900 rows in 12 to 50 columns) one was ahead in the end, of the 68 others
    15. Ctrl-C keeps what was reached.
    """
    fit = partial(
        fit_best_of, restarts=1, initialize=None, seed=session.seed, progress=session.progress
    )
    given, best, needed = copy_model(part), math.inf, 0.0
    reasons = []
    with session.interruptible(lambda: best < math.inf):
        for number in range(restarts):
            if number and session.seconds_left < needed:
                break
            candidate = copy_model(given).train()
            try:
                if number:
                    half = _half_of_fresh(candidate, session.seed, number)
                    more = replace(recipe, lbfgs_iterations=iterations)
                    if fit(half, recipe=more, budget=session.part(0.5)).interrupted:
                        session.interrupted = True
                        break
                    with torch.no_grad():
                        behind = Objective(candidate)().item() - best
                    if not behind <= _BEHIND * len(candidate.train_targets):
                        continue
                result = fit(candidate, recipe=recipe, budget=session.part())
            except RuntimeError as error:
                reasons.append(f"Start {number} failed: {error}")
                continue
            record = result.restarts[0]
            needed = max(needed, _LEAST_EVALUATIONS * record.seconds / max(1, record.evaluations))
            if record.loss < best:
                best = record.loss
                part.load_state_dict(candidate.state_dict())
            if result.interrupted:
                session.interrupted = True
                break
    if best == math.inf:
        raise RuntimeError("; ".join(reasons))
    for reason in reasons:
        warn_user(reason, RuntimeWarning)


def _half_of_fresh(part: PartsGP, seed: int, number: int) -> PartsGP:
    """The process, whose parts are given fresh start values, with a half of its rows."""
    with torch.random.fork_rng():
        torch.manual_seed(seed * 1_000_003 + number)
        fresh_start(part, seed, number)
        chosen = torch.randperm(len(part.train_targets))[: len(part.train_targets) // 2]
    x, y, likelihood = part.train_inputs[0], part.train_targets, part.likelihood
    rows = chosen.to(y.device)
    if isinstance(likelihood, FixedNoiseGaussianLikelihood):
        likelihood = deepcopy(likelihood)
        likelihood.noise_covar.noise = likelihood.noise_covar.noise[rows]
    return PartsGP(x[rows], y[rows], part.covar_module, part.mean_module, likelihood)


def _schedule(
    model: StructureEnsembleGP,
    previous: StructureEnsembleGP | None,
    data: tuple[Tensor, Tensor, Tensor | None],
    fresh_starts: int,
) -> tuple[list[int], set[int]]:
    """Structures to train, first those that have waited longest, and which of them start afresh.

    A model says with how many rows each of its structures was trained, and started afresh. So all
    have their turn, whatever number of rows comes with each training.
    """
    num_rows, num_columns = data[0].shape
    everyone = range(len(model.structures))
    if previous is None:
        return list(everyone), set(everyone) if fresh_starts else set()
    trained, started = model.trained_rows.tolist(), model.started_rows.tolist()
    rarer = max(1, num_rows // _MANY_ROWS, num_columns // _MANY_COLUMNS)
    new = num_rows - max(trained) if _goes_on(previous, *data[:2]) else 0
    afresh = set()
    if fresh_starts and (not new or num_rows - max(started) >= rarer):
        afresh = {min(everyone, key=started.__getitem__)}
    due = set(everyone)
    if new and rarer > 1:
        due = set(previous.covar_module.members.tolist())
        unseen = num_rows - min(trained[number] for number in due)
        if afresh and num_rows >= 2 * _MANY_ROWS and unseen <= _FEW_NEW * num_rows:
            due = set()
        else:
            others = [
                n for n in everyone if n not in due and num_rows - trained[n] >= len(everyone)
            ]
            due |= set(sorted(others, key=trained.__getitem__)[:new])
    return sorted(due | afresh, key=trained.__getitem__), afresh


def _goes_on(previous: StructureEnsembleGP, x: Tensor, y: Tensor) -> bool:
    """Whether the data of another model are the first of these, targets but for their scale."""
    old_x, old_y, _ = previous.common_data()
    if len(old_x) >= len(x) or not torch.equal(old_x.to(x), x[: len(old_x)]):
        return False
    shapes = [normalize(part - part.mean(), dim=0) for part in (old_y.to(y), y[: len(old_y)])]
    return bool((shapes[0] - shapes[1]).norm() < 1e-2)


def _part(
    model: StructureEnsembleGP, number: int, x: Tensor, y: Tensor, noise: Tensor | None
) -> PartsGP:
    """The GP of one structure, in training mode; its kernel is that of the model."""
    warp = model.warps[number]
    mean, likelihood = model.member_parts(model.part_values[number])
    if noise is not None:
        noise = noise * warp_slope(y, warp).square()
        least = settings.min_fixed_noise.value(y.dtype)  # below it GPyTorch warns and rounds up
        likelihood.noise_covar.noise = noise.clamp_min(least)
    kernel = model.covar_module.kernels[number]
    return PartsGP(x, warped(y, warp), kernel, mean, likelihood).train()


def _values_of(part: PartsGP, model: StructureEnsembleGP) -> Tensor:
    """Raw values of the parameters of which each structure has its own."""
    own = [part.get_parameter(name).detach().flatten() for name in model.member_parameters()]
    return torch.cat([part.train_targets.new_empty(0), *own])


def _leave_one_out(part: PartsGP, y: Tensor, noise: Tensor | None, warp: Tensor) -> Tensor:
    """Log densities ``N`` of targets in their unit, each given all the others; or -infinity.

    Those of a warped outcome are of the Gaussian that its members have for it. The density on the
    scale of the warp would be higher (by about a nat at 20 points), and not what is used. Known
    noise is that of the targets; what is inferred belongs to the scale of the warp.
    """
    targets = part.train().train_targets
    with torch.no_grad():
        mean, covariance = noisy_prior(part)
        try:
            posterior = ExactPosterior(covariance, targets - mean)
        except torch.linalg.LinAlgError:
            return torch.full_like(targets, -math.inf)
        center, variance = posterior.leave_one_out()
        center, ratio = secant(center + mean, warp)
        if noise is None or warp[0] == 0:
            variance = variance * ratio.square()
        else:
            known, least = part.likelihood.noise, settings.min_fixed_noise.value(y.dtype)
            variance = (variance - known).clamp_min(least) * ratio.square() + noise
        return -0.5 * ((y - center).square() / variance + variance.log() + math.log(2 * math.pi))


def _from_state(model: StructureEnsembleGP, state: Mapping[str, Tensor]) -> StructureEnsembleGP:
    """A model of the same kind that has the parameters of another one's ``state_dict``."""
    made = deepcopy(model)
    own = made.state_dict()
    names = [name for name in own if name.startswith(_OF_KERNELS) or name in _OF_STRUCTURES]
    wrong = [n for n in names if getattr(state.get(n), "shape", None) != own[n].shape]
    if wrong or not torch.equal(state["is_warped"].to(model.is_warped), model.is_warped):
        raise ValueError(
            f"previous must be the state_dict of a model with the structures {model.structures} "
            f"and the same columns; {(wrong or ['is_warped'])[0]!r} differs."
        )
    for name in names:
        own[name].copy_(state[name])
    return made


def _take_parameters(model: StructureEnsembleGP, previous: StructureEnsembleGP) -> None:
    """Start values from another model of the same structures."""
    if not isinstance(previous, StructureEnsembleGP):
        raise TypeError(f"previous must be a StructureEnsembleGP, got {type(previous).__name__}.")
    if previous.structures != model.structures:
        raise ValueError(
            f"previous must have the structures {model.structures}, got {previous.structures}."
        )
    old, new = (dict(m.covar_module.kernels.named_parameters()) for m in (previous, model))
    if {k: v.shape for k, v in old.items()} != {k: v.shape for k, v in new.items()}:
        raise ValueError("previous must have kernels with the same parameters and columns.")
    for name, parameter in new.items():
        if parameter.requires_grad:
            parameter.data.copy_(old[name].data)
    for own, rows in (
        (model.trained_rows, previous.trained_rows),
        (model.started_rows, previous.started_rows),
    ):
        own.copy_(rows.clamp(max=len(model.train_targets[0])))
    if previous.part_values.shape != model.part_values.shape:
        raise ValueError("previous must have a mean and a likelihood with the same parameters.")
    members = model.covar_module.members
    model.set_member_values(previous.part_values.to(model.part_values)[members])
    model.part_values.copy_(previous.part_values)
    model.part_values = model.structure_values()  # with what the model keeps fixed
