"""Numbered documents, the champion's history above all, grow by one whole entry or not at all, and show damage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner
from crowning import RECIPE, candidate

from podline.base.errors import ArtifactError, OvertakenError, StoreError
from podline.base.frozen import Frozen
from podline.commands.models import models_group
from podline.documents.champions import champion, crown, history, recipes, roll_back, standing
from podline.documents.numbered import Series
from podline.store.contract import Store
from podline.store.folder import FolderStore
from podline.store.opening import open_store


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "root") if request.param == "folder" else request.getfixturevalue("gcs_root"))


def process(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__).parents[1] / "support" / "crowning.py"), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)


def promote(store: Store, run: str) -> None:
    crown(store, RECIPE, candidate(run), champion(store, RECIPE), "promoted")


def test_the_last_entry_is_the_champion_and_the_history_stays(store: Store) -> None:
    assert (champion(store, RECIPE), recipes(store)) == (None, [])
    promote(store, "a")
    promote(store, "b")
    crown(store, "other.recipe", candidate("c"), None, "promoted anyway", "a trial")
    assert recipes(store) == ["other.recipe", RECIPE]
    assert [(entry.number, entry.run) for entry in history(store, RECIPE)] == [(1, "a"), (2, "b")]
    now = champion(store, "other.recipe")
    assert (now.run, now.action, now.reason) == ("c", "promoted anyway", "a trial")


def test_a_rollback_goes_down_the_line_to_its_end_and_a_promotion_that_it_overtook_is_told(store: Store) -> None:
    with pytest.raises(StoreError, match="has no champion, so there is no previous champion"):
        roll_back(store, RECIPE)
    for run in "abc":
        promote(store, run)
    assert roll_back(store, RECIPE, "it is slow").run == "b"
    promote(store, "d")
    assert [roll_back(store, RECIPE).run for _ in range(2)] == ["b", "a"]
    with pytest.raises(StoreError, match="a is the first champion, so there is no previous champion"):
        roll_back(store, RECIPE)
    entries = history(store, RECIPE)
    assert [entry.run for entry in entries] == ["a", "b", "c", "b", "d", "b", "a"]
    assert entries[3].reason == "it is slow"
    assert [entry.run for entry in standing(entries)] == ["a"]
    with pytest.raises(OvertakenError, match="e was compared with c, but meanwhile a became the champion") as told:
        crown(store, RECIPE, candidate("e"), entries[2], "promoted")
    assert (told.value.exit_code, "\n" in str(told.value)) == (75, False)
    assert history(store, RECIPE) == entries
    shown = CliRunner().invoke(models_group, ["list", RECIPE, "--json", "--root", store.uri])
    assert [(entry["run"], entry["model"]) for entry in json.loads(shown.stdout)] == [
        (entry.run, None) for entry in reversed(entries)
    ]


def test_of_two_processes_at_once_one_wins_each_time_and_the_other_is_told(store: Store) -> None:
    rounds = 10 if not store.uri.startswith("gs:") else 4
    both = [process("race", store.uri, run, str(rounds)) for run in ("one", "two")]
    told = [each.communicate(timeout=240)[0].splitlines() for each in both]
    assert [each.returncode for each in both] == [0, 0]
    for number, (first, second) in enumerate(zip(*told, strict=True)):
        loser = second if first == "won" else first
        assert {first, second} - {loser} == {"won"}, number
        assert loser.startswith("told: sample: "), number
    assert [entry.run for entry in history(store, RECIPE)] == ["one" if line == "won" else "two" for line in told[0]]
    assert len(told[0]) == rounds


def test_a_process_killed_at_any_file_operation_leaves_the_old_champion_or_the_new_one(tmp_path: Path) -> None:
    store = open_store(tmp_path / "root")
    promote(store, "old")
    lines = process("kill", store.uri).communicate(timeout=240)[0].splitlines()
    expected = "old"
    for number, line in enumerate(lines, start=1):
        state, run = line.split()
        assert run in (expected, f"new-{number}"), line
        expected = run
        assert state == ("killed" if number < len(lines) else "lived")
    assert len(lines) > 5
    assert expected == f"new-{len(lines)}"
    assert [entry.number for entry in history(store, RECIPE)] == list(range(1, len(history(store, RECIPE)) + 1))
    store.sweep()
    assert list((tmp_path / "root" / ".podline" / "tmp").iterdir()) == []


def test_a_history_with_a_hole_or_a_damaged_entry_is_named(store: Store) -> None:
    for run in "abc":
        promote(store, run)
    whole, copied = (store.read_bytes(f"models/{RECIPE}/history/00000{number}.json") for number in (3, 2))
    for content, said in (
        (b'{"number": 3}', "has no document_sha256"),
        (whole.replace(b'"run":"c"', b'"run":"a"').replace(b'"run": "c"', b'"run": "a"'), "was changed since"),
        (copied, "was changed since it was written"),
    ):
        store.publish_bytes(f"models/{RECIPE}/history/000003.json", content, replace=True)
        with pytest.raises(ArtifactError, match=rf"000003\.json {said}"):
            champion(store, RECIPE)
    store.delete(f"models/{RECIPE}/history/000003.json")
    store.delete(f"models/{RECIPE}/history/000001.json")
    with pytest.raises(ArtifactError, match=r"000001\.json is missing"):
        champion(store, RECIPE)


class Note(Frozen):
    text: str


NOTES = Series("notes/{}/of", Note, "a note", "put it back, or delete {} and write again")


def append(folder_store: FolderStore, text: str) -> int:
    return NOTES.append(folder_store, "a", lambda *_: Note(text=text))


def test_of_writers_at_once_each_gets_a_number(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda each: append(FolderStore(tmp_path), str(each)), range(20)))
    notes = NOTES.read(FolderStore(tmp_path), "a")
    assert sorted(numbers) == list(range(1, 21))
    assert [note.text for note in notes] == [str(numbers.index(number)) for number in range(1, 21)]


def test_after_a_gap_numbers_go_on_and_a_document_of_another_class_is_named(tmp_path: Path) -> None:
    folder_store = FolderStore(tmp_path)
    for text in "abc":
        append(folder_store, text)
    folder_store.delete(NOTES.name("a", 2))
    folder_store.publish_json("notes/a/of/other.json", {})
    assert append(folder_store, "d") == 4
    assert [note.text for note in NOTES.read(folder_store, "a")] == ["a", "c", "d"]
    folder_store.publish_json(NOTES.name("a", 5), {"words": 1})
    with pytest.raises(ArtifactError, match=rf"000005\.json is not a note .* or delete {tmp_path}/notes/a and write"):
        append(folder_store, "b")
    folder_store.publish_bytes(NOTES.name("a", 5), b"[]", replace=True)
    with pytest.raises(ArtifactError, match=r"000005\.json is not a JSON object; put it back, or "):
        append(folder_store, "b")
