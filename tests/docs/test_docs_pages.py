"""The pages for readers: links lead somewhere, sentences are short, and there are not too many words."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from named_things import anchors, prose

PROJECT = Path(__file__).parents[2]
DOCS = sorted((PROJECT / "docs").rglob("*.md"))
OTHERS = [
    PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "benchmarks/RESULTS.md")
]
LONGEST_SENTENCE, MOST_WORDS, README_LINES = 25, 20_000, 120


def named(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=[f"{page.relative_to(PROJECT)}" for page in pages])


@named([*DOCS, *OTHERS])
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def sentences(page: Path) -> Iterator[str]:
    """Sentences of paragraphs and list items; in cells of tables what lies between semicolons. Code is one word."""
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]+`", "`", prose(page)))
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.) ?)", text):
        is_row = block.startswith("|")
        for cell in re.split(r"(?<!\\)\|", block) if is_row else [block]:
            yield from re.split(r"(?<=[.!?:;])\s+" if is_row else r"(?<=[.!?:])\s+", " ".join(cell.split()))


def words(text: str) -> int:
    return len([word for word in text.split() if re.search(r"[\w`]", word)])


@named([*DOCS, PROJECT / "README.md"])
def test_sentences_are_short(page: Path) -> None:
    assert not [sentence for sentence in sentences(page) if words(sentence) > LONGEST_SENTENCE]


def test_the_docs_can_be_read_in_a_day() -> None:
    assert sum(words(prose(page, by_hand=True)) for page in DOCS) <= MOST_WORDS
    assert len((PROJECT / "README.md").read_text().splitlines()) <= README_LINES


def test_the_site_is_built(tmp_path: Path) -> None:
    """Zensical is strict about pages and headings that links name."""
    config = (PROJECT / "zensical.toml").read_text()
    (tmp_path / "zensical.toml").write_text(config)
    shutil.copytree(PROJECT / "docs", tmp_path / "docs")
    line = [sys.executable, "-m", "zensical", "build", "--strict"]
    built = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    assert len(list((tmp_path / "site").rglob("*.html"))) >= len(DOCS)
