"""Training of every structure of an ensemble, and their weights."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import torch
from botorch.models.utils.gpytorch_modules import get_gaussian_likelihood_with_lognormal_prior
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from gpytorch.means import ConstantMean
from torch import Tensor

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
    stacking_weights,
    warn_user,
)
from gpytorch_nkn.linalg import ExactPosterior
from gpytorch_nkn.models.averaging.member_warp import fit_warp, warp_slope, warped
from gpytorch_nkn.models.averaging.structure_ensemble_gp import StructureEnsembleGP
from gpytorch_nkn.models.common import PartsGP, trains

__all__ = ["fit_structure_ensemble_gp"]

_ITERATIONS = 75
_MANY_ROWS, _MANY_COLUMNS = 200, 100  # from where on an iteration of a loop does less
_LEAST_EVALUATIONS = 4  # that a fresh start must have time for
_BEHIND = 0.1  # nats of a row by which it may be behind after a half of them
_FEW_NEW = 0.01  # share of new rows for which all but one structure can wait


@trains(StructureEnsembleGP)
def fit_structure_ensemble_gp(
    model: StructureEnsembleGP,
    *,
    previous: StructureEnsembleGP | None = None,
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
    (:func:`gpytorch_nkn.fit.stacking_weights`).

    Args:
        model: Model to train in place.
        previous: The model of the iteration before, with the same structures and fewer or other
            data, whose parameters are the first start; ``None`` starts from those of ``model``.
        fresh_starts: Further starts of each structure; with ``previous`` of one structure only,
            another one in each training, so that in a loop each has its turn. From 400 rows or 200
            columns on every second training has one, from 600 or 300 on every third, and so on.
            From there on, too, structures of which ``previous`` has no member are trained in turn,
            one for each new row. From 400 rows on the other structures wait while one starts
            afresh, if at most a hundredth of the rows are new, and a fresh start beside
            ``previous`` is trained with a half of the rows, drawn from ``seed``, before it has as
            few iterations with all of them as ``previous``; none if it is far behind by then.
        max_iterations: L-BFGS iterations of each start; ``None`` for 75, or for 300 (in inverse
            proportion from 200 rows on) where there are categorical columns and no ``previous``:
            sums of two joint kernels take longer to settle. With ``previous`` alone to start from
            they are fewer from 200 rows or 100 columns on, in inverse proportion: what is left to
            gain comes with the next rows.
        prior_points: So many points that all structures predict equally well are added to the
            data: weights are drawn together while there are few, and settle. 0 for none.
        budget: Wall time in seconds; structures for which none is left stay as they are.
        seed: Determines the fresh starts; the global random state is left alone.
        progress: Show progress bars, if standard error is a terminal.

    Returns:
        ``model``, in eval mode. Structures whose training failed have no weight, with a warning.

    Raises:
        TypeError: ``model`` or ``previous`` is not a StructureEnsembleGP.
        ValueError: ``previous`` has other structures or columns, ``model`` is a fantasy, or an
            option has no meaning.
        RuntimeError: The training of every structure failed.
        KeyboardInterrupt: Ctrl-C came before any structure had taken a step; later it ends the
            training with what was reached.
    """
    check_counts(0, fresh_starts=fresh_starts)
    if max_iterations is not None:
        check_counts(1, max_iterations=max_iterations)
    check_number("prior_points", prior_points, positive=False)
    if model.train_targets.dim() != 2:
        raise ValueError(
            "model must hold one data set, got targets of shape "
            f"{tuple(model.train_targets.shape)}: fantasies keep the parameters of their model."
        )
    if previous is not None:
        _take_parameters(model, previous)
    session = Session(budget=budget, seed=seed, progress=progress)
    model.eval()  # makes the transformed inputs the training inputs
    data = model.common_data()
    model.warps[model.is_warped] = fit_warp(data[1], model.maximize)
    parts = [_part(model, number, *data) for number in range(len(model.structures))]
    num_rows, num_columns = data[0].shape
    share = min(1.0, _MANY_ROWS / num_rows, _MANY_COLUMNS / num_columns)
    if max_iterations is None:
        slow = bool(model.cat_dims) and previous is None
        max_iterations = max(_ITERATIONS, math.ceil(share * 4 * _ITERATIONS) if slow else 0)
    few = math.ceil(share * max_iterations)
    rarer = max(1, num_rows // _MANY_ROWS, num_columns // _MANY_COLUMNS)
    turn, wait = divmod(int(model.turn), rarer)
    afresh: set[int] = set()
    if fresh_starts and previous is None:
        afresh = set(range(len(parts)))
    elif fresh_starts and not wait:
        afresh = {turn % len(parts)}
    due = set(range(len(parts))) if rarer == 1 else _due(previous, num_rows, len(parts), afresh)
    failures = {}
    for number, part in enumerate(parts):
        if number and session.is_over:
            break
        if number not in due | afresh:
            continue
        restarts = 1 + (fresh_starts if number in afresh else 0)
        quick = previous is not None and (num_rows >= 2 * _MANY_ROWS or number not in afresh)
        recipe = Recipe(adam_steps=0, lbfgs_iterations=few if quick else max_iterations)
        own = Session(budget=session.part(1 / (len(parts) - number)), seed=seed, progress=progress)
        with torch.enable_grad(), session.interruptible(lambda number=number: number):  # type: ignore[misc]
            try:
                if quick and restarts > 1:
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
            except RuntimeError as error:
                failures[model.structures[number]] = str(error)
        if session.interrupted or own.interrupted:
            break
    pairs = zip(parts, model.warps, strict=True)
    densities = torch.stack([_leave_one_out(part, data[1], warp) for part, warp in pairs])
    for name in failures:
        densities[model.structures.index(name)] = -math.inf
    if not densities.isfinite().any():
        raise RuntimeError(f"The training of every structure failed: {failures}.")
    for name, reason in failures.items():
        warn_user(f"The structure {name!r} has no weight: {reason}", RuntimeWarning)
    model.constants.copy_(torch.stack([part.mean_module.constant.detach() for part in parts]))
    if not isinstance(model.likelihood, FixedNoiseGaussianLikelihood):
        noise = torch.stack([part.likelihood.noise.detach()[0] for part in parts])
        model.noise_levels.copy_(noise)
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
    22 such ones (500 and 900 rows in 12 to 50 columns) one was ahead by a nat in the end, of the 68
    others 15. Ctrl-C keeps what was reached.
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
        likelihood = FixedNoiseGaussianLikelihood(noise=likelihood.noise[rows])
    return PartsGP(x[rows], y[rows], part.covar_module, part.mean_module, likelihood)


def _due(
    previous: StructureEnsembleGP | None, num_rows: int, number: int, afresh: set[int]
) -> set[int]:
    """Structures that are trained: those with members, and of the others one for each new row.

    Beside one that starts afresh none, where there are many rows and few new ones.
    """
    if previous is None:
        return set(range(number))
    rows = range(previous.train_targets.size(-1), num_rows)
    if not rows:  # other data
        return set(range(number))
    if afresh and num_rows >= 2 * _MANY_ROWS and len(rows) <= _FEW_NEW * num_rows:
        return afresh
    return {*previous.covar_module.members.tolist(), *(row % number for row in rows)}


def _part(
    model: StructureEnsembleGP, number: int, x: Tensor, y: Tensor, noise: Tensor | None
) -> PartsGP:
    """The GP of one structure, in training mode; its kernel is that of the model."""
    warp = model.warps[number]
    likelihood: Likelihood
    if noise is None:
        likelihood = get_gaussian_likelihood_with_lognormal_prior()
    else:
        likelihood = FixedNoiseGaussianLikelihood(noise=noise * warp_slope(y, warp).square())
    kernel = model.covar_module.kernels[number]
    part = PartsGP(x, warped(y, warp), kernel, ConstantMean(), likelihood).to(y)
    part.mean_module.initialize(constant=model.constants[number])
    if noise is None:
        least = likelihood.noise_covar.raw_noise_constraint.lower_bound.to(y)
        likelihood.initialize(noise=torch.maximum(model.noise_levels[number], least))
    return part.train()


def _leave_one_out(part: PartsGP, y: Tensor, warp: Tensor) -> Tensor:
    """Log densities ``N`` of targets in their unit, each given all the others; or -infinity."""
    targets = part.train().train_targets
    with torch.no_grad():
        mean, covariance = noisy_prior(part)
        try:
            posterior = ExactPosterior(covariance, targets - mean)
        except torch.linalg.LinAlgError:
            return torch.full_like(targets, -math.inf)
        center, variance = posterior.leave_one_out()
        error = targets - center - mean
        density = -0.5 * (error.square() / variance + variance.log() + math.log(2 * math.pi))
        return density + warp_slope(y, warp).log()


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
    model.constants.copy_(previous.constants)
    model.turn.copy_(previous.turn + 1)
    if not isinstance(model.likelihood, FixedNoiseGaussianLikelihood):
        model.noise_levels.copy_(previous.noise_levels)
