"""The conversion, on real runners: the same bytes every time, and nothing half-done."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import numpy as np
import pytest
from raw_cifar import contents, convert_plainly, convert_spec, write_raw_cifar

from podline.beam_jobs.conversion import convert
from podline.beam_jobs.decoding import add_steps
from podline.beam_jobs.engines import open_engine
from podline.beam_jobs.steps import Home, Job, write_or_find
from podline.data import shards
from podline.data.planning import plan_shards
from podline.data.records import Feature, layout_of
from podline.data.shards import RowsInTables
from podline.datasets.validation import validate
from podline.documents.manifest import Manifest, read_manifest
from podline.errors import PodlineError, SettingsError, SourceError, StoreError
from podline.progress import Event, Reporter, silent
from podline.stages.completed import manifest_sha256
from podline.stages.specs import ConvertResult, ConvertSpec, ValidateSpec
from podline.stages.table import CONVERT
from podline.store.opening import open_store


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return write_raw_cifar(tmp_path / "raw")


@pytest.fixture
def spec(tmp_path: Path, raw: Path) -> ConvertSpec:
    return convert_spec(tmp_path / "root", raw)


def litter(spec: ConvertSpec) -> list[Path]:
    """Temporary files that are left."""
    temporary = Path(spec.root) / ".podline" / "tmp"
    return sorted(temporary.rglob("*")) if temporary.exists() else []


def manifest_of(spec: ConvertSpec, result: ConvertResult) -> Manifest:
    return read_manifest(open_store(spec.root), result.folder)


def test_a_conversion(spec: ConvertSpec) -> None:
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
    beside = {"manifest.json", "features.json", "dataset_info.json", "label.labels.txt"}
    assert names == files | {f"shards/{file}.json" for file in files} | beside


def test_bytes_are_those_that_the_library_writes(tmp_path: Path, raw: Path, spec: ConvertSpec) -> None:
    convert(spec, silent())
    plain = convert_spec(tmp_path / "plain", raw)
    convert_plainly(plain)
    expected, found = contents(plain), contents(spec)
    assert len(expected) == 7
    assert {name: found[name] for name in expected} == expected


def test_the_manifest_knows_nothing_of_the_place_or_the_time(tmp_path: Path, raw: Path, spec: ConvertSpec) -> None:
    convert(spec, silent())
    moved = raw.rename(tmp_path / "elsewhere")
    other = convert_spec(tmp_path / "other" / "root", moved)
    convert(other, silent())
    assert contents(other) == contents(spec)


def test_a_finished_conversion_is_found_and_a_second_one_writes_no_shard(spec: ConvertSpec) -> None:
    first = convert(spec, silent())
    assert CONVERT.find(spec, silent()) == first.model_copy(update={"reused": True})
    before = contents(spec)
    events: list[Event] = []
    again = convert(spec, Reporter("convert", events.append))
    assert (again.shards_written, again.shards_reused) == (0, 6)
    last = [event for event in events if event["event"] == "progress"][-1]
    assert (last["done"], last["metrics"]) == (6, {"records/s": 0.0}), "the rate counts what is written alone"
    assert contents(spec) == before


def test_another_seed_is_another_folder_with_the_same_records(tmp_path: Path, raw: Path, spec: ConvertSpec) -> None:
    first = convert(spec, silent())
    other = convert_spec(tmp_path / "root", raw, seed=1)
    second = convert(other, silent())
    assert first.folder != second.folder
    records = []
    for result in (first, second):
        manifest = manifest_of(spec, result)
        files = [open_store(spec.root).local(f"{result.folder}/{s.file}") for s in manifest.split("train").shards]
        frames = np.concatenate([np.fromfile(file, np.uint8).reshape(-1, 3126) for file in files])
        records.append([frame.tobytes() for frame in frames])
    assert records[0] != records[1]
    assert sorted(records[0]) == sorted(records[1])


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


def test_training_images_that_are_tested_on_are_left_out(tmp_path: Path) -> None:
    raw = write_raw_cifar(tmp_path / "raw", train=300, test=200)
    tested = np.fromfile(raw / "test_batch.bin", np.uint8).reshape(-1, 3073)
    trained = np.memmap(raw / "data_batch_4.bin", np.uint8, "r+").reshape(-1, 3073)
    trained[[7, 30], 1:] = tested[[12, 100], 1:]
    trained.base.flush()
    events: list[Event] = []
    spec = convert_spec(tmp_path / "root", raw)
    result = convert(spec, Reporter("convert", events.append))
    manifest = manifest_of(spec, result)
    assert (result.read, result.written, result.quarantined) == (500, 498, 2)
    assert {left.record for left in manifest.quarantined} == {"data_batch_4.bin[7]", "data_batch_4.bin[30]"}
    part, *_, warning = [event["message"] for event in events if event.get("level") == "warning"]
    assert part == "not the official CIFAR-10 but a part of it: 300 of 50,000 train, 200 of 10,000 test records"
    assert warning.startswith("left out of the train split: 2 records; the manifest lists them, the first is")
    sha256 = manifest_sha256(open_store(spec.root), result.folder)
    validate(
        ValidateSpec(root=spec.root, dataset="cifar10", fingerprint=result.fingerprint, manifest_sha256=sha256),
        silent(),
    )


def test_options_are_refused_before_anything_is_written(tmp_path: Path, raw: Path) -> None:
    spec = convert_spec(tmp_path / "root", raw, beam_options=("--project=x", "--no_such_option=3"))
    with pytest.raises(SettingsError, match="unknown Beam option --no_such_option"):
        convert(spec, silent())
    assert not (tmp_path / "root").exists()


def test_a_record_larger_than_a_shard_is_refused_before_anything_is_written(tmp_path: Path, raw: Path) -> None:
    with pytest.raises(SettingsError, match="shard_bytes=2000 vs 3126 bytes of one record"):
        convert(convert_spec(tmp_path / "root", raw, shard_bytes=2000), silent())
    assert litter(convert_spec(tmp_path / "root", raw)) == []


def test_a_root_that_cannot_be_written_is_one_clear_line(tmp_path: Path, raw: Path) -> None:
    (tmp_path / "root").write_text("a file")
    with pytest.raises(StoreError, match=r"cannot write to the store .*root: "):
        convert(convert_spec(tmp_path / "root", raw), silent())


def test_an_error_in_a_worker_keeps_its_class_and_its_line(
    spec: ConvertSpec, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(_path: Path, *args: object, **settings: object) -> object:
        return shards.write_shard(Path("/dev/full"), *args, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr("podline.beam_jobs.steps.write_shard", full)
    with pytest.raises(StoreError) as error:
        convert(spec, silent())
    assert str(error.value) == (
        "cannot write /dev/full: no space left on the device; free some, or choose another --root"
    )
    assert capfd.readouterr() == ("", "")
    assert litter(spec) == []
    assert not list(Path(spec.root).rglob("manifest.json"))
    monkeypatch.undo()
    assert convert(spec, silent()).shards_written == 6


def test_an_error_that_is_not_ours_is_one_line_with_beam_s_word_as_its_cause(
    spec: ConvertSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: object, **_settings: object) -> None:
        raise ZeroDivisionError("no luck")

    monkeypatch.setattr("podline.beam_jobs.steps.write_shard", broken)
    with pytest.raises(PodlineError, match=r"^the Beam job failed: ZeroDivisionError: no luck") as error:
        convert(spec, silent())
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_a_raw_file_that_changes_while_it_is_converted_is_named(
    spec: ConvertSpec, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(*args: object, **kwargs: object):
        (raw / "data_batch_2.bin").write_bytes(bytes((raw / "data_batch_2.bin").stat().st_size))
        return shards.write_shard(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("podline.beam_jobs.steps.write_shard", change)
    with pytest.raises(SourceError, match=r"data_batch_2\.bin was changed while it was converted; convert again"):
        convert(spec, silent())


def test_beam_is_not_heard(
    spec: ConvertSpec, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        convert(spec, silent())
    assert capfd.readouterr() == ("", "")
    assert [record for record in caplog.records if record.name.startswith("apache_beam")] == []


def test_a_thread_tells_of_shards_while_the_job_runs(spec: ConvertSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*args: object, **kwargs: object):
        time.sleep(0.3)
        return shards.write_shard(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("podline.beam_jobs.steps.write_shard", slow)
    events: list[Event] = []
    convert(spec, Reporter("convert", events.append))
    done = [event["done"] for event in events if event["event"] == "progress"]
    assert done == sorted(set(done))
    assert len(done) > 3


def test_the_plan_is_in_the_store_while_the_job_runs(spec: ConvertSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(spec.root)
    store.publish_bytes("jobs/killed/train.npy", b"")
    store.publish_bytes("jobs/running/train.npy", b"")
    os.utime(store.local("jobs/killed/train.npy"), (0, 0))
    seen = set()

    def look(*args: object, **kwargs: object):
        seen.update(name.rpartition("/")[2] for name in store.list("jobs") if "/workers/" not in name)
        assert {name.split("/")[1] for name in store.list("jobs")} - {"running", "killed"}
        return shards.write_shard(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("podline.beam_jobs.steps.write_shard", look)
    convert(spec, silent())
    assert seen == {"train.npy", "test.npy"}
    assert store.list("jobs") == ["jobs/running/train.npy"]


def test_two_worker_processes_write_the_same_bytes(tmp_path: Path, raw: Path, spec: ConvertSpec) -> None:
    convert(spec, silent())
    events: list[Event] = []
    other = convert_spec(tmp_path / "other", raw, workers=2)
    result = convert(other, Reporter("convert", events.append))
    assert result.shards_written == 6
    assert contents(other) == contents(spec)
    assert litter(other) == []
    assert [event["done"] for event in events if event["event"] == "progress"][-1] == 6


def test_the_description_of_a_job_is_small_whatever_the_number_of_shards(spec: ConvertSpec) -> None:
    plans = plan_shards("x", {"train": 10**9}, 3126, shard_bytes=3_126_000, min_shards=1)
    layout = layout_of([Feature("image", "uint8", (32, 32, 3))])
    job = Job(Home(spec.root, "jobs/x"), "x", layout, "classification", 10, plans, RowsInTables())
    with open_engine(spec) as engine:
        pipeline = engine("podline")
        add_steps(pipeline, len(plans), write_or_find, job)
    assert len(plans) == 10**6
    assert 50_000 < pipeline.to_runner_api().ByteSize() < 1_000_000
