"""Images that an engine's workers decode: as they are decoded here, once, and checked where they are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from drawn_images import drawn, encoded

from podline.beam_jobs import decoding
from podline.beam_jobs.decoding import OnEngine
from podline.beam_jobs.runners import run
from podline.beam_jobs.steps import Home
from podline.data.decoded_rows import DecodedRows
from podline.data.places import Place
from podline.data.sources.decoding import Here, Look, Pictures, Request
from podline.errors import SourceError
from podline.store.opening import open_store

BECOMING = Pictures((16, 16, 3), "squeeze", ())


class InThisProcess:
    """Runs steps as an engine would; keeps them, to run them again."""

    def __init__(self) -> None:
        self.add: Callable[[beam.Pipeline], None] = lambda _pipeline: None

    def __call__(self, _folder: str, _count: int, add: Callable[[beam.Pipeline], None]) -> None:
        self.add = add
        self.again()

    def again(self) -> None:
        pipeline = beam.Pipeline()
        self.add(pipeline)
        run(pipeline)


def pixels(rows: DecodedRows, looks: list[Look]) -> np.ndarray:
    whole = np.array([row for row, look in enumerate(looks) if not look.reason])
    return rows.read(whole, 16 * 16 * 3)


def test_batches_are_decoded_as_here_once_and_again_where_a_worker_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_BATCH_IMAGES", 3)
    requests = [Request(Place(str(tmp_path / "none.png")))]
    for number in range(7):
        path = tmp_path / f"{number}.png"
        path.write_bytes(b"no image" if number == 4 else encoded(drawn(number)))
        requests.append(Request(Place(str(path))))
    here, there, engine = tmp_path / "here", tmp_path / "there", InThisProcess()
    here.mkdir()
    there.mkdir()
    expected = list(Here().looks(BECOMING, requests, here))
    on_engine = OnEngine(Home(str(tmp_path / "root"), "jobs/x"), engine)
    looks = list(on_engine.looks(BECOMING, requests, there))
    assert looks == expected
    assert [look.reason[:7] for look in looks if look.reason] == ["there i", "is not "]
    rows = on_engine.rows(there, BECOMING.shape)
    wanted = pixels(Here().rows(here, BECOMING.shape), looks)
    np.testing.assert_array_equal(pixels(rows, looks), wanted)
    files = [(tmp_path / "6.png").read_bytes(), b"", (tmp_path / "1.png").read_bytes()]
    assert rows.read_files(np.array([7, 0, 2])) == files

    store = open_store(tmp_path / "root")
    before = {found.name: found.version for found in store.listing("jobs")}
    lost = f"{rows.path}/0000001"
    store.delete(f"{lost}.looks")  # its worker was lost after it had published pixels
    store.publish_bytes(f"{lost}.pixels", b"a part", replace=True)
    engine.again()
    after = {found.name: found.version for found in store.listing("jobs")}
    assert {name.rpartition("/")[2] for name in after if after[name] != before[name]} == {
        f"0000001.{kind}" for kind in ("hashes", "looks", "pixels")
    }
    np.testing.assert_array_equal(pixels(rows, looks), wanted)

    content = bytearray(store.read_bytes(f"{lost}.pixels"))
    content[5] ^= 1
    store.publish_bytes(f"{lost}.pixels", bytes(content), replace=True)
    with pytest.raises(SourceError, match="decoded images are damaged"):
        pixels(rows, looks)


def test_a_driver_that_starts_again_reads_and_decodes_only_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_BATCH_IMAGES", 3)
    paths = [tmp_path / f"{number}.png" for number in range(7)]
    for number, path in enumerate(paths):
        path.write_bytes(encoded(drawn(number)))
    requests, home, folder = (
        [Request(Place(str(path))) for path in paths],
        Home(str(tmp_path / "root"), "jobs/x"),
        "key",
    )
    (tmp_path / "first" / folder).mkdir(parents=True)
    (tmp_path / "second" / folder).mkdir(parents=True)
    looks = list(OnEngine(home, InThisProcess()).looks(BECOMING, requests, tmp_path / "first" / folder))
    store, batches = open_store(tmp_path / "root"), f"jobs/x/{folder}"
    for lost in ("0000001.looks", "0000002.looks", "0000002.requests", "edges"):  # killed before the last was published
        store.delete(f"{batches}/{lost}")
    before = {found.name: found.version for found in store.listing(batches)}
    for path in paths[:6]:
        path.unlink()
    again = OnEngine(home, InThisProcess())
    assert list(again.looks(BECOMING, requests, tmp_path / "second" / folder)) == looks
    assert store.find(f"{batches}/0000000.pixels").version == before[f"{batches}/0000000.pixels"]
    assert again.rows(tmp_path / "second" / folder, BECOMING.shape).read_files(np.array([6])) == [paths[6].read_bytes()]
