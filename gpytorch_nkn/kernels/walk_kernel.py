"""What kernels of processes that start at an origin and add up noise have in common."""

from __future__ import annotations

from collections.abc import Callable

import torch
from gpytorch.constraints import Interval
from gpytorch.priors import Prior
from torch import Tensor, nn

from gpytorch_nkn.kernels.formula import Formula
from gpytorch_nkn.kernels.formula_kernel import FormulaKernel

__all__ = ["WalkKernel", "in_order", "start_walk", "walk_formula"]


class WalkKernel(FormulaKernel):
    r"""Covariance of noise that is added up from an origin on.

    .. math:: k(x, x') = u^{-p} \int_0^{\min(a, b)} g(a - s)\, g(b - s)\, ds,
        \qquad a = \max(x - o, 0),\; b = \max(x' - o, 0)

    An inner product of functions of :math:`s`, hence valid for every response :math:`g`. A
    subclass states the integral as ``covariance(a, b)`` and the power :math:`p` of time in it.

    Args:
        origin: Where the process starts, a number or ``... x 1 x 1``; ``None`` is 0 until start
            values are taken from data.
        unit: The unit of time, a positive number or ``... x 1 x 1``; ``None`` is 1 until start
            values are taken from data.
        batch_shape, active_dims, lengthscale_prior, lengthscale_constraint: As in
            :class:`gpytorch.kernels.Kernel`.

    Raises:
        TypeError: A prior or constraint is for a lengthscale that there is not.
        ValueError: ``unit`` is not positive, or a number is not finite.
    """

    is_stationary = False
    parameter_names: tuple[str, ...] = ("origin", "unit")
    power: int
    covariance: Callable[..., Tensor]

    def __init__(
        self,
        *,
        origin: float | Tensor | None = None,
        unit: float | Tensor | None = None,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
        lengthscale_prior: Prior | None = None,
        lengthscale_constraint: Interval | None = None,
    ):
        super().__init__(
            batch_shape=batch_shape,
            active_dims=active_dims,
            lengthscale_prior=lengthscale_prior,
            lengthscale_constraint=lengthscale_constraint,
        )
        if not self.has_lengthscale and (lengthscale_prior or lengthscale_constraint):
            raise TypeError(f"{type(self).__name__} has no lengthscale.")
        if unit is not None and not bool((torch.as_tensor(unit) > 0).all()):
            raise ValueError(f"unit must be positive, got {unit!r}.")
        self._given = frozenset(n for n, v in (("origin", origin), ("unit", unit)) if v is not None)
        for name, start in (
            ("origin", 0.0 if origin is None else origin),
            ("unit", 1.0 if unit is None else unit),
        ):
            value = torch.as_tensor(start).detach()
            if not bool(value.isfinite().all()):
                raise ValueError(f"{name} must be finite, got {start!r}.")
            if not value.is_floating_point():
                value = value.to(torch.get_default_dtype())
            value = value.expand(*self.batch_shape, 1, 1).clone()
            self.register_parameter(name, nn.Parameter(value, requires_grad=False))


def in_order(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The earlier and the later of two times, one of each where they are equal.

    The derivatives of a function of both are right there if they are continuous; those of
    ``torch.minimum`` are shared among the two, which is wrong for second derivatives.
    """
    first = a < b
    return torch.where(first, a, b), torch.where(first, b, a)


def start_walk(kernel: WalkKernel, x: Tensor) -> None:
    """The origin a typical step ahead of the inputs ``N x 1``; variance one at the last of them.

    What was given when the kernel was made stays.
    """
    times = x.detach().flatten().unique()  # sorted
    step = times.diff().median() if len(times) > 1 else times.new_ones(())
    if "origin" not in kernel._given:
        kernel.initialize(origin=(times[0] - step).to(kernel.origin).expand_as(kernel.origin))
    if "unit" not in kernel._given:
        reach = (times[-1].to(kernel.origin) - kernel.origin).clamp_min(0.0)
        with torch.no_grad():
            shape = [getattr(kernel, name) for name in kernel.parameter_names[2:]]
            last = type(kernel).covariance(reach, reach, *shape)
        unit = last ** (1 / kernel.power)
        kernel.initialize(unit=torch.where(unit > 0, unit, 1.0))


def walk_formula(covariance: Callable[..., Tensor], power: int, code: int) -> Formula:
    """The formula of a walk, whose response may have a lengthscale.

    Args:
        covariance: Of times ``a`` and ``b`` since the origin; a lengthscale comes behind them.
        power: Power of time in it, the lengthscale's included.
        code: Number of the compiled formula.
    """

    def values(
        x1: Tensor, x2: Tensor, origin: Tensor, unit: Tensor, *lengthscale: Tensor
    ) -> Tensor:
        a, b = (x1 - origin).clamp_min(0.0), (x2 - origin).clamp_min(0.0).mT
        return covariance(a, b, *lengthscale) / unit**power

    return Formula(values, code=code, max_columns=1)
