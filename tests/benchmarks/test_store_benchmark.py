"""The benchmark of a bucket, in its quick form, against the stand-in."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.store import run_store
from podline.errors import SettingsError
from podline.progress import Event
from podline.store.opening import open_store


@pytest.mark.slow
def test_a_bucket_is_measured_and_left_as_it_was(tmp_path: Path, gcs_root: str) -> None:
    open_store(gcs_root).publish_bytes("mine", b"x")
    events: list[Event] = []
    rows = run_store(gcs_root, events.append, quick=True, work=tmp_path)
    assert [row.name for row in rows] == ["store-staging", "store-memory"]
    assert all(row.ours > 0 and row.other > 0 for row in rows)
    assert open_store(gcs_root).list() == ["mine"]
    assert not [path for path in tmp_path.iterdir() if path.name != "cache"]


def test_a_folder_is_no_bucket(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"give gs://bucket/prefix"):
        run_store(str(tmp_path), lambda _event: None)
