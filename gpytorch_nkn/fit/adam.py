"""Adam on a vector."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["Adam", "move_by_adam"]

_DECAYS = (0.9, 0.999)
_EPSILON = 1e-8


class Adam:
    """Adam on one tensor, which it moves in place.

    The first use of ``torch.optim`` loads a compiler, which takes a second, and its steps take
    several times as long as these on the vectors of some hundred numbers that are trained here.

    Args:
        values: What is moved.
        decays: Of the means of gradients and of their squares.

    Attributes:
        first: Mean of the gradients.
        second: Mean of their squares.

    Reference: Kingma and Ba (2015), algorithm 1.
    """

    def __init__(self, values: Tensor, decays: tuple[float, float] = _DECAYS):
        self._values, self._decays = values.detach(), decays
        self.first, self.second = torch.zeros_like(self._values), torch.zeros_like(self._values)
        self._scratch = torch.empty_like(self._values)
        self._steps = 0

    @torch.no_grad()
    def step(self, gradient: Tensor, rate: float) -> None:
        """Move the values against their gradient."""
        self._steps += 1
        moments = self.first, self.second, self._scratch
        move_by_adam(self._values, gradient, moments, rate, self._steps, self._decays)


def move_by_adam(
    values: Tensor,
    gradient: Tensor,
    moments: tuple[Tensor, Tensor, Tensor],
    rate: float,
    step: int,
    decays: tuple[float, float] = _DECAYS,
    epsilon: float = _EPSILON,
) -> None:
    """One step in place.

    Args:
        values: What is moved.
        gradient: Its gradient.
        moments: Mean of the gradients and of their squares, and scratch memory, of that shape.
        rate: Learning rate.
        step: Number of this step, from 1 on.
        decays: Of the two means.
        epsilon: What is added to the deviation of a gradient.
    """
    first, second, scratch = moments
    correction = math.sqrt(1 - decays[1] ** step)
    first.lerp_(gradient, 1 - decays[0])
    second.mul_(decays[1]).addcmul_(gradient, gradient, value=1 - decays[1])
    torch.sqrt(second, out=scratch)
    scratch.add_(epsilon * correction)
    values.addcdiv_(first, scratch, value=-rate * correction / (1 - decays[0] ** step))
