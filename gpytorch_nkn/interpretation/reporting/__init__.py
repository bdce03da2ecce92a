"""Findings in words and on a page."""

from gpytorch_nkn.interpretation.reporting.findings import Report
from gpytorch_nkn.interpretation.reporting.report import report
from gpytorch_nkn.interpretation.reporting.report_search import (
    SearchReport,
    SearchSlice,
    report_search,
)

__all__ = ["Report", "SearchReport", "SearchSlice", "report", "report_search"]
