"""Kernel with change points."""

from __future__ import annotations

from typing import Any, Literal

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from gpytorch_nkn.kernels.batch_kernel import BatchKernel, constrained
from gpytorch_nkn.kernels.network import kernel_values
from gpytorch_nkn.kernels.step_kernel import StepKernel, logistic_step
from gpytorch_nkn.linalg import check_counts

__all__ = ["ChangePointKernel", "change_point_products"]


class ChangePointKernel(BatchKernel):
    r"""Different kernels before and after learned change points.

    .. math:: k(x, x') = (1 - s(x))\, k_1(x, x')\, (1 - s(x')) + s(x)\, k_2(x, x')\, s(x'),
        \qquad s(x) = \frac{1}{1 + e^{-(x_d - l) / w}}

    Sums and products of valid kernels are valid. The functions before and after a change point are
    independent: with a small width, data before it do not affect predictions after it. With
    :math:`K` kernels and sorted locations :math:`l_1 \le \dots \le l_{K-1}`, the window of the
    :math:`i`-th kernel is :math:`s_{i-1}(x) (1 - s_i(x))`.

    ``fit_best_of`` and :func:`gpytorch_nkn.initialization.initialize_from_data` initialise the
    locations at the largest changes of the targets. With other trainers, initialise them yourself:
    far from the true change point the gradient is nearly zero.

    Args:
        kernels: Two or more kernels in order along the input; each may have ``active_dims``. A
            kernel may appear several times.
        location: :math:`l`, a number or ``... x 1 x (K - 1)``, in units of the input.
        width: :math:`w`, positive, of the same shape; the inverse of GPflow's steepness.
        switch_dim: Index :math:`d` of the column with change points, within ``active_dims``.
        batch_shape, active_dims: As in :class:`gpytorch.kernels.Kernel`.

    Raises:
        TypeError: An entry of ``kernels`` is not a kernel, or ``switch_dim`` is not an integer.
        ValueError: There are fewer than two kernels, a location or width is not finite, or a width
            is not positive. On evaluation, ``switch_dim`` is out of range.

    Example:
        >>> from gpytorch.kernels import MaternKernel, RBFKernel
        >>> kernel = ChangePointKernel(RBFKernel(), MaternKernel(), location=4.0, width=0.1)
        >>> kernel.location.shape
        torch.Size([1, 1])

    Reference: Saatci, Turner and Rasmussen (2010), Gaussian Process Change Point Models; Lloyd et
    al. (2014), Automatic Construction and Natural-Language Description of Nonparametric
    Regression Models. The formula equals GPflow's ``ChangePoints``.
    """

    is_stationary = False
    location = constrained("location", "Locations of the change points, ``... x 1 x (K - 1)``.")
    width = constrained("width", "Widths of the change points, ``... x 1 x (K - 1)``.")

    def __init__(
        self,
        *kernels: Kernel,
        location: float | Tensor = 0.0,
        width: float | Tensor = 1.0,
        switch_dim: int = 0,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ):
        for kernel in kernels:
            if not isinstance(kernel, Kernel):
                raise TypeError(f"kernels must be gpytorch.kernels.Kernel, got {kernel!r}.")
        if len(kernels) < 2:
            raise ValueError(f"ChangePointKernel needs at least 2 kernels, got {len(kernels)}.")
        check_counts(0, switch_dim=switch_dim)
        if batch_shape is None:
            batch_shape = torch.broadcast_shapes(*(kernel.batch_shape for kernel in kernels))
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        self.switch_dim = switch_dim
        self.kernels = nn.ModuleList(kernels)
        shape = (*self.batch_shape, 1, len(kernels) - 1)
        self.add_constrained("location", shape, location, positive=False)
        self.add_constrained("width", shape, width)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return values ``... x N x M`` (``... x N`` with ``diag``)."""
        left, right = self._windows(x1), self._windows(x2)  # each ... x N x K
        total: Tensor | float = 0.0
        for index, kernel in enumerate(self.kernels):
            values = kernel_values(kernel, x1, x2, diag, **params)
            window1, window2 = left[..., index], right[..., index]
            if diag:
                total = total + window1 * values * window2
            else:
                total = total + window1.unsqueeze(-1) * values * window2.unsqueeze(-2)
        assert isinstance(total, Tensor)
        return total

    def _windows(self, x: Tensor) -> Tensor:
        """Return the window of each kernel, ``... x N x K``."""
        location, width = self._sorted()
        if self.switch_dim >= x.size(-1):
            raise ValueError(
                f"switch_dim={self.switch_dim} is out of range for {x.size(-1)} input columns."
            )
        times = x[..., self.switch_dim, None]
        after = logistic_step(times, location, width)
        before = logistic_step(times, location, width, -1.0)
        ones = torch.ones_like(after[..., :1])
        return torch.cat([ones, after], -1) * torch.cat([before, ones], -1)

    def _sorted(self) -> tuple[Tensor, Tensor]:
        """Return sorted locations and their widths."""
        location, order = self.location.sort(-1)
        return location, self.width.gather(-1, order)


def change_point_products(kernel: ChangePointKernel) -> list[list[Kernel]]:
    """Return the factors of each term of ``kernel``, with new step kernels for the windows."""
    location, width = (value.detach() for value in kernel._sorted())

    def step(side: Literal["before", "after"], index: int) -> Kernel:
        result = StepKernel(side, batch_shape=location.shape[:-2], active_dims=(kernel.switch_dim,))
        result.to(location)
        result.initialize(location=location[..., [index]])
        result.width = width[..., [index]]
        return result

    last = len(kernel.kernels) - 1
    return [
        [
            base,
            *([step("after", index - 1)] if index else []),
            *([step("before", index)] if index < last else []),
        ]
        for index, base in enumerate(kernel.kernels)
    ]
