"""Any kernel on inputs each of whose columns is bent by a learned curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from torch import Tensor

from gpytorch_nkn.kernels.batch_kernel import BatchKernel, constrained
from gpytorch_nkn.kernels.distances import are_same
from gpytorch_nkn.kernels.network import kernel_values

__all__ = ["InputWarpKernel", "kumaraswamy"]

_EDGE = 1e-4  # from an end of [0, 1], within which a curve is a straight line: slopes are finite


def kumaraswamy(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Distribution function of Kumaraswamy on [0, 1], the identity outside; broadcasts."""
    inside = x.clamp(_EDGE, 1 - _EDGE)
    rest = (b * (-(a * inside.log()).expm1()).log()).exp()  # (1 - x^a)^b
    curve = torch.where(x < _EDGE, (1 - rest) * (x / _EDGE), 1 - rest)
    curve = torch.where(x > 1 - _EDGE, 1 - rest * ((1 - x) / _EDGE), curve)
    return torch.where((x < 0) | (x > 1), x, curve)


class InputWarpKernel(BatchKernel):
    r"""Another kernel on inputs in [0, 1], each column of which is bent by a curve.

    .. math:: k(x, x') = k_0(w(x), w(x')), \qquad
        w_d(x) = 1 - (1 - x_d^{a_d})^{b_d}

    A valid kernel, as any is on transformed inputs. What varies fast near one end of a column and
    slowly near the other, as over a learning rate, is stationary on a bent scale. The curve is the
    distribution function of Kumaraswamy, with the shapes of that of a beta distribution: a
    logarithm (:math:`a < 1`), an exponential (:math:`a > 1, b = 1`), and S in both directions.
    Outside of [0, 1] it is the identity; for :math:`10^{-4}` at both ends it is straight, so that
    slopes are finite there.

    BoTorch's input transform ``Warp`` has the same curve for a whole model. Here parts of a
    kernel may have curves of their own, and a network below is trained in closed form.

    Args:
        base_kernel: The kernel :math:`k_0`.
        ard_num_dims: Input columns.
        columns: Those that are bent; ``None`` for all. Codes of categories must not be.
        concentration1: Start value of :math:`a`, positive; a number or ``... x 1 x C``.
        concentration0: Start value of :math:`b`.
        concentration1_prior, concentration0_prior: Priors; ``None`` for none. Snoek et al. have
            log-normal ones with median 1, whose mode is below: a maximum a posteriori then
            stretches both ends where the data say nothing, and needs
            ``log_normal_prior(1.0, 0.75)`` of :mod:`gpytorch_nkn.layers`, with mode 1.
        concentration1_constraint, concentration0_constraint: ``None`` for positive.
        batch_shape, active_dims: As in :class:`gpytorch.kernels.Kernel`; the default of
            ``batch_shape`` is that of the base kernel.

    Raises:
        TypeError: ``base_kernel`` is no kernel, or ``columns`` are no numbers.
        ValueError: A column does not exist, or a start value is not positive or has another shape.
        NotImplementedError: The base kernel has several outputs per input.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> kernel = InputWarpKernel(MaternKernel(2.5, ard_num_dims=3), 3, concentration1=0.5)
        >>> kernel.warp(torch.tensor([[0.0, 0.25, 1.0]]))
        tensor([[0.0000, 0.5000, 1.0000]], grad_fn=<...>)

    Reference: Snoek, Swersky, Zemel and Adams (2014), Input Warping for Bayesian Optimization of
    Non-Stationary Functions, with the curve that BoTorch has.
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
        concentration1_constraint: Interval | None = None,
        concentration0_constraint: Interval | None = None,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ):
        if not isinstance(base_kernel, Kernel):
            raise TypeError(f"base_kernel must be a gpytorch.kernels.Kernel, got {base_kernel!r}.")
        given = range(ard_num_dims) if columns is None else columns
        if not isinstance(given, Sequence) or not all(type(column) is int for column in given):
            raise TypeError(f"columns must be numbers of columns, got {given!r}.")
        if not all(-ard_num_dims <= column < ard_num_dims for column in given):
            raise ValueError(f"columns must be some of {ard_num_dims}, got {list(given)}.")
        batch_shape = base_kernel.batch_shape if batch_shape is None else batch_shape
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        self.base_kernel = base_kernel
        self.num_columns = ard_num_dims
        self.columns = sorted({column % ard_num_dims for column in given})
        shape = (*batch_shape, 1, len(self.columns))
        for name, value, prior, constraint in (
            ("concentration1", concentration1, concentration1_prior, concentration1_constraint),
            ("concentration0", concentration0, concentration0_prior, concentration0_constraint),
        ):
            self.add_constrained(name, shape, constraint)
            value = torch.as_tensor(value).detach()
            if not bool((value.isfinite() & (value > 0)).all()):
                raise ValueError(f"{name} must be finite and positive, got {value.tolist()}.")
            if value.dim() and value.shape != shape[-value.dim() :]:
                raise ValueError(
                    f"{name} must be a number or of shape {shape}, got {tuple(value.shape)}."
                )
            self.initialize(**{name: value.expand(shape)})
            self.add_prior(f"{name}_prior", prior, name)

    def warp(self, x: Tensor, a: Tensor | None = None, b: Tensor | None = None) -> Tensor:
        """The bent inputs ``... x N x D``, by the kernel's exponents ``... x 1 x C`` or others."""
        if x.size(-1) != self.num_columns:
            raise ValueError(
                f"x must have {self.num_columns} columns, got the shape {tuple(x.shape)}."
            )
        a = self.concentration1 if a is None else a
        b = self.concentration0 if b is None else b
        if len(self.columns) == self.num_columns:
            return kumaraswamy(x, a, b)
        bent = kumaraswamy(x[..., self.columns], a, b)
        whole = x.expand(*bent.shape[:-1], self.num_columns).to(bent.dtype)
        return whole.index_copy(
            -1, torch.tensor(self.columns, dtype=torch.long, device=x.device), bent
        )

    def num_outputs_per_input(self, x1: Tensor, x2: Tensor) -> int:
        """One; kernels of gradients would have them by bent inputs."""
        if self.base_kernel.num_outputs_per_input(x1, x2) != 1:
            raise NotImplementedError(
                "base_kernel must have one output per input, got a "
                f"{type(self.base_kernel).__name__}: put this kernel into it."
            )
        return 1

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Values ``... x N x M`` (``... x N`` with ``diag``)."""
        left = self.warp(x1)
        right = left if are_same(x1, x2) else self.warp(x2)
        return kernel_values(self.base_kernel, left, right, diag, **params)
