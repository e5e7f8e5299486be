"""Images of files that did not change are decoded once, whatever else of their source changes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from drawn_images import as_folders, drawn, encoded, images, opened, records

from podline.data.decoded_rows import PIXELS
from podline.data.images import decoded
from podline.data.sources.decoding import Here, Request

pytestmark = pytest.mark.usefixtures("parsed_here")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are decoded."""
    found, looks = list[str](), Here.looks

    def noted(self: Here, becoming: object, requests: object, folder: Path) -> object:
        def each() -> object:
            for request in requests:  # type: ignore[attr-defined]
                assert isinstance(request, Request)
                found.append(Path(request.place.path).name)  # type: ignore[union-attr]
                yield request

        return looks(self, becoming, each(), folder)  # type: ignore[arg-type]

    monkeypatch.setattr(Here, "looks", noted)
    return found


def anew(folder: Path, name: str, **settings: object) -> list[tuple[str, str, bytes]]:
    """Records of a source without a cache."""
    (folder / name).mkdir()
    (folder / name / "raw").symlink_to(folder / "raw")
    return records(opened(folder / name / "raw", **settings))


def test_new_files_alone_are_decoded(tmp_path: Path, asked: list[str]) -> None:
    settings = {"keep_jpeg": True}
    folder = as_folders(tmp_path / "raw", images(30))
    (folder / "cat" / "zzz.png").write_bytes(b"\x89PNG\r\n\x1a\n")  # the last one, which cannot be decoded
    opened(folder, **settings)
    asked.clear()
    (folder / "cat" / "000.png").unlink()
    (folder / "cat" / "aaa.png").write_bytes(encoded(drawn(100)))
    (folder / "cat" / "003.bmp").rename(folder / "日本 dog" / "003.bmp")
    first = opened(folder, **settings)
    assert sorted(asked) == ["003.bmp", "aaa.png", "zzz.png"]  # a move is a change: it has another path
    (folder / "cat" / "bbb.png").write_bytes(encoded(drawn(101)))
    asked.clear()
    second = opened(folder, **settings)
    assert sorted(asked) == ["bbb.png", "zzz.png"]
    assert records(second) == anew(tmp_path, "other", **settings)
    assert (second.files, second.near) != (first.files, None)


def test_a_reading_that_is_ended_keeps_its_parts(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoded, "_PART_BYTES", 1)
    monkeypatch.setattr(decoded, "_PARTS", 4)
    folder = as_folders(tmp_path / "raw", images(30))
    (folder / "cat" / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    looks = Here.looks

    def ended(*given: object) -> object:
        if len(asked) >= 16:
            raise KeyboardInterrupt
        return looks(*given)  # type: ignore[arg-type]

    with monkeypatch.context() as during:
        during.setattr(Here, "looks", ended)
        with pytest.raises(KeyboardInterrupt):
            opened(folder)
    assert len(asked) == 16
    source = opened(folder)
    assert len(asked) == len(source.images) + asked.count("bad.png") - 1 > 30
    assert set(Counter(asked).values()) == {1, asked.count("bad.png")}
    assert (records(source), source.read) == (anew(tmp_path, "other"), len(source.images))


def test_all_are_decoded_again_where_most_are_gone(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = as_folders(tmp_path / "raw", images(30))
    opened(folder)
    for file in sorted(folder.glob("*/*"))[::3]:
        file.unlink()
    opened(folder)
    asked.clear()
    monkeypatch.setattr(decoded, "_MOST_DEAD", 0.2)
    (folder / "cat" / "new.png").write_bytes(encoded(drawn(100)))
    assert records(opened(folder)) == anew(tmp_path, "other")
    assert len(asked) > 21
    assert len(list((tmp_path / "work").glob(f"*/0*.{PIXELS}"))) == 1
