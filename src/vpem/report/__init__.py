"""One self-contained HTML page from a finished fit."""

from vpem.report.page import describe, make_report, write_report

__all__ = ["describe", "make_report", "write_report"]
