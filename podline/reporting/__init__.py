"""The report: charts, tables, one page."""
