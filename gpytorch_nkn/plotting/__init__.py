"""Functions that take and return matplotlib Axes."""

from gpytorch_nkn.plotting.forecast import plot_forecast

__all__ = ["plot_forecast"]
