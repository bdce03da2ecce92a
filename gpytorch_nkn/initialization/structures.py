"""Start values of networks of convex combinations near a given structure."""

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
    """Whether a module is a network that starts near a structure.

    Such a network has a skip connection and Linear layers that are convex combinations. The
    lengthscales of its primitives are distances, and primitives of one column come first.
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
    """Primitives over several columns."""
    return [kernel for kernel in network.primitives if not _is_single(network, kernel)]


def draw_weights(network: NeuralKernelNetwork, near: str, generator: torch.Generator) -> None:
    """Set the weights of all Linear layers near a structure.

    ``"additive"``, the sum of the kernels of one column, or ``"joint"``, the others (without
    others, products of hidden units), get nearly all of the variance.
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
    """Whether a primitive has one column; with one input column only the first primitive counts."""
    if kernel.active_dims is None:
        return network.input_dim == 1 and kernel is network.primitives[0]
    return len(kernel.active_dims) == 1


def _factors(kernel: Kernel) -> list[Kernel]:
    return list(kernel.kernels) if type(kernel) is ProductKernel else [kernel]
