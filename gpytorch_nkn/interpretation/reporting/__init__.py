"""Findings in words and on a page."""

from gpytorch_nkn.interpretation.reporting.findings import Report
from gpytorch_nkn.interpretation.reporting.report import report

__all__ = ["Report", "report"]
