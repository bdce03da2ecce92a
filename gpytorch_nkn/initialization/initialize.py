"""Start values of kernels and models from data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from gpytorch.kernels import Kernel, ProductKernel, ScaleKernel
from gpytorch.likelihoods import (
    FixedNoiseGaussianLikelihood,
    MultitaskGaussianLikelihood,
    StudentTLikelihood,
)
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn.initialization.assign import assign, assign_weight
from gpytorch_nkn.initialization.part_starts import PartStarts, normal
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.network import convex_weights
from gpytorch_nkn.layers import Layer, Linear
from gpytorch_nkn.linalg import check_counts, check_finite, check_tensors

__all__ = ["initialize_from_data", "initialize_model"]

_MAX_NOISE_RATIO = 10.0  # rows with larger noise variance, relative to the median, are ignored
_STARTS = ("additive", "joint")  # structures near which convex networks start in turn


def initialize_from_data(
    kernel: Kernel, x: Tensor, y: Tensor, *, seed: int = 0, restart: int = 0
) -> Kernel:
    """Set the start values of a kernel from data, in place, and return it.

    - *Lengthscales*: the median distance of the input dimension times a log-normal factor, so that
      copies of a primitive differ. Categorical kernels: their value times a log-normal factor.
    - *Frequencies* of spectral components: normal, with standard deviation 0.3 divided by the
      median distance.
    - *Periods*: peaks of the targets' periodogram after removing a cubic trend (even restarts) or
      a local trend (odd restarts). Restarts 0 and 1 use the strongest peaks in turn; later ones
      draw peaks with probability proportional to their power.
    - *Steps and change points*: in restart 0 the strongest of :func:`change_points`; later restarts
      also use random locations.
    - *Origins*: one step before the first input for random walks; the mean input otherwise.
    - *Weights* of Linear layers: drawn. Variances and output scales: 1. Exponents and Hadamard
      factors: near 1.

    Every batch entry gets its own draws. A ScaleKernel around a network whose last layer is a
    convex combination starts at the variance of the targets. Networks of convex combinations with
    a skip connection start near a sum of one-dimensional kernels in even restarts. In odd restarts
    they start near the joint kernel.

    Args:
        kernel: Any kernel. Other parameters and frozen parameters keep their values. Start values
            satisfy the constraints.
        x: Inputs ``N x D`` of the kernel, preferably standardised.
        y: Targets ``N``; of targets ``N x m`` only the first column is used.
        seed: Determines all draws together with ``restart``, independently of the global random
            state.
        restart: Number of the restart.

    Raises:
        ValueError: ``x`` or ``y`` has a wrong shape or is not finite.
    """
    check_counts(0, seed=seed, restart=restart)
    check_tensors(x=x, y=y)
    if x.dim() != 2 or y.shape[:1] != x.shape[:1]:
        raise ValueError(
            f"x must be N x D and y of length N, got shapes {tuple(x.shape)} and {tuple(y.shape)}."
        )
    rng = np.random.default_rng([seed, restart])
    target = y.detach() if y.dim() == 1 else y.detach()[:, 0]
    check_finite(x=x, y=target)
    convex = [module for module in kernel.modules() if _is_convex(module)]
    joint = {id(part) for network in convex for part in _joint_kernels(network)}
    starts = PartStarts(x, target, rng, restart, joint)
    for part, columns in _parts(kernel, list(range(x.size(-1)))):
        starts.set_on(part, columns)
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    drawn = {id(layer) for network in convex for layer in network.layers}
    for module in kernel.modules():
        if (
            isinstance(module, Linear)
            and module.raw_weight.requires_grad
            and id(module) not in drawn
        ):
            assign_weight(module, generator)
    for network in convex:
        _draw_weights(network, _STARTS[restart % len(_STARTS)], generator)
    return kernel


def initialize_model(model: ExactGP, *, seed: int = 0, restart: int = 0) -> ExactGP:
    """Set the start values of an exact GP from its training data, in place, and return it.

    The kernel (``covar_module``) starts as in :func:`initialize_from_data`. Task correlations keep
    their values in restart 0 and are random in later restarts. In restart 0 the noise variance of a
    homoskedastic Gaussian likelihood is 0.01 times the variance of the targets, later 0.001 to 0.1
    times. For Student-t noise the squared interquartile range of the targets replaces their
    variance. Rows whose known noise variance exceeds ten times the median are ignored. A BoTorch
    model's input transform is applied first.

    Args:
        model: An exact GP of one task, of a batch of tasks, or of correlated tasks. Correlated
            tasks have targets ``n x T``, or the task index as second training input. The data of
            the first element of a batch determine the start values of all.
        seed: Determines all draws together with ``restart``.
        restart: Number of the restart.

    Raises:
        TypeError: The model has no ``covar_module``.
        ValueError: Further training inputs are not integer task indices.
    """
    if not hasattr(model, "covar_module"):
        raise TypeError(f"The model must have a covar_module, got {type(model).__name__}.")
    first, *others = model.train_inputs
    if any(other.is_floating_point() for other in others):
        raise ValueError(
            "initialize_model needs one training input, and optionally an integer task index, got "
            f"{len(model.train_inputs)} inputs. Set the start values with your own function."
        )
    x, y = first.detach(), model.train_targets.detach()
    if model.training and hasattr(model, "transform_inputs"):
        x = model.transform_inputs(x).detach()
    if isinstance(model.likelihood, MultitaskGaussianLikelihood):
        y = y.mT  # ... x T x n, a batch of tasks
    x, y = x.reshape(-1, *x.shape[-2:])[0], y.reshape(-1, y.size(-1))[0]
    if isinstance(model.likelihood, FixedNoiseGaussianLikelihood):
        known_noise = model.likelihood.noise_covar.noise.detach()
        known_noise = known_noise.reshape(-1, known_noise.size(-1))[0]
        kept = known_noise <= _MAX_NOISE_RATIO * known_noise.median()
        x, y = (x[kept], y[kept]) if len(kept) == len(y) else (x, y)
    initialize_from_data(model.covar_module, x, y, seed=seed, restart=restart)
    rng = np.random.default_rng([seed, restart, 1])
    share = 1e-2 if restart == 0 else 10 ** rng.uniform(-3, -1)
    variance = y.var() if y.numel() > 1 else y.new_ones(())
    if isinstance(model.likelihood, StudentTLikelihood):  # outliers dominate the variance
        variance = (torch.quantile(y, 0.75) - torch.quantile(y, 0.25)).square() or variance
    variance = torch.where(variance > 0, variance, 1.0)  # noise must be positive
    for part, name, raw in _trainable(model.likelihood, "raw_noise", "raw_task_noises"):
        assign(part, name.removeprefix("raw_"), (share * variance).expand_as(raw))
    if restart:
        for _, _, factor in _trainable(model, "covar_factor", "raw_covar_factor"):
            factor.data.copy_(normal(rng, factor))
    return model


def _trainable(
    module: torch.nn.Module, *names: str
) -> Iterator[tuple[torch.nn.Module, str, Tensor]]:
    """Yield the trainable parameters of these names, with the modules that own them."""
    for part in module.modules():
        for name in names:
            value = part._parameters.get(name)
            if value is not None and value.requires_grad:
                yield part, name, value


def _parts(
    kernel: Kernel, columns: list[int], selected: bool = False
) -> Iterator[tuple[Kernel, list[int]]]:
    """Yield ``kernel`` and every kernel inside it, with their input columns."""
    if kernel.active_dims is not None and not selected:
        columns = [columns[i] for i in kernel.active_dims.tolist()]
    yield kernel, columns
    # a ScaleKernel applies the active_dims of its base kernel itself
    selected = isinstance(kernel, ScaleKernel)
    for child in kernel.children():
        for part in child if isinstance(child, torch.nn.ModuleList) else [child]:
            if isinstance(part, Kernel):
                yield from _parts(part, columns, selected)


def _is_convex(module: torch.nn.Module) -> bool:
    """Return whether a module is a network that can start near a structure.

    The network must have a skip connection, and Linear layers that are convex combinations. All
    primitives must have lengthscales in input units; primitives of one column come first.
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


