"""Covariances of a function and its partial derivatives, for any kernel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.autograd import grad

from gpytorch_nkn.kernels.batch_kernel import BatchKernel
from gpytorch_nkn.kernels.network import kernel_values
from gpytorch_nkn.settings import kernel_evaluation

__all__ = ["GradientKernel", "check_has_derivatives", "explained_derivatives"]


class GradientKernel(BatchKernel):
    r"""Covariance of a function and its ``D`` partial derivatives, for derivative observations.

    .. math::
        \operatorname{cov}\bigl(\partial_a f(x), \partial_b f(x')\bigr)
            = \frac{\partial^2 k(x, x')}{\partial x_a\, \partial x'_b}

    This class generalises :class:`gpytorch.kernels.RBFKernelGrad` to any twice differentiable
    kernel. Outputs have the order of that class: the value at a point, then its derivative in each
    column. The kernel is valid as the covariance of a Gaussian process and its derivatives. Use it
    with ``ConstantMeanGrad`` and a ``MultitaskGaussianLikelihood`` of ``D + 1`` tasks.

    Args:
        base_kernel: Kernel of the function, such as a :class:`.NeuralKernelNetwork`. Derivatives
            with respect to columns outside its ``active_dims`` are zero.

    Raises:
        ValueError: On evaluation, second derivatives of the kernel are infinite or unknown.

    Reference: Rasmussen and Williams (2006), Gaussian Processes for Machine Learning, section 9.4.
    """

    def __init__(self, base_kernel: Kernel):
        super().__init__(batch_shape=base_kernel.batch_shape)
        self.base_kernel = base_kernel

    def num_outputs_per_input(self, x1: Tensor, x2: Tensor) -> int:
        """Return ``D + 1``."""
        return x1.size(-1) + 1

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return values ``... x N (D + 1) x M (D + 1)`` (``... x N (D + 1)`` with ``diag``)."""
        if diag:
            blocks = self._blocks(x1, x2)
            return blocks.diagonal(dim1=-2, dim2=-1).flatten(-2)
        sizes = x1.size(-2), x2.size(-2)
        if not (x1.requires_grad or x2.requires_grad) and torch.equal(x1, x2):  # each pair once
            row, column = torch.triu_indices(*sizes, device=x1.device)
            half = self._blocks(x1[..., row, :], x2[..., column, :])
            pairs = torch.arange(len(row), device=x1.device)
            index = pairs.new_empty(sizes)
            index[column, row] = pairs
            index[row, column] = pairs
            blocks = half[..., index, :, :]
            below = (torch.ones_like(index).tril(-1) > 0)[..., None, None]
            blocks = blocks.mT.where(below, blocks)
        else:
            left = x1.unsqueeze(-2).expand(*x1.shape[:-1], sizes[1], -1).flatten(-3, -2)
            right = x2.unsqueeze(-3).expand(*x2.shape[:-2], *sizes, -1).flatten(-3, -2)
            blocks = self._blocks(left, right).unflatten(-3, sizes)
        # from ... x N x M x (D + 1) x (D + 1)
        return blocks.transpose(-3, -2).flatten(-2).flatten(-3, -2)

    def _blocks(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Return covariances ``... x P x (D + 1) x (D + 1)`` of pairs of points ``... x P x D``."""
        shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2], self.batch_shape)
        wanted = torch.is_grad_enabled()
        with torch.enable_grad(), explained_derivatives(self.base_kernel):
            left, right = (x.expand(*shape, *x.shape[-2:]).clone() for x in (x1, x2))
            for x in (left, right):
                if not x.requires_grad:
                    x.requires_grad_()
            with kernel_evaluation("plain"):  # second derivatives of tiles take 20 times as long
                value = kernel_values(self.base_kernel, left, right, diag=True)
            value = value + 0 * (left * right).sum(-1)  # a constant kernel has derivative zero
            slopes, grad_right = grad(value.sum(), (left, right), create_graph=True)
            rows = [torch.cat([value.unsqueeze(-1), grad_right], -1)]
            for slope in slopes.unbind(-1):
                (second,) = grad(slope.sum(), right, create_graph=wanted, retain_graph=True)
                rows.append(torch.cat([slope.unsqueeze(-1), second], -1))
        blocks = torch.stack(rows, -2)
        check_has_derivatives(blocks, self.base_kernel)
        return blocks if wanted else blocks.detach()


@contextmanager
def explained_derivatives(kernel: Any) -> Iterator[None]:
    """Raise a ValueError if PyTorch cannot differentiate the kernel."""
    try:
        yield
    except (NotImplementedError, RuntimeError) as error:
        raise ValueError(
            f"PyTorch cannot differentiate {type(kernel).__name__} twice: {error}"
        ) from error


def check_has_derivatives(values: Tensor, kernel: Any) -> None:
    """Raise a ValueError unless the covariances of derivatives are finite."""
    if not values.isfinite().all():
        raise ValueError(
            "The second derivatives of the kernel must be finite, got infinite values for "
            f"{type(kernel).__name__}. Functions of MaternKernel(nu=0.5) and WienerKernel are not "
            "differentiable. Use a smoother kernel, such as MaternKernel(nu=2.5) or "
            "IntegratedWienerKernel."
        )
