"""Forecasts of a series from earlier points of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from gpytorch_nkn.interpretation.checks.check_tools import CLEAR, SIGNS, p_text, plain
from gpytorch_nkn.interpretation.checks.leave_one_out import Coverage

__all__ = ["RollingForecasts", "rolling_forecasts"]

_ORIGINS = 16
_LEVELS = (0.5, 0.8, 0.95)
_DRAWS = 2000
_FEWEST = 12  # points of a series that is looked at


@dataclass(frozen=True, eq=False)
class RollingForecasts:
    """Forecasts from earlier points of a series, each of the next ``horizon`` observations.

    Attributes:
        horizon: Observations ahead.
        origins: How many points are forecast from, over the last two thirds of the series.
        coverage: Share of the observations inside central intervals, by their level. What is
            expected, and the p-value, are of draws from the model: forecasts overlap, and their
            errors are not independent.
    """

    horizon: int
    origins: int
    coverage: tuple[Coverage, ...]

    def sentences(self) -> list[str]:
        """A plain sentence; see :meth:`LeaveOneOut.sentences` for its p-value."""
        worst = min(self.coverage, key=lambda c: c.p_value)
        p_value = min(1.0, len(self.coverage) * worst.p_value)
        values = "value" if self.horizon == 1 else f"{self.horizon} values"
        what = f"Forecasts of the next {values} from {self.origins} earlier points of the series"
        if p_value >= SIGNS:
            shown = self.coverage[-1]
            return [
                f"{what} hold as many as they should: {shown.fraction:.1%} in intervals of "
                f"{shown.level:.0%} ({p_text(p_value)})."
            ]
        verb = "are" if p_value < CLEAR else "may be"
        wrong = "narrow" if worst.fraction < worst.level else "wide"
        return [
            f"{what} {verb} too {wrong}: intervals of {worst.level:.0%} hold "
            f"{worst.fraction:.1%} of what came, where {worst.lower:.1%} to {worst.upper:.1%} are "
            f"expected ({p_text(p_value)})."
        ]

    def to_dict(self) -> dict[str, Any]:
        """All attributes as plain numbers, lists and dictionaries."""
        return plain(self)


def rolling_forecasts(
    factor: np.ndarray, residual: np.ndarray, horizon: int, seed: int
) -> RollingForecasts | None:
    r"""Forecast a series from earlier points, with the parameters of the model as they are.

    Errors of the forecasts from origin ``o`` are :math:`L_{o:o+h,\,o:o+h}\, z_{o:o+h}` with
    :math:`z = L^{-1} r`, which is standard normal under the model.

    Args:
        factor: Lower Cholesky factor ``L``, ``N x N``, of the prior covariance of the observations
            in the order of time, noise included.
        residual: Observations minus their prior mean, ``N``.
        horizon: Observations ``h`` ahead, at least one; at most a third of the series counts.
        seed: Of the draws from the model.

    Returns:
        What came; None for fewer than 12 observations.
    """
    n = residual.size
    if n < _FEWEST:
        return None
    horizon = min(max(horizon, 1), n // 3)
    white = np.linalg.solve(factor, residual)
    draws = np.random.default_rng(seed).standard_normal((n, _DRAWS))
    origins = np.unique(np.linspace(n // 3, n - horizon, _ORIGINS).astype(int))
    errors = []
    for origin in origins:
        ahead = slice(int(origin), int(origin) + horizon)
        block = np.tril(factor[ahead, ahead])
        block = block / np.linalg.norm(block, axis=1, keepdims=True)
        errors.append(np.abs(block @ np.column_stack([white[ahead], draws[ahead]])))
    absolute = np.concatenate(errors)
    coverage = []
    for level in _LEVELS:
        shares = (absolute <= stats.norm.ppf((1 + level) / 2)).mean(0)
        own, drawn = float(shares[0]), shares[1:]
        tails = [(1 + np.sum(side)) / (1 + _DRAWS) for side in (drawn <= own, drawn >= own)]
        lower, upper = np.quantile(drawn, [0.025, 0.975])
        p_value = min(1.0, 2 * min(tails))
        coverage.append(Coverage(level, own, float(lower), float(upper), float(p_value)))
    return RollingForecasts(horizon, len(origins), tuple(coverage))
