"""Evaluation of any network by tiles, each differentiated by autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn
from torch.func import functional_call

from gpytorch_nkn.linalg import Scratch, TileEvaluator

__all__ = ["AutogradEvaluator", "values_with"]


class AutogradEvaluator(TileEvaluator):
    """A network on inputs ``N x D`` and ``M x D``, whose tiles are computed by itself.

    Args:
        network: The network, whose ``plain_values`` are ordinary differentiable operations.
        names: Names of the parameters that may vary.
        parameters: Their values.
        x1, x2: Inputs; the same tensor for a symmetric matrix.
        needed: Which gradients are wanted, in the order in which they come: of ``x1``, of ``x2``
            unless the matrix is symmetric, of each parameter.
    """

    cpu_entries = 65_536  # the calls of the kernels cost more than a cache that is missed

    def __init__(
        self,
        network: Kernel,
        names: Sequence[str],
        parameters: Sequence[Tensor],
        x1: Tensor,
        x2: Tensor,
        needed: Sequence[bool],
    ):
        # GPyTorch changes a kernel for a moment while it evaluates it: no threads.
        super().__init__(x1.size(0), x2.size(0), x1 is x2, x1, threads=False)
        self._network = _Holder(network)
        self._values = network.plain_values
        leaves = [
            parameter.detach().requires_grad_(need)
            for parameter, need in zip(parameters, needed[len(needed) - len(names) :], strict=True)
        ]
        self._parameters = dict(zip((f"network.{name}" for name in names), leaves, strict=True))
        self._x1, self._x2 = x1, x2
        self._needed = list(needed)

    def fill(self, out: Tensor) -> None:
        """Write the matrix into ``out``, its lower triangle if it is symmetric."""
        functional_call(self._network, self._parameters, (super().fill, out))

    def pull_back(self, weights: Tensor, solution: Tensor | None = None) -> list[Tensor | None]:
        """Gradients, in the order of ``needed``."""
        return functional_call(
            self._network, self._parameters, (super().pull_back, weights, solution)
        )

    def tile_values(self, rows: slice, columns: slice, scratch: Scratch) -> Tensor:
        """Values of one tile."""
        with torch.no_grad():
            return self._values(self._x1[rows], self._x2[columns])

    def zero_gradients(self) -> list[Tensor | None]:
        """Zeros to which the gradients of tiles are added."""
        inputs = [self._x1] if self.symmetric else [self._x1, self._x2]
        tensors = [*inputs, *self._parameters.values()]
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
        sources = [x1, x2, *self._parameters.values()]
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


def values_with(
    network: Kernel,
    parameters: dict[str, Tensor],
    x1: Tensor,
    x2: Tensor,
) -> Tensor:
    """Values ``N x M`` of the network with other parameters, differentiable."""
    named = {f"network.{name}": tensor for name, tensor in parameters.items()}
    return functional_call(_Holder(network), named, (network.plain_values, x1, x2))


class _Holder(nn.Module):
    """Runs work while functional_call has put other parameters into the network."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, work: Callable, *arguments: object) -> object:
        return work(*arguments)


def _placed(like: Tensor, rows: slice, gradient: Tensor | None) -> Tensor:
    whole = torch.zeros_like(like)
    if gradient is not None:
        whole[rows] = gradient
    return whole
