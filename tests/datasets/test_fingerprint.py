"""The fingerprint depends on what the bytes depend on, and on nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from raw_cifar import convert_spec, write_raw_cifar

from podline.datasets.fingerprint import find_converted, fingerprint
from podline.documents.manifest import SourceFile
from podline.errors import SourceError
from podline.progress import silent

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


@pytest.mark.parametrize(
    "files",
    [
        FILES[:1],
        FILES[::-1],
        (FILES[0], FILES[1].model_copy(update={"sha256": "2" * 64})),
        (FILES[0], FILES[1].model_copy(update={"name": "c"})),
    ],
)
def test_files_make_a_difference(files: tuple[SourceFile, ...]) -> None:
    assert fingerprint(spec(), files) != fingerprint(spec(), FILES)


def test_the_layout_version_makes_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(spec(), FILES)
    monkeypatch.setattr("podline.datasets.fingerprint.LAYOUT_VERSION", 2)
    assert fingerprint(spec(), FILES) != before


def test_nothing_is_found_where_nothing_was_converted(tmp_path: Path) -> None:
    raw = write_raw_cifar(tmp_path / "raw")
    assert find_converted(convert_spec(tmp_path / "root", raw), silent()) is None
    shutil.rmtree(raw)
    with pytest.raises(SourceError, match="raw does not exist"):
        find_converted(convert_spec(tmp_path / "root", raw), silent())
