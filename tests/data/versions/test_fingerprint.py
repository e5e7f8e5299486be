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
    ("settings", "same"),
    [
        ({"workers": 4, "root": "elsewhere", "source": "elsewhere", "beam_options": ("--streaming",)}, True),
        *(({name: value}, False) for name, value in {"seed": 1, "shard_bytes": 65_001, "min_shards": 9}.items()),
        ({"dataset": "sample"}, False),
    ],
)
def test_settings_make_a_difference_but_for_where_and_how(settings: dict[str, object], same: bool) -> None:
    assert (fingerprint(spec(**settings), FILES) == fingerprint(spec(), FILES)) == same


def test_files_make_a_difference() -> None:
    changed = [FILES[1].model_copy(update=change) for change in ({"sha256": "2" * 64}, {"name": "c"}, {"bytes": 5})]
    for files in (*((FILES[0], other) for other in changed), FILES[:1], FILES[::-1]):
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


def test_a_changed_source_is_opened_again(converted_spec: ConvertSpec) -> None:
    file = sorted(path for path in Path(converted_spec.source).rglob("*") if path.is_file())[0]
    for change in (
        lambda: file.write_bytes(file.read_bytes()),
        (file.parent / "new").touch,
        lambda: file.rename(file.with_name("other")).rename(file),
        lambda: forget(converted_spec),  # it is asked for again
    ):
        change()
        assert find_converted(converted_spec, silent()) is None
        assert convert(converted_spec, silent()).shards_written == 0, "its bytes are the same"
        assert find_converted(converted_spec, silent()) is not None
