"""Whatever a stranger's file holds: data, or one line that says what is wrong, in bounded time and memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import mutated_inputs
import pytest
from mutated_inputs import NAMES, findings

from podline.sandbox import Sandbox

FEW = 5
MANY = 20_000


@pytest.fixture(name="outer", scope="module")
def _outer() -> Iterator[Sandbox]:
    folders = [str(Path(mutated_inputs.__file__).parent), str(Path(__file__).parents[2] / "support")]
    with pytest.MonkeyPatch.context() as patch, mutated_inputs.opened() as outer:
        patch.setenv("PYTHONPATH", os.pathsep.join(folders))
        yield outer


@pytest.mark.parametrize("name", NAMES)
def test_some_mutated_inputs(outer: Sandbox, name: str) -> None:
    assert list(findings(outer, name, 0, FEW)) == []


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", NAMES)
def test_many_mutated_inputs(outer: Sandbox, name: str) -> None:
    assert list(findings(outer, name, FEW, MANY // len(NAMES))) == []
