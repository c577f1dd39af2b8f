"""Reports: rows of figures, verdicts, tables and pictures."""

from page_lightning.report.figures import write_figures
from page_lightning.report.report import Cost, Report, Row
from page_lightning.report.rows import Measure, RowFigures, RowJudge

__all__ = ["Cost", "Measure", "Report", "Row", "RowFigures", "RowJudge", "write_figures"]
