"""Tables of the runs of Bayesian optimisation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["best_after", "is_stuck", "report"]

_LAST = 10  # iterations, of which the time at the end is told
_STUCK_FOR = 30  # evaluations
_BASE = "singletask"


def best_after(record: dict, evaluations: int) -> float:
    """Smallest of the first values."""
    return min(record["y"][:evaluations])


def is_stuck(record: dict, evaluations: int) -> bool:
    """Whether a run stands still far from the optimum.

    That is: after ``evaluations`` its regret is above 2 % of that of the initial points, and the
    last 30 evaluations took less than 1 % off it. One wrong coordinate out of ten of the
    Styblinski-Tang function costs 14, from about 200 at first. A run that has not chosen 30 points
    is not stuck.
    """
    initial = _initial(record)
    if evaluations - initial < _STUCK_FOR:
        return False
    optimum = record["optimum"]
    first, before, last = (
        best_after(record, n) - optimum for n in (initial, evaluations - _STUCK_FOR, evaluations)
    )
    return last > 0.02 * first and before - last < 0.01 * before


def report(records: Sequence[dict], *, evaluations: int = 100) -> str:
    """Two Markdown tables: what was found, and the CPU time of an iteration.

    Args:
        records: Of finished and unfinished runs; those short of ``evaluations`` are only counted.
        evaluations: Where the runs are compared, and at the half of it.
    """
    complete = [record for record in records if len(record["y"]) >= evaluations]
    if not complete:
        return f"No results: {len(records)} runs, none of {evaluations} evaluations."
    groups: dict[str, dict[str, list[dict]]] = {}
    for record in complete:
        groups.setdefault(record["function"], {}).setdefault(record["surrogate"], []).append(record)
    half, late = evaluations // 2, evaluations - _LAST
    found = [
        f"Best value, mean and standard error. Regret: mean distance to the optimum at "
        f"{evaluations}; in brackets in parts of that of {_BASE} over the seeds that both have.",
        "",
        _row(
            "function",
            "surrogate",
            "runs",
            f"at {half}",
            f"at {evaluations}",
            "regret",
            "stuck",
            "failed iterations",
        ),
        _row(*["---"] * 8),
    ]
    times = [
        f"CPU seconds of an iteration: fit + acquisition; n: points that the model is fitted to. "
        f"Last column: the sum at {late} <= n < {evaluations} in parts of that of {_BASE}.",
        "",
        _row(
            "function",
            "surrogate",
            "all iterations",
            f"{late} <= n < {evaluations}",
            f"of {_BASE}",
        ),
        _row(*["---"] * 5),
    ]
    for function, surrogates in groups.items():
        base = surrogates.get(_BASE, [])
        for surrogate, runs in surrogates.items():
            regret = _mean([_regret(run, evaluations) for run in runs])
            ratio = _regret_ratio(runs, base, evaluations)
            found.append(
                _row(
                    function,
                    surrogate,
                    str(len(runs)),
                    _mean_and_error([best_after(run, half) for run in runs]),
                    _mean_and_error([best_after(run, evaluations) for run in runs]),
                    f"{regret:.4g}" + (f" ({ratio:.2f})" if math.isfinite(ratio) else ""),
                    str(sum(is_stuck(run, evaluations) for run in runs)),
                    str(sum(_failures(run, evaluations) for run in runs)),
                )
            )
            fit, acquisition = _seconds(runs, late, evaluations)
            relative = sum(_seconds(base, late, evaluations)) if base else math.nan
            times.append(
                _row(
                    function,
                    surrogate,
                    "{:.2f} + {:.2f}".format(*_seconds(runs, 0, evaluations)),
                    f"{fit:.2f} + {acquisition:.2f}",
                    f"{(fit + acquisition) / relative:.2f}" if base else "",
                )
            )
    versions = ", ".join(f"{k} {v}" for k, v in complete[-1]["versions"].items())
    unfinished = len(records) - len(complete)
    close = [f"{unfinished} runs are unfinished.", ""] if unfinished else []
    return "\n".join([*found, "", *times, "", *close, f"{versions}. One thread per run."])


def _batch(record: dict) -> int:
    """Points of an iteration."""
    return record.get("acquisition", {}).get("q", 1)


def _initial(record: dict) -> int:
    return len(record["y"]) - _batch(record) * len(record["fit_seconds"])


def _regret(record: dict, evaluations: int) -> float:
    return best_after(record, evaluations) - record["optimum"]


def _regret_ratio(runs: Sequence[dict], base: Sequence[dict], evaluations: int) -> float:
    """Of the means over shared seeds; NaN without any."""
    shared = {run["seed"] for run in runs} & {run["seed"] for run in base}
    if not shared:
        return math.nan
    own, other = (
        _mean([_regret(run, evaluations) for run in group if run["seed"] in shared])
        for group in (runs, base)
    )
    return own / other if other else math.nan


def _failures(record: dict, evaluations: int) -> int:
    return sum(failure["n"] < evaluations for failure in record["failures"])


def _seconds(runs: Sequence[dict], first: int, end: int) -> tuple[float, float]:
    """Mean CPU seconds of fit and acquisition over the iterations with that many points."""
    pairs = [
        (fit, acquisition)
        for run in runs
        for number, (fit, acquisition) in enumerate(
            zip(run["fit_seconds"], run["acquisition_seconds"], strict=True)
        )
        if first <= _initial(run) + number * _batch(run) < end
    ]
    return _mean([fit for fit, _ in pairs]), _mean([acquisition for _, acquisition in pairs])


def _mean_and_error(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.5g}"
    return f"{_mean(values):.5g} ± {np.std(values, ddof=1) / math.sqrt(len(values)):.2g}"


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
