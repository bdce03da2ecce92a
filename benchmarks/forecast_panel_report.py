"""Tables of ``python -m benchmarks.forecast_panel``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.data import PanelSeries, load_long_series

__all__ = [
    "COMBINED",
    "LongTask",
    "Scores",
    "clustered_error",
    "combine",
    "long_table",
    "panel_table",
    "score",
]

COMBINED = ("AutoARIMA", "AutoETS", "AutoTheta", "AutoCES")
"""Of which the median is the combination."""

_COMBINATION = "combination"
# Below them, a ratio of two scores says nothing.
_LEAST_MASE = 1e-3
_LEAST_MSIS = 1e-2
_MISS = 2 / 0.05  # the price of a miss of the 95 % band, in its distance


@dataclass(frozen=True)
class Scores:
    """Of one forecast.

    Args:
        mase: Mean absolute error over that of the seasonal naive rule within the training part.
        msis: Mean scaled interval score of the 95 % band, over the same.
        coverage: Shares of the observations within the bands of 95 % and 80 %.
    """

    mase: float
    msis: float
    coverage: tuple[float, float]


class LongTask(NamedTuple):
    """What is to be forecast of a long series.

    Attributes:
        horizon: Steps.
        seasons: In steps, as the peers are told.
        frequency: Of its times, as pandas names it.
    """

    horizon: int
    seasons: tuple[int, ...]
    frequency: str


def score(forecast: Mapping[str, Sequence[float]], truth: np.ndarray, scale: float) -> Scores:
    """Scores of a forecast.

    Args:
        forecast: ``mean``, ``lo-95``, ``hi-95``, ``lo-80`` and ``hi-80``.
        truth: What was observed.
        scale: Mean absolute error of the seasonal naive rule within the training part.
    """
    found = {key: np.asarray(values, dtype=float) for key, values in forecast.items()}
    low, high = found["lo-95"], found["hi-95"]
    miss = np.maximum(low - truth, 0) + np.maximum(truth - high, 0)
    return Scores(
        mase=float(np.mean(np.abs(found["mean"] - truth)) / scale),
        msis=float(np.mean(high - low + _MISS * miss) / scale),
        coverage=(
            float(np.mean((low <= truth) & (truth <= high))),
            float(np.mean((found["lo-80"] <= truth) & (truth <= found["hi-80"]))),
        ),
    )


def combine(forecasts: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, np.ndarray]:
    """Median of forecasts, and of the ends of their bands."""
    return {key: np.median([f[key] for f in forecasts], axis=0) for key in forecasts[0]}


def clustered_error(values: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    """Mean of all values and its standard error, where those of a cluster are not independent."""
    mean = float(np.mean(np.concatenate([np.asarray(v) for v in values.values()])))
    count, clusters = sum(len(v) for v in values.values()), len(values)
    if clusters < 2:
        return mean, math.nan
    sums = [float(np.sum(np.asarray(v) - mean)) for v in values.values()]
    return mean, math.sqrt(clusters / (clusters - 1) * np.sum(np.square(sums))) / count


def panel_table(records: Sequence[dict], panel: Mapping[str, PanelSeries]) -> str:
    """Scores by method over the forecasts that all methods have."""
    scores: dict[str, dict[tuple, Scores]] = {}
    forecasts: dict[str, dict[tuple, dict]] = {}
    seconds: dict[str, dict[tuple, float]] = {}
    for record in records:
        key = record["series"], record["origin"]
        forecasts.setdefault(record["method"], {})[key] = record["forecast"]
        seconds.setdefault(record["method"], {})[key] = record["cpu_seconds"]
    # A peer that failed on a series is no part of the combination there.
    found = [forecasts.get(name, {}) for name in COMBINED]
    for key in dict.fromkeys(key for group in found for key in group):
        parts = [group[key] for group in found if key in group]
        forecasts.setdefault(_COMBINATION, {})[key] = combine(parts)
    for method, group in forecasts.items():
        scores[method] = {key: _score(panel[key[0]], key[1], f) for key, f in group.items()}
    reference = scores.get(_COMBINATION)
    if not reference:
        return "No forecasts of the combination, with which the others are compared."
    title = (
        "Geometric means over the forecasts that a method and the combination (median of "
        f"{', '.join(COMBINED)}) both have; log ratios: of MASE, mean and standard error "
        "clustered by series."
    )
    header = [
        "method",
        "forecasts",
        "MASE / combination",
        "MSIS / combination",
        "95 % coverage",
        "80 % coverage",
        "better than the combination",
        "worse than seasonal naive by 10 %",
        "log ratio to AutoARIMA",
        "log ratio to the combination",
        "CPU s, mean",
        "CPU s, most",
    ]
    lines = [title, "", _row(header), _row(["---"] * len(header))]
    for method, group in scores.items():
        keys = [key for key in group if key in reference]
        ratios = _log_ratios(group, reference, keys)
        widths = [
            math.log(max(group[k].msis, _LEAST_MSIS) / max(reference[k].msis, _LEAST_MSIS))
            for k in keys
        ]
        naive = scores.get("SeasonalNaive", {})
        worse = [r > math.log(1.1) for r in _log_ratios(group, naive, keys).values()]
        cpu = [seconds[method][key] for key in keys] if method in seconds else []
        lines.append(
            _row(
                [
                    method,
                    str(len(keys)),
                    f"{math.exp(np.mean(list(ratios.values()))):.3f}",
                    f"{math.exp(np.mean(widths)):.3f}",
                    *(f"{np.mean([group[k].coverage[i] for k in keys]):.1%}" for i in (0, 1)),
                    f"{np.mean([r < 0 for r in ratios.values()]):.0%}",
                    f"{np.mean(worse):.0%}" if worse else "",
                    _mean_and_error(_log_ratios(group, scores.get("AutoARIMA", {}), keys)),
                    _mean_and_error(ratios),
                    f"{np.mean(cpu):.2f}" if cpu else "",
                    f"{max(cpu):.1f}" if cpu else "",
                ]
            )
        )
    return "\n".join([*lines, "", _versions(records)])


def long_table(records: Sequence[dict], tasks: Mapping[str, LongTask]) -> str:
    """Scores of single forecasts of long series."""
    if not records:
        return "No results."
    header = ["series", "points", "horizon", "method", "MASE", "MSIS", "95 % coverage"]
    header += ["80 % coverage", "CPU s", "peak GB"]
    lines = [_row(header), _row(["---"] * len(header))]
    for record in records:
        horizon, seasons, _ = tasks[record["series"]]
        y = load_long_series(record["series"])[1]
        result = score(record["forecast"], y[-horizon:], _scale(y[:-horizon], seasons[-1]))
        memory = record["peak_gigabytes"]
        lines.append(
            _row(
                [
                    record["series"],
                    str(record["num_train"]),
                    str(horizon),
                    record["method"],
                    f"{result.mase:.3f}",
                    f"{result.msis:.2f}",
                    *(f"{c:.0%}" for c in result.coverage),
                    f"{record['cpu_seconds']:.1f}",
                    "" if memory is None else f"{memory:.2f}",
                ]
            )
        )
    return "\n".join([*lines, "", _versions(records)])


def _score(series: PanelSeries, origin: int, forecast: Mapping[str, Sequence[float]]) -> Scores:
    y = series.y[: series.y.size - origin * series.horizon]
    train = y[: -series.horizon]
    return score(forecast, y[-series.horizon :], _scale(train, series.season))


def _scale(train: np.ndarray, season: int) -> float:
    return float(np.mean(np.abs(train[season:] - train[:-season])))


def _log_ratios(
    group: Mapping[tuple, Scores], reference: Mapping[tuple, Scores], keys: Sequence[tuple]
) -> dict[tuple, float]:
    return {
        key: math.log(max(group[key].mase, _LEAST_MASE) / max(reference[key].mase, _LEAST_MASE))
        for key in keys
        if key in reference
    }


def _mean_and_error(ratios: Mapping[tuple, float]) -> str:
    if not ratios or not any(ratios.values()):  # no peer, or the method itself
        return ""
    groups: dict[str, list[float]] = {}
    for (name, _), ratio in ratios.items():
        groups.setdefault(name, []).append(ratio)
    mean, error = clustered_error(groups)
    return f"{mean:.3f} ± {error:.3f}"


def _versions(records: Sequence[dict]) -> str:
    versions = ", ".join(f"{k} {v}" for k, v in records[-1]["versions"].items())
    return f"Versions: {versions}. One thread per run."


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
