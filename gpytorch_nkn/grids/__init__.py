"""Inpainting of grids by Gaussian processes."""

from gpytorch_nkn.grids.inpaint_grid import STRUCTURES, InpaintResult, inpaint

__all__ = ["STRUCTURES", "InpaintResult", "inpaint"]
