"""Training of every structure of an ensemble, and their weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass

import torch
from gpytorch import settings
from torch import Tensor
from torch.nn.functional import normalize

from gpytorch_nkn.averaging import leave_one_out, stacking_weights, train_candidates
from gpytorch_nkn.bo import fresh_start, tell_failures
from gpytorch_nkn.fit import (
    FitResult,
    Recipe,
    Session,
    check_counts,
    check_number,
    fit_best_of,
    warn_user,
)
from gpytorch_nkn.models.averaging.member_warp import fit_warp, secant, warp_slope, warped
from gpytorch_nkn.models.averaging.structure_ensemble_gp import StructureEnsembleGP
from gpytorch_nkn.models.base_gp import trains
from gpytorch_nkn.models.common import PartsGP

__all__ = ["fit_structure_ensemble_gp"]

_ITERATIONS = 75
_MANY_ROWS, _MANY_COLUMNS = 200, 100  # from which on iterations are saved
_OF_KERNELS = "covar_module.kernels."  # what a state dict must have, and
_OF_STRUCTURES = ("part_values", "trained_rows", "started_rows", "is_warped")


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
    r"""Train every structure, and weigh them by how well their mixture predicts held-out points.

    Each structure is trained as :func:`gpytorch_nkn.bo.fit_bo_model` trains a model: L-BFGS
    maximises the posterior of its parameters from those of ``previous`` and from fresh starts.
    The weights maximise the leave-one-out log density of the mixture at these parameters, with a
    prior that draws them together (:func:`gpytorch_nkn.averaging.stacking_weights`).

    Args:
        model: Model to train in place.
        previous: The model of the iteration before, with the same structures and fewer or other
            data, or its ``state_dict``, whose parameters are the first start; ``None`` starts from
            those of ``model``.
        fresh_starts: Further starts of each structure. With ``previous``, only the structure that
            was restarted least recently gets them. From 400 rows or 200 columns on they come with
            every second new row, from 600 or 300 on with every third, and so on, and structures
            of which ``previous`` has no member are trained in turn. If ``previous`` has other
            data, all structures are trained.
        max_iterations: L-BFGS iterations of each start; ``None`` for 75, or for 300 (in inverse
            proportion from 200 rows on) where there are categorical columns and no ``previous``.
            With ``previous`` they are fewer from 200 rows or 100 columns on, in inverse proportion.
        prior_points: Pseudo-observations that all structures predict equally well: they shrink
            the weights towards each other while there are few points. 0 for none.
        budget: Wall time in seconds; structures that it does not reach keep their parameters and
            are trained first the next time.
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
    session = Session(budget=budget, seed=seed, progress=False)
    data = model.common_data()
    model.warps[model.is_warped] = fit_warp(data[1], model.maximize)
    parts = [_part(model, number, *data) for number in range(len(model.structures))]
    schedule = _Schedule.of(model, previous, data, fresh_starts)
    num_rows = len(data[1])

    def train(_: None, number: int, seconds: float | None) -> PartsGP | FitResult:
        part = parts[number]
        if not any(parameter.requires_grad for parameter in part.parameters()):
            return part
        with torch.enable_grad():
            result = fit_best_of(
                part,
                restarts=1 + (fresh_starts if number in schedule.afresh else 0),
                initialize=fresh_start,
                recipe=schedule.recipe(number, max_iterations),
                budget=seconds,
                seed=seed,
                progress=progress,
            )
        tell_failures(result)
        return result

    trained = train_candidates(train, schedule.order, session)
    for one in trained:
        if one.candidate is not None:
            model.trained_rows[one.key] = num_rows
        if one.key in schedule.afresh:
            model.started_rows[one.key] = num_rows
    failures = {one.key: one.status for one in trained if one.candidate is None}
    pairs = zip(parts, model.warps, strict=True)
    densities = torch.stack([_leave_one_out(part, *data[1:], warp) for part, warp in pairs])
    densities[list(failures)] = -math.inf
    if not densities.isfinite().any():
        reasons = {model.structures[number]: reason for number, reason in failures.items()}
        raise RuntimeError(f"The training of every structure failed: {reasons}.")
    for number, reason in failures.items():
        warn_user(
            f"The structure {model.structures[number]!r} has no weight: {reason}", RuntimeWarning
        )
    model.part_values = torch.stack([_values_of(part, model) for part in parts])
    weights = stacking_weights(
        densities.double().cpu().numpy(), evenness=prior_points / len(data[1])
    )
    model.set_weights(torch.from_numpy(weights))
    return model.eval()


@dataclass(frozen=True)
class _Schedule:
    """Which structures are trained, and how."""

    order: list[int]  # numbers of the structures to train, those that have waited longest first
    afresh: set[int]  # those that get fresh starts
    size: float  # of the data, in units from which on iterations are saved; at least 1
    goes_on: bool  # parameters are those of a previous model
    is_slow: bool  # joint kernels of categories need more iterations

    @classmethod
    def of(
        cls,
        model: StructureEnsembleGP,
        previous: StructureEnsembleGP | None,
        data: tuple[Tensor, Tensor, Tensor | None],
        fresh_starts: int,
    ) -> _Schedule:
        """The schedule of a training; see :func:`fit_structure_ensemble_gp`."""
        num_rows, num_columns = data[0].shape
        size = max(1.0, num_rows / _MANY_ROWS, num_columns / _MANY_COLUMNS)
        everyone = range(len(model.structures))
        if previous is None:
            afresh = set(everyone) if fresh_starts else set()
            return cls(list(everyone), afresh, size, False, bool(model.cat_dims))
        trained, started = model.trained_rows.tolist(), model.started_rows.tolist()
        new = num_rows - max(trained) if _goes_on(previous, *data[:2]) else 0
        afresh = set()
        if fresh_starts and (not new or num_rows - max(started) >= int(size)):
            afresh = {min(everyone, key=started.__getitem__)}
        due = set(everyone)
        if new and size >= 2:
            due = set(previous.covar_module.members.tolist())
            waiting = [
                n for n in everyone if n not in due and num_rows - trained[n] >= len(everyone)
            ]
            due |= set(sorted(waiting, key=trained.__getitem__)[:new])
        return cls(sorted(due | afresh, key=trained.__getitem__), afresh, size, True, False)

    def recipe(self, number: int, iterations: int | None) -> Recipe:
        """Optimiser settings of a structure."""
        if iterations is None:
            slow = math.ceil(4 * _ITERATIONS / self.size) if self.is_slow else 0
            iterations = max(_ITERATIONS, slow)
        if self.goes_on and (self.size >= 2 or number not in self.afresh):
            iterations = math.ceil(iterations / self.size)
        return Recipe(adam_steps=0, lbfgs_iterations=iterations)


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
    """Leave-one-out log densities ``N`` of targets in their unit; -infinity if a solve fails.

    Known noise has the unit of the targets, inferred noise that of the warp.
    """
    try:
        mean, variance = leave_one_out(part)
    except torch.linalg.LinAlgError:
        return torch.full_like(y, -math.inf)
    center, ratio = secant(mean, warp)
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
