"""Names from elsewhere do nothing to a terminal or a log, and addresses tell no password."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podline.base.errors import SourceError, from_json
from podline.base.plain import plain
from podline.base.progress import Reporter

RED = "\x1b[31mred\x07.jpg"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (RED, r"\x1b[31mred\x07.jpg"),
        ("\x9b31m", r"\x9b31m"),
        ("gpj.\u202e", r"gpj.\u202e"),
        ("half \udce9", r"half \udce9"),
        ("Öl, 図, 🙂", "Öl, 図, 🙂"),
        ("https://u:pw@host/x.tgz", "https://***@host/x.tgz"),
        ("https://u:p/w@host/x", "https://***@host/x"),
        ("postgresql+asyncpg://podline:pw@127.0.0.1:5432/podline", "postgresql+asyncpg://***@127.0.0.1:5432/podline"),
        ("gs://bucket/a@b", "gs://bucket/a@b"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert plain(text) == shown
    assert plain(shown) == shown


def test_errors_and_logs_are_plain_wherever_they_go() -> None:
    told = r"\x1b[31mred\x07.jpg: https://***@h"
    assert str(SourceError(f"{RED}: https://u:pw@h")) == told
    assert str(from_json({"type": "OSError", "message": f"{RED}: https://u:pw@h"})) == f"OSError: {told}"
    heard = []
    reporter = Reporter("convert", heard.append)
    reporter.log(f"{RED}: https://u:pw@h")
    reporter.warn(f"{RED}: https://u:pw@h")
    assert [event["message"] for event in heard] == [told, told]


@pytest.fixture
def said(podline: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """All that a command says that fails."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        answer = podline(*arguments)
        assert answer.code != 0
        return answer.out + answer.err

    return run


def test_a_command_echoes_neither_a_password_nor_escape_codes(tmp_path: Path, said: Callable[..., str]) -> None:
    convert = ("convert", "cifar10", "--source", "https://me:hush@example.com/x.tgz")
    assert "https://***@example.com/x.tgz" in (plainly := said(*convert))
    assert "hush" not in plainly + said(*convert, "--json")
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and b"hush" in path.read_bytes()]
    assert kept == []
    source = tmp_path / RED
    source.mkdir()
    for text in (said("convert", "cifar10", "--source", str(source)), said(RED)):
        assert r"\x1b[31mred\x07.jpg" in text
        assert "\x1b" not in text
        assert "\x07" not in text
