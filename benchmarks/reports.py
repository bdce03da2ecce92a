"""What the report says of real series.

``python -m benchmarks.reports`` fits a forecaster to the whole of each series and prints what
``gpytorch_nkn.interpretation.report`` finds, with the CPU time of the fit and of the report; with
``--out`` it writes the pages too. The environment variable GPYTORCH_NKN_DATA names the folder of
the data.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy and torch read them

import argparse  # noqa: E402
import time  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402

from benchmarks.data import load_time_series  # noqa: E402
from gpytorch_nkn.estimators import NKNForecaster  # noqa: E402
from gpytorch_nkn.interpretation import report  # noqa: E402

__all__ = ["main"]

_UNITS = {
    "airline": ("yr", "thousand passengers"),
    "mauna": ("yr", "ppm"),
    "radio": ("yr", ""),
    "call_centre": ("yr", "calls"),
    "gas_production": ("yr", ""),
    "unemployment": ("yr", ""),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Fit, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reports", description=__doc__)
    parser.add_argument(
        "--series", nargs="+", choices=tuple(_UNITS), default=("airline", "mauna", "radio")
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for the pages")
    args = parser.parse_args(argv)
    for name in args.series:
        series = load_time_series(name)
        start = time.process_time()
        forecaster = NKNForecaster(random_state=args.seed).fit(series.x, series.y)
        fitted = time.process_time()
        x_unit, y_unit = _UNITS[name]
        made = report(forecaster, title=name, x_unit=x_unit, y_unit=y_unit, seed=args.seed)
        seconds = time.process_time() - fitted
        print(f"\n{name}: fit {fitted - start:.1f} CPU s, report {seconds:.1f} CPU s")
        print("\n".join(made.summary))
        for section in made.sections:
            print(f"- {section.title}: {' '.join(section.sentences)}")
        if args.out is not None:
            args.out.mkdir(parents=True, exist_ok=True)
            print(made.save(args.out / f"{name}.html"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
