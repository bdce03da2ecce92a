"""Evaluation of any network by tiles, each differentiated by autograd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from gpytorch_nkn.linalg import Scratch, TileEvaluator

__all__ = ["AutogradEvaluator", "with_parameters"]

Module = TypeVar("Module", bound=nn.Module)


class AutogradEvaluator(TileEvaluator):
    """A network on inputs ``N x D`` and ``M x D``, tiles of which it computes itself.

    ``needed`` says which gradients are wanted, in the order in which they come: of ``x1``, of
    ``x2`` unless the matrix is symmetric (one tensor), of each parameter.
    """

    cpu_entries = 65_536  # the calls of the kernels cost more than a cache that is missed

    def __init__(
        self,
        network: Kernel,
        parameters: Sequence[Tensor],
        x1: Tensor,
        x2: Tensor,
        needed: Sequence[bool],
    ):
        # GPyTorch changes a kernel for a moment while it evaluates it: no threads.
        super().__init__(x1.size(0), x2.size(0), x1 is x2, x1, threads=False)
        needs = needed[len(needed) - len(parameters) :]
        self._parameters = [
            parameter.detach().requires_grad_(need)
            for parameter, need in zip(parameters, needs, strict=True)
        ]
        self._values = with_parameters(network, self._parameters).plain_values
        self._x1, self._x2 = x1, x2
        self._needed = list(needed)

    def tile_values(self, rows: slice, columns: slice, scratch: Scratch) -> Tensor:
        """Values of one tile."""
        with torch.no_grad():
            return self._values(self._x1[rows], self._x2[columns])

    def zero_gradients(self) -> list[Tensor | None]:
        """Zeros to which the gradients of tiles are added."""
        inputs = [self._x1] if self.symmetric else [self._x1, self._x2]
        tensors = [*inputs, *self._parameters]
        return [
            torch.zeros_like(tensor) if need else None
            for tensor, need in zip(tensors, self._needed, strict=True)
        ]

    def add_tile_gradients(
        self,
        rows: slice,
        columns: slice,
        weights: Tensor,
        total: list[Tensor | None],
        scratch: Scratch,
    ) -> None:
        """Add the gradients of one tile."""
        num_inputs = 1 if self.symmetric else 2
        of_x1, of_x2, of_parameters = total[0], total[num_inputs - 1], total[num_inputs:]
        x1 = self._x1[rows].detach().requires_grad_(of_x1 is not None)
        x2 = self._x2[columns].detach().requires_grad_(of_x2 is not None)
        sources = [x1, x2, *self._parameters]
        targets = [
            None if of_x1 is None else of_x1[rows],
            None if of_x2 is None else of_x2[columns],
            *of_parameters,
        ]
        wanted = [(s, t) for s, t in zip(sources, targets, strict=True) if t is not None]
        with torch.enable_grad():
            value = self._values(x1, x2)
            found = torch.autograd.grad(
                value, [source for source, _ in wanted], weights, allow_unused=True
            )
        for (_, target), gradient in zip(wanted, found, strict=True):
            if gradient is not None:
                target += gradient


def with_parameters(module: Module, parameters: Sequence[Tensor]) -> Module:
    """A module that is the same but for other tensors in the place of its parameters.

    The module itself stays as it is, where :func:`torch.func.functional_call` would change it
    for a moment, in which another thread may use it.
    """
    given = dict(zip(map(id, module.parameters()), parameters, strict=True))
    return _replica(module, given, {})


def _replica(module: Module, given: dict[int, Tensor], done: dict[int, nn.Module]) -> Module:
    if id(module) not in done:
        replica = done[id(module)] = module.__new__(type(module))
        replica.__dict__ = module.__dict__.copy()
        replica._parameters = {
            name: None if parameter is None else given[id(parameter)]  # type: ignore[misc]
            for name, parameter in module._parameters.items()
        }
        replica._buffers = module._buffers.copy()
        replica._modules = {
            name: None if child is None else _replica(child, given, done)
            for name, child in module._modules.items()
        }
    return done[id(module)]  # type: ignore[return-value]
