"""Plotting functions that draw on matplotlib Axes and return them.

They raise TypeError or ValueError for invalid arguments. Reports use the style sheet
``plt.style.use("gpytorch_nkn.plotting.gpytorch_nkn")``.
"""

from gpytorch_nkn.plotting.checks import plot_calibration
from gpytorch_nkn.plotting.components import plot_components
from gpytorch_nkn.plotting.effects import plot_effects
from gpytorch_nkn.plotting.forecast import plot_forecast
from gpytorch_nkn.plotting.inpainting import draw_uncertainty as draw_uncertainty, plot_inpainting
from gpytorch_nkn.plotting.kernel import plot_kernel
from gpytorch_nkn.plotting.network import plot_network
from gpytorch_nkn.plotting.search import (
    check_progress as check_progress,
    plot_acquisition,
    plot_one_step_ahead,
    plot_progress,
)
from gpytorch_nkn.plotting.style import PALETTE as PALETTE, STYLE as STYLE, put_title as put_title

__all__ = [
    "plot_acquisition",
    "plot_calibration",
    "plot_components",
    "plot_effects",
    "plot_forecast",
    "plot_inpainting",
    "plot_kernel",
    "plot_network",
    "plot_one_step_ahead",
    "plot_progress",
]
