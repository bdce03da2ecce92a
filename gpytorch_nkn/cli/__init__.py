"""The command ``gpytorch-nkn``: forecasts of a series, filled holes of an image."""

from gpytorch_nkn.cli.command import main

__all__ = ["main"]
