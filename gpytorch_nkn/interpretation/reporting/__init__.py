"""Reports on models and searches, as text and as a page."""

from gpytorch_nkn.interpretation.reporting.class_report import ClassReport
from gpytorch_nkn.interpretation.reporting.report import Report, report
from gpytorch_nkn.interpretation.reporting.report_search import SearchReport, report_search

__all__ = ["ClassReport", "Report", "SearchReport", "report", "report_search"]
