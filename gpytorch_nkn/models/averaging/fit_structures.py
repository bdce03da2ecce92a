"""Training of an ensemble's structures and stacking weights."""

from __future__ import annotations

import math

import torch
from gpytorch import settings
from torch import Tensor

from gpytorch_nkn.averaging import (
    leave_one_out,
    stacking_weights,
    train_candidates,
    warn_of_untrained,
)
from gpytorch_nkn.fit import (
    FitResult,
    Recipe,
    Rows,
    RowsGP,
    Session,
    check_counts,
    fit_best_of,
    warn_user,
)
from gpytorch_nkn.models.averaging.member_warp import fit_warp, secant, warp_slope, warped
from gpytorch_nkn.models.averaging.structure_ensemble_gp import StructureEnsembleGP
from gpytorch_nkn.models.averaging.structure_kernel import StructureKernel
from gpytorch_nkn.models.base_gp import trains

__all__ = ["fit_structure_ensemble_gp"]

_ITERATIONS = 75  # L-BFGS iterations of each structure
_CATEGORY_FACTOR = 4  # factor by which categorical columns increase the iterations
# Number of pseudo-observations that all structures predict equally well. With few points, they
# shrink the weights towards equal weights.
_PRIOR_POINTS = 4.0


@trains(StructureEnsembleGP, covar_module=StructureKernel)
def fit_structure_ensemble_gp(
    model: StructureEnsembleGP,
    *,
    max_iterations: int | None = None,
    budget: float | None = None,
    seed: int = 0,
    progress: bool = True,
) -> StructureEnsembleGP:
    r"""Train every structure, and learn stacking weights from held-out predictions.

    L-BFGS maximises the posterior of each structure's parameters, starting at the model's values.
    The weights maximise the leave-one-out log density of the mixture, with a Dirichlet prior
    (:func:`gpytorch_nkn.averaging.stacking_weights`). In a loop, train a new model each time; the
    previous parameters are no better start values.

    Args:
        model: Model to train in place.
        max_iterations: L-BFGS iterations of each structure; ``None`` for 75, or 300 with
            categorical columns.
        budget: Wall time in seconds. When it is over, the remaining structures keep their
            parameters, with a warning.
        seed: Unused, for compatibility with other trainers.
        progress: Show progress bars if standard error is a terminal.

    Returns:
        ``model``, in eval mode. A structure whose training failed gets weight zero, with a warning.

    Raises:
        TypeError: ``model`` is not a StructureEnsembleGP.
        ValueError: ``model`` is a fantasy, or an option is invalid.
        RuntimeError: The training of every structure failed.
        KeyboardInterrupt: Ctrl-C was pressed before the first step. A later Ctrl-C ends the
            training with the best parameters so far.
    """
    session = Session(budget=budget, seed=seed, progress=False)
    if max_iterations is not None:
        check_counts(1, max_iterations=max_iterations)
    if model.train_targets.dim() != 2:
        raise ValueError(
            "model must have one data set, got targets of shape "
            f"{tuple(model.train_targets.shape)}; fantasies cannot be trained."
        )
    model.eval()  # transforms the training inputs
    model.part_values = model.structure_values()
    data = model.common_data()
    model.warps[model.is_warped] = fit_warp(data[1], model.maximize)
    parts = [_part(model, number, *data) for number in range(len(model.structures))]
    if max_iterations is None:
        max_iterations = _ITERATIONS * (_CATEGORY_FACTOR if model.cat_dims else 1)
    recipe = Recipe(adam_steps=0, lbfgs_iterations=max_iterations)

    def train(_: None, name: str, seconds: float | None) -> RowsGP | FitResult:
        gp = parts[model.structures.index(name)]
        if not any(parameter.requires_grad for parameter in gp.parameters()):
            return gp
        return fit_best_of(
            gp,
            restarts=1,
            initialize=None,
            recipe=recipe,
            budget=seconds,
            seed=seed,
            progress=progress,
        )

    trained = train_candidates(train, model.structures, session)
    warn_of_untrained(trained)
    failures = {result.key: result.status for result in trained if result.failed}
    pairs = zip(parts, model.warps, strict=True)
    densities = torch.stack([_leave_one_out(part, *data[1:], warp) for part, warp in pairs])
    densities[[result.failed for result in trained]] = -math.inf
    if not densities.isfinite().any():
        raise RuntimeError(f"The training of every structure failed: {failures}.")
    for name, reason in failures.items():
        warn_user(f"The structure {name!r} has no weight: {reason}", RuntimeWarning)
    model.part_values = torch.stack([_values_of(part, model) for part in parts])
    weights = stacking_weights(
        densities.double().cpu().numpy(), concentration=_PRIOR_POINTS / len(data[1])
    )
    model.set_weights(torch.from_numpy(weights))
    model.is_trained.fill_(True)
    return model.eval()


def _part(
    model: StructureEnsembleGP, number: int, x: Tensor, y: Tensor, noise: Tensor | None
) -> RowsGP:
    """Return the GP of one structure, in training mode, with the model's kernel."""
    warp = model.warps[number]
    mean, likelihood = model.member_parts(model.part_values[number])
    if noise is not None:
        noise = noise * warp_slope(y, warp).square()
        least = settings.min_fixed_noise.value(y.dtype)  # GPyTorch rounds smaller noise up
        likelihood.noise_covar.noise = noise.clamp_min(least)
    kernel = model.covar_module.kernels[number]
    return RowsGP(Rows(x, warped(y, warp)), kernel, mean, likelihood).train()


def _values_of(gp: RowsGP, model: StructureEnsembleGP) -> Tensor:
    """Return the raw values of the parameters that are not shared between structures."""
    values = [gp.get_parameter(name).detach().flatten() for name in model.member_parameters()]
    return torch.cat([gp.train_targets.new_empty(0), *values])


def _leave_one_out(gp: RowsGP, y: Tensor, noise: Tensor | None, warp: Tensor) -> Tensor:
    """Return leave-one-out log densities ``N`` of the targets; -infinity if a solve fails.

    Known noise is on the scale of the targets, and inferred noise on the warped scale.
    """
    try:
        mean, variance = leave_one_out(gp)
    except torch.linalg.LinAlgError:
        return torch.full_like(y, -math.inf)
    center, ratio = secant(mean, warp)
    if noise is None or warp[0] == 0:
        variance = variance * ratio.square()
    else:
        known_noise = gp.likelihood.noise_covar.noise
        least = settings.min_fixed_noise.value(y.dtype)
        variance = (variance - known_noise).clamp_min(least) * ratio.square() + noise
    return -0.5 * ((y - center).square() / variance + variance.log() + math.log(2 * math.pi))
