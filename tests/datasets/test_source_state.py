"""Whether a source was converted before is known from names, sizes and times; no raw file is opened for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from raw_cifar import convert_spec, write_raw_cifar

from podline.beam_jobs.conversion import convert
from podline.datasets.fingerprint import find_converted
from podline.inventory.invalidation import forget
from podline.progress import silent
from podline.stages.specs import ConvertSpec


@pytest.fixture(name="spec")
def _spec(tmp_path: Path) -> ConvertSpec:
    """A conversion that is done."""
    spec = convert_spec(tmp_path / "root", write_raw_cifar(tmp_path / "raw"))
    assert find_converted(spec, silent()) is None
    assert convert(spec, silent()).shards_written > 0
    return spec


def opened_files(call: Callable[[], object], below: str) -> list[str]:
    """The files below a folder that a call opens."""
    opened: list[str] = []
    hooks = [lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None]
    sys.addaudithook(lambda event, arguments: hooks[0](event, arguments) if hooks else None)
    call()
    hooks.clear()
    return [path for path in opened if path.startswith(below)]


def test_an_unchanged_source_is_found_without_opening_a_file(spec: ConvertSpec) -> None:
    found: list[object] = []
    assert opened_files(lambda: found.append(find_converted(spec, silent())), spec.source) == []
    assert found[0] is not None


@pytest.mark.parametrize("change", ["content", "added", "renamed"])
def test_a_changed_source_is_opened_again(spec: ConvertSpec, change: str) -> None:
    file = sorted(path for path in Path(spec.source).rglob("*") if path.is_file())[0]
    if change == "content":
        file.write_bytes(file.read_bytes())
    elif change == "added":
        (file.parent / "new").touch()
    else:
        file.rename(file.with_name("other"))
        file.with_name("other").rename(file)
    assert find_converted(spec, silent()) is None
    assert convert(spec, silent()).shards_written == 0, "its bytes are the same"
    assert find_converted(spec, silent()) is not None


def test_another_place_with_the_same_content_is_opened_once(spec: ConvertSpec, tmp_path: Path) -> None:
    moved = spec.model_copy(update={"source": str(write_raw_cifar(tmp_path / "copy"))})
    assert find_converted(moved, silent()) is None
    assert convert(moved, silent()).shards_written == 0
    assert find_converted(moved, silent()) is not None


def test_other_settings_are_another_conversion(spec: ConvertSpec) -> None:
    assert find_converted(spec.model_copy(update={"seed": 1}), silent()) is None


def test_a_conversion_that_is_asked_for_again_opens_its_source(spec: ConvertSpec) -> None:
    forget(spec)
    assert find_converted(spec, silent()) is None
    convert(spec, silent())
    assert find_converted(spec, silent()) is not None


def test_a_damaged_memory_costs_an_opening(spec: ConvertSpec, tmp_path: Path) -> None:
    (note,) = (tmp_path / "root").rglob("conversions/*")
    note.write_bytes(b"{")
    assert find_converted(spec, silent()) is None
    assert convert(spec, silent()).shards_written == 0
