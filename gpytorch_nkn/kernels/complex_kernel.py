"""Base class of complex-valued kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gpytorch_nkn.kernels.batch_kernel import BatchKernel

__all__ = ["ComplexKernel"]


class ComplexKernel(BatchKernel):
    r"""Complex-valued Hermitian kernel.

    Outside a network, calls return the real part, which is a valid real kernel (Sun et al. 2018,
    lemma 6). A :class:`~gpytorch_nkn.kernels.NeuralKernelNetwork` passes complex values through its
    layers and takes the real part of its output. It can thus represent more kernels than with real
    primitives.

    Parameters are real, because ``.double()`` silently discards imaginary parts.
    """

    def complex_values(self, x1: Tensor, x2: Tensor, diag: bool = False) -> Tensor:
        """Return values ``... x N x M`` (``... x N`` with ``diag``) for inputs ``... x N x D``."""
        raise NotImplementedError

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the real part of the kernel, ``... x N x M`` (``... x N`` with ``diag``)."""
        return self.complex_values(x1, x2, diag=diag).real


def unit_phasor(angle: Tensor) -> Tensor:
    """Return exp(i angle) for real angles in radians."""
    return torch.complex(torch.cos(angle), torch.sin(angle))


def phase(x: Tensor, frequency: Tensor) -> Tensor:
    """Return angles ``frequency . x`` in radians, ``... x N``."""
    return (x * frequency).sum(-1)
