"""Training of a model again and again while its data grow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from botorch.models.model import Model, ModelList
from gpytorch.means import ConstantMean
from gpytorch.models import ExactGP
from torch import Tensor, nn

from gpytorch_nkn.fit import (
    FitResult,
    Recipe,
    Session,
    check_counts,
    check_model,
    fit_best_of,
    warn_user,
)
from gpytorch_nkn.initialization import (
    STARTS,
    initialize_model,
    is_convex,
    start_from_structure,
)
from gpytorch_nkn.kernels import InputWarpKernel
from gpytorch_nkn.kernels.evaluation import unwrap_scales

__all__ = ["fit_bo_model", "warm_start"]

M = TypeVar("M", bound=Model)


def fit_bo_model(
    model: M,
    *,
    previous: Model | Mapping[str, Tensor] | None = None,
    fresh_starts: int = 2,
    max_iterations: int = 75,
    budget: float | None = None,
    seed: int = 0,
    progress: bool = True,
) -> M:
    """Train a BoTorch model from the parameters of the last one and from fresh starts, in place.

    Every start maximises the posterior of the parameters (the likelihood for a model without
    priors) by few iterations of L-BFGS, and the best one is kept. While the data grow point by
    point that is most often the warm start. The fresh ones keep the model from staying with a
    structure that the first points suggested; they take most of the time, and
    ``fresh_starts=0`` does without them. Outputs that share no parameter are trained one
    by one, each with a best start of its own.

    Args:
        model: An exact GP with a Gaussian likelihood: :class:`gpytorch_nkn.models.NKNSingleTaskGP`,
            or any other one, SingleTaskGP included; or a ModelListGP of such models.
        previous: The model of the iteration before, with fewer data and the same structure (or
            its ``state_dict``), from which the first start takes its parameters; ``None`` starts
            from those that the model has.
        fresh_starts: Further starts. For a network of convex combinations (the structure
            ``"optimization"``) they are in turn near a sum of one-dimensional kernels and near
            the kernel over all columns (``"pairs"``: products of sums); for other kernels they
            come from the data, see
            :func:`gpytorch_nkn.initialization.initialize_model`.
        max_iterations: L-BFGS iterations of each start.
        budget: Wall time in seconds; what was reached by then counts.
        seed: Determines the fresh starts; the global random state is left alone.
        progress: Show a progress bar, if standard error is a terminal.

    Returns:
        The same model, in eval mode. A start that failed while others did not is warned about.

    Raises:
        TypeError: The model is not an exact GP with a Gaussian likelihood, or no list of such, or
            a number is not an integer.
        ValueError: ``previous`` has another structure, the data are not finite or are fantasies,
            or an option has no meaning.
        RuntimeError: Every start failed.
        KeyboardInterrupt: Ctrl-C came before any start had taken a step; later it ends the
            training with the best parameters so far.
    """
    check_counts(0, fresh_starts=fresh_starts, seed=seed)
    check_counts(1, max_iterations=max_iterations)
    for whole in _members(model):
        _check(whole)
    _check_apart(_members(model))
    if previous is not None:
        warm_start(model, previous)
    units = [(whole, part) for whole in _members(model) for part in enumerate(_outputs(whole))]
    session = Session(budget=budget, seed=seed, progress=progress)
    for position, (whole, (number, part)) in enumerate(units):
        with torch.enable_grad(), session.interruptible(lambda position=position: position):  # type: ignore[misc]
            result = fit_best_of(
                part,
                restarts=1 + fresh_starts,
                initialize=_fresh_start,
                recipe=Recipe(adam_steps=0, lbfgs_iterations=max_iterations),
                budget=session.part(1 / (len(units) - position)),
                seed=seed,
                progress=progress,
            )
        if session.interrupted:
            break
        _tell_failures(result)
        if part is not whole:
            fitted = dict(part.named_parameters())
            for name, parameter in whole.named_parameters():
                parameter.data[number] = fitted[name].data
        if result.interrupted:
            break
    _forget_predictions(model)
    return model.eval()


def warm_start(new_model: M, old_model: Model | Mapping[str, Tensor]) -> M:
    """Give a model the parameters of another one of the same structure, in place.

    Parameters of the kernel, the mean, the noise and learned transforms are copied; those that
    the new model keeps fixed are left as they are. Constants of the transforms (means and ranges
    of the data) stay those of the new model: with standardised outcomes parameters keep their
    meaning while data are added.

    Args:
        new_model: A model, or a list of models.
        old_model: One with the same parameters, in the same shapes, or its ``state_dict``.

    Returns:
        The new model.

    Raises:
        ValueError: A parameter of the new model is not in the old one, or in another shape.
    """
    old = _check_same_structure(new_model, old_model)
    for name, parameter in new_model.named_parameters():
        if parameter.requires_grad:
            parameter.data.copy_(old[name].data)
    _forget_predictions(new_model)
    return new_model


def _check(model: Any) -> None:
    if not isinstance(model, ExactGP):
        raise TypeError(
            f"fit_bo_model needs exact GPs with a Gaussian likelihood, got {type(model).__name__}."
        )
    if getattr(type(model), "_is_ensemble", False):  # BoTorch's loo_cv has users set it on models
        raise TypeError(
            f"{type(model).__name__} is an ensemble, which has a trainer of its own that "
            "fit_gpytorch_mll calls (fit_structure_ensemble_gp)."
        )
    data = () if model.train_inputs is None else (*model.train_inputs, model.train_targets)
    if any(part.requires_grad for part in data):
        raise ValueError(
            "The training data are differentiable, as those of fantasies are: train the model that "
            "they come from, or make one of detached data."
        )
    check_model(model)


def _check_apart(models: list[ExactGP]) -> None:
    owners = [{id(parameter) for parameter in model.parameters()} for model in models]
    if sum(map(len, owners)) > len(set().union(*owners)):
        raise ValueError(
            "The models of the list share parameters, and each would train them for itself: give "
            "every model a kernel of its own."
        )


def _tell_failures(result: FitResult) -> None:
    """Warn of the starts that failed while others did not."""
    failed = [record for record in result.restarts if record.failed]
    for record in failed:
        if "interrupted" not in record.status:
            warn_user(f"Start {record.number} {record.status}", RuntimeWarning)


def _check_same_structure(
    new_model: Model, old_model: Model | Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The parameters of the old model, by name."""
    old: dict[str, Tensor] = (
        dict(old_model) if isinstance(old_model, Mapping) else dict(old_model.named_parameters())
    )
    new = {name: p for name, p in new_model.named_parameters() if p.requires_grad}
    wrong = [
        f"{name} is {tuple(p.shape)} in the new model and "
        + (f"{tuple(old[name].shape)} in the old one" if name in old else "missing in the old one")
        for name, p in new.items()
        if name not in old or old[name].shape != p.shape
    ]
    if wrong:
        more = f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise ValueError(
            "The old model must be of the same kind, with the same structure and the same number "
            f"of input columns: {'; '.join(wrong[:5])}{more}."
        )
    return old


