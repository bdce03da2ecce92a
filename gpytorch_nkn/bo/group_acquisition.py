"""Optimisation of an acquisition function over one group of columns at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction, FixedFeatureAcquisitionFunction
from botorch.optim import optimize_acqf
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from gpytorch_nkn.fit import check_counts

__all__ = ["optimize_acqf_by_groups"]

_TOLERANCE = 1e-6  # relative gain of a sweep below which the point counts as settled


def optimize_acqf_by_groups(
    acq_function: AcquisitionFunction,
    bounds: Tensor,
    groups: Iterable[Iterable[int]],
    *,
    q: int = 1,
    incumbent: Tensor | None = None,
    num_restarts: int = 4,
    raw_samples: int = 64,
    sweeps: int = 5,
    options: dict[str, Any] | None = None,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    r"""Optimise an acquisition function group by group, then jointly.

    From each starting point, one group of columns after the other is set to its best values with
    the other columns fixed, in sweeps over all groups until one brings no gain; ``optimize_acqf``
    then moves all columns together from there. What comes back is never worse than the best
    starting point. Random points search a group of one to three columns well where they would
    be lost in all columns.

    For an acquisition function that is a sum over the groups,
    :math:`a(x) = \sum_g a_g(x_g)`, the groups' optima are its optimum, and one sweep finds it.
    Such are the posterior mean of an additive GP with these groups, and
    :math:`\sum_g (\mu_g + \beta \sigma_g)` of Kandasamy et al. (2015). Expected improvement, an
    upper confidence bound with the standard deviation of the sum, and averages over partitions
    that differ do not separate: there, sweeps climb to a point that no single group improves, and
    the joint polish goes on from it, with no promise that it is the global optimum.

    Args:
        acq_function: Acquisition function, higher is better, for inputs ``b x q x D``.
        bounds: Lower and upper bounds ``2 x D``, finite.
        groups: Groups of column numbers, each column in exactly one (``column_groups`` of a
            decomposition leaves out columns without effect: add them as groups).
        q: Number of candidates, whose columns of a group move together.
        incumbent: Starting points, ``k x q x D`` or one of ``q x D``; with ``q=1`` also ``k x D``
            or ``D``. ``None`` takes the best of ``raw_samples`` random points.
        num_restarts: Starts of the search over a group, the current values among them.
        raw_samples: Random points per group from which the other starts are picked.
        sweeps: Most sweeps over all groups; 0 leaves the joint polish alone.
        options: Of ``optimize_acqf``, such as ``{"maxiter": 50}``.
        seed: Determines the random points. The global random state is left as it was.

    Returns:
        Candidates ``q x D`` and their acquisition value, as ``optimize_acqf``.

    Raises:
        ValueError: The groups are no partition of the columns, ``incumbent`` has another shape or
            lies outside the bounds, or an option has no meaning.

    Reference: Kandasamy et al. (2015), High Dimensional Bayesian Optimisation and Bandits via
    Additive Models; Sun et al. (2018), appendix I.5.
    """
    num_columns = _check_options(bounds, q, num_restarts, raw_samples, sweeps)
    columns = _check_groups(groups, num_columns)
    if incumbent is None:
        random = draw_sobol_samples(bounds, raw_samples, q, seed=seed)
        starts = random[_values(acq_function, random).topk(1).indices]
    else:
        starts = _check_incumbent(incumbent, bounds, q)
    search = _Search(acq_function, bounds, q, num_restarts, raw_samples, options, seed)
    settled = torch.stack([search.sweep(point, columns, sweeps) for point in starts])
    candidate, value = search.polish(settled)
    return candidate, value


class _Search:
    """The options of one search."""

    def __init__(
        self,
        acq_function: AcquisitionFunction,
        bounds: Tensor,
        q: int,
        num_restarts: int,
        raw_samples: int,
        options: dict[str, Any] | None,
        seed: int,
    ):
        self.acq_function, self.bounds, self.q = acq_function, bounds, q
        self.num_restarts, self.raw_samples = num_restarts, raw_samples
        self.options = options
        self.seed = seed

    def sweep(self, point: Tensor, groups: list[list[int]], sweeps: int) -> Tensor:
        """Point ``q x D`` after sweeps over the groups."""
        value = _values(self.acq_function, point.unsqueeze(0)).squeeze(0)
        for _ in range(sweeps):
            before = value
            for group in groups:
                point, value = self._improve(point, value, group)
            if not value > before + _TOLERANCE * (1 + before.abs()):
                break
        return point

    def _improve(self, point: Tensor, value: Tensor, group: list[int]) -> tuple[Tensor, Tensor]:
        rest = [column for column in range(point.size(-1)) if column not in group]
        acq_function = self.acq_function
        if rest:
            acq_function = FixedFeatureAcquisitionFunction(
                acq_function, point.size(-1), rest, point[:, rest]
            )
        self.seed += 1  # other points each time
        random = draw_sobol_samples(self.bounds[:, group], self.raw_samples, self.q, seed=self.seed)
        best = _values(acq_function, random).topk(min(self.num_restarts - 1, self.raw_samples))
        starts = torch.cat([point[:, group].unsqueeze(0), random[best.indices]])
        found, found_value = self._optimize(acq_function, self.bounds[:, group], starts)
        if not found_value > value:
            return point, value
        point = point.clone()
        point[:, group] = found
        return point, found_value

    def polish(self, starts: Tensor) -> tuple[Tensor, Tensor]:
        """Best point after a joint search from points ``k x q x D``."""
        values = _values(self.acq_function, starts)
        best = values.argmax()
        candidate, value = self._optimize(self.acq_function, self.bounds, starts)
        if value > values[best]:
            return candidate, value
        return starts[best], values[best]

    def _optimize(
        self, acq_function: AcquisitionFunction, bounds: Tensor, starts: Tensor
    ) -> tuple[Tensor, Tensor]:
        candidate, value = optimize_acqf(
            acq_function,
            bounds,
            q=self.q,
            num_restarts=len(starts),
            batch_initial_conditions=starts,
            options=self.options,
        )
        return candidate, torch.as_tensor(value)


def _values(acq_function: AcquisitionFunction, points: Tensor) -> Tensor:
    """Values at points ``k x q x D``; what is not a number counts as worst."""
    with torch.no_grad():
        return acq_function(points).nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)


def _check_options(bounds: Tensor, q: int, num_restarts: int, raw_samples: int, sweeps: int) -> int:
    if bounds.dim() != 2 or len(bounds) != 2 or not bool(bounds.isfinite().all()):
        raise ValueError(f"bounds must be 2 x D and finite, got {bounds}.")
    check_counts(1, q=q, num_restarts=num_restarts, raw_samples=raw_samples)
    check_counts(0, sweeps=sweeps)
    return bounds.size(-1)


def _check_groups(groups: Iterable[Iterable[int]], num_columns: int) -> list[list[int]]:
    columns = [sorted(group) for group in groups]
    if sorted(c for group in columns for c in group) != list(range(num_columns)):
        raise ValueError(
            f"groups must hold each of the columns 0 to {num_columns - 1} once, got {columns}."
        )
    return [group for group in columns if group]


def _check_incumbent(incumbent: Tensor, bounds: Tensor, q: int) -> Tensor:
    """Starting points ``k x q x D``."""
    points = incumbent.detach()
    if q == 1 and points.dim() in (1, 2):
        points = points.reshape(-1, 1, points.size(-1))
    elif points.dim() == 2:
        points = points.unsqueeze(0)
    if points.dim() != 3 or not len(points) or points.shape[1:] != (q, bounds.size(-1)):
        raise ValueError(
            f"incumbent must be k x {q} x {bounds.size(-1)}, got the shape "
            f"{tuple(incumbent.shape)}."
        )
    if not bool(points.isfinite().all()):
        raise ValueError(f"incumbent must be finite, got {incumbent}.")
    slack = 1e-6 * (bounds[1] - bounds[0])  # of rounding
    if bool(((points < bounds[0] - slack) | (points > bounds[1] + slack)).any()):
        raise ValueError(
            f"incumbent must lie within the bounds {bounds.tolist()}, got {incumbent}."
        )
    return points.clamp(bounds[0], bounds[1])
