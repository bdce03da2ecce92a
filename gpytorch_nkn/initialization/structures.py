"""Start values of networks of convex combinations near a given structure."""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel, ProductKernel
from torch import Tensor

from gpytorch_nkn._devices import normal
from gpytorch_nkn.initialization.assign import assign, assign_weight
from gpytorch_nkn.kernels import CategoricalKernel, NeuralKernelNetwork
from gpytorch_nkn.kernels.network import OUTPUT_WEIGHTS, convex_weights
from gpytorch_nkn.layers import Layer, Linear

__all__ = ["STARTS", "draw_weights", "is_convex", "joint_kernels", "start_from_structure"]

STARTS = ("additive", "joint")  # structures of start_from_structure

_LENGTHSCALE = 0.3  # in the unit cube, times the root of the number of columns
_SPREAD = 0.5  # standard deviation of the logarithms of lengthscales


def start_from_structure(
    network: NeuralKernelNetwork, near: str, *, seed: int = 0
) -> NeuralKernelNetwork:
    r"""Set the start values of a network of convex combinations near a structure, in place.

    The sum of the one-dimensional primitives, or the joint primitives over several columns, get
    nearly all of the variance. Lengthscales are :math:`0.3 \sqrt{d}\, e^{z/2}` for ``d`` columns
    with standard normal :math:`z`, and :math:`e^{z/2}` for categorical kernels. Weights of hidden
    units are drawn. Every batch entry gets its own draws.

    Args:
        network: A network such as :meth:`.NeuralKernelNetwork.optimization`, for inputs in the
            unit cube: with a skip connection and convex combinations (``weights="simplex"``),
            its one-dimensional primitives first. Frozen parameters keep their values, and
            lengthscales stay within their constraints.
        near: ``"additive"``, the one-dimensional primitives, or ``"joint"``, the others (without
            others, products of hidden units).
        seed: Determines every draw; the global random state is neither used nor changed.

    Returns:
        The same network.

    Raises:
        TypeError: ``network`` is not a NeuralKernelNetwork.
        ValueError: The network has another form, or ``near`` is unknown.
    """
    if not isinstance(network, NeuralKernelNetwork):
        raise TypeError(f"network must be a NeuralKernelNetwork, got {type(network).__name__}.")
    if near not in STARTS:
        raise ValueError(f"near must be one of {STARTS}, got {near!r}.")
    fault = _fault(network)
    if fault is not None:
        raise ValueError(
            "A structure needs a network with skip=True, Linear layers with weights='simplex' and "
            f"primitives whose lengthscale is a distance, one-dimensional ones first; got {fault}."
        )
    generator = torch.Generator().manual_seed(seed)
    num_single = len(network.primitives) - len(joint_kernels(network))
    for kernel in (part for primitive in network.primitives for part in _factors(primitive)):
        value: Tensor = kernel.lengthscale
        draws = normal(value.shape, generator).to(value)
        if kernel.raw_lengthscale.requires_grad:
            typical = _LENGTHSCALE * math.sqrt(_num_columns(kernel, num_single))
            typical = 1.0 if isinstance(kernel, CategoricalKernel) else typical
            assign(kernel, "lengthscale", typical * (_SPREAD * draws).exp())
    draw_weights(network, near, generator)
    return network


def is_convex(module: torch.nn.Module) -> bool:
    """Whether a module is a network that :func:`start_from_structure` accepts."""
    return isinstance(module, NeuralKernelNetwork) and _fault(module) is None


def joint_kernels(network: NeuralKernelNetwork) -> list[Kernel]:
    """Primitives over several columns."""
    return [kernel for kernel in network.primitives if not _is_single(network, kernel)]


def draw_weights(network: NeuralKernelNetwork, near: str, generator: torch.Generator) -> None:
    """Set the weights of all Linear layers near a structure."""
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


def _fault(network: NeuralKernelNetwork) -> str | None:
    """Reason why :func:`start_from_structure` rejects a network; ``None`` if it does not."""
    if not network.skip:
        return "skip=False"
    linear = [layer for layer in network.layers if isinstance(layer, Linear)]
    if not all(layer.is_simplex for layer in linear):
        return f"weights={[layer.weights for layer in linear]}"
    if not isinstance(network.layers[-1], Linear):
        return f"the last layer {network.layers[-1]}"
    strange = [
        kernel
        for primitive in network.primitives
        for kernel in _factors(primitive)
        if not kernel.has_lengthscale or "raw_period_length" in kernel._parameters
    ]
    if strange:
        return f"a {type(strange[0]).__name__}"
    single = [_is_single(network, kernel) for kernel in network.primitives]
    if single != sorted(single, reverse=True):
        return "a primitive of one column behind others"
    return None


def _factors(kernel: Kernel) -> list[Kernel]:
    """Factors of a product kernel; any other kernel is its own only factor."""
    return list(kernel.kernels) if type(kernel) is ProductKernel else [kernel]


def _is_single(network: NeuralKernelNetwork, kernel: Kernel) -> bool:
    """Whether a primitive has one column; with one input column only the first primitive counts."""
    if kernel.active_dims is None:
        return network.input_dim == 1 and kernel is network.primitives[0]
    return len(kernel.active_dims) == 1


def _num_columns(kernel: Kernel, otherwise: int) -> int:
    if kernel.active_dims is not None:
        return len(kernel.active_dims)
    return kernel.ard_num_dims or max(otherwise, 1)
