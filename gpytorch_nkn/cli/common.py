"""What all commands share: errors of one line, folders, settings, versions."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from tqdm import tqdm

from gpytorch_nkn import __version__

__all__ = [
    "UserError",
    "is_smoke_test",
    "literal",
    "make_folder",
    "new_axes",
    "notes",
    "options_of_command",
    "settings",
    "versions",
    "write_summary",
]

_SMOKE_VARIABLE = "GPYTORCH_NKN_SMOKE"
_OPTIONS = "bounds|budget|covariates|future|horizon|outliers|quality|seasons|transform"
_LIBRARIES = ("torch", "gpytorch", "botorch", "linear_operator", "numpy", "scipy")


class UserError(Exception):
    """What ends the command with one line: a fault in the file or in the options has code 2."""

    def __init__(self, message: object, *, code: int = 2):
        super().__init__(message)
        self.code = code


def is_smoke_test() -> bool:
    """True if the environment asks for runs that are as short as can be."""
    return os.environ.get(_SMOKE_VARIABLE) == "1"


def make_folder(path: Path) -> None:
    """Make a folder with those above it, in which files can be made; the error is one line."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UserError(f"cannot make the folder {path}: {error.strerror}") from None


def new_axes(size: tuple[float, float]) -> Any:
    """Axes of a figure of a size in inches in the style of reports; None without matplotlib."""
    try:
        from matplotlib import style
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    from gpytorch_nkn.plotting import STYLE

    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    with style.context(STYLE):
        return figure.add_subplot()


@contextmanager
def notes() -> Iterator[list[str]]:
    """A block in which each warning is a line ``Note: ...``; the list has their texts."""
    told: list[str] = []

    def tell(message: Warning | str, *_: Any, **__: Any) -> None:
        told.append(options_of_command(message))
        tqdm.write(f"Note: {told[-1]}")

    with warnings.catch_warnings():
        warnings.showwarning = tell
        yield told


def options_of_command(message: object) -> str:
    """A message in one line, in which options of Python are those of the command."""

    def option(match: re.Match) -> str:
        values = re.sub(r"[(),'\[\]]", " ", match[2]).split()
        return " ".join([f"--{match[1].replace('seasons', 'season')}", *values])

    pattern = rf"\b({_OPTIONS})=(\([^)]*\)|\[[^\]]*\]|'[^']*'|\w+(?:\.\w+)?)"
    return re.sub(pattern, option, " ".join(str(message).split()))


def literal(text: str) -> str:
    """A text that is no formula."""
    return text.replace("$", r"\$")


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """The options of a call, as JSON can hold them."""
    return {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items()}


def versions(more: Sequence[str] = ()) -> dict[str, str]:
    """Versions of this package, of Python and of the libraries that matter, and of ``more``."""
    found = {"gpytorch_nkn": __version__, "python": platform.python_version()}
    return found | {name: metadata.version(name) for name in (*_LIBRARIES, *more)}


def write_summary(folder: Path, content: dict[str, Any]) -> None:
    """Write ``summary.json`` to a folder."""
    (folder / "summary.json").write_text(json.dumps(content, indent=2) + "\n", "utf-8")
