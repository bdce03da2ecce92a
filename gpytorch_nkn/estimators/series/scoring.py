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
    those of all targets.
    """
    recent = series.last(series.reach)
    num_rows, first, horizon = len(recent.values), recent.first_origin, recent.horizon
    if series.is_long:
        last = max(num_rows - horizon // 2, first + 1)
        origins = np.unique(np.linspace(first, last - 1, _VIEWS).astype(int))
        rows, leads, mean, variance = _from_views(model, scales, recent, origins)
    else:
        origins = np.unique(np.linspace(first, num_rows - 1, _ORIGINS).astype(int))
        found, mean, variance = rolling_forecasts(model, origins.tolist(), horizon)
        rows = found.numpy()
        sizes = np.minimum(horizon, num_rows - origins)
        leads = np.concatenate([np.arange(size) for size in sizes])
    values = scales.targets(recent.values[rows], mean.device)
    errors = ((values - mean).abs() / variance.sqrt()).cpu().numpy() * math.sqrt(math.pi / 2)
    windows = (num_rows - first) / horizon
    spread = (_WINDOWS + windows * errors.mean()) / (_WINDOWS + windows)
    third = 3 * leads // horizon
    factors: list[float] = []
    for number in range(3):
        own = errors[third == number]
        if own.size:
            count = max(windows - number / 3, 0.0)
            shrunk = (_WINDOWS * spread + count * own.mean()) / (_WINDOWS + count)
        factors.append(shrunk / spread if own.size else factors[-1])
    means, stds = scales.moments(mean, variance)
    stds = stds * spread * np.interp((leads + 1) / horizon, [1 / 6, 1 / 2, 5 / 6], factors)
    said = PredictiveMixture(np.ones(1), means[None], stds[None], (scales.transform,))
    density = float(said.log_density(recent.values[rows]).mean())
    return density, float(spread), (factors[0], factors[1], factors[2])


def _from_views(
    model: ExactGP, scales: Scales, series: Series, origins: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Tensor, Tensor]:
    """Rows, lead times, means and variances of forecasts from parts of the rows before origins."""
    inputs, targets = scales.inputs(series.rows), scales.targets(series.values)
    inputs, targets = (part.to(model.train_targets) for part in (inputs, targets))
    kept = model.train_inputs, model.train_targets
    found: list[tuple[np.ndarray, np.ndarray, Tensor, Tensor]] = []
    for number, origin in enumerate(origins.tolist()):
        seen = view(origin, series.reach, _SEEN)
        ahead = min(series.horizon, len(targets) - origin)
        edges = np.linspace(0, ahead, min(ahead, _AHEAD) + 1)
        inside = (number * (np.sqrt(5) - 1) / 2 + np.arange(len(edges) - 1) * np.sqrt(2)) % 1
        leads = np.unique((edges[:-1] + inside * np.diff(edges)).astype(int))
        model.set_train_data(inputs[seen], targets[seen], strict=False)
        process = ConditionedGP(model)
        mean, variance = process.moments(inputs[origin + leads])
        assert variance is not None
        found.append((origin + leads, leads, mean, variance + process.noise))
    model.set_train_data(*kept, strict=False)
    rows, leads, means, variances = zip(*found, strict=True)
    return np.concatenate(rows), np.concatenate(leads), torch.cat(means), torch.cat(variances)


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
