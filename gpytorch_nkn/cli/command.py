"""The command ``gpytorch-nkn``: its options and its exit codes."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from gpytorch_nkn import __version__
from gpytorch_nkn.cli.common import UserError
from gpytorch_nkn.cli.forecast import run_forecast
from gpytorch_nkn.cli.inpaint import run_inpaint

__all__ = ["main"]

_COMMANDS = {"demo": run_forecast, "forecast": run_forecast, "inpaint": run_inpaint}
_DEMO_BUDGET = 60.0
_KERNELS = ("texture", "spectral_mixture", "periodic", "rbf")  # gpytorch_nkn.grids.STRUCTURES


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with arguments (default: ``sys.argv``) and return the exit code.

    0: success; 1: training failed; 2: the file or an option is wrong; 130: Ctrl-C before a result.
    """
    try:
        args = _make_parser().parse_args(argv)
        _COMMANDS[args.command](args)
    except UserError as error:
        message = " ".join(str(error).split())  # messages of libraries may have several lines
        print(f"gpytorch-nkn: error: {message}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("gpytorch-nkn: interrupted", file=sys.stderr)
        return 130
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from gpytorch_nkn.kernels.evaluation import evaluator_in_use

        print(f"gpytorch-nkn {__version__}\n{evaluator_in_use()}")
        parser.exit()


def _make_parser() -> argparse.ArgumentParser:
    """Return the parser, which raises a UserError for invalid options."""
    parser = _Parser(
        prog="gpytorch-nkn", description="Forecast a time series, or fill the holes of an image."
    )
    text = "show the version and how networks are evaluated, and exit"
    parser.add_argument("--version", action=_Version, nargs=0, help=text)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    about = (
        "Learn a series from a CSV file and forecast it. Writes forecast.csv (median, standard "
        "deviation, 95 % interval), forecast.png and summary.json. Notes state what was inferred "
        "from the file. By default, the command holds out the last tenth of the time span and "
        "compares its forecast with the seasonal naive rule. With --covariates, it forecasts the "
        "rows without a target at the end of the file, or the rows of --future."
    )
    forecast = commands.add_parser("forecast", help="forecast a CSV file", description=about)
    forecast.add_argument("file", type=Path, metavar="FILE.csv")
    _add_file_options(forecast)
    group = forecast.add_mutually_exclusive_group()
    text = "hold out the last part of the time span and score its forecast (default: 0.1)"
    group.add_argument("--test-fraction", type=_fraction, metavar="F", help=text)
    text = "learn from all rows and forecast N future steps (with covariates, the next N rows)"
    group.add_argument("--horizon", type=_positive_int, metavar="N", help=text)
    _add_forecast_options(forecast, out="forecast", budget=None)

    about = (
        "Forecast the last ten years of the monthly Mauna Loa CO2 series, which statsmodels "
        "contains. The output is that of `forecast`."
    )
    demo = commands.add_parser("demo", help="forecast the Mauna Loa CO2 series", description=about)
    _add_forecast_options(demo, out="demo", budget=_DEMO_BUDGET)

    about = (
        "Fill scratches, text and holes in textures of an image. Objects in large holes of "
        "photographs cannot be restored. Writes filled.png, uncertainty.png (the "
        "standard deviation), inpaint.npz (mean, std, mask; 0 is black and 1 is white) and "
        "summary.json. Pixels are missing where the mask is not black; without a mask, where the "
        "image is transparent. "
        "Ctrl-C ends the training and writes the best result so far."
    )
    inpaint = commands.add_parser("inpaint", help="fill the holes of an image", description=about)
    add = inpaint.add_argument
    add("file", type=Path, metavar="IMAGE", help="PNG, JPEG, ...")
    add(
        "--mask", type=Path, metavar="IMAGE", help="image of the same size, not black where missing"
    )
    text = "kernel of each dimension: texture (the default), spectral_mixture, periodic or rbf"
    add("--kernel", default="texture", choices=_KERNELS, metavar="NAME", help=text)
    _add_training_options(inpaint, out="inpaint", budget=None)
    return parser


def _add_file_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that read_time_series has under the same names."""
    add = parser.add_argument
    add("--target", metavar="COL", help="target column (default: the only other numeric column)")
    text = (
        "time column (default: the first column of dates or increasing numbers); repeat the option "
        "for parts of the time, such as year and month; `rows` numbers the rows"
    )
    add("--time", action="append", metavar="COL", help=text)
    text = "numeric columns with known future values, in rows below the last target or in --future"
    add("--covariates", nargs="+", default=[], metavar="COL", help=text)
    text = "a second file with future rows: times and covariates in columns of the same names"
    add("--future", type=Path, metavar="FILE.csv", help=text)
    text = "read only rows with this value, in a file of several series"
    add("--where", type=_pair, action="append", default=[], metavar="COL=VALUE", help=text)
    text = "whether 01/02/2001 is in February (default: inferred from all dates)"
    add("--dayfirst", action=argparse.BooleanOptionalAction, help=text)
    add("--date-format", metavar="FORMAT", help="format of the times, such as %%d.%%m.%%y")
    text = "decimal mark, a point or a comma (default: inferred)"
    add("--decimal", choices=(".", ","), metavar="MARK", help=text)
    text = "an additional string or number that marks missing values (repeatable)"
    add("--na-values", action="append", default=[], metavar="TEXT", help=text)
    text = r"separator of cells, a character or a regular expression such as \t"
    add("--sep", metavar="CHAR", help=text)
    add("--encoding", metavar="NAME", help="encoding, such as latin-1 (default: inferred)")
    text = "index of the line with the names of the columns, or none (default: inferred)"
    add("--header", type=_header, default="infer", metavar="N", help=text)
    add("--skiprows", type=_natural_int, default=0, metavar="N", help="lines to skip at the top")


def _add_forecast_options(
    parser: argparse.ArgumentParser, *, out: str, budget: float | None
) -> None:
    _add_training_options(parser, out=out, budget=budget)
    add = parser.add_argument
    text = "fast compares fewer structures (default: default)"
    add("--quality", choices=("fast", "default"), default="default", help=text)
    text = (
        "periods of seasons: durations (7D, 24h, 30min, 1Y) or numbers of steps; for numeric "
        "times, in their unit (default: a day, a week and a year, as far as the data cover them)"
    )
    add("--season", nargs="+", metavar="P", help=text)
    text = "write a report on the components and on checks of the model"
    add("--report", type=Path, metavar="FILE.html", help=text)
    text = (
        "transform of the target (default: compare the target, its square root and its logarithm; "
        "with two bounds the target and its log odds)"
    )
    kinds = ("auto", "identity", "log", "log1p", "sqrt", "logit")
    add("--transform", choices=kinds, default="auto", help=text)
    text = "bounds of all targets, such as 0 100 for percentages (inf for no upper bound)"
    add("--bounds", type=float, nargs=2, metavar=("LOWER", "UPPER"), help=text)
    text = "auto excludes outliers from the training, keep uses them (default: auto)"
    add("--outliers", choices=("auto", "keep"), default="auto", help=text)
    add("--jobs", type=_positive_int, default=1, metavar="J", help="processes (default: 1)")


def _add_training_options(
    parser: argparse.ArgumentParser, *, out: str, budget: float | None
) -> None:
    add = parser.add_argument
    add("--seed", type=_natural_int, default=0, metavar="S", help="default: 0")
    text = f"folder for the output files (default: {out})"
    add("--out", type=Path, default=Path(out), metavar="DIR", help=text)
    text = f"end the training after this number of seconds (default: {budget or 'no limit'})"
    add("--budget", type=_positive_float, default=budget, metavar="SECONDS", help=text)
    add("--no-progress", action="store_true", help="show no progress bar")


def _pair(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not column or not equals:
        raise argparse.ArgumentTypeError(f"expected COL=VALUE, got {text!r}")
    return column, value


def _header(text: str) -> int | str | None:
    if text == "none":
        return None
    return text if text == "infer" else _natural_int(text)


def _checked(kind: Callable[[str], Any], valid: Callable[[Any], bool], noun: str, text: str) -> Any:
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not valid(value):
        raise argparse.ArgumentTypeError(f"expected {noun}, got {text!r}")
    return value


_fraction = partial(_checked, float, lambda value: 0 < value < 1, "a number between 0 and 1")
_positive_float = partial(_checked, float, lambda value: 0 < value < math.inf, "a positive number")
_positive_int = partial(_checked, int, lambda value: value >= 1, "a positive whole number")
_natural_int = partial(
    _checked, int, lambda value: 0 <= value < 2**32, "a whole number from 0 to 2^32-1"
)
