"""Self-contained HTML pages: one about a finished fit, one that compares several models."""

from vpem.report.comparison import make_comparison, write_comparison
from vpem.report.page import describe, make_report, write_report

__all__ = ["describe", "make_comparison", "make_report", "write_comparison", "write_report"]
