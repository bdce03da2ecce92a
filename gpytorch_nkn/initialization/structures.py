"""Start values near a given structure for networks of convex combinations."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel, ProductKernel
from torch import Tensor

from gpytorch_nkn.initialization.assign import assign_weight
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.network import OUTPUT_WEIGHTS, convex_weights
from gpytorch_nkn.layers import Layer, Linear

__all__ = ["STARTS", "draw_weights", "is_convex", "joint_kernels"]

STARTS = ("additive", "joint")  # structures of draw_weights


def is_convex(module: torch.nn.Module) -> bool:
    """Whether a module is a network that can start near a structure.

    The network must have a skip connection, and Linear layers that are convex combinations. Its
    primitives must have lengthscales in input units, with primitives of one column first.
    """
    if not isinstance(module, NeuralKernelNetwork) or not module.skip:
        return False
    layers = module.layers
    single = [_is_single(module, kernel) for kernel in module.primitives]
    return (
        isinstance(layers[-1], Linear)
        and all(layer.is_simplex for layer in layers if isinstance(layer, Linear))
        and all(
            factor.has_lengthscale and "raw_period_length" not in factor._parameters
            for kernel in module.primitives
            for factor in _factors(kernel)
        )
        and single == sorted(single, reverse=True)
    )


def joint_kernels(network: NeuralKernelNetwork) -> list[Kernel]:
    """Return the primitives over several columns."""
    return [kernel for kernel in network.primitives if not _is_single(network, kernel)]


def draw_weights(network: NeuralKernelNetwork, near: str, generator: torch.Generator) -> None:
    """Set the weights of all Linear layers near a structure.

    The structure gets nearly all of the variance. ``"additive"`` is the sum of the primitives of
    one column. ``"joint"`` is the sum of the other primitives or, without any, of hidden products.
    """
    layers: list[Layer] = list(network.layers)  # type: ignore[arg-type]
    num_joint = len(joint_kernels(network))
    num_single = len(network.primitives) - num_joint
    draws = [
        convex_weights(layers, num_single, num_joint, OUTPUT_WEIGHTS[near], generator)
        for _ in range(network.batch_shape.numel())
    ]
    for layer, weights in zip(layers, zip(*draws, strict=True), strict=True):
        if isinstance(layer, Linear) and layer.raw_weight.requires_grad:
            own: list[Tensor] = [weight for weight in weights if weight is not None]
            weight = torch.stack(own[: layer.batch_shape.numel()])
            assign_weight(layer, weight.view(layer.raw_weight.shape))


def _is_single(network: NeuralKernelNetwork, kernel: Kernel) -> bool:
    """Whether a primitive has one of several input columns, or is the first of a 1-D network."""
    if kernel.active_dims is None:
        return network.input_dim == 1 and kernel is network.primitives[0]
    return len(kernel.active_dims) == 1


def _factors(kernel: Kernel) -> list[Kernel]:
    return list(kernel.kernels) if type(kernel) is ProductKernel else [kernel]
