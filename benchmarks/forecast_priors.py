"""Priors of the forecaster, changed one at a time, by the errors of forecasts of many series.

``python -m benchmarks.forecast_priors series.json`` multiplies the mode of every weight and
parameter in turn and prints errors and interval scores relative to those of the priors as they
are, for the sum of walks (``quality="fast"``) on a sample; ``--names season,walk`` tries these
alone, ``--widths 1 2`` other widths of them, too, and another ``--seed`` is another sample. The
file is a list of ``{"period": "MONTHLY", "x": [...], "xx": [...]}`` with what is known and what
came then, as the competitions M1 and M3 have them (``MONTHLY``, ``QUARTERLY``, ``YEARLY``,
``OTHER``).
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.forecast_panel_report import score
from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.kernels.network.forecast import MODES, TERMS

__all__ = ["main"]

_SEASONS = {"MONTHLY": 12, "QUARTERLY": 4, "YEARLY": 1, "OTHER": 1}
_FEWEST = 40  # points
_COLUMNS = {"mean": 0.5, "lo-80": 0.1, "hi-80": 0.9, "lo-95": 0.025, "hi-95": 0.975}


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.forecast_priors", description=__doc__
    )
    parser.add_argument("path", type=Path)
    parser.add_argument("--number", type=int, default=150, metavar="N", help="of series")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--factors", type=float, nargs="+", default=[0.4, 2.5], metavar="F")
    parser.add_argument("--widths", type=float, nargs="+", default=[1.0], metavar="F")
    parser.add_argument("--names", help="comma-separated; all by default")
    args = parser.parse_args(argv)
    names = args.names.split(",") if args.names else [*TERMS, *MODES]
    if unknown := [name for name in names if name not in TERMS and name not in MODES]:
        parser.error(f"--names must be among {[*TERMS, *MODES]}, got {unknown}.")
    sample = _sample(json.loads(args.path.read_text(encoding="utf-8")), args.number, args.seed)
    if not sample:
        parser.error(f"{args.path} has no series of {_FEWEST} points that vary.")
    warnings.simplefilter("ignore", UserWarning)  # wild values
    reference = _scores(sample)
    print(f"{len(sample)} series, coverage {reference[:, 2].mean():.1%}\n")
    print("| prior | mode times | width times | MASE | MSIS | 95 % coverage |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for name in names:
        for factor in args.factors:
            for width in args.widths:
                with _changed(name, factor, width):
                    found = _scores(sample)
                ratios = np.log(found[:, :2] / reference[:, :2])
                errors = ratios.std(0, ddof=1) / np.sqrt(len(ratios))
                cells = [
                    f"{m:.3f} ± {e:.3f}"
                    for m, e in zip(np.exp(ratios.mean(0)), errors, strict=True)
                ]
                coverage = f"{found[:, 2].mean():.1%}"
                row = [name, f"{factor:g}", f"{width:g}", *cells, coverage]
                print("| " + " | ".join(row) + " |", flush=True)
    return 0


def _sample(series: list[dict], number: int, seed: int) -> list[dict]:
    long = [one for one in series if len(one["x"]) >= _FEWEST and _scale(one) > 0]
    order = np.random.default_rng(seed).permutation(len(long))[:number]
    return [long[k] for k in order]


def _scale(one: dict) -> float:
    season, x = _SEASONS[one["period"]], np.asarray(one["x"], float)
    return float(np.abs(x[season:] - x[:-season]).mean())


def _scores(sample: list[dict]) -> np.ndarray:
    """MASE, MSIS and coverage of each series."""
    found = []
    for one in sample:
        season, x, truth = _SEASONS[one["period"]], np.asarray(one["x"], float), one["xx"]
        time = np.arange(len(x) + len(truth)) / season
        forecaster = NKNForecaster(
            quality="fast",
            seasons=[1.0] if season > 1 else [],
            horizon=len(truth),
            random_state=0,
            progress=False,
        ).fit(time[: len(x)], x)
        ends = forecaster.predict_quantiles(time[len(x) :], list(_COLUMNS.values())).T
        result = score(dict(zip(_COLUMNS, ends, strict=True)), np.asarray(truth), _scale(one))
        found.append((max(result.mase, 1e-3), max(result.msis, 1e-2), result.coverage[0]))
    return np.array(found)


@contextmanager
def _changed(name: str, factor: float, width: float) -> Iterator[None]:
    """A prior of another mode and width, for a moment."""
    if name in TERMS:
        term = TERMS[name]
        mode, scale = term.weight
        TERMS[name] = term._replace(weight=(mode * factor, scale * width))
        try:
            yield
        finally:
            TERMS[name] = term
    else:
        mode, scale = MODES[name]
        MODES[name] = mode * factor, scale * width
        try:
            yield
        finally:
            MODES[name] = mode, scale


if __name__ == "__main__":
    sys.exit(main())
