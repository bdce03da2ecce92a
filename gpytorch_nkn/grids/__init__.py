"""One-call uses of Gaussian processes on grids."""

from gpytorch_nkn.grids.inpaint_grid import STRUCTURES, InpaintResult, inpaint

__all__ = ["STRUCTURES", "InpaintResult", "inpaint"]
