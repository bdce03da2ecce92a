"""Scores and calibration of a candidate by rolling forecasts of the series."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from gpytorch.models import ExactGP

from gpytorch_nkn.averaging import PredictiveMixture, rolling_forecasts
from gpytorch_nkn.estimators.series.member import Scales
from gpytorch_nkn.estimators.series.series import Series

__all__ = ["one_thread", "score"]

_FEW = 600  # points, up to which one thread is the fastest
_ORIGINS = 48  # of rolling forecasts
_WINDOWS = 2.0  # prior weight of a calibration factor of 1, in windows of the horizon


def score(model: ExactGP, scales: Scales, series: Series) -> tuple[float, float]:
    """Mean log density of rolling forecasts, and the calibration factor of standard deviations.

    The factor is the mean absolute standardised error over that of a normal variable, shrunk to
    one: by as many windows of the horizon as follow the first origin, against two. The
    hyperparameters are those of all targets.
    """
    num_rows, first = len(series.values), series.first_origin
    origins = np.unique(np.linspace(first, num_rows - 1, _ORIGINS).astype(int)).tolist()
    rows, mean, variance = rolling_forecasts(model, origins, series.horizon)
    errors = (model.train_targets[rows] - mean).abs() / variance.sqrt()
    windows = (num_rows - first) / series.horizon
    ratio = float(errors.mean()) * math.sqrt(math.pi / 2)
    spread = (_WINDOWS + windows * ratio) / (_WINDOWS + windows)
    means, stds = scales.moments(mean, variance)
    said = PredictiveMixture(np.ones(1), means[None], spread * stds[None], (scales.transform,))
    return float(said.log_density(series.values[rows.numpy()]).mean()), spread


@contextmanager
def one_thread(series: Series) -> Iterator[None]:
    """On matrices of a few hundred rows, threads mostly wait for each other."""
    count = torch.get_num_threads()
    if series.num_trained <= _FEW:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)
