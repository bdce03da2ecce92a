"""Training of a GP of frequency pairs, guarded by rows that are held out."""

from __future__ import annotations

import math
from copy import deepcopy

import torch
from gpytorch.kernels import AdditiveKernel, ScaleKernel
from torch import Tensor

from gpytorch_nkn.fit import Session, check_counts, warn_of_size
from gpytorch_nkn.initialization import assign
from gpytorch_nkn.kernels import NonStationarySpectralKernel
from gpytorch_nkn.models.base_gp import event_dims, trains
from gpytorch_nkn.models.spectral.spectral_gp import SpectralGP
from gpytorch_nkn.models.spectral.spectral_rows import Rows, RowsGP
from gpytorch_nkn.models.spectral.spectral_training import Training, Watch, left_out_density

__all__ = ["best_check", "fit_spectral_gp"]

_START_ROWS = 1000  # on which the RBF kernel is trained at first
_LEFT_OUT, _FEWEST, _MOST = 0.1, 20, 2000  # rows held out where all is of low rank: share, limits
_FOLDS = 3  # of the rows where all is dense
# Of the variance of the RBF kernel, with which pairs start beside it. Where all is dense they take
# few steps, and where it is not they are at their best after many.
_SHARE, _LOW_RANK_SHARE = 0.1, 1.0
_STANDARD_ERRORS = 2.0  # of the gain in held-out density, which pairs must exceed
_INDUCING = 50  # iterations of an RBF kernel and its inducing points
_REFIT = 30  # iterations of an RBF kernel that starts near its best
_USUAL_ROWS = 100_000
_CHECK_EVERY = 10  # steps
_OFF = 1e-8  # outputscale of pairs that do not


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

    Frequencies that are free to fit all rows fit their noise, too. An RBF kernel with a lengthscale
    per column is trained first, the frequencies start from its spectral density, and pairs must
    earn their place.

    Where all is dense both kernels are trained without each third of the rows in turn, by steps of
    Adam, whose number is that after which held-out rows are predicted best. The pairs stay only if
    the gain in log density exceeds two standard errors.

    Beyond, one tenth of the rows (20 to 2000) is held out. L-BFGS trains both kernels on the
    others, and what is kept is what predicts that tenth best, the RBF kernel alone included;
    predictions then use all rows.

    Ctrl-C and the budget end the training; what was reached by then counts. Input transforms that
    learn stay as they are.

    Args:
        model: The model.
        restarts: Starts of the RBF kernel.
        max_iterations: Largest number of iterations of L-BFGS, or of steps of Adam.
        budget: Wall time in seconds.
        seed: Determines every draw; the global random state is left alone.
        progress: Show a progress bar, if standard error is a terminal.

    Returns:
        The same model, in eval mode.

    Raises:
        TypeError: The model is no SpectralGP.
        ValueError: An option has no meaning, or the data are not finite.
        RuntimeError: Every start of the RBF kernel failed.
        KeyboardInterrupt: Ctrl-C came before there was anything better than the start.
    """
    check_counts(0, max_iterations=max_iterations)
    check_counts(1, restarts=restarts)
    session = Session(budget=budget, seed=seed, progress=progress)
    warn_of_size(
        "SpectralGP",
        model.train_targets.size(-1),
        _USUAL_ROWS,
        "every step passes over all of them; fewer num_features or a random part of the rows take "
        "less, and VariationalNKNGP goes by mini-batches.",
    )
    model.train()
    try:
        with torch.inference_mode(False), torch.enable_grad():
            training = Training(model, max_iterations, restarts, session)
            with training.bar:
                dense = isinstance(model.covar_module, AdditiveKernel)
                (_learn_dense if dense else _learn_low_rank)(model, training)
    finally:
        model.train().eval()  # forgets what was computed with other parameters
    return model


def _learn_low_rank(model: SpectralGP, training: Training) -> None:
    """Pairs that start from an RBF kernel of some rows, and stop by those that are left out."""
    rows, pairs = training.rows, model.spectral_kernel
    mean, likelihood = model.mean_module, model.likelihood
    count = len(rows)
    num_left = min(max(round(_LEFT_OUT * count), _FEWEST), _MOST, count // 2)  # none of one row
    order = torch.arange(count, device=rows.y.device)
    left, kept = rows[order[:num_left]], rows[order[num_left:]]
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
    points = [p for p in points if p.requires_grad]  # which have been trained by now
    for parameter in points:
        parameter.requires_grad_(False)
    gp = RowsGP(kept, model.covar_module, mean, likelihood)
    watch = Watch(gp, left) if num_left else None  # starts with the RBF kernel
    if rbf is not None:
        _start(pairs, kernel, _LOW_RANK_SHARE)
    try:
        with training.session.interruptible(message="Interrupted; the pairs are not trained."):
            training.maximize(gp, training.max_iterations, watch)
            return
        _start(pairs, kernel, 1.0 if rbf is None else _OFF)  # it was before the first step
    finally:
        for parameter in points:
            parameter.requires_grad_(True)


def _learn_dense(model: SpectralGP, training: Training) -> None:
    """An RBF kernel, and pairs beside it for outputs whose held-out rows they predict better."""
    rows, rbf, kernel = training.rows, model.rbf_kernel, model.spectral_kernel
    assert rbf is not None
    mean, likelihood = model.mean_module, model.likelihood
    few = rows[torch.arange(min(_START_ROWS, len(rows)), device=rows.y.device)]
    training.learn_rbf(few, rbf, mean, likelihood)
    _start(kernel, rbf, _OFF)  # until they have earned it
    # the RBF kernel is there
    with training.session.interruptible(
        message="Interrupted; the model is that of its RBF kernel."
    ):
        if len(few) < len(rows) and not training.session.is_over:
            training.maximize(RowsGP(rows, rbf, mean, likelihood), _REFIT)
            _start(kernel, rbf, _OFF)
        steps = _steps_by_folds(model, training)
        parts = (model.covar_module, mean, likelihood)
        for number in steps.unique().tolist():  # outputs whose pairs take as many steps
            if number == 0 or training.session.is_over:
                continue
            trained = tuple(deepcopy(part) for part in parts)
            _start(trained[0].kernels[1], trained[0].kernels[0], _SHARE)
            training.descend(RowsGP(rows, *trained), number)
            for part, own in zip(parts, trained, strict=True):
                _copy_elements(part, own, steps == number)


def _steps_by_folds(model: SpectralGP, training: Training) -> Tensor:
    """Steps ``...`` after which pairs predict held-out rows best, 0 where they do not at all."""
    rows, shape = training.rows, model.spectral_kernel.batch_shape
    none = torch.zeros(shape, dtype=torch.long, device=rows.y.device)
    count = training.max_iterations // _CHECK_EVERY
    if len(rows) < _FEWEST or count == 0:
        return none
    position = torch.arange(len(rows), device=rows.y.device)
    gains = []  # of each fold, checks x ... x rows
    for fold in range(_FOLDS):
        if training.session.is_over:
            return none
        left, kept = rows[position % _FOLDS == fold], rows[position % _FOLDS != fold]
        parts = (model.covar_module, model.mean_module, model.likelihood)
        covariance, mean, likelihood = (deepcopy(part) for part in parts)
        assert isinstance(covariance, AdditiveKernel)
        alone, pairs = covariance.kernels
        rbf = RowsGP(kept, alone, mean, likelihood)
        training.maximize(rbf, _REFIT)
        if training.session.is_over:
            return none
        before = left_out_density(rbf, left)
        _start(pairs, alone, _SHARE)
        both = RowsGP(kept, covariance, mean, likelihood)
        found = before.new_full((count, *before.shape), -math.inf)

        def check(step: int, gp: RowsGP = both, left: Rows = left, to: Tensor = found) -> None:
            if step % _CHECK_EVERY == 0:
                to[step // _CHECK_EVERY - 1] = left_out_density(gp, left)

        training.descend(both, training.max_iterations, check)
        if training.session.is_over:
            return none
        gains.append(found - before)
    return _CHECK_EVERY * best_check(torch.cat(gains, -1))


def best_check(gain: Tensor) -> Tensor:
    """Number ``...`` of the check with the largest mean of gains ``checks x ... x rows``.

    It is 0 where that gain is within two standard errors.
    """
    mean_gain, best = gain.mean(-1).nan_to_num(-math.inf).max(0)
    at_best = gain.gather(0, best[None, ..., None].expand(1, *gain.shape[1:])).squeeze(0)
    error = at_best.std(-1) / math.sqrt(at_best.size(-1))
    return torch.where(mean_gain > _STANDARD_ERRORS * error, best + 1, 0)


def _start(kernel: NonStationarySpectralKernel, rbf: ScaleKernel, share: float) -> None:
    """Let pairs start as random Fourier features of an RBF kernel; what is frozen stays."""
    with torch.no_grad():
        if kernel.raw_lengthscale.requires_grad:
            assign(kernel, "lengthscale", rbf.base_kernel.lengthscale.clone())
        if kernel.raw_outputscale.requires_grad:
            assign(kernel, "outputscale", share * rbf.outputscale)


def _copy_elements(module: torch.nn.Module, other: torch.nn.Module, elements: Tensor) -> None:
    """Set some elements of the batch of all parameters to those of another module.

    What the elements share is taken as a whole.
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
