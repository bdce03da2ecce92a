"""Steps up or down at a learned place, which switch other kernels on and off."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from gpytorch.constraints import Interval
from gpytorch.priors import Prior
from torch import Tensor, nn

from gpytorch_nkn.kernels.batch_kernel import BatchKernel, constrained
from gpytorch_nkn.kernels.formula import Formula
from gpytorch_nkn.kernels.formula_kernel import FormulaKernel

__all__ = ["StepKernel", "add_steps", "logistic_step"]

_SIDES = {"before": -1.0, "after": 1.0}
_FAR = 700.0  # widths from a step at which it is over, in any floating point format


def logistic_step(x: Tensor, location: Tensor, width: Tensor, sign: float = 1.0) -> Tensor:
    """Logistic function of (x - location) / width, or of its negative; finite for any width."""
    apart = x - location
    far = apart.abs() > _FAR * width
    # twice where: what is not chosen must be finite for its gradient to be none
    within = torch.where(far, 0.0, apart) / width
    return torch.sigmoid(sign * torch.where(far, _FAR * apart.sign(), within))


def add_steps(
    kernel: BatchKernel,
    count: int,
    location: float | Tensor,
    width: float | Tensor,
    location_prior: Prior | None,
    location_constraint: Interval | None,
    width_prior: Prior | None,
    width_constraint: Interval | None,
) -> None:
    """Give a kernel the parameters ``location`` and ``width``, ``... x 1 x count``.

    Raises:
        ValueError: A location is not finite, or a width not positive.
    """
    shape = (*kernel.batch_shape, 1, count)
    kernel.register_parameter("raw_location", nn.Parameter(torch.zeros(shape)))
    if location_constraint is not None:
        kernel.register_constraint("raw_location", location_constraint)
    kernel.add_constrained("width", shape, width_constraint)
    for name, value in (("location", location), ("width", width)):
        value = torch.as_tensor(value).detach()
        if not bool(value.isfinite().all()) or (name == "width" and not bool((value > 0).all())):
            kind = "finite" if name == "location" else "finite and positive"
            raise ValueError(f"{name} must be {kind}, got {value.tolist()}.")
        kernel.initialize(**{name: value.expand(shape)})
    kernel.add_prior("location_prior", location_prior, "location")
    kernel.add_prior("width_prior", width_prior, "width")


class StepKernel(FormulaKernel):
    r"""Switch that goes on (or off) at a learned place, for products with other kernels.

    .. math:: k(x, x') = s(x)\, s(x'), \qquad s(x) = \frac{1}{1 + e^{-(x - l) / w}}

    with :math:`1 - s` in place of :math:`s` for ``side="before"``. An inner product of one
    feature, hence valid. Alone it is a shift of level at :math:`l`; times another kernel it keeps
    what that kernel says to one side, and two of them keep it to a window. As primitives of a
    network, steps give change points whose parts the network finds;
    :class:`gpytorch_nkn.kernels.ChangePointKernel` passes from one given kernel to the next.

    Start values from data (:func:`gpytorch_nkn.initialization.initialize_from_data`, and so
    ``fit_best_of`` and the estimators) put the location where the targets change most.

    Args:
        side: ``"after"`` for one behind the location and zero ahead of it; ``"before"`` for the
            reverse.
        location: :math:`l`, a number or ``... x 1 x 1``, in units of the input.
        width: :math:`w`, a positive number or ``... x 1 x 1``, in units of the input: three
            quarters of the step lie within two widths of its middle. GPflow's steepness is its
            inverse.
        batch_shape, active_dims: As in :class:`gpytorch.kernels.Kernel`; one input column.
        location_prior, width_prior: Priors; ``None`` for none.
        location_constraint: Such as an :class:`~gpytorch.constraints.Interval` within the data;
            ``None`` for any real number.
        width_constraint: ``None`` for positive.

    Raises:
        ValueError: ``side`` is neither, a location is not finite or a width not positive, or
            there are several input columns.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> before, after = StepKernel("before", location=5.0), StepKernel(location=3.0)
        >>> window = RBFKernel() * after * before  # between 3 and 5

    Reference: Lloyd et al. (2014), Automatic Construction and Natural-Language Description of
    Nonparametric Regression Models, appendix A.
    """

    is_stationary = False
    parameter_names = ("location", "width")
    location = constrained("location", "Where the step is, ``... x 1 x 1``.")
    width = constrained("width", "How wide the step is, ``... x 1 x 1``.")

    def __init__(
        self,
        side: Literal["before", "after"] = "after",
        *,
        location: float | Tensor = 0.0,
        width: float | Tensor = 1.0,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
        location_prior: Prior | None = None,
        location_constraint: Interval | None = None,
        width_prior: Prior | None = None,
        width_constraint: Interval | None = None,
    ):
        if side not in _SIDES:
            raise ValueError(f"side must be 'before' or 'after', got {side!r}.")
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        self.side = side
        add_steps(
            self, 1, location, width,
            location_prior, location_constraint, width_prior, width_constraint,
        )  # fmt: skip

    @property
    def formula(self) -> Formula:  # type: ignore[override]
        """The formula of the side."""
        return _FORMULAS[self.side]


def _values(sign: float, x1: Tensor, x2: Tensor, location: Tensor, width: Tensor) -> Tensor:
    left, right = (logistic_step(x, location, width, sign) for x in (x1, x2))
    return left * right.mT


_FORMULAS = {
    side: Formula(partial(_values, sign), code=code, max_columns=1)
    for (side, sign), code in zip(_SIDES.items(), (13, 14), strict=True)
}
