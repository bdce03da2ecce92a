"""Adam and stochastic gradient descent on a vector of parameters, in groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gpytorch_nkn.fit import move_by_adam

__all__ = ["OPTIMIZERS", "AdamDescent", "Momentum", "Optimizer"]

_PIECE = 2**16  # parameters at a time on a CPU, which its second-level cache holds
_MOMENTUM = 0.9


class _Piece(NamedTuple):
    """Part of the vectors that is moved at one rate; the last three are an optimiser's own."""

    group: int
    values: Tensor
    gradient: Tensor
    first: Tensor
    second: Tensor
    scratch: Tensor


class Optimizer:
    """Moves a vector of parameters, in groups with rates of their own.

    Args:
        values: The vector; only the groups are moved.
        gradient: Its gradient, which the caller overwrites before each step.
        groups: Windows of the vector.
        epsilon: What Adam adds to the deviation of a gradient; others do without.

    Attributes:
        steps: Number of steps so far.
        moments: What is remembered between steps.
        reach: How far a lasting gradient moves a parameter, in units of the learning rate times
            the gradient: the step size that a proximal step has to match.
    """

    num_moments = 0
    reach = 1.0

    def __init__(
        self, values: Tensor, gradient: Tensor, groups: Sequence[slice], epsilon: float = 1e-8
    ):
        self.steps = 0
        self.epsilon = epsilon
        self.moments = [torch.zeros_like(gradient) for _ in range(self.num_moments)]
        self._groups = list(groups)
        self.bind(values, gradient)

    def bind(self, values: Tensor, gradient: Tensor) -> None:
        """Use other vectors of the same shape from now on."""
        self.moments = [part.to(values) for part in self.moments]
        size = _PIECE if values.device.type == "cpu" else len(values)
        scratch = torch.empty_like(values[:size])
        parts = [values, gradient, *self.moments, *[gradient] * (2 - self.num_moments)]
        self._pieces = []
        for number, group in enumerate(self._groups):
            for start in range(group.start, group.stop, size):
                window = slice(start, min(start + size, group.stop))
                value, slope, first, second = (part[window] for part in parts)
                spare = scratch[: window.stop - window.start]
                self._pieces.append(_Piece(number, value, slope, first, second, spare))

    def unbind(self) -> None:
        """Keep the moments alone."""
        self._pieces = []

    def __getstate__(self) -> dict:
        """What is remembered, on the host."""
        moments = [part.cpu() for part in self.moments]
        return self.__dict__ | {"moments": moments, "_pieces": []}

    def step(self, rates: Sequence[float]) -> None:
        """Move every group against its gradient.

        Args:
            rates: Learning rate of each group.
        """
        raise NotImplementedError


class AdamDescent(Optimizer):
    """Adam. Its step is in units of the gradient's deviation and so matches no proximal step.

    As in the paper's experiments, that one takes the learning rate as it is.
    """

    num_moments = 2

    def step(self, rates: Sequence[float]) -> None:
        """Move every group by its mean gradient in units of its deviation."""
        self.steps += 1
        for piece in self._pieces:
            moments = piece.first, piece.second, piece.scratch
            rate = rates[piece.group]
            move_by_adam(
                piece.values, piece.gradient, moments, rate, self.steps, epsilon=self.epsilon
            )


class Momentum(Optimizer):
    """Stochastic gradient descent with Nesterov's momentum.

    Reference: Sutskever et al. (2013), On the importance of initialization and momentum.
    """

    num_moments = 1
    reach = 1 / (1 - _MOMENTUM)

    def step(self, rates: Sequence[float]) -> None:
        """Move every group by its gradient and by what is left of earlier moves."""
        self.steps += 1
        for group, values, gradient, velocity, _, _ in self._pieces:
            velocity.mul_(_MOMENTUM).add_(gradient)
            values.add_(gradient, alpha=-rates[group])
            values.add_(velocity, alpha=-_MOMENTUM * rates[group])


OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": AdamDescent, "sgd": Momentum}
