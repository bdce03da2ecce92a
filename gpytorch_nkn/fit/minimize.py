"""Adam and L-BFGS-B on all trainable parameters of a model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from gpytorch.module import Module
from scipy import optimize
from torch import Tensor, nn

from gpytorch_nkn.fit.objective import Objective
from gpytorch_nkn.fit.training_loss import TrainingLoss
from gpytorch_nkn.linalg import check_counts, check_flags, check_number

__all__ = ["FlatParameters", "Recipe", "adam", "check_recipe", "lbfgs", "minimize"]

_CONFIRM_EVERY = 100  # number of evaluations between comparisons with autograd
_MAX_FAILURES = 20  # largest number of consecutive evaluations without a finite loss
_DECAYS = (0.9, 0.999)  # Adam's betas
_SHORT_DECAYS = (0.9, 0.99)  # Adam's betas in a recipe
_EPSILON = 1e-8  # Adam's eps


@dataclass(frozen=True)
class Recipe:
    """Optimiser settings: steps of Adam, then iterations of L-BFGS.

    From data-driven starts, Adam nearly always finds the periods of a series, whereas L-BFGS alone
    stops at a poor local optimum. L-BFGS after Adam converges quickly.

    Attributes:
        adam_steps: Steps of Adam; 0 skips it.
        learning_rate: Learning rate of Adam.
        anneal: Decrease the learning rate to zero over the second half.
        lbfgs_iterations: Largest number of L-BFGS iterations; 0 skips it.
    """

    adam_steps: int = 300
    learning_rate: float = 3e-2
    anneal: bool = True
    lbfgs_iterations: int = 60

    def __post_init__(self) -> None:
        check_counts(0, adam_steps=self.adam_steps, lbfgs_iterations=self.lbfgs_iterations)
        check_number("learning_rate", self.learning_rate, positive=True)
        check_flags(anneal=self.anneal)

    @classmethod
    def paper(cls) -> Recipe:
        """Return the paper's settings: Adam with rate 1e-3 for 20,000 steps (appendix J.1)."""
        return cls(adam_steps=20_000, learning_rate=1e-3, anneal=False, lbfgs_iterations=0)

    def rate(self, step: int) -> float:
        """Return the learning rate of a step of Adam, counted from 0."""
        share = 2 * (1 - (step + 1) / (self.adam_steps + 1)) if self.anneal else 1.0
        return self.learning_rate * min(1.0, share)


def check_recipe(recipe: object) -> None:
    """Raise a TypeError unless the argument is a :class:`Recipe` or ``None``."""
    if recipe is not None and not isinstance(recipe, Recipe):
        raise TypeError(f"recipe must be a gpytorch_nkn.fit.Recipe or None, got {recipe!r}.")


