"""The chain beside the ledger: no entry is lost unseen, whoever writes at once and whoever is killed in between."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ledger_entries import night

from podline.inventory.verification import verify
from podline.ledger import chain, ledger
from podline.progress import silent
from podline.store.contract import Store
from podline.store.opening import open_store


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "root") if request.param == "folder" else request.getfixturevalue("gcs_root"))


def write_without_link(store: Store, number: int) -> str:
    """An entry whose process is killed before it writes a link, or one of an earlier version; its file's name."""
    entry = night(number)
    store.publish_json(ledger.file_of(entry.name), entry.model_dump(mode="json"))
    return ledger.file_of(entry.name)


def problems(store: Store) -> list[str]:
    return verify(store, silent()).problems


def linked(store: Store) -> list[list[str]]:
    numbers = chain.numbers(store.list(chain.FOLDER))
    return [[entry.name for entry in chain.read(store, number).entries] for number in numbers]


def test_each_entry_has_a_link_and_what_is_gone_is_named(store: Store) -> None:
    entries = [night(number) for number in range(3)]
    for entry in entries:
        ledger.publish(store, entry)
    files = [ledger.file_of(entry.name) for entry in entries]
    assert linked(store) == [[file] for file in files]
    assert problems(store) == []
    store.delete(files[1])
    assert [line.split(" is gone")[0] for line in problems(store)] == [store.where(files[1])]
    for number in (2, 3):
        store.delete(chain.name_of(number))
    assert [line.split(" is ")[0] for line in problems(store)] == [store.where(files[2])]


def test_an_entry_without_a_link_is_taken_in_by_the_next(store: Store) -> None:
    first = write_without_link(store, 0)
    assert "is in no link of the chain" in problems(store)[0]
    ledger.publish(store, night(1))
    lost = write_without_link(store, 2)
    assert store.where(lost) in problems(store)[0]
    ledger.publish(store, night(3))
    ledger.publish(store, night(4))
    assert problems(store) == []
    assert [len(names) for names in linked(store)] == [2, 2, 1]
    assert first in linked(store)[0]
    assert lost in linked(store)[1]
    assert chain.count(store) == 5


def test_writers_at_once_have_links_of_their_own(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: ledger.publish(store, night(number)), range(40)))
    assert problems(store) == []
    assert {name for names in linked(store) for name in names} == {ledger.file_of(n.name) for n in ledger.names(store)}
    assert len(ledger.names(store)) == 40


def test_a_damaged_link_keeps_nobody_from_writing(store: Store) -> None:
    for number in range(2):
        ledger.publish(store, night(number))
    store.publish_bytes(chain.name_of(2), b"{", replace=True)
    ledger.publish(store, night(2))
    found = problems(store)
    assert [line.split(" is not valid")[0] for line in found] == [store.where(chain.name_of(2))]
    assert chain.count(store) == 3
