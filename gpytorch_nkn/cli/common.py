"""Errors, notes, folders, figures and summaries of all commands."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from tqdm import tqdm

from gpytorch_nkn import __version__

__all__ = [
    "UserError",
    "literal",
    "make_folder",
    "notes",
    "save_figure",
    "say",
    "user_errors",
    "write_summary",
]

_OPTIONS = "bounds|budget|covariates|future|horizon|outliers|quality|seasons|transform"
_LIBRARIES = ("torch", "gpytorch", "botorch", "linear_operator", "numpy", "scipy")


class UserError(Exception):
    """Error that ends the command with a message of one line; code 2 is for files and options."""

    def __init__(self, message: object, *, code: int = 2):
        super().__init__(message)
        self.code = code


@contextmanager
def user_errors(action: str, path: Path | None = None) -> Iterator[None]:
    """Turn errors in files, options and training into a UserError of one line.

    System errors name ``action`` and ``path``, as in "cannot read x.csv".
    """
    try:
        yield
    except OSError as error:
        where = path or error.filename
        raise UserError(f"cannot {action} {where}: {error.strerror or error}") from None
    except (ImportError, TypeError, ValueError) as error:
        raise UserError(options_of_command(error)) from None
    except (MemoryError, RuntimeError) as error:
        raise UserError(f"training failed: {error}", code=1) from None


def say(text: str) -> None:
    """Print a line; if the pipe is closed (``| head``), go on without output."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def make_folder(path: Path) -> None:
    """Make a folder with its parents, and check that it is writable."""
    with user_errors("make the folder", path):
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass


def save_figure(path: Path, size: tuple[float, float], draw: Callable[[Any], object]) -> str:
    """Save a figure in the style of reports; ``draw`` receives the Axes, and ``size`` is in inches.

    Return a sentence with the path of the figure, or with the advice to install matplotlib.
    """
    try:
        from matplotlib import style
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return f"No {path.name}, as matplotlib is missing: pip install 'gpytorch_nkn[plot]'"
    from gpytorch_nkn.plotting import STYLE

    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    with style.context(STYLE):
        draw(figure.add_subplot())
    figure.savefig(path)
    return f"The figure is at {path}"


@contextmanager
def notes() -> Iterator[list[str]]:
    """Print warnings within a block as lines ``Note: ...``, and collect them in a list."""
    collected: list[str] = []

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        collected.append(options_of_command(message))
        tqdm.write(f"Note: {collected[-1]}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield collected


def options_of_command(message: object) -> str:
    """Return a message on one line, with Python arguments written as options of the command."""

    def option(match: re.Match) -> str:
        values = re.sub(r"[(),'\[\]]", " ", match[2]).split()
        return " ".join([f"--{match[1].replace('seasons', 'season')}", *values])

    pattern = rf"\b({_OPTIONS})=(\([^)]*\)|\[[^\]]*\]|'[^']*'|\w+(?:\.\w+)?)"
    return re.sub(pattern, option, " ".join(str(message).split()))


def literal(text: str) -> str:
    """Return text with dollar signs escaped, so that matplotlib does not typeset formulas."""
    return text.replace("$", r"\$")


def write_summary(
    args: argparse.Namespace, content: dict[str, Any], libraries: Sequence[str] = ()
) -> None:
    """Write ``summary.json`` with the options of a call and versions of packages.

    Infinite values become null, because JSON has none.
    """
    versions = {"gpytorch_nkn": __version__, "python": platform.python_version()}
    versions |= {name: metadata.version(name) for name in (*_LIBRARIES, *libraries)}
    settings = {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items()}
    content = {"settings": settings, "seed": args.seed, "versions": versions} | content
    content = json.loads(json.dumps(content), parse_constant=lambda _: None)
    (args.out / "summary.json").write_text(json.dumps(content, indent=2) + "\n", "utf-8")
