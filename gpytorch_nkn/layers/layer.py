"""Base class of the layers of a Neural Kernel Network."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch import Module
from torch import Tensor

from gpytorch_nkn.linalg import check_counts

__all__ = ["Layer", "repeat_parameters"]


class Layer(Module):
    r"""Map of ``in_features`` kernels to ``out_features`` kernels.

    A layer acts elementwise on values ``... x in_features x E``. ``E`` is the number of entries of
    a kernel matrix or of its diagonal. If each input unit is a valid real or complex kernel, so is
    each output unit.

    Args:
        in_features: Number of input units.
        out_features: Number of output units.
        batch_shape: Batch shape ``B_1 x ... x B_k`` of independent copies of the layer.

    Raises:
        TypeError: ``in_features`` or ``out_features`` is not an integer.
        ValueError: ``in_features`` or ``out_features`` is below 1.
    """

    def __init__(
        self, in_features: int, out_features: int, *, batch_shape: torch.Size | None = None
    ):
        super().__init__()
        check_counts(1, in_features=in_features, out_features=out_features)
        self.in_features = in_features
        self.out_features = out_features
        self.batch_shape = torch.Size([] if batch_shape is None else batch_shape)

    def forward(self, values: Tensor) -> Tensor:
        """Map values ``... x in_features x E`` to ``... x out_features x E``."""
        raise NotImplementedError

    def local_load_samples(self, samples_dict: dict[str, Tensor], memo: set, prefix: str) -> None:
        """Load a batch of parameter samples (GPyTorch's hook for fully Bayesian models)."""
        if any(True for _ in self.parameters()):  # layers without parameters are shared
            self.batch_shape = repeat_parameters(self, samples_dict, memo) + self.batch_shape
        super().local_load_samples(samples_dict, memo, prefix)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}"


def repeat_parameters(module: Any, samples: dict[str, Tensor], memo: set) -> torch.Size:
    """Repeat a module's own parameters for each of S samples; return the shape ``S``.

    Parameters without a prior get no samples, but must have the batch shape of the module.
    """
    shape, batch = next(iter(samples.values())).shape[:1], module.batch_shape
    for parameter in module.parameters(recurse=False):
        is_batch = parameter.shape[: len(batch)] == batch
        if is_batch and parameter not in memo:  # modules may share it
            memo.add(parameter)
            parameter.data = parameter.data.expand(*shape, *parameter.shape).clone()
    return shape
