"""Score and calibration factor of a candidate, from rolling forecasts of the series."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from gpytorch.models import ExactGP
from scipy.stats import norm, t
from torch import Tensor

from gpytorch_nkn.averaging import PredictiveMixture, rolling_forecasts
from gpytorch_nkn.estimators.conditioned_gp import ConditionedGP
from gpytorch_nkn.estimators.series.member import Scales
from gpytorch_nkn.estimators.series.series import Series, view
from gpytorch_nkn.fit import Rows

__all__ = ["one_thread", "score"]

_MAX_ONE_THREAD = 900  # largest number of points for which one thread is fastest
_ORIGINS = 48  # number of rolling forecasts of a short series
# Long series: numbers of rolling forecasts, of rows before each origin, and of rows after it.
_VIEWS, _SEEN, _AHEAD = 24, 500, 60
_PRIOR_WINDOWS = 2.0  # prior weight of a calibration factor of 1, in windows of the horizon
_UPPER_LEVEL = 0.975  # level of the upper end of a 95 % interval


def score(model: ExactGP, scales: Scales, series: Series) -> tuple[float, float]:
    """Return the mean log density of rolling forecasts and the calibration factor.

    The factor of standard deviations is the mean absolute standardised error, divided by its
    expectation for normal errors. A factor of 1 has the prior weight of two windows of the horizon.
    The scale is estimated from ``N`` targets. The factor therefore contains the ratio of the 97.5 %
    quantiles of Student's t (``N - 1`` degrees of freedom) and the normal distribution.
    """
    recent = series.last(series.reach)
    horizon, steps = recent.horizon, recent.steps
    first, num_steps = int(steps[recent.first_origin]), int(steps[-1]) + 1
    last = max(num_steps - horizon // 2, first + 1) if series.is_long else num_steps
    count = _VIEWS if series.is_long else _ORIGINS
    begins = np.unique(np.linspace(first, last - 1, count).astype(int))
    origins, stops = (np.searchsorted(steps, ends) for ends in (begins, begins + horizon))
    if series.is_long:
        rows, mean, variance = _thinned_forecasts(model, scales, recent, origins, stops)
    else:
        longest = int((stops - origins).max())
        indices, mean, variance = rolling_forecasts(model, origins.tolist(), longest)
        rows = indices.numpy()
        is_near = rows < np.repeat(stops, np.minimum(longest, len(steps) - origins))
        rows = rows[is_near]
        mean, variance = (moment[torch.as_tensor(is_near)] for moment in (mean, variance))
    values = scales.targets(recent.values[rows], mean.device)
    errors = ((values - mean).abs() / variance.sqrt()).cpu().numpy() * math.sqrt(math.pi / 2)
    windows = (num_steps - first) / horizon
    calibration = float((_PRIOR_WINDOWS + windows * errors.mean()) / (_PRIOR_WINDOWS + windows))
    calibration *= float(t.ppf(_UPPER_LEVEL, len(series.values) - 1) / norm.ppf(_UPPER_LEVEL))
    means, stds = scales.moments(mean, variance)
    mixture = PredictiveMixture(
        np.ones(1), means[None], calibration * stds[None], (scales.transform,)
    )
    return float(mixture.log_density(recent.values[rows]).mean()), calibration


def _thinned_forecasts(
    model: ExactGP, scales: Scales, series: Series, origins: np.ndarray, stops: np.ndarray
) -> tuple[np.ndarray, Tensor, Tensor]:
    """Return row indices, means and variances of forecasts, given thinned rows before origins."""
    device = model.train_targets.device
    data = scales.data(series.rows, series.values, series.noise, device)
    learned = getattr(model.likelihood, "second_noise", model.likelihood.noise).detach()
    original = Rows.of(model)
    forecasts: list[tuple[np.ndarray, Tensor, Tensor]] = []
    for number, (origin, stop) in enumerate(zip(origins.tolist(), stops.tolist(), strict=True)):
        seen = view(origin, series.reach, _SEEN)
        ahead = stop - origin
        edges = np.linspace(0, ahead, min(ahead, _AHEAD) + 1)
        # positions inside the strata differ between strata and origins, to cover every phase
        inside = (number * (np.sqrt(5) - 1) / 2 + np.arange(len(edges) - 1) * np.sqrt(2)) % 1
        leads = np.unique((edges[:-1] + inside * np.diff(edges)).astype(int))
        data[torch.as_tensor(seen)].set_on(model)
        later = data[torch.as_tensor(origin + leads)]
        mean, variance = ConditionedGP(model).moments(later.x)
        assert variance is not None
        noise = learned if later.noise is None else learned + later.noise
        forecasts.append((origin + leads, mean, variance + noise))
    original.set_on(model)
    rows, means, variances = zip(*forecasts, strict=True)
    return np.concatenate(rows), torch.cat(means), torch.cat(variances)


@contextmanager
def one_thread(series: Series) -> Iterator[None]:
    """Use one thread for a series of few rows, where more threads are slower."""
    count = torch.get_num_threads()
    if len(series.learned) <= _MAX_ONE_THREAD:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)
