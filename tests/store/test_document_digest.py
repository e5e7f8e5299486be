"""Documents in the store: what is read is what was published under that name, or an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podline.errors import ArtifactError
from podline.store.digests import KEY
from podline.store.folder import FolderStore


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
