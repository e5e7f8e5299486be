"""Whatever a stranger's file holds: data, or one line that says what is wrong, in bounded time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import mutated_inputs
import pytest
from mutated_inputs import MAX_BYTES, MAX_SECONDS, Finding, Watched
from mutated_parsers import PARSERS

FEW = 40
MANY = 6_250  # 16 parsers: 100,000


@pytest.mark.parametrize("name", PARSERS)
def test_some_mutated_inputs(tmp_path: Path, name: str) -> None:
    watched = Watched(name, tmp_path)
    findings = [watched.run(number) for number in range(FEW)]
    assert [finding for finding in findings if finding.problem] == []


@pytest.mark.parametrize("name", PARSERS)
def test_the_valid_inputs_are_read(tmp_path: Path, name: str) -> None:
    """Else a parser that refuses everything would pass."""
    parser = PARSERS[name]
    parser.prepare(tmp_path)
    for seed in parser.seeds if name != "results" else parser.seeds[:1]:
        parser.read(tmp_path, parser.wrap(seed))


def test_what_is_odd_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Foreign errors, lines that are several, time and memory."""

    def read(_folder: Path, _content: bytes) -> None:
        outcomes.pop()()

    def slowly() -> None:
        sum(range(20_000_000))

    outcomes = [lambda: bytearray(400_000_000), slowly, lambda: {}["key"]]
    monkeypatch.setitem(PARSERS, "rows", PARSERS["rows"]._replace(read=read))
    monkeypatch.setattr(mutated_inputs, "MAX_SECONDS", 0.05)
    monkeypatch.setattr(mutated_inputs, "MAX_BYTES", 40_000_000)
    watched = Watched("rows", tmp_path)
    problems = [watched.run(number).problem for number in range(2)]
    monkeypatch.setattr(mutated_inputs, "MAX_SECONDS", 60)  # so much memory takes its time
    problems.append(watched.run(2).problem)
    assert problems[0].startswith("KeyError: 'key' at")
    assert problems[1].endswith(" s")
    assert problems[2].endswith(" MB")


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", PARSERS)
def test_many_mutated_inputs(name: str) -> None:
    """In a process of its own: what a C library does to its process is a finding as well."""
    command = [sys.executable, mutated_inputs.__file__, "--parser", name, "--count", str(MANY)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = run.stdout.split("\n")
    assert run.returncode == 0, f"killed at input {lines[-2]}: {run.stderr[-500:]}"
    findings = [Finding(*json.loads(line)) for line in lines if line.startswith("[")]
    assert findings == []
    told = json.loads(lines[-2])
    slowest, largest = Finding(*told["slowest"]), Finding(*told["largest"])
    assert slowest.seconds <= MAX_SECONDS
    assert largest.memory <= MAX_BYTES
