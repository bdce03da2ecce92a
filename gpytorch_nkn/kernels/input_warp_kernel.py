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
from gpytorch_nkn.kernels.evaluation import is_ordinary
from gpytorch_nkn.kernels.network import kernel_values

__all__ = ["InputWarpKernel", "kumaraswamy"]

_EDGE = 1e-4  # from an end of [0, 1], within which a curve is a straight line: slopes are finite


def kumaraswamy(x: Tensor, concentration1: Tensor, concentration0: Tensor) -> Tensor:
    """Distribution function of Kumaraswamy on [0, 1], the identity outside; broadcasts."""
    if is_ordinary(x, concentration1) and is_ordinary(x, concentration0):
        return _Curve.apply(x, concentration1, concentration0)
    return _curve(x, concentration1, concentration0)


def _curve(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    inside = x.clamp(_EDGE, 1 - _EDGE)
    rest = (b * (-(a * inside.log()).expm1()).log()).exp()  # (1 - x^a)^b
    curve = torch.where(x < _EDGE, (1 - rest) * (x / _EDGE), 1 - rest)
    curve = torch.where(x > 1 - _EDGE, 1 - rest * ((1 - x) / _EDGE), curve)
    return torch.where((x < 0) | (x > 1), x, curve)


class _Curve(torch.autograd.Function):
    """The curve, whose slopes are products of what it was computed from."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        inside = x.clamp(_EDGE, 1 - _EDGE)
        log_x = inside.log()
        complement = -(a * log_x).expm1()  # 1 - x^a
        log_complement = complement.log()
        rest = (b * log_complement).exp()
        ctx.at_ends = not torch.equal(inside, x)
        ctx.save_for_backward(x, a, b, log_x, complement, log_complement, rest)
        return _curve(x, a, b) if ctx.at_ends else 1 - rest

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        x, a, b, log_x, complement, log_complement, rest = ctx.saved_tensors
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled():  # for derivatives of a second order
            # by aliases: what one of them was computed from is not this function's business
            x, a, b = (t.view_as(t) for t in (x, a, b))
            of = [t for t, is_needed in zip((x, a, b), needs, strict=True) if is_needed]
            found = iter(torch.autograd.grad(_curve(x, a, b), of, gradient, create_graph=True))
            return tuple(next(found) if is_needed else None for is_needed in needs)
        chain = b * rest / complement * (1 - complement)  # the slope by a log x
        low, high = x < _EDGE, x > 1 - _EDGE
        outside = (x < 0) | (x > 1)
        of_x = of_a = of_b = None
        if needs[0]:
            slope = a * chain / x
            if ctx.at_ends:
                slope = torch.where(low, (1 - rest) / _EDGE, slope)
                slope = torch.where(high, rest / _EDGE, slope).masked_fill(outside, 1.0)
            of_x = (gradient * slope).sum_to_size(x.shape)
        if needs[1] or needs[2]:
            if ctx.at_ends:
                share = torch.where(high, 1 - x, x) / _EDGE
                share = torch.where(low | high, share, 1.0).masked_fill(outside, 0.0)
                gradient = gradient * share
            if needs[1]:
                of_a = (gradient * chain * log_x).sum_to_size(a.shape)
            if needs[2]:
                of_b = (gradient * -rest * log_complement).sum_to_size(b.shape)
        return of_x, of_a, of_b


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
