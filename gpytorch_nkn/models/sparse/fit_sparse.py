"""Training of a sparse GP: exact training on blocks of rows, then the bound on all rows."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Literal

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import Mean
from gpytorch.module import Module
from torch import Tensor

from gpytorch_nkn._devices import permutation
from gpytorch_nkn.fit import (
    FitResult,
    FlatParameters,
    Recipe,
    Rows,
    RowsGP,
    Session,
    check_counts,
    fit_best_of,
    fit_in_stages,
    lbfgs,
    log_prior,
    warn_of_size,
)
from gpytorch_nkn.models.base_gp import trains
from gpytorch_nkn.models.common import load_parts
from gpytorch_nkn.models.inducing_points import InducingFeatureKernel
from gpytorch_nkn.models.sparse.sparse_nkn_gp import SparseNKNGP

__all__ = ["bound_loss", "check_start", "fit_sparse_gp", "learn_on_blocks", "maximize_bound"]

_START_SHARE = 0.5  # fraction of the budget for training on blocks
_BLOCK_ROWS, _MAX_BLOCKS = 1000, 8  # rows per block, and number of blocks
_USUAL_ROWS = 100_000  # number of rows above which a warning is issued


def learn_on_blocks(
    x: Tensor,
    y: Tensor,
    kernel: Kernel,
    mean: Mean,
    likelihood: GaussianLikelihood | FixedNoiseGaussianLikelihood,
    *,
    restarts: int,
    session: Session,
) -> None:
    """Train kernel, mean and noise in place by exact GPs on random blocks of rows.

    See :func:`gpytorch_nkn.fit.fit_in_stages`. A batch of inputs ``... x n x d`` and targets
    ``... x n`` uses one block. Training takes at most half of the session's budget.
    """
    unbatched = y.dim() == 1 and x.dim() == 2
    has_known_noise = isinstance(likelihood, FixedNoiseGaussianLikelihood)
    # models of data with gradients cannot be copied
    rows = Rows(x.detach(), y.detach(), likelihood.noise_covar.noise if has_known_noise else None)
    if not unbatched and len(rows) > _BLOCK_ROWS:
        order = permutation(len(rows), session.generator())
        rows = rows[order[:_BLOCK_ROWS].to(y.device)]
    gp = RowsGP(rows, *deepcopy((kernel, mean, likelihood)))
    if not any(parameter.requires_grad for parameter in gp.parameters()):
        return
    fit: Callable[..., FitResult] = fit_best_of
    if unbatched:
        fit = partial(fit_in_stages, block_size=_BLOCK_ROWS, max_blocks=_MAX_BLOCKS)
    result = fit(
        gp,
        restarts=restarts,
        recipe=Recipe(adam_steps=0, lbfgs_iterations=150),
        budget=session.part(_START_SHARE),
        seed=session.seed,
        progress=session.progress,
    )
    load_parts((kernel, mean, likelihood), result.model)
    session.interrupted = result.interrupted


@trains(SparseNKNGP, covar_module=InducingFeatureKernel)
def fit_sparse_gp(
    model: SparseNKNGP,
    *,
    start: Literal["blocks"] | None = "blocks",
    restarts: int = 2,
    max_iterations: int = 50,
    budget: float | None = None,
    seed: int = 0,
    progress: bool = True,
) -> SparseNKNGP:
    """Train a sparse GP in place; return it in eval mode.

    Exact GPs of up to eight random blocks of 1,000 rows first learn the hyperparameters
    (:func:`gpytorch_nkn.fit.fit_in_stages`). This takes seconds and leads near the optimum of the
    bound. L-BFGS then maximises the bound plus the log density of the priors over hyperparameters
    and, unless they are fixed, inducing points.

    Ctrl-C and the budget end the training with the best parameters so far.

    Args:
        model: The model.
        start: ``"blocks"``, or ``None`` to start from the model's parameters.
        restarts: Starts on the first block.
        max_iterations: L-BFGS iterations on the bound; 0 stops after the blocks.
        budget: Wall time in seconds. Blocks use at most half of it.
        seed, progress: As in :func:`gpytorch_nkn.fit.fit_best_of`.

    Raises:
        TypeError: The model is not a SparseNKNGP.
        ValueError: An option is invalid, or the data are not finite.
        RuntimeError: Every start failed, or the bound cannot be computed after the blocks.
        KeyboardInterrupt: Ctrl-C was pressed before the first improvement.
    """
    check_start(start)
    check_counts(0, max_iterations=max_iterations)
    session = Session(budget=budget, seed=seed, progress=progress)
    warn_of_size(
        "SparseNKNGP",
        model.train_targets.size(-1),
        _USUAL_ROWS,
        "every iteration passes over all of them; use fewer inducing_points, or VariationalNKNGP, "
        "which trains on mini-batches.",
    )
    model.train()
    try:
        if start is not None:
            with torch.no_grad():
                x = model.transform_inputs(model.train_inputs[0])
            learn_on_blocks(
                x,
                model.train_targets,
                model.covar_module.base_kernel,
                model.mean_module,
                model.likelihood,
                restarts=restarts,
                session=session,
            )
        if max_iterations and not session.is_over:
            maximize_bound(model, lambda: bound_loss(model), max_iterations, session)
    finally:
        model.train().eval()  # clears caches of other parameters
    return model


def maximize_bound(
    model: Module, loss: Callable[[], Tensor], iterations: int, session: Session
) -> None:
    """Minimise the negative bound of a model in training mode by L-BFGS."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        return
    flat = FlatParameters(model, loss, end=session.end)
    message = "Interrupted after {} evaluations of the bound; the model keeps the best parameters."
    interruptible = session.interruptible(message=lambda: message.format(flat.evaluations))
    try:
        with session.bar(iterations, "bound") as bar, interruptible:
            lbfgs(flat, iterations, bar.update)
    finally:
        flat.release()


def bound_loss(model: SparseNKNGP) -> Tensor:
    """Return the negative bound minus log priors, summed over outputs, in training mode."""
    value = model.collapsed().bound().sum()
    return -value - log_prior(model, value)


def check_start(start: str | None) -> None:
    """Raise a ValueError unless ``start`` is ``"blocks"`` or ``None``."""
    if start not in ("blocks", None):
        raise ValueError(f"start must be 'blocks' or None, got {start!r}.")
