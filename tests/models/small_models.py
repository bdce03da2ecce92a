"""Small models whose parameters are not at their start values."""

import torch
from gpytorch.kernels import ScaleKernel
from torch.utils._python_dispatch import TorchDispatchMode

from gpytorch_nkn.kernels import NeuralKernelNetwork

STRUCTURES = (
    "optimization",
    "additive",
    "regression",
    "paper",
    "time_series",
    "texture",
    "network",
    "scaled",
)
SMALL = "Linear4-Product2-Linear1"


def data(m=1, n=9, d=2, batch_shape=()):
    """Inputs in the unit cube and outputs that differ in their shape."""
    x = torch.rand(*batch_shape, n, d)
    y = torch.stack([torch.sin(5 * x[..., 0] + k) + k * x[..., -1] for k in range(m)], -1)
    return x, 3 * y + 1


def structure_of(name, d, **options):
    """What ``structure`` may be: a name, a network or a ScaleKernel of one."""
    if name == "network":
        return NeuralKernelNetwork.regression(d, wiring=SMALL, **options)
    if name == "scaled":
        network = NeuralKernelNetwork.optimization(d, wiring=SMALL, **options)
        return ScaleKernel(network, batch_shape=network.batch_shape)
    return name


def moved(model, batch_shape=()):
    """The model in eval mode, every raw parameter moved by an amount of its own.

    Amounts repeat over ``batch_shape``, the first dimensions of the batch.
    """
    model.train()
    for number, parameter in enumerate(model.parameters()):
        one = parameter.data[(0,) * len(batch_shape)]
        steps = torch.arange(one.numel(), device=one.device).to(one)
        wave = torch.sin(1.7 * steps + number).view(one.shape)
        noise = "raw_noise" in _name_of(model, parameter)
        parameter.data += (0.05 if noise else 0.4) * (wave + (1.1 if noise else 0.0))
    return model.eval()


def _name_of(model, parameter):
    return next(name for name, other in model.named_parameters() if other is parameter)


class Largest(TorchDispatchMode):
    """Record the largest number of elements of a tensor that an operation returns."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else [result]:
            if isinstance(value, torch.Tensor):
                self.elements = max(self.elements, value.untyped_storage().nbytes() // 8)
        return result