def _members(model: nn.Module) -> list[Any]:
    """The models in a list of models; the model itself if it is none."""
    if not isinstance(model, ModelList):
        return [model]
    return [member for part in model.models for member in _members(part)]


def _forget_predictions(model: nn.Module) -> None:
    """Drop what models in eval mode keep: factorisations, and inputs that were transformed."""
    for member in _members(model):
        mode = member.training
        member.train().train(mode)


def _fresh_start(model: ExactGP, seed: int, number: int) -> None:
    """Start values of a model in training mode: its own for number 0, then fresh ones."""
    if number == 0:
        return
    initialize_model(model, seed=seed, restart=number)
    mean: Any = getattr(model, "mean_module", None)
    free = type(mean) is ConstantMean and not hasattr(mean, "raw_constant_constraint")
    if free and mean.raw_constant.requires_grad:
        shape = mean.raw_constant.shape
        targets = model.train_targets.mean(-1)
        targets = targets.expand(torch.broadcast_shapes(targets.shape, shape))
        # outputs that share a constant start from the mean over all of them
        mean.constant = targets.sum_to_size(shape) * (shape.numel() / targets.numel())
    kernel = model.covar_module
    bent = isinstance(kernel, InputWarpKernel)
    network, _ = unwrap_scales(kernel.base_kernel if bent else kernel)
    if is_convex(network):
        near = STARTS[(number - 1) % len(STARTS)]
        start_from_structure(network, near, seed=seed * 1_000_003 + number)


def _outputs(model: Model) -> list[ExactGP]:
    """Models of single outputs that share no parameter, or the model itself."""
    count = getattr(model, "_num_outputs", 1)
    if count == 1 or getattr(model, "_aug_batch_shape", None) != torch.Size([count]):
        return [model]
    mode = model.training
    model.train()  # inputs as they were given: transforms come again in training
    try:
        parts = [model.subset_output([number]) for number in range(count)]
    except (NotImplementedError, IndexError, RuntimeError):
        return [model]  # it does not know how its parts depend on the outputs
    finally:
        model.train(mode)
    for part in parts:
        own = dict(part.named_parameters())
        for name, parameter in model.named_parameters():
            if parameter.shape != (count, *own[name].shape):
                return [model]
    return parts
