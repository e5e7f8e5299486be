"""The conversion, on real runners: the same bytes every time, and nothing half-done, also where it was killed."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fault_proxy
import numpy as np
import pytest
from apache_beam.runners.portability.local_job_service import LocalJobServicer
from coco_files import CocoFiles
from engine_sources import specs
from gcs_emulator import upload
from killed_conversions import convert_silently, require_death, start
from raw_cifar import contents, convert_spec, write_raw_cifar
from small_dataset import validation_of
from waiting import wait_until

from podline.base.errors import ChildKilledError, SourceError, StoreError
from podline.base.progress import Event, Reporter, silent
from podline.beam_jobs.conversion import convert
from podline.data import shards
from podline.data.sandbox.pool import Sandbox
from podline.data.versions.validation import validate
from podline.documents.manifest import Manifest, read_manifest
from podline.ledger.inventory.verification import verify
from podline.notebook import open_dataset
from podline.stages.specs import ConvertResult, ConvertSpec
from podline.stages.supervision.processes import parent
from podline.stages.table import CONVERT
from podline.store.opening import open_store


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return write_raw_cifar(tmp_path / "raw")


@pytest.fixture
def spec(tmp_path: Path, raw: Path) -> ConvertSpec:
    return convert_spec(tmp_path / "root", raw)


def litter(spec: ConvertSpec) -> list[Path]:
    temporary = Path(spec.root) / ".podline" / "tmp"
    return sorted(temporary.rglob("*")) if temporary.exists() else []


def manifest_of(spec: ConvertSpec, result: ConvertResult) -> Manifest:
    return read_manifest(open_store(spec.root), result.folder)


def test_a_conversion_writes_every_record_named_after_its_raw_file_and_row(spec: ConvertSpec) -> None:
    events: list[Event] = []
    result = convert(spec, Reporter("convert", events.append))
    manifest = manifest_of(spec, result)
    assert (result.read, result.written, result.quarantined) == (120, 120, 0)
    assert result.splits == {"train": 100, "test": 20}
    assert (result.shards_written, result.shards_reused) == (6, 0)
    assert result.bytes == 120 * 3126
    assert litter(spec) == []
    progress = [event for event in events if event["event"] == "progress"]
    assert (progress[0]["done"], progress[-1]["done"], progress[-1]["total"]) == (0, 6, 6)
    assert progress[-1]["metrics"]["records/s"] > 0
    names = {name.removeprefix(f"{result.folder}/") for name in contents(spec)}
    files = {shard.file for split in manifest.splits for shard in split.shards}
    beside = "manifest.json features.json dataset_info.json label.labels.txt names.parquet records.parquet"
    assert names == files | {f"shards/{file}.json" for file in files} | {*beside.split()}
    for split in ("train", "test"):
        examples = open_dataset("cifar10", spec.root, split=split)
        named = examples.names(slice(None)).tolist()
        assert len(set(named)) == len(examples)
        for name, image in zip(named, examples[:]["image"], strict=True):
            file, row = name.removesuffix("]").split("[")
            raw = np.fromfile(Path(spec.source) / file, np.uint8).reshape(-1, 3073)[int(row), 1:]
            np.testing.assert_array_equal(image, raw.reshape(3, 32, 32).transpose(1, 2, 0))


def test_a_flipped_bit_costs_its_own_shard_alone(spec: ConvertSpec) -> None:
    result = convert(spec, silent())
    before, store = contents(spec), open_store(spec.root)
    files = [shard.file for split in manifest_of(spec, result).splits for shard in split.shards]
    damaged = store.local(f"{result.folder}/{files[2]}")
    identities = {file: store.local(f"{result.folder}/{file}").stat().st_ino for file in files}
    data = bytearray(damaged.read_bytes())
    data[40_000] ^= 16
    damaged.write_bytes(data)

    warnings: list[Event] = []
    assert CONVERT.find(spec, Reporter("convert", warnings.append)) is None
    assert f"{damaged} has sha256" in warnings[0]["message"]
    again = convert(spec, silent())
    assert (again.shards_written, again.shards_reused) == (1, 5)
    assert contents(spec) == before
    for file in files:
        rewritten = store.local(f"{result.folder}/{file}").stat().st_ino != identities[file]
        assert rewritten == (file == files[2])


def test_whatever_is_lost_is_made_again(spec: ConvertSpec) -> None:
    result = convert(spec, silent())
    before = contents(spec)
    shard = "cifar10-train.tfrecord-00001-of-00005"
    lost = {shard: 1, f"shards/{shard}.json": 1, "manifest.json": 0, "label.labels.txt": 0}
    for name, emptied in ((shard, False), *((name, True) for name in lost)):
        path = open_store(spec.root).local(f"{result.folder}/{name}")
        path.unlink()
        if emptied:
            path.touch()
        assert convert(spec, silent()).shards_written == lost[name], name
        assert contents(spec) == before


def test_an_error_in_a_worker_keeps_its_class_and_its_line(
    spec: ConvertSpec, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(_path: Path, *args: object, really: Any = shards.write_shard) -> object:
        return really(Path("/dev/full"), *args)

    monkeypatch.setattr(shards, "write_shard", full)
    with pytest.raises(StoreError) as error:
        convert(spec, silent())
    assert str(error.value) == (
        "cannot write /dev/full: no space left on the device; free some space, or choose another --root"
    )
    assert capfd.readouterr() == ("", "")
    assert litter(spec) == []
    assert not list(Path(spec.root).rglob("manifest.json"))
    monkeypatch.undo()
    assert convert(spec, silent()).shards_written == 6


def test_a_raw_file_that_changes_while_it_is_decoded_is_named(
    spec: ConvertSpec, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Sandbox.one

    def change(*args: Any) -> Any:
        (raw / "data_batch_2.bin").write_bytes(bytes((raw / "data_batch_2.bin").stat().st_size))
        return one(*args)

    monkeypatch.setattr(Sandbox, "one", change)
    with pytest.raises(SourceError, match=r"data_batch_2\.bin was changed while it was read; convert again"):
        convert(spec, silent())


def test_reading_a_source_is_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podline.base.progress._REPORT_SECONDS", 0.0)
    monkeypatch.setattr("podline.data.sandbox.pool._BEAT", 0.01)
    events: list[Event] = []
    CONVERT.run(specs(tmp_path, "images"), Reporter("convert", events.append))
    units = list(dict.fromkeys(event["unit"] for event in events if event["event"] == "progress"))
    assert units == ["images", "parts compared for near-duplicates", "shards"]
    assert {"event": "alive", "stage": "convert"} in events, "a sandbox at work is alive"


def test_the_plan_is_in_the_store_while_the_job_runs(spec: ConvertSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(spec.root)
    store.publish_bytes("jobs/killed/train.npy", b"")
    store.publish_bytes("jobs/running/train.npy", b"")
    os.utime(store.local("jobs/killed/train.npy"), (0, 0))
    seen = set()

    def look(*args: object, **kwargs: object):
        seen.update(name.rpartition("/")[2] for name in store.list("jobs") if "/workers/" not in name)
        assert {name.split("/")[1] for name in store.list("jobs")} - {"running", "killed"}
        return shards.publish_shard(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("podline.beam_jobs.workers.publish_shard", look)
    convert(spec, silent())
    assert seen == {"train.npy", "test.npy"}
    assert store.list("jobs") == ["jobs/running/train.npy"]


@pytest.fixture
def loopback(tmp_path: Path) -> Iterator[dict[str, Any]]:
    (tmp_path / "staging").mkdir()
    service = LocalJobServicer(staging_dir=str(tmp_path / "staging"))
    port = service.start_grpc_server()
    yield {"engine": f"job-server:localhost:{port}", "beam_options": ("--environment_type=LOOPBACK",)}
    service.stop()


@pytest.mark.parametrize("workers", ["loopback", pytest.param("two processes", marks=pytest.mark.slow)])
def test_other_workers_write_the_same_bytes_from_another_place(
    tmp_path: Path, raw: Path, spec: ConvertSpec, loopback: dict[str, Any], workers: str
) -> None:
    convert(spec, silent())
    events: list[Event] = []
    how = loopback if workers == "loopback" else {"workers": 2}
    other = convert_spec(tmp_path / "other" / "root", raw.rename(tmp_path / "elsewhere"), **how)
    result = convert(other, Reporter("convert", events.append))
    assert result.shards_written == 6
    assert contents(other) == contents(spec)
    assert litter(other) == []
    assert [event["done"] for event in events if event["event"] == "progress"][-1] == 6


def test_mnist(tmp_path: Path, real_data: Path) -> None:
    spec = ConvertSpec(root=str(tmp_path), dataset="mnist", source=str(real_data / "mnist"))
    result = convert(spec, silent())
    manifest = read_manifest(open_store(tmp_path), result.folder)
    assert (result.read, result.written, result.quarantined) == (70_000, 70_000, 0)
    assert result.splits == {"train": 60_000, "test": 10_000}
    train = manifest.split("train")
    assert len(train.shards) == 10
    # The class counts of http://yann.lecun.com/exdb/mnist, and the moments that everybody normalises with.
    assert train.class_counts == (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
    assert train.mean[0] / 255 == pytest.approx(0.1307, abs=5e-5)
    assert train.std[0] / 255 == pytest.approx(0.3081, abs=5e-5)
    checked = validate(validation_of(spec.root, "mnist", result.fingerprint), silent())
    assert (checked.records, checked.shards, checked.duplicates_within) == (70_000, len(train.shards) + 8, None)


@pytest.mark.parametrize("kind", [pytest.param("cifar", marks=pytest.mark.slow), "coco"])
def test_a_bucket_gives_what_a_folder_gives_through_a_bad_network(
    tmp_path: Path, gcs_root: str, proxy: fault_proxy.FaultProxy, kind: str
) -> None:
    here = specs(tmp_path, kind)
    expected, source = convert(here, silent()), upload(Path(here.source), f"{gcs_root}raw")
    there = here.model_copy(update={"root": f"{gcs_root}root", "source": source})
    proxy.share, proxy.faults = 0.1, (*fault_proxy.ALL, fault_proxy.DAMAGE)
    found = convert(there, silent())
    assert proxy.happened.total() > 5
    proxy.share = 0.0
    assert contents(there) == contents(here)
    assert found.model_copy(update={"seconds": 0}) == expected.model_copy(update={"seconds": 0})
    assert CONVERT.find(there, silent()) is not None
    assert verify(open_store(there.root), silent()).problems == []
    assert not any((tmp_path / "cache" / "objects").glob("*.half"))


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ConvertSpec]:
    """A conversion of each kind that nobody disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    found = {kind: specs(folder, kind) for kind in ("cifar", "coco")}
    for spec in found.values():
        convert(spec, silent())
    return found


