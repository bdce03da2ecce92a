"""Adam, then L-BFGS, on one flat tensor of all parameters."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from gpytorch.models import ExactGP
from scipy.optimize import Bounds, minimize
from torch import Tensor

from gpytorch_nkn.fit.adam import Adam
from gpytorch_nkn.fit.objective import Objective
from gpytorch_nkn.fit.session import check_counts
from gpytorch_nkn.fit.training_loss import TrainingLoss

__all__ = ["FlatParameters", "Recipe", "check_recipe", "has_closed_form", "run_adam", "run_lbfgs"]

_CONFIRM_EVERY = 100  # evaluations
_MAX_FAILURES = 20  # consecutive evaluations without a finite loss


@dataclass(frozen=True)
class Recipe:
    """Steps of Adam, then iterations of L-BFGS.

    Adam first, because from data-driven starts it finds the periods of a series nearly always
    where L-BFGS alone stops in the nearest poor optimum; L-BFGS then converges in few steps.

    Attributes:
        adam_steps: Steps of Adam; 0 skips it.
        learning_rate: Of Adam.
        anneal: Let the learning rate fall to zero over the second half.
        lbfgs_iterations: Largest number of L-BFGS iterations; 0 skips it.
    """

    adam_steps: int = 300
    learning_rate: float = 3e-2
    anneal: bool = True
    lbfgs_iterations: int = 60

    def __post_init__(self) -> None:
        check_counts(None, adam_steps=self.adam_steps, lbfgs_iterations=self.lbfgs_iterations)
        if min(self.adam_steps, self.lbfgs_iterations) < 0 or not 0 < self.learning_rate < math.inf:
            raise ValueError(
                "A recipe needs steps of at least 0 and a positive learning rate, got "
                f"adam_steps={self.adam_steps}, lbfgs_iterations={self.lbfgs_iterations}, "
                f"learning_rate={self.learning_rate}."
            )

    @classmethod
    def paper(cls) -> Recipe:
        """Adam at 1e-3 for 20,000 steps (Sun et al. 2018, appendix J.1)."""
        return cls(adam_steps=20_000, learning_rate=1e-3, anneal=False, lbfgs_iterations=0)


def check_recipe(recipe: object) -> None:
    """Refuse optimiser settings that are no :class:`Recipe`; None is allowed.

    Raises:
        TypeError: They are not.
    """
    if recipe is not None and not isinstance(recipe, Recipe):
        raise TypeError(f"recipe must be a gpytorch_nkn.fit.Recipe or None, got {recipe!r}.")


class FlatParameters:
    """All trainable parameters of a model in one flat tensor, and the best point visited so far.

    While it is in use, the parameters are views of the tensor: an optimiser that moves one flat
    tensor is an order of magnitude cheaper than one that moves a hundred small ones.

    Attributes:
        values: All parameters, one after another.
        gradients: Their gradients, filled by :meth:`evaluate`.
        restart: The restart that each entry belongs to.
        best_loss: Lowest loss of each restart so far ``R``, infinite where none was finite.
        best_values: The parameters at those points.
        bounds: Lower and upper bounds of raw values that no transform enforces.
        evaluations: Evaluations so far.
        seconds: Wall time of the last one.
        spare: How many more of them what comes after the steps takes.
        deadline: Time of the monotonic clock at which all that is to be over.
    """

    def __init__(self, objective: Objective):
        model = objective.model
        self.objective = objective
        self.num_restarts = objective.num_restarts or 1
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        if not self._parameters:
            raise ValueError("The model has no trainable parameters.")
        self.values = torch.cat([p.data.reshape(-1) for p in self._parameters])
        self.gradients = torch.zeros_like(self.values)
        numbers = torch.arange(self.num_restarts, device=self.values.device)
        self.restart = torch.cat(
            [numbers.repeat_interleave(p.numel() // self.num_restarts) for p in self._parameters]
        )
        self.best_loss = self.values.new_full((self.num_restarts,), math.inf)
        self.best_values = self.values.clone()
        self.evaluations = 0
        self.seconds = self.spare = 0.0
        self.deadline = math.inf
        self._trace: list[Tensor] = []
        self.bounds = _raw_bounds(model, self.values)
        offset = 0
        for parameter in self._parameters:
            window = slice(offset, offset + parameter.numel())
            shape = parameter.shape
            parameter.data = self.values[window].view(shape)
            parameter.grad = self.gradients[window].view(shape)
            offset += parameter.numel()
        self._closed_form: TrainingLoss | None = None
        self._confirmed = self.best_loss, self.best_values

    @property
    def has_time(self) -> bool:
        """Whether one more evaluation, and what comes after the steps, ends before the deadline.

        The very first evaluation always has time: without it there is nothing to keep.
        """
        if self.evaluations == 0:
            return True
        more = 1 + self.spare + (self._closed_form is not None)  # which is confirmed in the end
        return time.monotonic() + more * self.seconds < self.deadline

    def evaluate(self) -> Tensor:
        """Losses ``R`` at the present point, infinite where loss or gradient is not finite.

        An error that a model raises (a matrix that is not positive definite in its forward, say)
        counts as an infinite loss, from which the optimisers step back; at the very first point,
        where there is nothing to step back to, it is raised. In the first evaluation several more
        show whether there is a closed form, unless these would not end before the deadline.
        """
        begin = time.monotonic()
        known: Tensor | None = None
        try:
            if self.evaluations == 0:
                self._closed_form, known = self._find_closed_form(self.deadline)
                begin = time.monotonic() if known is None else begin
            elif self.evaluations % _CONFIRM_EVERY == 0:
                self._confirm()
            if known is not None:
                losses = known
            elif self._closed_form is None:
                losses = self._differentiate()
            else:
                loss, gradients = self._closed_form()
                losses = self.best_loss.new_tensor([loss])
                self.gradients.copy_(gradients)
        except (ArithmeticError, RuntimeError, ValueError):
            if self.evaluations == 0:
                raise
            losses = torch.full_like(self.best_loss, math.inf)
        self.evaluations += 1
        self.seconds = time.monotonic() - begin
        losses = self._keep_best(losses)
        self._trace.append(self.best_loss)
        if self.evaluations == 1:  # where the closed form was compared with autograd
            self._confirmed = self.best_loss, self.best_values
        return losses

    def _keep_best(self, losses: Tensor) -> Tensor:
        """The losses, infinite where a gradient is not finite; the best points are kept."""
        if self.num_restarts == 1:  # the common case, in few operations
            loss = losses.item()
            if not math.isfinite(loss) or not bool(self.gradients.isfinite().all()):
                return torch.full_like(losses, math.inf)
            if loss < self.best_loss.item():
                self.best_loss, self.best_values = losses, self.values.clone()
            return losses
        bad = (~self.gradients.isfinite()).to(self.values.dtype)
        finite = torch.zeros_like(self.best_loss).index_add(0, self.restart, bad) == 0
        losses = torch.where(losses.isfinite() & finite, losses, math.inf)
        better = losses < self.best_loss
        self.best_loss = torch.where(better, losses, self.best_loss)
        self.best_values = torch.where(better[self.restart], self.values, self.best_values)
        return losses

    def trace(self) -> np.ndarray:
        """Lowest losses so far after each evaluation, ``T x R``; see :class:`RestartRecord`."""
        if not self._trace:
            return np.empty((0, self.num_restarts))
        return torch.stack(self._trace).double().cpu().numpy()

    def _differentiate(self) -> Tensor:
        """Losses ``R``, with the gradients left in :attr:`gradients`."""
        self.gradients.zero_()
        losses = self.objective()
        losses.masked_fill(~losses.isfinite(), 0.0).sum().backward()
        return losses.detach()

    def find_closed_form(self) -> TrainingLoss | None:
        """The loss without autograd, if the model has one and it agrees with autograd."""
        return self._find_closed_form(math.inf)[0]

    def _find_closed_form(self, deadline: float) -> tuple[TrainingLoss | None, Tensor | None]:
        """The closed form, and the losses at the present point if the time was over after them."""
        if self.objective.num_restarts is not None or self.objective.adds_loss:
            return None, None
        start = self.values.clone()
        try:
            closed_form = TrainingLoss(self.objective.model, self.values)
            # Away from the start too, where zeros may hide something. By autograd first: both
            # ways need the memory of a matrix, and the closed form keeps its own.
            points = [start, start + 0.05]
            expected: list[tuple[float, Tensor]] = []
            begin = time.monotonic()
            for point in points:
                self.values.copy_(point)
                losses = self._differentiate()
                if not expected and self._is_late(begin, deadline) and bool(losses.isfinite()):
                    return None, losses
                expected.append((losses.item(), self.gradients.clone()))
            for point, (loss, gradients) in zip(points, expected, strict=True):
                self.values.copy_(point)
                own_loss, own_gradients = closed_form()
                tolerance = 1e-5 * gradients.abs().max().item()
                same = math.isclose(own_loss, loss, rel_tol=1e-6, abs_tol=1e-6)
                if not same or not torch.allclose(own_gradients, gradients, 1e-5, tolerance):
                    return None, None
        except Exception:  # one of the model comes up again in its first evaluation
            return None, None
        finally:
            self.values.copy_(start)
        return closed_form, None

    def _is_late(self, begin: float, deadline: float) -> bool:
        """Whether a first evaluation by autograd leaves no time for a comparison and a step."""
        now = time.monotonic()
        return now + 2.5 * (now - begin) >= deadline

    def _confirm(self) -> None:
        """Compare with the model's own loss at the best point, and go on by autograd if it differs.

        What a model does in its ``forward`` may depend on where it is (a clamped mean, say). Then
        all goes back to the last point where both agreed.
        """
        if self._closed_form is None or not bool(self.best_loss.isfinite().all()):
            return
        if self._confirmed[1] is self.best_values:  # nothing better since then
            return
        self._closed_form.release_memory()
        here = self.values.clone()
        self.values.copy_(self.best_values)
        try:
            with torch.no_grad():
                loss = self.objective().item()
        except Exception:  # of whatever kind: what was reached so far must not be lost
            loss = math.nan
        if math.isclose(loss, self.best_loss.item(), rel_tol=1e-6, abs_tol=1e-6):
            self._confirmed = self.best_loss, self.best_values
            self.values.copy_(here)
        else:
            self._closed_form = None
            self.best_loss, self.best_values = self._confirmed
            self.values.copy_(self.best_values)
            # the losses since then were not those of the model
            self._trace = [torch.maximum(losses, self.best_loss) for losses in self._trace]

    def release(self) -> None:
        """Leave the model at the best point, with memory of its own and without gradients."""
        try:
            self._confirm()
        finally:
            self._release()

    def _release(self) -> None:
        self.values.copy_(self.best_values)
        for parameter in self._parameters:
            parameter.data = parameter.data.clone()
            parameter.grad = None


def has_closed_form(model: ExactGP) -> bool:
    """Whether a model in training mode is trained without autograd."""
    flat = FlatParameters(Objective(model))
    try:
        return flat.find_closed_form() is not None
    finally:
        flat.release()


def _raw_bounds(model: ExactGP, values: Tensor) -> list[Tensor]:
    """Bounds of trained raw values: infinite unless their constraint has no transform.

    BoTorch constrains noise and lengthscales so, and leaves it to the optimiser to keep to them.
    """
    bounds = [torch.full_like(values, end) for end in (-math.inf, math.inf)]
    stop = 0
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        start, stop = stop, stop + parameter.numel()
        constraint = model.constraint_for_parameter_name(name)
        if constraint is not None and not constraint.enforced:
            ends = (constraint.lower_bound, constraint.upper_bound)
            for bound, end in zip(bounds, ends, strict=True):
                end = torch.as_tensor(end).to(parameter.data).expand_as(parameter)
                bound[start:stop] = end.reshape(-1)
    return bounds


def run_adam(
    flat: FlatParameters,
    *,
    steps: int,
    learning_rate: float,
    anneal: bool,
    deadline: float,
    on_step: Callable[[], object],
) -> None:
    """Move every restart by Adam, and then to the best point that it visited.

    A restart whose loss is not finite goes back to its best point with a clean momentum.
    """
    flat.deadline = deadline
    adam = Adam(flat.values, decays=(0.9, 0.99))
    rate = learning_rate
    failures = torch.zeros_like(flat.best_loss)
    for step in range(steps):
        if not flat.has_time:
            break
        finite = flat.evaluate().isfinite()
        failures = torch.where(finite, 0, failures + 1)
        if bool((failures > _MAX_FAILURES).all()):
            break
        if not bool(finite.all()):
            _step_back(flat, adam, ~finite[flat.restart])
        if anneal:  # constant for the first half, then down to zero in a straight line
            rate = learning_rate * min(1.0, 2 * (1 - (step + 1) / (steps + 1)))
        adam.step(flat.gradients, rate)
        torch.clamp(flat.values, *flat.bounds, out=flat.values)
        on_step()
    flat.values.copy_(flat.best_values)


def _step_back(flat: FlatParameters, adam: Adam, entries: Tensor) -> None:
    flat.values[entries] = flat.best_values[entries]
    flat.gradients[entries] = 0
    adam.first[entries] = 0
    adam.second[entries] = 0


def run_lbfgs(
    flat: FlatParameters, *, iterations: int, deadline: float, on_step: Callable[[], object]
) -> None:
    """Polish one restart by SciPy's L-BFGS-B, and move to the best point that it visited."""
    failures = 0
    flat.deadline = deadline

    def evaluate(point: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal failures
        if not flat.has_time:
            raise StopIteration
        flat.values.copy_(torch.from_numpy(point))
        loss = flat.evaluate().item()
        if math.isfinite(loss):
            failures = 0
            return loss, flat.gradients.double().cpu().numpy().copy()
        failures += 1
        if failures > _MAX_FAILURES or not bool(flat.best_loss.isfinite()):
            raise StopIteration
        # High and flat: the line search backs off, where an infinity would derail it.
        return flat.best_loss.item() + 1e6, np.zeros_like(point)

    def after_iteration(_: np.ndarray) -> None:
        on_step()

    with suppress(StopIteration):
        minimize(
            evaluate,
            flat.values.double().cpu().numpy(),
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(*(bound.double().cpu().numpy() for bound in flat.bounds)),
            callback=after_iteration,
            options={"maxiter": iterations, "maxcor": 20},
        )
    flat.values.copy_(flat.best_values)