class FlatParameters:
    """All trainable parameters of a model in one vector, and the best point so far.

    Until :meth:`release` the parameters are views of the vector. One update of a vector is ten
    times as fast as updates of a hundred small tensors.

    Args:
        model: The model; its trainable parameters must have one dtype and device.
        loss: Scalar loss of the model. ``None`` is the negative log posterior of an exact GP in
            training mode; no autograd is needed if :class:`TrainingLoss` supports the model.
        end: Time of the monotonic clock at which to stop.

    Attributes:
        values, gradients: Parameters, and their gradients as set by :meth:`evaluate`.
        bounds: Lower and upper bounds of raw values that no transform enforces.
        best_loss, best_values: Lowest loss so far (at first infinite), and its parameters.
        evaluations, seconds: Number of evaluations, and wall time of the last one.
        spare: Number of evaluations for which time must remain after the last step.
        trace: Lowest loss so far after each evaluation.
    """

    def __init__(
        self, model: nn.Module, loss: Callable[[], Tensor] | None = None, *, end: float = math.inf
    ):
        self._objective = Objective(model) if loss is None else None
        self._loss: Callable[[], Tensor] = self._objective or loss  # type: ignore[assignment]
        self._module = model
        self.end = end
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        if not self._parameters:
            raise ValueError("The model has no trainable parameters.")
        self.values = torch.cat([p.data.reshape(-1) for p in self._parameters])
        self.gradients = torch.zeros_like(self.values)
        self.bounds = _raw_bounds(model, self.values)
        self.best_loss, self.best_values = math.inf, self.values.clone()
        self.evaluations = 0
        self.seconds = 0.0
        self.trace: list[float] = []
        self.closed_form: TrainingLoss | None = None
        self._confirmed = self.best_loss, self.best_values
        sizes = [p.numel() for p in self._parameters]
        pairs = zip(self.values.split(sizes), self.gradients.split(sizes), strict=True)
        for parameter, (value, gradient) in zip(self._parameters, pairs, strict=True):
            shape = parameter.shape
            parameter.data, parameter.grad = value.view(shape), gradient.view(shape)

    @property
    def has_time(self) -> bool:
        """Whether one more evaluation fits into the remaining time; True before the first one."""
        if self.evaluations == 0:
            return True
        count = 1 if self.closed_form is None else 2  # includes a comparison with autograd
        return time.monotonic() + count * self.seconds < self.end

    def evaluate(self) -> float:
        """Return the loss at the current point; infinity if the loss or gradient is not finite.

        An error in the model (such as a matrix that is not positive definite) counts as an infinite
        loss, so that the optimisers step back. At the first point the error is raised.
        """
        begin = time.monotonic()
        try:
            if self.evaluations and self.evaluations % _CONFIRM_EVERY == 0:
                self._confirm()
            if self.closed_form is None:
                loss = self._differentiate()
            else:
                loss, gradients = self.closed_form()
                self.gradients.copy_(gradients)
        except (ArithmeticError, RuntimeError, ValueError):
            if self.evaluations == 0:
                raise
            loss = math.inf
        self.seconds = time.monotonic() - begin
        if not math.isfinite(loss) or not bool(self.gradients.isfinite().all()):
            loss = math.inf
        self.evaluations += 1
        if loss < self.best_loss:
            self.best_loss, self.best_values = loss, self.values.clone()
        self.trace.append(self.best_loss)
        if self.evaluations == 1:
            self._confirmed = self.best_loss, self.best_values
            if math.isfinite(loss) and begin + 3.5 * self.seconds < self.end:
                self.closed_form = self._find_closed_form(loss)
        return loss

    def _differentiate(self) -> float:
        """Compute the loss by autograd, and its gradient in :attr:`gradients`."""
        self.gradients.zero_()
        with torch.enable_grad():
            loss = self._loss()
            value = loss.item()
            if math.isfinite(value):
                loss.backward()
        return value

    def _find_closed_form(self, loss: float) -> TrainingLoss | None:
        """Return the closed-form loss if the model has one that agrees with autograd.

        Losses and gradients are compared at the current and a perturbed point, because a parameter
        that is zero can hide a difference.
        """
        if self._objective is None or self._objective.adds_loss:
            return None
        here, gradients = self.values.clone(), self.gradients.clone()
        try:
            closed_form = TrainingLoss(self._module, self.values)
            self.values.add_(0.05)
            shifted_loss = self._differentiate()  # before the closed form allocates a matrix
            if not _agree(closed_form(), (shifted_loss, self.gradients)):
                return None
            self.values.copy_(here)
            return closed_form if _agree(closed_form(), (loss, gradients)) else None
        except Exception:  # errors of the model occur again in its evaluations
            return None
        finally:
            self.values.copy_(here)
            self.gradients.copy_(gradients)

    def _confirm(self) -> None:
        """Compare with autograd at the best point, and switch to autograd if the losses differ.

        Losses may differ away from the start, for example where ``forward`` clamps the mean. The
        state then reverts to the last confirmed point, unless the loss by autograd is lower at the
        best point.
        """
        if self.closed_form is None or self._confirmed[1] is self.best_values:
            return
        self.closed_form.release_memory()
        here = self.values.clone()
        self.values.copy_(self.best_values)
        try:
            with torch.no_grad():
                loss = self._loss().item()
        except Exception:  # any error; the best point must not be lost
            loss = math.nan
        tolerance = torch.finfo(here.dtype).eps ** 0.375  # 1e-6 in float64, 3e-3 in float32
        if not math.isclose(loss, self.best_loss, rel_tol=tolerance, abs_tol=tolerance):
            self.closed_form = None
            self.best_loss = loss
            if not loss < self._confirmed[0]:
                self.best_loss, self.best_values = self._confirmed
            here = self.best_values
            self.trace = [max(value, self.best_loss) for value in self.trace]
        self._confirmed = self.best_loss, self.best_values
        self.values.copy_(here)

    def step_sizes(self) -> Tensor | float:
        """Return the size of Adam's steps for each parameter, relative to the learning rate."""
        return 1.0

    def release(self, values: Tensor | None = None) -> None:
        """Set the model to the best point or ``values``, in separate memory for each parameter."""
        try:
            self._confirm()
        finally:
            self.values.copy_(self.best_values if values is None else values)
            for parameter in self._parameters:
                parameter.data = parameter.data.clone()
                parameter.grad = None


def _agree(closed_form: tuple[float, Tensor], autograd: tuple[float, Tensor]) -> bool:
    """Return whether two losses and their gradients are equal up to rounding."""
    tolerance = 1e-5 * autograd[1].abs().max().item()
    same = math.isclose(closed_form[0], autograd[0], rel_tol=1e-6, abs_tol=1e-6)
    return same and torch.allclose(closed_form[1], autograd[1], 1e-5, tolerance)