@pytest.mark.parametrize(
    ("kind", "function", "call", "shards_left"),
    [
        ("cifar", "podline.data.shards:pixel_sums", 4, 3),  # in the middle of the fourth shard
        ("cifar", "podline.store.contract:Store.publish_json", 1, 0),  # a shard is published, what is known of it not
        ("cifar", "podline.data.versions.publishing:publish_manifest", 1, None),  # all shards
        ("cifar", "podline.data.versions.publishing:complete", 1, None),  # all but the completion record
        ("coco", "podline.data.images.decoded:write_columns", 1, 0),  # all images are decoded, none is published
        ("coco", "podline.data.people.records:annotations_of", 4, 3),
    ],
)
def test_killed_at_a_bad_moment(
    tmp_path: Path, given: dict[str, ConvertSpec], kind: str, function: str, call: int, shards_left: int | None
) -> None:
    """A death costs what was in the making; ``shards_left`` is None where all of them are there."""
    spec, undisturbed = given[kind].model_copy(update={"root": str(tmp_path / "root")}), contents(given[kind])
    require_death(function, call, convert_silently, spec)
    assert CONVERT.find(spec, silent()) is None
    for name, content in contents(spec).items():
        assert content == undisturbed[name]  # whatever has a name is whole
    result = convert(spec, silent())
    assert result.shards_written == 0 if shards_left is None else result.shards_reused == shards_left
    assert contents(spec) == undisturbed
    assert not list(Path(spec.root, ".podline", "tmp").iterdir())
    assert CONVERT.find(spec, silent()) is not None


