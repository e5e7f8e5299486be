"""A folder's shards are read only if they are what the manifest says, and hashed only if they may have been changed."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from cached_pages import forget, is_cached
from raw_cifar import convert_plainly, convert_spec, write_raw_cifar
from small_dataset import FINGERPRINT

from podline.data import verified_files
from podline.data.reader import SplitReader, open_split
from podline.documents.manifest import Manifest, dataset_folder
from podline.errors import ArtifactError
from podline.progress import Reporter, silent
from podline.stages.completed import manifest_sha256
from podline.stages.specs import ValidateSpec
from podline.stages.table import VALIDATE
from podline.store.document_digest import KEY
from podline.store.folder import FolderStore

FOLDER = dataset_folder("sample", FINGERPRINT)


@pytest.fixture(autouse=True)
def _no_file_is_too_young(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test need not wait for two seconds before its files are noted."""
    monkeypatch.setattr(verified_files, "_RECENT_NS", -(10**12))


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are hashed before they are read, as they are."""
    files: list[str] = []
    really = verified_files._hashed

    def count(path: Path, *args: object, **options: bool) -> object:
        files.append(path.name)
        return really(path, *args, **options)

    monkeypatch.setattr(verified_files, "_hashed", count)
    return files


def opened(store: FolderStore, manifest: Manifest) -> SplitReader:
    return open_split(store, FOLDER, manifest, "train")


def shards(store: FolderStore, manifest: Manifest) -> list[Path]:
    return [store.local(f"{FOLDER}/{shard.file}") for shard in manifest.split("train").shards]


def notes(store: FolderStore) -> Path:
    [path] = (store.scratch / "verified").rglob("*.json")
    return path


def relabel(path: Path) -> None:
    """Changes a byte in place, as an editor of labels would."""
    with path.open("r+b") as stream:
        stream.seek(-10, os.SEEK_END)
        byte = stream.read(1)[0]
        stream.seek(-10, os.SEEK_END)
        stream.write(bytes([byte ^ 1]))


def test_what_is_unchanged_is_hashed_once(store: FolderStore, manifest: Manifest, hashed: list[str]) -> None:
    opened(store, manifest)
    assert sorted(hashed) == sorted(path.name for path in shards(store, manifest))
    opened(store, manifest)
    opened(FolderStore(store.root), manifest)
    assert len(hashed) == len(shards(store, manifest))


@pytest.mark.parametrize("known", [False, True])
def test_a_changed_shard_is_refused_by_name_and_put_back_it_is_read(
    store: FolderStore, manifest: Manifest, known: bool
) -> None:
    if known:
        opened(store, manifest)
    path, said = shards(store, manifest)[1], manifest.split("train").shards[1].sha256[:12]
    whole = path.read_bytes()
    relabel(path)
    for _ in range(2):
        with pytest.raises(ArtifactError, match=f"{path.name} has sha256 .* vs {said}… in the manifest: .* convert"):
            opened(store, manifest)
    path.write_bytes(whole)
    assert len(opened(store, manifest)) == 96


def _set_back(path: Path) -> None:
    before = path.stat()
    relabel(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _copied_over(path: Path) -> None:
    other = path.with_name("other")
    shutil.copy2(path, other)
    _set_back(other)
    shutil.copy2(other, path)


def _moved_over(path: Path) -> None:
    other = path.with_name("other")
    shutil.copy2(path, other)
    _set_back(other)
    other.replace(path)


@pytest.mark.parametrize("change", [_set_back, _copied_over, _moved_over])
def test_a_time_that_was_set_back_hides_nothing(
    store: FolderStore, manifest: Manifest, change: Callable[[Path], None]
) -> None:
    opened(store, manifest)
    path = shards(store, manifest)[0]
    before = path.stat()
    change(path)
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    with pytest.raises(ArtifactError, match=f"{path.name} has sha256"):
        opened(store, manifest)


def test_what_is_gone_or_cut_is_said(store: FolderStore, manifest: Manifest) -> None:
    first, second, *_ = shards(store, manifest)
    second.write_bytes(second.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match=rf"{second.name} has \d+ bytes vs \d+ in the manifest; put it back"):
        opened(store, manifest)
    first.unlink()
    with pytest.raises(ArtifactError, match=f"{first.name} is gone; put it back"):
        opened(store, manifest)


def test_a_file_that_is_too_young_is_read_but_not_noted(
    store: FolderStore, manifest: Manifest, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified_files, "_RECENT_NS", 10**12)
    opened(store, manifest)
    opened(store, manifest)
    assert len(hashed) == 2 * len(shards(store, manifest))
    assert not (store.scratch / "verified").exists()


def test_what_was_changed_while_it_was_read_is_named(store: FolderStore, manifest: Manifest) -> None:
    reader = opened(store, manifest)
    reader.require_unchanged()
    path = shards(store, manifest)[2]
    whole = path.read_bytes()
    relabel(path)
    path.write_bytes(whole)
    with pytest.raises(ArtifactError, match=rf"{path.name} was changed while it was read \(modified \d+ vs \d+ now"):
        reader.require_unchanged()
    opened(store, manifest).require_unchanged()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data.replace(b"sample-train.tfrecord-00000", b"sample-train.tfrecord-00009"),
        lambda data: json.dumps({key: each for key, each in json.loads(data).items() if key != KEY}).encode(),
        lambda data: json.dumps(["nothing"]).encode(),
    ],
)
def test_damaged_notes_count_as_none(
    store: FolderStore, manifest: Manifest, hashed: list[str], damage: Callable[[bytes], bytes]
) -> None:
    opened(store, manifest)
    path = notes(store)
    assert damage(path.read_bytes()) != path.read_bytes()
    path.write_bytes(damage(path.read_bytes()))
    hashed.clear()
    opened(store, manifest)
    assert len(hashed) == len(shards(store, manifest))
    hashed.clear()
    opened(store, manifest)
    assert hashed == []


def test_notes_of_before_the_machine_was_started_do_not_count(
    store: FolderStore, manifest: Manifest, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(store, manifest)
    hashed.clear()
    monkeypatch.setattr(verified_files, "_boot", lambda: "another")
    opened(store, manifest)
    assert len(hashed) == len(shards(store, manifest))
    monkeypatch.setattr(verified_files, "_boot", lambda: "")
    hashed.clear()
    opened(store, manifest)
    opened(store, manifest)
    assert len(hashed) == 2 * len(shards(store, manifest))


def test_notes_do_not_grow_for_ever(store: FolderStore, manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    verified = store.scratch / "verified"
    monkeypatch.setattr(verified_files, "_boot", lambda: "long-ago")
    opened(store, manifest)
    for path in (verified / "long-ago").rglob("*"):
        os.utime(path, (0, 0))
    monkeypatch.setattr(verified_files, "_boot", lambda: "another-machine")
    opened(store, manifest)
    monkeypatch.setattr(verified_files, "_boot", lambda: "now")
    gone = verified / "now" / "datasets" / "sample" / "gone.json"
    gone.parent.mkdir(parents=True)
    gone.write_bytes(b"{}")
    opened(store, manifest)
    left = sorted(path.relative_to(verified).as_posix() for path in verified.rglob("*.json"))
    assert left == [f"another-machine/{FOLDER}.json", f"now/{FOLDER}.json"]


def test_a_store_that_cannot_be_written_is_verified_each_time(
    store: FolderStore, manifest: Manifest, hashed: list[str]
) -> None:
    store.scratch.mkdir(exist_ok=True)
    (store.scratch / "verified").write_bytes(b"in the way")
    opened(store, manifest)
    opened(store, manifest)
    assert len(hashed) == 2 * len(shards(store, manifest))


def test_several_at_once_leave_notes_that_can_be_read(store: FolderStore, manifest: Manifest) -> None:
    failures: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(10):
                opened(FolderStore(store.root), manifest)
                shards(store, manifest)[0].touch()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A shard that is touched while it is hashed is an error that says so, and never a wrong note.
    assert all("is being changed while it is read" in str(failure) for failure in failures)
    opened(store, manifest)
    assert len(json.loads(notes(store).read_bytes())["files"]) == len(shards(store, manifest))


def test_whoever_hashes_anyway_notes_it(tmp_path: Path, hashed: list[str]) -> None:
    manifest = convert_plainly(convert_spec(tmp_path / "root", write_raw_cifar(tmp_path / "raw")))
    store = FolderStore(tmp_path / "root")
    spec = ValidateSpec(
        root=store.uri,
        dataset=manifest.dataset,
        fingerprint=manifest.fingerprint,
        manifest_sha256=manifest_sha256(store, manifest.folder),
    )
    VALIDATE.run(spec, silent())
    open_split(store, manifest.folder, manifest, "train")
    shutil.rmtree(store.scratch)
    assert VALIDATE.find(spec, silent()) is not None
    open_split(store, manifest.folder, manifest, "train")
    assert hashed == []
    shutil.rmtree(store.scratch)
    open_split(store, manifest.folder, manifest, "train")
    assert len(hashed) == len(manifest.split("train").shards)


def test_a_long_verification_is_told_of(
    store: FolderStore, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified_files, "_NEWS_SECONDS", -1.0)
    events: list[dict] = []
    open_split(store, FOLDER, manifest, "train", Reporter("train", events.append))
    count = len(shards(store, manifest))
    assert [(event["done"], event["total"], event["unit"]) for event in events] == [
        (number, count, "files verified") for number in range(1, count + 1)
    ]


def test_a_data_set_past_the_page_cache_is_let_go_of(
    store: FolderStore, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in shards(store, manifest):
        forget(path)
    for limit, stays in (("0", False), ("1000000000", True)):
        monkeypatch.setenv("PODLINE_PAGE_CACHE", limit)
        found: list[set[bool]] = []
        # The kernel may keep a page that it is at work on just then.
        while {stays} not in found and len(found) < 5:
            shutil.rmtree(store.scratch, ignore_errors=True)
            opened(store, manifest)
            found.append({is_cached(path) for path in shards(store, manifest)})
        assert found[-1] == {stays}