def _raw_bounds(model: nn.Module, values: Tensor) -> list[Tensor]:
    """Return bounds of trainable raw values; infinite unless a constraint has no transform.

    BoTorch constrains noise and lengthscales without a transform, so that the optimiser must
    enforce the bounds.
    """
    bounds = [torch.full_like(values, end) for end in (-math.inf, math.inf)]
    stop = 0
    constraints = {
        id(parameter): module.constraint_for_parameter_name(name)
        for module in model.modules()
        if isinstance(module, Module)
        for name, parameter in module.named_parameters(recurse=False)
    }
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        start, stop = stop, stop + parameter.numel()
        constraint = constraints.get(id(parameter))
        if constraint is not None and not constraint.enforced:
            ends = (constraint.lower_bound, constraint.upper_bound)
            for bound, end in zip(bounds, ends, strict=True):
                end = torch.as_tensor(end).to(parameter.data).expand_as(parameter)
                bound[start:stop] = end.reshape(-1)
    return bounds


def minimize(flat: FlatParameters, recipe: Recipe, on_step: Callable[[], object]) -> None:
    """Minimise a loss by a recipe and set the parameters to the best point.

    ``on_step`` is called after each step or iteration.

    Raises:
        ArithmeticError: The loss is not finite at the start.
    """
    for _ in adam(flat, recipe.adam_steps, recipe.rate, _SHORT_DECAYS):
        on_step()
    if flat.evaluations:
        flat.values.copy_(flat.best_values)
    if recipe.lbfgs_iterations and flat.has_time:
        lbfgs(flat, recipe.lbfgs_iterations, on_step)


def adam(
    flat: FlatParameters,
    steps: int,
    rate: Callable[[int], float],
    decays: tuple[float, float] = _DECAYS,
) -> Iterator[float]:
    """Take steps of Adam while time remains, and yield the loss before each step.

    If the loss or its gradient is not finite, Adam returns to the last finite point, resets its
    momentum and halves its steps. It stops after 20 consecutive failures. ``rate`` returns the
    learning rate of each step, counted from 0; ``decays`` are Adam's betas.

    Raises:
        ArithmeticError: The loss is not finite at the start.
    """
    optimizer = _Adam(flat, decays)
    good, slope, shrink, failures = None, flat.gradients, 1.0, 0
    step = 0
    while step < steps and flat.has_time:
        loss = flat.evaluate()
        if not math.isfinite(loss):
            if good is None:
                raise ArithmeticError("The loss or its gradient is not finite.")
            failures += 1
            if failures > _MAX_FAILURES:
                return
            flat.values.copy_(good)
            shrink, optimizer = shrink / 2, _Adam(flat, decays)
            optimizer.step(slope, shrink * rate(step - 1))
            continue
        good, slope, failures = flat.values.clone(), flat.gradients.clone(), 0
        optimizer.step(slope, shrink * rate(step))
        step += 1
        yield loss


def lbfgs(flat: FlatParameters, iterations: int, on_step: Callable[[], object]) -> None:
    """Run SciPy's L-BFGS-B and set the parameters to the best point.

    ``on_step`` is called after each iteration; a StopIteration from it ends the minimisation.
    """
    failures = 0

    def evaluate(point: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal failures
        if not flat.has_time:
            raise StopIteration
        flat.values.copy_(torch.from_numpy(point))
        loss = flat.evaluate()
        if math.isfinite(loss):
            failures = 0
            return loss, flat.gradients.double().cpu().numpy().copy()
        failures += 1
        if failures > _MAX_FAILURES or not math.isfinite(flat.best_loss):
            raise StopIteration
        # A high loss with zero gradient makes the line search backtrack; infinity would end it.
        return flat.best_loss + 1e6, np.zeros_like(point)

    with suppress(StopIteration):
        optimize.minimize(
            evaluate,
            flat.values.double().cpu().numpy(),
            jac=True,
            method="L-BFGS-B",
            bounds=optimize.Bounds(*(bound.double().cpu().numpy() for bound in flat.bounds)),
            callback=lambda _: on_step(),
            options={"maxiter": iterations, "maxcor": 20},
        )
    flat.values.copy_(flat.best_values)


class _Adam:
    """Adam on a model's parameters, updated in place within their bounds (Kingma and Ba 2015).

    For a vector of a hundred numbers, a step takes a fraction of ``torch.optim``'s time.
    """

    def __init__(self, flat: FlatParameters, decays: tuple[float, float]):
        self._flat, self._decays = flat, decays
        self._first, self._second, self._scratch = (torch.zeros_like(flat.values) for _ in range(3))
        self._steps = 0

    @torch.no_grad()
    def step(self, gradient: Tensor, rate: float) -> None:
        """Update the parameters by one gradient."""
        self._steps += 1
        short, long = self._decays
        sizes, values = self._flat.step_sizes(), self._flat.values
        gradient = gradient * sizes
        correction = math.sqrt(1 - long**self._steps)
        self._first.lerp_(gradient, 1 - short)
        self._second.mul_(long).addcmul_(gradient, gradient, value=1 - long)
        torch.sqrt(self._second, out=self._scratch)
        self._scratch.add_(_EPSILON * correction)
        size = rate * correction / (1 - short**self._steps)
        values.addcdiv_(self._first * sizes, self._scratch, value=-size)
        torch.clamp(values, *self._flat.bounds, out=values)