def test_several_at_once_all_end_well(tmp_path: Path, given: dict[str, ConvertSpec]) -> None:
    spec = given["cifar"].model_copy(update={"root": str(tmp_path / "root")})
    processes = [start(convert_silently, spec) for _ in range(3)]
    for process in processes:
        process.join(240)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert contents(spec) == contents(given["cifar"])
    assert CONVERT.find(spec, silent()) is not None


def beam_workers(process: int) -> list[int]:
    """Return the pids of Beam's worker processes, without the children that read raw files."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended since it was listed
            if parent(int(folder.name)) == process and b"sdk_worker_main" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def convert_until_killed(spec: ConvertSpec) -> None:
    """A conversion with worker processes; exit code 9 says that it knew of its worker's death."""
    try:
        convert(spec, silent())
    except ChildKilledError:
        sys.exit(9)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["starting", "working"])
def test_a_killed_worker_process_is_worth_another_try(
    tmp_path: Path, given: dict[str, ConvertSpec], moment: str
) -> None:
    spec = given["cifar"].model_copy(update={"root": str(tmp_path / "root")})
    process = start(convert_until_killed, spec.model_copy(update={"workers": 2}))
    workers = wait_until(lambda: beam_workers(process.pid or 0))
    if moment == "working":
        wait_until(lambda: list(Path(spec.root).glob("datasets/*/*/*.tfrecord-*")))
    os.kill(workers[0], signal.SIGKILL)
    process.join(240)
    assert process.exitcode == 9
    if moment == "working":  # a worker that has never spoken to us looks for us for a minute more
        wait_until(lambda: not any((Path("/proc") / str(worker)).exists() for worker in workers))
    convert(spec, silent())
    assert contents(spec) == contents(given["cifar"])


def convert_and_tell_its_memory(spec: ConvertSpec, note: Path) -> None:
    convert(spec, silent())
    unit = 1 if sys.platform == "darwin" else 1024
    note.write_text(str(unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))


@pytest.mark.slow
def test_ten_times_the_images_need_the_same_memory(tmp_path: Path) -> None:
    peaks, written = [], []
    for images in (200, 2_000):
        note, source = tmp_path / f"note{images}", CocoFiles("train", images).write(tmp_path / f"raw{images}")
        spec = specs(tmp_path / f"{images}", "coco", source=str(source), side=128, shard_bytes=2_000_000)
        process = start(convert_and_tell_its_memory, spec, note)
        process.join(240)
        peaks.append(int(note.read_text()))
        written.append(sum(len(content) for name, content in contents(spec).items() if ".tfrecord-" in name))
    assert written[1] - written[0] > 90_000_000
    # The annotations and the plan, about 4 kB for each of these images; a hundredth of them would be in COCO's folders.
    assert peaks[1] - peaks[0] < 15_000_000, peaks
