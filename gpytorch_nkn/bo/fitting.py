"""Training of a model in a Bayesian optimisation loop."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from botorch.models.model import Model, ModelList
from gpytorch.means import ConstantMean
from gpytorch.models import ExactGP
from torch import nn

from gpytorch_nkn.fit import Recipe, Session, check_counts, check_model, fit_best_of, warn_user
from gpytorch_nkn.initialization import initialize_model

__all__ = ["fit_bo_model"]

M = TypeVar("M", bound=Model)


def fit_bo_model(
    model: M,
    *,
    fresh_starts: int = 2,
    max_iterations: int = 75,
    budget: float | None = None,
    seed: int = 0,
    progress: bool = True,
) -> M:
    """Train a BoTorch model in place, from its current parameters and from fresh starts.

    From each start, L-BFGS maximises the posterior of the parameters (or, without priors, the
    likelihood); the best result is kept. Fresh starts take most of the time. They let the model
    abandon a structure that the first points suggested. In a loop, load the ``state_dict`` of the
    last model first. Outputs without shared parameters are trained separately. A model of a list
    remains unchanged if all of its parameters are frozen.

    Args:
        model: An exact GP with a Gaussian likelihood, such as
            :class:`gpytorch_nkn.models.NKNSingleTaskGP` or SingleTaskGP, or a ModelListGP of them.
        fresh_starts: Number of additional starts, see
            :func:`gpytorch_nkn.initialization.initialize_model`. For networks of convex
            combinations (structure ``"optimization"``), starts alternate between a sum of
            one-dimensional kernels and one kernel over all inputs (``"pairs"``: products of sums).
        max_iterations: Largest number of L-BFGS iterations of each start.
        budget: Wall time in seconds, after which training stops with the best parameters.
        seed: Determines the fresh starts, independently of the global random state.
        progress: Show a progress bar if standard error is a terminal.

    Returns:
        The same model, in eval mode. Failed starts give a warning.

    Raises:
        TypeError: The model is an ensemble, or neither an exact GP with a Gaussian likelihood nor
            a list of such models. A number is not an integer.
        ValueError: The models of a list share parameters, the data are not finite or require
            gradients, or an option is invalid.
        RuntimeError: All starts failed.
        KeyboardInterrupt: Ctrl-C was pressed before the first step. A later Ctrl-C ends the
            training with the best parameters so far.
    """
    check_counts(0, fresh_starts=fresh_starts)
    check_counts(1, max_iterations=max_iterations)
    for member in _members(model):
        _check(member)
    _check_disjoint(_members(model))
    session = Session(budget=budget, seed=seed, progress=progress)
    units = [(m, output) for m in _members(model) for output in enumerate(_output_models(m))]
    trained = [u for u in units if any(p.requires_grad for p in u[0].parameters())]
    units = trained or units  # without any trainable parameter, training raises an error
    for position, (member, (number, output)) in enumerate(units):
        # Ctrl-C before the first unit is trained raises KeyboardInterrupt
        with session.interruptible(lambda position=position: position):  # type: ignore[misc]
            result = fit_best_of(
                output,
                restarts=1 + fresh_starts,
                initialize=_fresh_start,
                recipe=Recipe(adam_steps=0, lbfgs_iterations=max_iterations),
                budget=session.part(1 / (len(units) - position)),
                seed=seed,
                progress=progress,
            )
        if session.interrupted:
            break
        for record in result.restarts:
            if record.failed and "interrupted" not in record.status:
                warn_user(f"Start {record.number} {record.status}", RuntimeWarning)
        if output is not member:
            fitted = dict(output.named_parameters())
            for name, parameter in member.named_parameters():
                parameter.data[number] = fitted[name].data
        if result.interrupted:
            break
    _clear_caches(model)
    return model.eval()


def _check(model: Any) -> None:
    name = type(model).__name__
    if getattr(type(model), "_is_ensemble", False):  # loo_cv sets it on instances
        raise TypeError(f"model must not be an ensemble, got {name}: fit_gpytorch_mll trains it.")
    if not hasattr(model, "covar_module"):
        raise TypeError(f"model must have a covar_module, got {name}.")
    check_model(model)


def _check_disjoint(models: list[ExactGP]) -> None:
    owners = [{id(parameter) for parameter in model.parameters()} for model in models]
    if sum(map(len, owners)) > len(set().union(*owners)):
        raise ValueError(
            "The models of a list must not share parameters: give each model its own kernel."
        )


def _members(model: nn.Module) -> list[Any]:
    """Return the models of a list of models, or the model itself."""
    if not isinstance(model, ModelList):
        return [model]
    return [member for child in model.models for member in _members(child)]


def _clear_caches(model: nn.Module) -> None:
    """Clear caches of models in eval mode: factorisations and transformed inputs."""
    for member in _members(model):
        mode = member.training
        member.train().train(mode)


def _fresh_start(model: ExactGP, seed: int, number: int) -> None:
    """Set start values of a model in training mode; start 0 keeps the model's parameters."""
    if number == 0:
        return
    initialize_model(model, seed=seed, restart=number)
    mean: Any = getattr(model, "mean_module", None)
    free = type(mean) is ConstantMean and not hasattr(mean, "raw_constant_constraint")
    if free and mean.raw_constant.requires_grad:
        shape = mean.raw_constant.shape
        targets = model.train_targets.mean(-1)
        targets = targets.expand(torch.broadcast_shapes(targets.shape, shape))
        # a constant shared by outputs starts at the mean over all outputs
        mean.constant = targets.sum_to_size(shape) * (shape.numel() / targets.numel())


def _output_models(model: Model) -> list[ExactGP]:
    """Return one model per output, or the model itself if outputs share parameters."""
    count = getattr(model, "_num_outputs", 1)
    if count == 1 or getattr(model, "_aug_batch_shape", None) != torch.Size([count]):
        return [model]
    mode = model.training
    model.train()  # reverts the input transform
    try:
        parts = [model.subset_output([number]) for number in range(count)]
    except (NotImplementedError, IndexError, RuntimeError):
        return [model]  # the model cannot be split into outputs
    finally:
        model.train(mode)
    exact: Any = model
    shapes = [getattr(prior, "batch_shape", ()) for _, _, prior, *_ in exact.named_priors()]
    if any(shape[:1] == (count,) for shape in shapes):
        return [model]  # one prior has an entry per output
    for part in parts:
        parameters = dict(part.named_parameters())
        for name, parameter in model.named_parameters():
            if parameter.shape != (count, *parameters[name].shape):
                return [model]
    return parts
