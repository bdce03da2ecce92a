"""The command ``gpytorch-nkn``: forecasts of series, and inpainting of images."""

from gpytorch_nkn.cli.command import main

__all__ = ["main"]
