"""The page's charts by themselves: whole SVG files, with no need of the page."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

from finished_run import finished_run

from podline.progress import silent
from podline.reporting.page_charts import charts_in
from podline.reporting.report import report


def test_every_chart_of_a_page_is_a_file_of_its_own(tmp_path: Path) -> None:
    result = report(finished_run(tmp_path), silent())
    page = (tmp_path / result.html).read_text()
    charts = charts_in(page)
    assert len(charts) == page.count('class="chart"') >= 8
    assert charts[0].alt.startswith("Accuracy with 95")
    for chart in charts:
        root = ET.fromstring(chart.svg)  # noqa: S314 (our own)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(--" not in chart.svg
        references = set(re.findall(r"(?:href=\"|url\()#([^\")]+)", chart.svg))
        assert references <= {element.get("id") for element in root.iter()}


def test_a_page_without_charts_has_none() -> None:
    assert charts_in("<p>fine</p>") == []
