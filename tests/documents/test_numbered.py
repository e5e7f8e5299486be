"""Documents: numbered ones of writers at once, gaps and damage; and that what is read is what was published."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from podline.documents.numbered import Series
from podline.errors import ArtifactError
from podline.frozen import Frozen
from podline.store.digests import KEY
from podline.store.folder import FolderStore


class Note(Frozen):
    text: str


NOTES = Series("notes/{}/of", Note, "a note", "put it back, or delete {} and write again")


def append(store: FolderStore, text: str) -> int:
    return NOTES.append(store, "a", lambda *_: Note(text=text))


def test_of_writers_at_once_each_gets_a_number(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda each: append(FolderStore(tmp_path), str(each)), range(20)))
    notes = NOTES.read(FolderStore(tmp_path), "a")
    assert sorted(numbers) == list(range(1, 21))
    assert [note.text for note in notes] == [str(numbers.index(number)) for number in range(1, 21)]


def test_a_writer_that_is_overtaken_reads_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, read, calls = FolderStore(tmp_path), list[str](), list[tuple[int, int]]()
    append(store, "first")

    def make(number: int, known: Sequence[Note]) -> Note | None:
        calls.append((number, len(known)))
        if number < 4:
            append(FolderStore(tmp_path), "theirs")
            return Note(text="ours")
        return None

    def noted(name: str, *rest: Any) -> Any:
        read.append(name)
        return FolderStore(tmp_path).read_json(name, *rest)

    monkeypatch.setattr(store, "read_json", noted)
    assert NOTES.append(store, "a", make) == 3
    assert (calls, read) == ([(2, 1), (3, 2), (4, 3)], [NOTES.name("a", number) for number in (1, 2, 3)])


def test_after_a_gap_numbers_go_on(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    for text in "abc":
        append(store, text)
    store.delete(NOTES.name("a", 2))
    store.publish_json("notes/a/of/other.json", {})
    assert append(store, "d") == 4
    assert [note.text for note in NOTES.read(store, "a")] == ["a", "c", "d"]


def test_a_document_of_another_class_is_an_error_with_its_remedy(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.publish_json(NOTES.name("a", 1), {"words": 1})
    with pytest.raises(ArtifactError, match=rf"000001\.json is not a note .* or delete {tmp_path}/notes/a and write"):
        append(store, "b")


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path)


def test_a_document_is_read_as_it_was_published_without_its_digest(store: FolderStore) -> None:
    document = {"name": "ü", "figures": [0.1, 1e-300, 3], "nothing": None}
    store.publish_json("a.json", document)
    assert store.read_json("a.json") == document
    assert list(json.loads(store.local("a.json").read_bytes())) == [*document, KEY]


def test_one_changed_digit_is_an_error_that_names_the_file(store: FolderStore) -> None:
    store.publish_json("a.json", {"top1": 0.977})
    file = store.local("a.json")
    file.write_text(file.read_text().replace("0.977", "0.999"))
    with pytest.raises(ArtifactError, match=r"a\.json was changed since it was written: its content has the digest"):
        store.read_json("a.json")


def test_a_document_that_was_copied_over_another_one_is_noticed(store: FolderStore) -> None:
    store.publish_json("a.json", {"run": 1})
    store.publish_json("b.json", {"run": 2})
    store.local("b.json").write_bytes(store.local("a.json").read_bytes())
    with pytest.raises(ArtifactError, match=r"b\.json was changed"):
        store.read_json("b.json")


def test_an_object_without_a_digest_is_an_error_and_a_list_has_none(store: FolderStore) -> None:
    store.publish_bytes("a.json", b'{"top1": 0.5}')
    store.publish_json("list.json", [1, 2])
    with pytest.raises(ArtifactError, match=rf"a\.json has no {KEY}"):
        store.read_json("a.json")
    assert store.read_json("list.json") == [1, 2]
