"""Initial conditions for optimising acquisition functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction, OneShotAcquisitionFunction
from botorch.optim.initializers import gen_batch_initial_conditions
from botorch.optim.parameter_constraints import evaluate_feasibility
from botorch.utils.sampling import manual_seed
from torch import Tensor

from gpytorch_nkn.linalg import check_finite

__all__ = ["coordinate_sweep_initial_conditions"]

_MAX_COORDINATES = 100  # largest number of coordinates that a sweep visits
_NUM_VALUES = 16  # values per coordinate, evenly spaced with a random offset

Constraints = list[tuple[Tensor, Tensor, float]]


def coordinate_sweep_initial_conditions(
    acq_function: AcquisitionFunction,
    bounds: Tensor,
    q: int,
    num_restarts: int,
    raw_samples: int,
    fixed_features: Mapping[int, float | Tensor] | None = None,
    options: dict[str, bool | float | int] | None = None,
    inequality_constraints: Constraints | None = None,
    equality_constraints: Constraints | None = None,
    *,
    incumbent: Tensor,
) -> Tensor:
    """Return initial conditions, half from coordinate sweeps and half from BoTorch's generator.

    In ten dimensions, few random points hit the small region of high acquisition values. A sweep
    starts at one of the best points and sets one input dimension after another to the best of 16
    values. Sweeps work well if the objective is nearly a sum of functions of few dimensions. Pass
    the function to ``optimize_acqf`` as ``ic_generator``, with ``incumbent=``.
    ``optimize_acqf_mixed`` takes ``ic_gen_kwargs={"incumbent": ...}``. Nonlinear constraints are
    not supported.

    Args:
        acq_function: Acquisition function to maximise. NaN counts as the worst value.
        bounds: Finite lower and upper bounds ``2 x d``.
        q: Number of points that are optimised jointly.
        num_restarts: Number of initial conditions ``R``.
        raw_samples: Number of random points from which BoTorch chooses its half of the initial
            conditions.
        fixed_features: Fixed values, by the index of their input dimension.
        options: Options of BoTorch's generator. ``init_batch_limit`` (or 16 times ``batch_limit``)
            also limits the batch size in sweeps, and ``seed`` determines the sweeps. BoTorch uses
            the seed only for raw samples; call ``torch.manual_seed`` for reproducible results.
        inequality_constraints: Linear constraints as in ``optimize_acqf``. Sweeps satisfy them. If
            an incumbent violates them, its sweep starts from one of BoTorch's points.
        equality_constraints: Linear constraints as in ``optimize_acqf``. With them, all initial
            conditions are BoTorch's, because moves along one coordinate would violate them.
        incumbent: Points ``B x d`` (or ``d``) from which sweeps start, best first, such as the best
            inputs so far; clipped to the bounds. With ``q > 1``, an incumbent is the first of the
            ``q`` points, and BoTorch generates the others.

    Returns:
        Initial conditions ``R x q x d``.

    Raises:
        ValueError: ``incumbent`` or ``bounds`` has a wrong shape, a value is not finite, or a fixed
            feature is out of range or has several values.
        NotImplementedError: ``acq_function`` is a one-shot acquisition function (knowledge
            gradient), for which BoTorch has generators.

    Random numbers are drawn from PyTorch's global generator, as in BoTorch.
    """
    if isinstance(acq_function, OneShotAcquisitionFunction):
        raise NotImplementedError(
            "acq_function must not be a one-shot acquisition function, got "
            f"{type(acq_function).__name__}: drop ic_generator, because BoTorch has its own."
        )
    incumbents = _checked_incumbents(bounds, incumbent)
    fixed = _fixed_values(fixed_features, bounds.size(-1))
    options = options or {}
    num_swept = 0 if equality_constraints else max(round(num_restarts / 2), 1)
    needs_random = q > 1 or bool(inequality_constraints)  # sweeps use some of BoTorch's points
    num_random = num_restarts if needs_random else num_restarts - num_swept
    random_starts = bounds.new_empty(0, q, bounds.size(-1))
    if num_random:
        random_starts = gen_batch_initial_conditions(
            acq_function,
            bounds,
            q,
            num_random,
            raw_samples,
            fixed_features=fixed or None,
            options=options,
            inequality_constraints=inequality_constraints,
            equality_constraints=equality_constraints,
        )
    if num_swept == 0:
        return random_starts
    order = torch.arange(num_swept, device=incumbents.device) % len(incumbents)
    starts = incumbents[order].unsqueeze(-2)  # S x 1 x d
    if q > 1:
        starts = torch.cat([starts, random_starts[:num_swept, 1:]], -2)
    for index, value in fixed.items():
        starts[..., index] = value

    def is_feasible(points: Tensor) -> Tensor:
        return evaluate_feasibility(points, inequality_constraints=inequality_constraints)

    def values(points: Tensor) -> Tensor:
        flat = points.flatten(0, -3)
        # 16 points without gradients take about as much memory as one start with gradients
        limit = options.get("init_batch_limit") or _NUM_VALUES * options.get("batch_limit", 0)
        limit = limit or len(flat)
        result = torch.cat([acq_function(chunk).to(flat) for chunk in flat.split(int(limit))])
        result = result.masked_fill(result.isnan() | ~is_feasible(flat), -torch.inf)
        return result.view(points.shape[:-2])

    if needs_random:
        feasible = is_feasible(starts)[:, None, None]
        starts = torch.where(feasible, starts, random_starts[:num_swept])
        random_starts = random_starts[num_swept:]
    seed: Any = options.get("seed")
    with torch.no_grad(), manual_seed(seed):
        swept = _sweep(values, bounds, starts, set(fixed))
    return torch.cat([swept, random_starts])


def _checked_incumbents(bounds: Tensor, incumbent: Tensor) -> Tensor:
    """Check the arguments, and return the incumbents ``B x d``."""
    if bounds.shape[0] != 2 or bounds.dim() != 2 or not bool(bounds.isfinite().all()):
        raise ValueError(f"bounds must be 2 x d and finite, got {bounds}.")
    points = torch.as_tensor(incumbent).detach().to(bounds)
    check_finite(incumbent=points)
    points = points.unsqueeze(0) if points.dim() == 1 else points
    if points.dim() != 2 or len(points) == 0 or points.size(-1) != bounds.size(-1):
        raise ValueError(
            f"incumbent must be B x {bounds.size(-1)} with at least one point, got shape "
            f"{tuple(points.shape)}."
        )
    return points.clamp(bounds[0], bounds[1])


def _fixed_values(
    fixed_features: Mapping[int, float | Tensor] | None, num_dims: int
) -> dict[int, float]:
    """Return the values of the fixed input dimensions, with non-negative indices as keys."""
    fixed = {}
    for index, value in (fixed_features or {}).items():
        number = torch.as_tensor(value, dtype=torch.float64)
        if number.numel() != 1 or not bool(number.isfinite()):
            raise ValueError(
                f"Each fixed feature must have one finite value, got {value} for dimension {index}."
            )
        if not -num_dims <= index < num_dims:
            raise ValueError(
                f"fixed_features must be indices of {num_dims} input dimensions, got {index}."
            )
        fixed[index % num_dims] = float(number)
    return fixed


def _sweep(
    values: Callable[[Tensor], Tensor], bounds: Tensor, starts: Tensor, fixed: set[int]
) -> Tensor:
    """Move each coordinate of starts ``S x q x d`` in turn to the best of 16 values.

    Each start visits at most 100 coordinates, in its own random order.
    """
    num_starts, q, d = starts.shape
    free = [index for index in range(q * d) if index % d not in fixed]
    starts = starts.flatten(1)
    lower, width = bounds[0].repeat(q), (bounds[1] - bounds[0]).repeat(q)
    rows = torch.arange(num_starts, device=starts.device)
    best = values(starts.view(num_starts, q, d))
    orders = torch.rand(num_starts, len(free), device=starts.device).argsort(-1)
    orders = orders[:, :_MAX_COORDINATES]
    orders = torch.tensor(free, device=starts.device)[orders]  # S x free coordinates
    for coordinate in orders.unbind(-1):
        offsets = torch.rand(num_starts, 1).to(starts)
        levels = (torch.arange(_NUM_VALUES).to(starts) + offsets) / _NUM_VALUES  # S x V
        levels = lower[coordinate, None] + width[coordinate, None] * levels
        points = starts.unsqueeze(1).repeat(1, _NUM_VALUES, 1)  # S x V x q d
        points[rows, :, coordinate] = levels
        highest, index = values(points.unflatten(-1, (q, d))).max(-1)
        better = highest > best
        starts[rows[better], coordinate[better]] = levels[rows[better], index[better]]
        best = torch.where(better, highest, best)
    return starts.view(num_starts, q, d)
