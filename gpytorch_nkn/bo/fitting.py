"""Training of a model again and again while its data grow."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from botorch.models.model import Model, ModelList
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean
from gpytorch.models import ExactGP
from torch import nn

from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.fit.objective import check_model
from gpytorch_nkn.initialization import initialize_model, start_from_structure
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.evaluation import unwrap_scales
from gpytorch_nkn.layers import Linear

__all__ = ["fit_bo_model", "warm_start"]

M = TypeVar("M", bound=Model)

_STRUCTURES = ("additive", "joint")


def fit_bo_model(
    model: M,
    *,
    previous: Model | None = None,
    fresh_starts: int = 2,
    max_iterations: int = 75,
    seed: int = 0,
    progress: bool = False,
) -> M:
    """Train a BoTorch model from the parameters of the last one and from fresh starts, in place.

    Every start maximises the posterior of the parameters (the likelihood for a model without
    priors) by few iterations of L-BFGS, and the best one is kept: the warm start saves most of
    the work while the data grow point by point, the fresh ones keep the model from staying with
    a structure that the first points suggested. Outputs that share no parameter are trained one
    by one, each with a best start of its own.

    Args:
        model: An exact GP with a Gaussian likelihood: :class:`gpytorch_nkn.models.NKNSingleTaskGP`,
            or any other one, SingleTaskGP included; or a ModelListGP of such models.
        previous: The model of the iteration before, with fewer data and the same structure, from
            which the first start takes its parameters; ``None`` starts from those that the model
            has.
        fresh_starts: Further starts. For a network of convex combinations (the structure
            ``"optimization"``) they are in turn near a sum of one-dimensional kernels and near
            the kernel over all columns; for other kernels they come from the data, see
            :func:`gpytorch_nkn.initialization.initialize_model`.
        max_iterations: L-BFGS iterations of each start.
        seed: Determines the fresh starts; the global random state is left alone.
        progress: Show a progress bar, if standard error is a terminal.

    Returns:
        The same model, in eval mode.

    Raises:
        TypeError: The model is not an exact GP with a Gaussian likelihood, or no list of such.
        ValueError: ``previous`` has another structure, the data are not finite, or an option has
            no meaning.
        RuntimeError: Every start failed.
        KeyboardInterrupt: Ctrl-C came before any start had taken a step; later it ends the
            training with the best parameters so far.
    """
    if fresh_starts < 0 or max_iterations < 1 or seed < 0:
        raise ValueError(
            "fresh_starts must be at least 0, max_iterations at least 1 and seed at least 0, got "
            f"{fresh_starts}, {max_iterations} and {seed}."
        )
    for whole in _members(model):
        check_model(whole)
    if previous is not None:
        warm_start(model, previous)
    units = [(whole, part) for whole in _members(model) for part in enumerate(_outputs(whole))]
    for position, (whole, (number, part)) in enumerate(units):
        try:
            result = fit_best_of(
                part,
                restarts=1 + fresh_starts,
                initialize=_start,
                recipe=Recipe(adam_steps=0, lbfgs_iterations=max_iterations),
                seed=seed,
                progress=progress,
            )
        except KeyboardInterrupt:
            if position == 0:
                raise
            break
        if part is not whole:
            fitted = dict(part.named_parameters())
            for name, parameter in whole.named_parameters():
                parameter.data[number] = fitted[name].data
        if any("interrupted" in record.status for record in result.restarts):
            break
    _forget_predictions(model)
    return model.eval()


def warm_start(new_model: M, old_model: Model) -> M:
    """Give a model the parameters of another one of the same structure, in place.

    Parameters of the kernel, the mean, the noise and learned transforms are copied; those that
    the new model keeps fixed are left as they are. Constants of the transforms (means and ranges
    of the data) stay those of the new model: with standardised outcomes parameters keep their
    meaning while data are added.

    Args:
        new_model: A model, or a list of models.
        old_model: One with the same parameters, in the same shapes.

    Returns:
        The new model.

    Raises:
        ValueError: A parameter of the new model is not in the old one, or in another shape.
    """
    _check_same_structure(new_model, old_model)
    old = dict(old_model.named_parameters())
    for name, parameter in new_model.named_parameters():
        if parameter.requires_grad:
            parameter.data.copy_(old[name].data)
    _forget_predictions(new_model)
    return new_model


def _check_same_structure(new_model: Model, old_model: Model) -> None:
    old = {name: tuple(p.shape) for name, p in old_model.named_parameters()}
    new = {name: tuple(p.shape) for name, p in new_model.named_parameters() if p.requires_grad}
    wrong = [name for name, shape in new.items() if old.get(name) != shape]
    if wrong:
        raise ValueError(
            "The old model must have the parameters of the new one, in the same shapes; "
            + "; ".join(f"{name}: {new[name]} and {old.get(name, 'none')}" for name in wrong[:5])
            + (f"; and {len(wrong) - 5} more." if len(wrong) > 5 else ".")
        )


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


def _start(model: ExactGP, seed: int, number: int) -> None:
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
    network, _ = unwrap_scales(model.covar_module)
    if _is_convex(network):
        structure = _STRUCTURES[(number - 1) % len(_STRUCTURES)]
        start_from_structure(network, structure, seed=seed * 1_000_003 + number)


def _is_convex(kernel: Kernel) -> bool:
    if not isinstance(kernel, NeuralKernelNetwork) or not kernel.skip:
        return False
    return all(layer.is_simplex for layer in kernel.layers if isinstance(layer, Linear))


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
