"""What complex-valued kernels have in common."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gpytorch_nkn.kernels.batch_kernel import BatchKernel

__all__ = ["ComplexKernel"]


class ComplexKernel(BatchKernel):
    r"""A complex-valued Hermitian kernel.

    On its own, or inside GPyTorch's kernels, it stands for its real part, which is a valid real
    kernel (Sun et al. 2018, lemma 6). As a primitive of a
    :class:`~gpytorch_nkn.kernels.NeuralKernelNetwork` its complex values run through the network
    and the real part is taken at the output only, which represents more kernels.

    Parameters are real tensors and complex numbers arise inside the evaluation only: a complex
    parameter would be silently cast by ``.double()``.
    """

    def complex_values(self, x1: Tensor, x2: Tensor, diag: bool = False) -> Tensor:
        """Complex values ``... x N x M`` (``... x N`` with ``diag``) for inputs ``... x N x D``."""
        raise NotImplementedError

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Real part of the kernel, ``... x N x M`` (``... x N`` with ``diag``)."""
        return self.complex_values(x1, x2, diag=diag).real


def unit_phasor(angle: Tensor) -> Tensor:
    """Return exp(i angle) for real angles in radians."""
    return torch.complex(torch.cos(angle), torch.sin(angle))


def phase(x: Tensor, frequency: Tensor) -> Tensor:
    """Angles ``frequency . x`` in radians, ``... x N``."""
    return (x * frequency).sum(-1)
