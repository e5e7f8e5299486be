"""A story goes on from one attempt to the next, and the budgets of repairs with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from podline.errors import ArtifactError
from podline.reporting import tables
from podline.storage import open_store
from podline.tpu.story import Event, Tried
from podline.tpu.story_file import FILE, KeptStory, read_story


def test_the_next_attempt_knows_what_was_tried_and_a_new_stage_begins_afresh(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    assert read_story(store, "runs/a") == ()
    first = KeptStory(store, "runs/a", lambda _line: None)
    first.tell(0.0, Event.BEGIN, "train")
    first.waited(1.0, "not healthy", 30.0)
    first.tell(2.0, Event.RESTART, "ill")
    second = KeptStory(store, "runs/a", lambda _line: None)
    assert second.entries == first.entries
    assert second.tried() == Tried(restarts=1)
    second.tell(3.0, Event.BEGIN, "evaluate")
    assert second.tried() == Tried()
    assert "| 1970-01-01 00:00:01 | wait | not healthy | 30 s |" in tables.tpu(read_story(store, "runs/a")).markdown()


def test_a_damaged_story_is_named(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.publish_json(f"runs/a/{FILE}", [{"at": "never"}])
    with pytest.raises(ArtifactError, match=r"tpu\.json tells no story of a TPU"):
        read_story(store, "runs/a")
