"""Base class of random walk and trend kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gpytorch_nkn.kernels.formula import Formula
from gpytorch_nkn.kernels.formula_kernel import FormulaKernel
from gpytorch_nkn.linalg import broadcasts

__all__ = ["WalkKernel", "in_order", "start_walk", "walk_formula"]


class WalkKernel(FormulaKernel):
    r"""Covariance of filtered white noise that starts at an origin.

    .. math:: k(x, x') = u^{-p} \int_0^{\min(a, b)} g(a - s)\, g(b - s)\, ds,
        \qquad a = \max(x - o, 0),\; b = \max(x' - o, 0)

    The kernel is valid for any impulse response :math:`g`, as an inner product of functions of
    :math:`s`. A subclass defines the integral as ``covariance(a, b)``, and the power :math:`p` of
    time in it. For arguments see :class:`gpytorch_nkn.kernels.WienerKernel`.
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
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if unit is not None and not bool((torch.as_tensor(unit) > 0).all()):
            raise ValueError(f"unit must be positive, got {unit!r}.")
        self._given = set()  # names of the arguments that are not None
        for name, given, start in (("origin", origin, 0.0), ("unit", unit, 1.0)):
            if given is not None:
                self._given.add(name)
            value = torch.as_tensor(start if given is None else given).detach()
            if not bool(value.isfinite().all()):
                raise ValueError(f"{name} must be finite, got {given!r}.")
            if not (isinstance(given, Tensor) and value.is_floating_point()):
                value = value.to(torch.get_default_dtype())
            shape = (*self.batch_shape, 1, 1)
            if not broadcasts(value.shape, shape):
                raise ValueError(
                    f"{name} must be a number or of shape {shape}, got {tuple(value.shape)}."
                )
            value = value.expand(shape).clone()
            self.register_parameter(name, nn.Parameter(value, requires_grad=False))


def in_order(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the earlier and the later of two times.

    ``torch.minimum`` splits gradients between equal times, which makes second derivatives wrong.
    """
    first = a < b
    return torch.where(first, a, b), torch.where(first, b, a)


def start_walk(kernel: WalkKernel, x: Tensor) -> None:
    """Set the origin one median step before the inputs ``N x 1``, and variance 1 at the last input.

    Values passed to the constructor do not change.
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
    """Create the formula of a random walk or trend from its ``covariance(a, b)``.

    ``covariance`` receives times since the origin and, if the kernel has one, a lengthscale.
    The covariance scales with this ``power`` of time and lengthscale. ``code`` is the number of the
    compiled formula.
    """

    def values(
        x1: Tensor, x2: Tensor, origin: Tensor, unit: Tensor, *lengthscale: Tensor
    ) -> Tensor:
        a, b = (x1 - origin).clamp_min(0.0), (x2 - origin).clamp_min(0.0).mT
        return covariance(a, b, *lengthscale) / unit**power

    return Formula(values, code=code, max_columns=1)
