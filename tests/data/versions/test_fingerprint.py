"""A fingerprint depends on what the bytes depend on alone, and is known without opening an unchanged source."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from raw_cifar import convert_spec, write_raw_cifar

from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.data.versions.fingerprint import find_converted, fingerprint
from podline.documents.manifest import SourceFile
from podline.ledger.inventory.invalidation import forget
from podline.stages.specs import ConvertSpec

FILES = (SourceFile(name="a", bytes=3, sha256="0" * 64), SourceFile(name="b", bytes=4, sha256="1" * 64))


def spec(**settings: object):
    return convert_spec(Path("root"), Path("raw"), **settings)


def test_it_is_this_one() -> None:
    # A change here means that every data set is converted again: LAYOUT_VERSION is the place to say so.
    assert fingerprint(spec(), FILES) == "0dc24b309cad5e10"


@pytest.mark.parametrize(
    "settings", [{"workers": 4}, {"root": "elsewhere"}, {"source": "elsewhere"}, {"beam_options": ("--streaming",)}]
)
def test_where_and_how_make_no_difference(settings: dict[str, object]) -> None:
    assert fingerprint(spec(**settings), FILES) == fingerprint(spec(), FILES)


@pytest.mark.parametrize("settings", [{"seed": 1}, {"shard_bytes": 65_001}, {"min_shards": 9}, {"dataset": "sample"}])
def test_settings_make_a_difference(settings: dict[str, object]) -> None:
    assert fingerprint(spec(**settings), FILES) != fingerprint(spec(), FILES)


@pytest.mark.parametrize("change", [{"sha256": "2" * 64}, {"name": "c"}, {"bytes": 5}])
def test_files_make_a_difference(change: dict[str, object]) -> None:
    for files in ((FILES[0], FILES[1].model_copy(update=change)), FILES[:1], FILES[::-1]):
        assert fingerprint(spec(), files) != fingerprint(spec(), FILES)


@pytest.fixture(name="converted_spec")
def _converted_spec(tmp_path: Path) -> ConvertSpec:
    """A conversion that is done."""
    converted_spec = convert_spec(tmp_path / "root", write_raw_cifar(tmp_path / "raw"))
    assert find_converted(converted_spec, silent()) is None
    assert convert(converted_spec, silent()).shards_written > 0
    return converted_spec


def opened_files(call: Callable[[], object], below: str) -> list[str]:
    """The files below a folder that a call opens."""
    opened: list[str] = []
    hooks = [lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None]
    sys.addaudithook(lambda event, arguments: hooks[0](event, arguments) if hooks else None)
    call()
    hooks.clear()
    return [path for path in opened if path.startswith(below)]


def test_an_unchanged_source_is_found_without_opening_a_file(converted_spec: ConvertSpec) -> None:
    found: list[object] = []
    assert opened_files(lambda: found.append(find_converted(converted_spec, silent())), converted_spec.source) == []
    assert found[0] is not None


@pytest.mark.parametrize("change", ["content", "added", "renamed"])
def test_a_changed_source_is_opened_again(converted_spec: ConvertSpec, change: str) -> None:
    file = sorted(path for path in Path(converted_spec.source).rglob("*") if path.is_file())[0]
    if change == "content":
        file.write_bytes(file.read_bytes())
    elif change == "added":
        (file.parent / "new").touch()
    else:
        file.rename(file.with_name("other"))
        file.with_name("other").rename(file)
    assert find_converted(converted_spec, silent()) is None
    assert convert(converted_spec, silent()).shards_written == 0, "its bytes are the same"
    assert find_converted(converted_spec, silent()) is not None


def test_a_conversion_that_is_asked_for_again_opens_its_source(converted_spec: ConvertSpec) -> None:
    forget(converted_spec)
    assert find_converted(converted_spec, silent()) is None
    convert(converted_spec, silent())
    assert find_converted(converted_spec, silent()) is not None