def _joint_kernels(network: NeuralKernelNetwork) -> list[Kernel]:
    """Return the primitives over several columns."""
    return [kernel for kernel in network.primitives if not _is_single(network, kernel)]


def _draw_weights(network: NeuralKernelNetwork, near: str, generator: torch.Generator) -> None:
    """Set the weights of all Linear layers near a structure.

    The structure gets nearly all of the variance. ``"additive"`` is the sum of the primitives of
    one column. ``"joint"`` is the sum of the other primitives or, without any, of hidden products.
    """
    layers: list[Layer] = list(network.layers)  # type: ignore[arg-type]
    num_joint = len(_joint_kernels(network))
    num_single = len(network.primitives) - num_joint
    draws = [
        convex_weights(layers, num_single, num_joint, near, generator)
        for _ in range(network.batch_shape.numel())
    ]
    for of_layer in zip(*draws, strict=True):
        layer = of_layer[0][0]
        if layer.raw_weight.requires_grad:
            weights = [weight for _, weight in of_layer[: layer.batch_shape.numel()]]
            assign_weight(layer, torch.stack(weights).view(layer.raw_weight.shape))


def _is_single(network: NeuralKernelNetwork, kernel: Kernel) -> bool:
    """Return whether a primitive acts on one column, such as the first of a 1-D network."""
    if kernel.active_dims is None:
        return network.input_dim == 1 and kernel is network.primitives[0]
    return len(kernel.active_dims) == 1


def _factors(kernel: Kernel) -> list[Kernel]:
    return list(kernel.kernels) if type(kernel) is ProductKernel else [kernel]
