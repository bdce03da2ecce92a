"""Kernel on learned input warps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from torch import Tensor

from gpytorch_nkn.kernels.batch_kernel import BatchKernel, constrained
from gpytorch_nkn.kernels.categorical_kernel import categorical_columns
from gpytorch_nkn.kernels.distances import are_same
from gpytorch_nkn.kernels.network import kernel_values
from gpytorch_nkn.linalg import check_counts

__all__ = ["InputWarpKernel", "kumaraswamy"]

_EDGE = 1e-4  # distance from 0 and 1 below which the curve is linear, for finite slopes


def kumaraswamy(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return the Kumaraswamy distribution function on [0, 1], and the identity elsewhere."""
    inside = x.clamp(_EDGE, 1 - _EDGE)
    rest = (b * (-(a * inside.log()).expm1()).log()).exp()  # (1 - x^a)^b
    curve = torch.where(x < _EDGE, (1 - rest) * (x / _EDGE), 1 - rest)
    curve = torch.where(x > 1 - _EDGE, 1 - rest * ((1 - x) / _EDGE), curve)
    return torch.where((x < 0) | (x > 1), x, curve)


class InputWarpKernel(BatchKernel):
    r"""Kernel on inputs in [0, 1], which learned curves warp column by column.

    .. math:: k(x, x') = k_0(w(x), w(x')), \qquad
        w_d(x) = 1 - (1 - x_d^{a_d})^{b_d}

    A kernel on transformed inputs is valid. Some functions vary faster near one end of a column,
    for example a loss over the learning rate; a warp makes them stationary. The Kumaraswamy
    distribution function resembles a logarithm (:math:`a < 1`), an exponential
    (:math:`a > 1, b = 1`) or an S-shaped curve. It is the identity outside [0, 1], and linear
    within :math:`10^{-4}` of both ends, for finite slopes.

    BoTorch's input transform ``Warp`` applies the same curve to a whole model; this kernel can
    warp the inputs of single sub-kernels.

    Args:
        base_kernel: The kernel :math:`k_0`.
        ard_num_dims: Number of input columns.
        columns: Indices of warped columns; ``None`` for all. Do not warp categorical columns.
        concentration1, concentration0: Start values of :math:`a` and :math:`b`, positive numbers
            or ``... x 1 x C``.
        concentration1_prior, concentration0_prior: Priors; ``None`` for no prior. For maximum a
            posteriori estimates use ``log_normal_prior(1.0, 0.75)`` of :mod:`gpytorch_nkn.layers`,
            with mode 1. Log-normal priors with median 1 (Snoek et al.) have a mode below 1, which
            stretches both ends without evidence.
        batch_shape, active_dims: As in :class:`gpytorch.kernels.Kernel`; ``batch_shape=None`` for
            the batch shape of the base kernel.

    Raises:
        TypeError: ``base_kernel`` is not a kernel, or ``columns`` are not integers.
        ValueError: A column does not exist or is given twice, or a start value is not positive or
            has a wrong shape.
        NotImplementedError: The base kernel has several outputs per input.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> kernel = InputWarpKernel(MaternKernel(2.5, ard_num_dims=3), 3, concentration1=0.5)
        >>> kernel.warp(torch.tensor([[0.0, 0.25, 1.0]]))
        tensor([[0.0000, 0.5000, 1.0000]], grad_fn=<...>)

    Reference: Snoek, Swersky, Zemel and Adams (2014), Input Warping for Bayesian Optimization of
    Non-Stationary Functions, with BoTorch's curve.
    """

    is_stationary = False
    concentration1 = constrained("concentration1", "The exponent :math:`a`, ``... x 1 x C``.")
    concentration0 = constrained("concentration0", "The exponent :math:`b`, ``... x 1 x C``.")

    def __init__(
        self,
        base_kernel: Kernel,
        ard_num_dims: int,
        *,
        columns: Sequence[int] | None = None,
        concentration1: float | Tensor = 1.0,
        concentration0: float | Tensor = 1.0,
        concentration1_prior: Prior | None = None,
        concentration0_prior: Prior | None = None,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ):
        if not isinstance(base_kernel, Kernel):
            raise TypeError(f"base_kernel must be a gpytorch.kernels.Kernel, got {base_kernel!r}.")
        check_counts(1, ard_num_dims=ard_num_dims)
        given = range(ard_num_dims) if columns is None else columns
        batch_shape = base_kernel.batch_shape if batch_shape is None else batch_shape
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        self.base_kernel = base_kernel
        self.num_columns = ard_num_dims
        self.columns = list(categorical_columns(given, ard_num_dims, "columns"))
        shape = (*batch_shape, 1, len(self.columns))
        for name, value, prior in (
            ("concentration1", concentration1, concentration1_prior),
            ("concentration0", concentration0, concentration0_prior),
        ):
            self.add_constrained(name, shape, None, value)
            self.add_prior(f"{name}_prior", prior, name)

    def warp(self, x: Tensor, a: Tensor | None = None, b: Tensor | None = None) -> Tensor:
        """Return warped inputs ``... x N x D``; ``a`` and ``b`` replace the kernel's exponents."""
        if x.size(-1) != self.num_columns:
            raise ValueError(f"x must have {self.num_columns} columns, got shape {tuple(x.shape)}.")
        a = self.concentration1 if a is None else a
        b = self.concentration0 if b is None else b
        if len(self.columns) == self.num_columns:
            return kumaraswamy(x, a, b)
        warped = kumaraswamy(x[..., self.columns], a, b)
        columns = torch.tensor(self.columns, dtype=torch.long, device=x.device)
        x = x.expand(*warped.shape[:-1], self.num_columns).to(warped.dtype)
        return x.index_copy(-1, columns, warped)

    def num_outputs_per_input(self, x1: Tensor, x2: Tensor) -> int:
        """Return 1; derivatives in a base kernel would be with respect to warped inputs."""
        if self.base_kernel.num_outputs_per_input(x1, x2) != 1:
            raise NotImplementedError(
                f"base_kernel must have one output per input, got {type(self.base_kernel).__name__}"
                "; use InputWarpKernel as its base kernel instead."
            )
        return 1

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return values ``... x N x M`` (``... x N`` with ``diag``)."""
        left = self.warp(x1)
        right = left if are_same(x1, x2) else self.warp(x2)
        return kernel_values(self.base_kernel, left, right, diag, **params)
