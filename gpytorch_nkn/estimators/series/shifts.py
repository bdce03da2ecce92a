"""Detection of level shifts in a series."""

from __future__ import annotations

import math

import numpy as np
import torch

from gpytorch_nkn.estimators.series.member import Member

__all__ = ["level_shifts"]

_EVIDENCE = 15.0  # smallest likelihood-ratio statistic of a shift
_MAX_ROWS = 1000  # number of last rows that are searched
_MAX_SHIFTS = 4  # largest number of shifts
_MIN_TIMES = 3  # smallest number of times before the first shift and after the last
_MIN_UNEXPLAINED = 1e-6  # least fraction of a step's variance that the steps found do not explain


@torch.no_grad()
def level_shifts(member: Member) -> tuple[float, ...]:
    """Return times at which the level shifts more than a Gaussian process expects.

    A likelihood-ratio test selects the best step function, given the covariance of the process up
    to a refitted scale. The search is repeated with the steps found.

    Reference: Chen and Liu (1993), Joint Estimation of Model Parameters and Outlier Effects in Time
    Series.
    """
    process, scales = member.process().at(slice(-_MAX_ROWS, None)), member.scales
    time = process.inputs[:, 0]
    times = time.unique()
    between = (times[_MIN_TIMES - 1 : -_MIN_TIMES] + times[_MIN_TIMES : 1 - _MIN_TIMES]) / 2
    posterior = process.posterior()
    steps = posterior.whiten((time > between.unsqueeze(-1)).to(time))
    residual = posterior.whiten(posterior.residual.unsqueeze(0))[:, 0]
    least = _MIN_UNEXPLAINED * steps.square().sum(0)
    shifts: list[float] = []
    while len(shifts) < min(_MAX_SHIFTS, len(between)):
        squares = steps.square().sum(0)
        gains = torch.where(squares > least, (steps.mT @ residual).square() / squares, 0.0)
        best = int(gains.argmax())
        left = float(1 - gains[best] / residual.square().sum())
        if left > math.exp(-_EVIDENCE / len(residual)):
            break
        shifts.append(float(between[best]))
        step = steps[:, best] / squares[best].sqrt()
        residual = residual - step * (step @ residual)
        steps = steps - torch.outer(step, step @ steps)
    return tuple((scales.x_offset + scales.x_scale * np.sort(shifts)).tolist())
