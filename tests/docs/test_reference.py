"""What the docs take from the code is what the code says now.

After a change: ``RENEW_SNAPSHOTS=1 pytest tests/docs/test_reference.py`` writes the pages.
"""

from __future__ import annotations

import importlib
import os

import pytest
from reference import DOCS

MARK = "<!-- made from the code from here on: RENEW_SNAPSHOTS=1 pytest tests/docs/test_reference.py -->\n"


@pytest.mark.parametrize("name", ["cli", "settings", "recipe", "states", "limits", "ledger", "kind"])
def test_the_page_is_what_the_code_says(name: str) -> None:
    page = DOCS / ("how-to" if name == "kind" else "reference") / f"{name}.md"
    by_hand, mark, _ = page.read_text().partition(MARK)
    tables = importlib.import_module(f"reference.{name}").tables()
    made = by_hand + mark + "".join(f"\n## {title}\n\n{text}\n" for title, text in tables.items())
    if os.environ.get("RENEW_SNAPSHOTS"):
        page.write_text(made)
    assert page.read_text() == made, "the code changed: RENEW_SNAPSHOTS=1 writes the page again"
