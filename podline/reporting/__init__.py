"""The report of a run: charts and tables on one page."""
