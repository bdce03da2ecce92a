"""A box around the best point, which the search for the next one does not leave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from botorch.models import MixedSingleTaskGP, MultiTaskGP
from botorch.models.model import Model
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_nkn.fit import check_counts, evaluating
from gpytorch_nkn.linalg import check_tensors

__all__ = ["TrustRegion", "trust_region"]

_START, _LEAST, _MOST = 0.8, 0.5**7, 1.6  # lengths, in widths of the space
_GAINS = 3  # in a row, after which the region grows
_GAIN = 1e-3  # of the best value's distance to the median: what counts as one
_STEP = 0.1  # widths of the space over which the reach of a kernel is measured
_LEAST_CORRELATION, _MOST_CORRELATION = 1e-3, 1 - 1e-6  # over such a step


@dataclass(frozen=True, eq=False)
class TrustRegion:
    """A box around the best point.

    Attributes:
        bounds: Lower and upper bounds ``2 x D``, for ``optimize_acqf``.
        length: Side of the box in widths of the space, in the columns that matter most.
        restarts: How often it has vanished and begun anew.
    """

    bounds: Tensor
    length: float
    restarts: int


def trust_region(
    X: Tensor,
    Y: Tensor,
    bounds: Tensor,
    *,
    num_initial: int,
    q: int = 1,
    model: Model | None = None,
    patience: int | None = None,
    whole: Sequence[int] = (),
) -> TrustRegion:
    r"""The box around the best point in which to search for the next one.

    In many columns a model of some hundred points knows little of most of the space, and what it
    promises there is seldom kept. A search that stays near the best point may go down where one
    through the whole space goes on exploring. The box begins with a side of 0.8 of the space,
    doubles after three iterations in a row that found a better value, and is halved after
    ``patience`` that did not. Where it falls below a 128th, a new one begins, around the same
    point. All of that is worked out from the evaluations, so there is no state to be kept between
    iterations::

        region = trust_region(train_X, train_Y, bounds, num_initial=10, model=model)
        candidate, _ = optimize_acqf(acquisition, region.bounds, q=1, ...)

    With a model, sides go by how far its kernel reaches at the best point :math:`x`,

    .. math:: \ell_d = h / \sqrt{-2 \log \rho(x, x + h e_d)},

    with the correlation :math:`\rho` of the prior over a tenth of the space, :math:`h`, on average
    over the members of an ensemble and over outcomes. This is the lengthscale of an RBF kernel.
    Side :math:`d` is :math:`\ell_d / \bar\ell` times the length, with the geometric mean
    :math:`\bar\ell` weighted by :math:`1 / \ell_d`. TuRBO divides by the unweighted one, under
    which a few columns that matter among many that do not get sides of next to nothing.

    What else differs from TuRBO: a better value is one by a thousandth of the distance of the best
    value to the median (there of its absolute value, so that adding a constant to all values
    changes the search), and a new region keeps the data.

    Args:
        X: Inputs ``N x D`` in the order of evaluation.
        Y: Values ``N`` or ``N x 1``, larger is better; NaN where a trial failed or a constraint is
            violated. With noise give what the model expects at ``X``, for a large value may be
            luck: ``model.posterior(X).mean``, or ``mixture_mean`` of an ensemble.
        bounds: Lower and upper bounds ``2 x D`` of the space.
        num_initial: Evaluations that no model chose, at least one.
        q: Evaluations of an iteration. Of the last one some may be missing yet: it counts once it
            is complete, or has found a better value.
        model: A fitted model with a ``covar_module``, or a ModelListGP of such; ``None`` for a
            cube.
        patience: Iterations without a better value after which the region is halved, by default as
            many as there are columns, divided by ``q``, and at least four evaluations.
        whole: Columns in which the region is as wide as the space, such as integers, or categories
            without a model. Those that the model has for categories or tasks are.

    Returns:
        The region; the whole space as long as every value is NaN.

    Raises:
        TypeError: An argument is not a tensor of numbers, ``whole`` names no columns, or a model
            has no ``covar_module``.
        ValueError: A shape is wrong, inputs or bounds are not finite, there are fewer evaluations
            than initial ones, or a column does not exist.

    Reference: Eriksson, Pearce, Gardner, Turner and Poloczek (2019), Scalable Global Optimization
    via Local Bayesian Optimization.
    """
    values = _check(X, Y, bounds, num_initial, q)
    X, bounds, num_columns = X.detach(), bounds.detach().to(X), X.size(-1)
    if patience is None:
        patience = math.ceil(max(4, num_columns) / q)
    check_counts(1, patience=patience)
    if not isinstance(whole, Sequence) or not all(type(column) is int for column in whole):
        raise TypeError(f"whole must be numbers of columns, got {whole!r}.")
    models = () if model is None else tuple(getattr(model, "models", (model,)))
    kept = [*whole, *(column for one in models for column in _columns_of_codes(one))]
    if not all(-num_columns <= column < num_columns for column in kept):
        raise ValueError(f"Columns that stay whole must be some of {num_columns}, got {kept}.")
    kept = sorted({column % num_columns for column in kept})
    length, restarts = _replay(values, num_initial, q, patience)
    box = bounds.clone()
    if not all(math.isnan(value) for value in values):
        best = Y.reshape(-1).nan_to_num(nan=-math.inf).argmax()
        center = X[best].clamp(bounds[0], bounds[1])
        free = [column for column in range(num_columns) if column not in kept]
        half = 0.5 * length * (bounds[1] - bounds[0])
        half[free] = half[free] * _widths(models, center, bounds, free)
        box = torch.stack([center - half, center + half]).clamp(bounds[0], bounds[1])
        box[:, kept] = bounds[:, kept]
    return TrustRegion(box, length, restarts)


def _check(X: Tensor, Y: Tensor, bounds: Tensor, num_initial: int, q: int) -> list[float]:
    """The values in order."""
    check_tensors(X=X, Y=Y, bounds=bounds)
    check_counts(1, num_initial=num_initial, q=q)
    if X.dim() != 2 or X.numel() == 0 or not bool(X.isfinite().all()):
        raise ValueError(f"X must be N x D and finite, got the shape {tuple(X.shape)}.")
    if Y.shape not in (X.shape[:1], (len(X), 1)) or bool(Y.isinf().any()):
        raise ValueError(
            f"Y must be {len(X)} or {len(X)} x 1 values, finite or NaN, got the shape "
            f"{tuple(Y.shape)}" + " with infinite values." * bool(Y.isinf().any())
        )
    if bounds.shape != (2, X.size(-1)) or not bool((bounds[1] > bounds[0]).all()):
        raise ValueError(f"bounds must be 2 x {X.size(-1)}, lower and upper ones, got {bounds}.")
    if not bool(bounds.isfinite().all()):
        raise ValueError(f"bounds must be finite, got {bounds}.")
    if num_initial > len(X):
        raise ValueError(f"num_initial must be at most {len(X)}, got {num_initial}.")
    return Y.detach().reshape(-1).tolist()


def _replay(values: list[float], num_initial: int, q: int, patience: int) -> tuple[float, int]:
    """The length after all evaluations, and the number of regions that have vanished."""
    length, restarts, better, worse = _START, 0, 0, 0
    known = sorted(value for value in values[:num_initial] if not math.isnan(value))
    for first in range(num_initial, len(values), q):
        batch = [value for value in values[first : first + q] if not math.isnan(value)]
        least = known[-1] + _GAIN * (known[-1] - known[len(known) // 2]) if known else -math.inf
        gained = max(batch, default=-math.inf) > least
        known = sorted(known + batch)  # nearly sorted already, so at once
        if not gained and first + q > len(values):
            break
        better, worse = (better + 1, 0) if gained else (0, worse + 1)
        if better == _GAINS:
            length, better = min(2 * length, _MOST), 0
        elif worse == patience:
            length, worse = length / 2, 0
        if length < _LEAST:
            length, restarts, better, worse = _START, restarts + 1, 0, 0
    return length, restarts


def _columns_of_codes(model: Model) -> Sequence[int]:
    """Those of categories, and of a task, in models of this package and of BoTorch."""
    if isinstance(model, MultiTaskGP):
        return [model._task_feature]
    if isinstance(model, MixedSingleTaskGP):
        return model._ignore_X_dims_scaling_check
    return getattr(model, "cat_dims", ())


@torch.no_grad()
def _widths(
    models: Sequence[Model], center: Tensor, bounds: Tensor, columns: Sequence[int]
) -> Tensor:
    """Sides of the box in some columns, in parts of its length."""
    if not models or not columns:
        return torch.ones_like(center[columns])
    inward = torch.where(2 * center > bounds.sum(0), -1.0, 1.0).to(center)  # stays in the space
    moved = center + torch.diag(inward * _STEP * (bounds[1] - bounds[0]))[columns]
    points = torch.cat([center.unsqueeze(0), moved]).unsqueeze(-2)  # 1 + C x 1 x D
    correlations = []
    for model in models:
        kernel = getattr(model, "covar_module", None)
        if not isinstance(kernel, Kernel):
            raise TypeError(f"model must have a covar_module, got {type(model).__name__}.")
        with evaluating(model):
            like = next(model.parameters(), points)
            x = model.transform_inputs(points.to(like))[:, 0]  # there may be copies of a point
            cross = kernel(x[:1], x[1:]).to_dense()[..., 0, :]
            variances = kernel(x, diag=True)
        found = cross / (variances[..., :1] * variances[..., 1:]).sqrt()
        correlations.append(found.reshape(-1, len(columns)).mean(0).to(center))
    # where the prior is certain of the value there, nothing tells the columns apart
    mean = torch.stack(correlations).mean(0).nan_to_num(nan=_LEAST_CORRELATION)
    mean = mean.clamp(_LEAST_CORRELATION, _MOST_CORRELATION)
    reach = -0.5 * (-2 * mean.log()).log()  # the logarithm, but for the step
    share = (-reach).softmax(-1)
    return (reach - (share * reach).sum()).exp()
