"""Kernels that follow each other in time."""

from __future__ import annotations

from typing import Any, Literal

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from torch import Tensor, nn

from gpytorch_nkn.kernels.batch_kernel import BatchKernel, constrained
from gpytorch_nkn.kernels.network import kernel_values
from gpytorch_nkn.kernels.step_kernel import (
    StepKernel,
    add_steps,
    logistic_step,
)

__all__ = ["ChangePointKernel", "change_point_products"]


class ChangePointKernel(BatchKernel):
    r"""One kernel ahead of a learned place, another behind it; more of them with more places.

    .. math:: k(x, x') = (1 - s(x))\, k_1(x, x')\, (1 - s(x')) + s(x)\, k_2(x, x')\, s(x'),
        \qquad s(x) = \frac{1}{1 + e^{-(x_d - l) / w}}

    Sums and products of valid kernels are valid. The functions of both kernels are independent
    of each other: a small width forgets at the change point what was before. With :math:`K`
    kernels and sorted locations :math:`l_1 \le \dots \le l_{K-1}`, the :math:`i`-th one has the
    factor :math:`s_{i-1}(x) (1 - s_i(x))`, a window, at both inputs.

    Start values from data (:func:`gpytorch_nkn.initialization.initialize_from_data`, and so
    ``fit_best_of``) put the locations where the targets change most. Trained otherwise, start
    them there yourself: a change point far from the true one finds nothing to move by.

    Args:
        kernels: Two or more kernels in the order of the places, over the input columns that
            their own ``active_dims`` name. The same one may come several times.
        location: :math:`l`, a number or ``... x 1 x (K - 1)``, in units of the input.
        width: :math:`w`, positive, in the same shapes; GPflow's steepness is its inverse.
        switch_dim: The column :math:`d` along which kernels change, among those that the kernel
            sees.
        batch_shape, active_dims: As in :class:`gpytorch.kernels.Kernel`.
        location_prior, width_prior: Priors; ``None`` for none.
        location_constraint: Such as an :class:`~gpytorch.constraints.Interval` within the data;
            ``None`` for any real number.
        width_constraint: ``None`` for positive.

    Raises:
        TypeError: A part is not a kernel.
        ValueError: There are fewer than two kernels, a location is not finite, a width not
            positive, or ``switch_dim`` is no column.

    Example:
        >>> import gpytorch
        >>> from gpytorch.kernels import RBFKernel, ScaleKernel
        >>> class Regimes(gpytorch.models.ExactGP):
        ...     def __init__(self, x, y, likelihood):
        ...         super().__init__(x, y, likelihood)
        ...         self.mean_module = gpytorch.means.ConstantMean()
        ...         calm, rough = ScaleKernel(RBFKernel()), ScaleKernel(RBFKernel())
        ...         self.covar_module = ChangePointKernel(calm, rough, location=4.0, width=0.1)
        ...
        ...     def forward(self, x):
        ...         return gpytorch.distributions.MultivariateNormal(
        ...             self.mean_module(x), self.covar_module(x)
        ...         )
        >>> x = torch.linspace(0, 10, 50)
        >>> y = torch.where(x < 4, torch.sin(x), torch.sin(6 * x))
        >>> model = Regimes(x, y, gpytorch.likelihoods.GaussianLikelihood())
        >>> model.covar_module.location.shape
        torch.Size([1, 1])

    Reference: Saatci, Turner and Rasmussen (2010), Gaussian Process Change Point Models; Lloyd et
    al. (2014), Automatic Construction and Natural-Language Description of Nonparametric
    Regression Models. The formula is that of GPflow's ``ChangePoints``.
    """

    is_stationary = False
    location = constrained("location", "Where the changes are, ``... x 1 x (K - 1)``.")
    width = constrained("width", "How wide the changes are, ``... x 1 x (K - 1)``.")

    def __init__(
        self,
        *kernels: Kernel,
        location: float | Tensor = 0.0,
        width: float | Tensor = 1.0,
        switch_dim: int = 0,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
        location_prior: Prior | None = None,
        location_constraint: Interval | None = None,
        width_prior: Prior | None = None,
        width_constraint: Interval | None = None,
    ):
        for kernel in kernels:
            if not isinstance(kernel, Kernel):
                raise TypeError(f"Parts must be gpytorch.kernels.Kernel, got {kernel!r}.")
        if len(kernels) < 2:
            raise ValueError(f"A change needs at least two kernels, got {len(kernels)}.")
        if not isinstance(switch_dim, int) or switch_dim < 0:
            raise ValueError(f"switch_dim must be the number of a column, got {switch_dim!r}.")
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        self.switch_dim = switch_dim
        self.kernels = nn.ModuleList(kernels)
        add_steps(
            self, len(kernels) - 1, location, width,
            location_prior, location_constraint, width_prior, width_constraint,
        )  # fmt: skip

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Values ``... x N x M`` (``... x N`` with ``diag``)."""
        left, right = self._windows(x1), self._windows(x2)  # each ... x N x K
        total: Tensor | float = 0.0
        for place, kernel in enumerate(self.kernels):
            values = kernel_values(kernel, x1, x2, diag, **params)
            ahead, behind = left[..., place], right[..., place]
            if diag:
                total = total + ahead * values * behind
            else:
                total = total + ahead.unsqueeze(-1) * values * behind.unsqueeze(-2)
        assert isinstance(total, Tensor)
        return total

    def _windows(self, x: Tensor) -> Tensor:
        """Factors ``... x N x K`` of the kernels."""
        location, width = self._sorted()
        if self.switch_dim >= x.size(-1):
            raise ValueError(
                f"switch_dim={self.switch_dim} is none of the {x.size(-1)} input columns."
            )
        times = x[..., self.switch_dim, None]
        after = logistic_step(times, location, width)
        before = logistic_step(times, location, width, -1.0)
        one = torch.ones_like(after[..., :1])
        return torch.cat([one, after], -1) * torch.cat([before, one], -1)

    def _sorted(self) -> tuple[Tensor, Tensor]:
        """Locations in their order, and their widths."""
        location, order = self.location.sort(-1)
        return location, self.width.gather(-1, order)


def change_point_products(kernel: ChangePointKernel) -> list[list[Kernel]]:
    """The products of kernels that a change point kernel is the sum of; steps are copies."""
    location, width = (value.detach() for value in kernel._sorted())

    def step(side: Literal["before", "after"], place: int) -> Kernel:
        made = StepKernel(side, batch_shape=location.shape[:-2], active_dims=(kernel.switch_dim,))
        made.to(location)
        made.initialize(location=location[..., [place]])
        made.width = width[..., [place]]
        return made

    last = len(kernel.kernels) - 1
    return [
        [
            part,
            *([step("after", place - 1)] if place else []),
            *([step("before", place)] if place < last else []),
        ]
        for place, part in enumerate(kernel.kernels)
    ]
