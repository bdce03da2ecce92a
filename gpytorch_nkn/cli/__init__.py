"""The command ``gpytorch-nkn``: forecasts of a series, next to simple baselines."""

from gpytorch_nkn.cli.command import main

__all__ = ["main"]
