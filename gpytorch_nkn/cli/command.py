"""The entry of the command ``gpytorch-nkn``: which part of it runs, and how faults end it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gpytorch_nkn.cli.forecast import run_forecast
from gpytorch_nkn.cli.inpaint import run_inpaint
from gpytorch_nkn.cli.options import UserError, make_parser

__all__ = ["main"]

_COMMANDS = {"demo": run_forecast, "forecast": run_forecast, "inpaint": run_inpaint}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: Arguments without the command's name; None takes those of the process.

    Returns:
        Exit code: 0, 1 if training failed, 2 if the file or the options are wrong, 130 after
        Ctrl-C before there was anything to write.
    """
    try:
        args = make_parser().parse_args(argv)
        _COMMANDS[args.command](args)
    except UserError as error:
        message = " ".join(str(error).split())  # one line, whatever a library wrote
        print(f"gpytorch-nkn: error: {message}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("gpytorch-nkn: interrupted", file=sys.stderr)
        return 130
    return 0
