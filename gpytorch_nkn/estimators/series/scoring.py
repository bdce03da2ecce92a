"""Scores and calibration of a candidate by rolling forecasts of the series."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn.averaging import PredictiveMixture, rolling_forecasts
from gpytorch_nkn.estimators.conditioned_gp import ConditionedGP
from gpytorch_nkn.estimators.series.member import Scales
from gpytorch_nkn.estimators.series.series import Series, view

__all__ = ["one_thread", "score"]

_FEW = 900  # points, up to which one thread is the fastest
_ORIGINS = 48  # of rolling forecasts
# Of long series, so many: each from some of the rows before it, of some rows of the horizon.
_VIEWS, _SEEN, _AHEAD = 24, 500, 60
_WINDOWS = 2.0  # prior weight of a calibration factor of 1, in windows of the horizon


def score(
    model: ExactGP, scales: Scales, series: Series
) -> tuple[float, float, tuple[float, float, float]]:
    """Mean log density of rolling forecasts, and calibration factors of standard deviations.

    A factor is the mean absolute standardised error over that of a normal variable, shrunk to
    one: by as many windows of the horizon as follow the first origin, against two. It is that of
    all lead times, and then, relative to it, of each third of the horizon. The hyperparameters are
    those of all targets. Lead times are counted as those of the forecasts: in typical spans of the
    horizon, gaps included.
    """
    recent = series.last(series.reach)
    horizon, steps = recent.horizon, recent.steps
    first, num_steps = int(steps[recent.first_origin]), int(steps[-1]) + 1
    last = max(num_steps - horizon // 2, first + 1) if series.is_long else num_steps
    count = _VIEWS if series.is_long else _ORIGINS
    begins = np.unique(np.linspace(first, last - 1, count).astype(int))
    origins, stops = (np.searchsorted(steps, ends) for ends in (begins, begins + horizon))
    if series.is_long:
        rows, froms, mean, variance = _from_views(model, scales, recent, origins, stops)
    else:
        longest = int((stops - origins).max())
        found, mean, variance = rolling_forecasts(model, origins.tolist(), longest)
        sizes = np.minimum(longest, len(steps) - origins)
        rows, froms = found.numpy(), np.repeat(origins, sizes)
        is_near = rows < np.repeat(stops, sizes)
        rows, froms = rows[is_near], froms[is_near]
        mean, variance = (part[torch.as_tensor(is_near)] for part in (mean, variance))
    leads = (recent.time[rows] - recent.time[froms - 1]) / series.span
    values = scales.targets(recent.values[rows], mean.device)
    errors = ((values - mean).abs() / variance.sqrt()).cpu().numpy() * math.sqrt(math.pi / 2)
    windows = (num_steps - first) / horizon
    spread = (_WINDOWS + windows * errors.mean()) / (_WINDOWS + windows)
    third = np.floor(3 * (leads - 1 / horizon) + 1e-6).clip(0, 2)
    factors: list[float] = []
    for number in range(3):
        own, factor = errors[third == number], factors[-1] if factors else 1.0
        if own.size:
            weight = max(windows - number / 3, 0.0)
            shrunk = (_WINDOWS * spread + weight * own.mean()) / (_WINDOWS + weight)
            factor = float(shrunk / spread)
        factors.append(factor)
    means, stds = scales.moments(mean, variance)
    stds = stds * spread * np.interp(leads, [1 / 6, 1 / 2, 5 / 6], factors)
    said = PredictiveMixture(np.ones(1), means[None], stds[None], (scales.transform,))
    density = float(said.log_density(recent.values[rows]).mean())
    return density, float(spread), (factors[0], factors[1], factors[2])


def _from_views(
    model: ExactGP, scales: Scales, series: Series, origins: np.ndarray, stops: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Tensor, Tensor]:
    """Rows, their origins, means and variances of forecasts from parts of the rows before these."""
    inputs, targets = scales.inputs(series.rows), scales.targets(series.values)
    inputs, targets = (part.to(model.train_targets) for part in (inputs, targets))
    kept = model.train_inputs, model.train_targets
    found: list[tuple[np.ndarray, np.ndarray, Tensor, Tensor]] = []
    for number, (origin, stop) in enumerate(zip(origins.tolist(), stops.tolist(), strict=True)):
        seen = view(origin, series.reach, _SEEN)
        ahead = stop - origin
        edges = np.linspace(0, ahead, min(ahead, _AHEAD) + 1)
        inside = (number * (np.sqrt(5) - 1) / 2 + np.arange(len(edges) - 1) * np.sqrt(2)) % 1
        leads = np.unique((edges[:-1] + inside * np.diff(edges)).astype(int))
        model.set_train_data(inputs[seen], targets[seen], strict=False)
        process = ConditionedGP(model)
        mean, variance = process.moments(inputs[origin + leads])
        assert variance is not None
        found.append((origin + leads, np.full(len(leads), origin), mean, variance + process.noise))
    model.set_train_data(*kept, strict=False)
    rows, froms, means, variances = zip(*found, strict=True)
    return np.concatenate(rows), np.concatenate(froms), torch.cat(means), torch.cat(variances)


@contextmanager
def one_thread(series: Series) -> Iterator[None]:
    """On matrices of a few hundred rows, threads mostly wait for each other."""
    count = torch.get_num_threads()
    if len(series.learned) <= _FEW:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)
