"""How low a value Bayesian optimisation finds with one surrogate model or another.

10 random points that all surrogates of one seed share, then the maximiser of the logarithmic
expected improvement, observed without noise. Inputs are scaled to the unit cube, targets
standardised by the models, the noise is inferred. Seeds 0 to 4 are for tuning, 100 to 109 for the
report. Suites of functions are ``bo`` and ``bo_many_columns`` of ``bo_problems``.
"""

from __future__ import annotations

import math
import statistics
import sys
from functools import cache

from benchmarks.bo_loop import SURROGATES, run_loop
from benchmarks.bo_problems import PROBLEMS, SUITES, make_problem
from benchmarks.report import Cell, Table, grouped, mean_and_error, paired, summary
from benchmarks.runner import Axis, Benchmark

__all__ = ["BENCHMARK", "is_stuck", "regret"]

_STUCK_FOR = 30  # evaluations
_PEERS = ("singletask", "matern")


def run(function: str, surrogate: str, seed: int, evaluations: int) -> dict:
    """A loop."""
    _warm_up(surrogate)
    return run_loop(make_problem(function, seed), surrogate, seed, evaluations)


@cache
def _warm_up(surrogate: str) -> None:
    """Once in a process: imports and compilation are not what is measured."""
    run_loop(make_problem("hartmann6", 0), surrogate, 0, 11)


def regret(row: dict, evaluations: int | None = None) -> float:
    """Distance of the best value so far to the optimum."""
    return min(row["y"][:evaluations]) - row["optimum"]


def is_stuck(row: dict) -> bool:
    """Whether a run stands still far from the optimum.

    That is: its regret is above 2 % of that of the initial points, and the last 30 evaluations took
    less than 1 % off it. One wrong coordinate out of ten of the Styblinski-Tang function costs 14,
    from about 200 at first.
    """
    count, initial = len(row["y"]), len(row["y"]) - len(row["fit"])
    if count - initial < _STUCK_FOR:
        return False
    first, before, last = (regret(row, n) for n in (initial, count - _STUCK_FOR, count))
    return last > 0.02 * first and before - last < 0.01 * before


def tables(rows: list[dict]) -> dict[str, Table]:
    """Regret by suite, and all runs."""
    rows = [{**row, "regret": regret(row)} for row in rows]
    found = {}
    for suite, functions in SUITES.items():
        if here := [row for row in rows if row["function"] in functions]:
            found[suite] = _beside(here)
    return found | {"bo_runs": _all(rows)}


def _beside(rows: list[dict]) -> Table:
    """A row for each function: mean regret, and that of structures beside the better peer's."""
    lines = []
    for (name,), runs in grouped(rows, "function").items():
        by_surrogate = {key: own for (key,), own in grouped(runs, "surrogate").items()}
        line = {"function": name}
        for surrogate, own in by_surrogate.items():
            line[surrogate] = mean_and_error([row["regret"] for row in own], ".3g")
        peers = [peer for peer in _PEERS if peer in by_surrogate]
        if peers and "structures" in by_surrogate:
            means = {
                s: statistics.fmean(r["regret"] for r in by_surrogate[s]) for s in by_surrogate
            }
            best = min(peers, key=means.__getitem__)
            ratio = means["structures"] / means[best] if means[best] else math.nan
            gaps = paired(by_surrogate["structures"], by_surrogate[best], "regret", "seed")
            line["of the better peer"] = f"{ratio:.2f} ({best})"
            line["difference"] = mean_and_error(gaps, ".3g")
        lines.append(line)
    return Table.of(lines)


def _all(rows: list[dict]) -> Table:
    count = len(rows[0]["y"])
    stock = {
        (row["function"], row["seed"]): row["regret"]
        for row in rows
        if row["surrogate"] == "singletask"
    }

    def regret_of(runs: list[dict]) -> str:
        base = [stock.get((row["function"], row["seed"])) for row in runs]
        own = sum(row["regret"] for row, one in zip(runs, base, strict=True) if one is not None)
        total = sum(one for one in base if one is not None)
        ratio = f" ({own / total:.2f})" if total else ""
        return f"{statistics.fmean(row['regret'] for row in runs):.4g}{ratio}"

    def best(at: int) -> Cell:
        return lambda runs: mean_and_error([min(row["y"][:at]) for row in runs], ".5g")

    def last_seconds(runs: list[dict]) -> str:
        parts = [[s for row in runs for s in row[what][-10:]] for what in ("fit", "search")]
        return " + ".join(f"{statistics.fmean(part):.2f}" for part in parts)

    cells: dict[str, Cell] = {
        "runs": len,
        f"at {count // 2}": best(count // 2),
        f"at {count}": best(count),
        "regret": regret_of,
        "stuck": lambda runs: sum(map(is_stuck, runs)),
        "failed iterations": lambda runs: sum(row["failures"] for row in runs),
        "CPU s of the last iterations": last_seconds,
    }
    return summary(rows, ("function", "surrogate"), cells)


BENCHMARK = Benchmark(
    "bayesian_optimization",
    __doc__,
    {
        "function": Axis(list(PROBLEMS), SUITES["bo"]),
        "surrogate": Axis(list(SURROGATES), ("structures", *_PEERS)),
        "seed": Axis(range(100, 110)),
    },
    run,
    tables,
    settings={"evaluations": 100},
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
