"""Converting 1,000,000,000 records to 1,000,000 shards, which exist in name alone: what the driver needs for it."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest import mock

import apache_beam as beam
import pytest
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState
from killed_conversions import in_a_process
from raw_cifar import convert_spec, write_raw_cifar

from podline.base.progress import silent
from podline.beam_jobs import conversion
from podline.beam_jobs.jobs import Job, JobContext
from podline.data.pixels import PixelSums
from podline.data.planning import ShardPlans
from podline.data.shards import RowsByPlace, WrittenShard
from podline.data.sources.opening import open_source
from podline.data.sources.source import Source
from podline.data.versions.fingerprint import effective
from podline.documents.manifest import SHARD_RECORDS
from podline.documents.shard_table import ShardInfo
from podline.stages.specs import ConvertSpec
from podline.store.contract import Listed, Store
from podline.store.folder import FolderStore

RECORDS, SHARDS = 500_000_000, 500_000  # of each of two splits


class ManySplits(Source):
    """A source with more records than its files hold, of which nothing is read."""

    @property
    def sizes(self) -> dict[str, int]:
        return dict.fromkeys(super().sizes, RECORDS)

    def shard_tables(self, plans: ShardPlans, folder: Path) -> tuple[RowsByPlace, Iterator[Path]]:
        del plans, folder
        return RowsByPlace(self.splits[0].pixels, (32, 32, 3)), iter(())


class ManyShards(FolderStore):
    """A folder with the shards of two splits, and their records, as if an engine had written them."""

    def listing(self, prefix: str = "") -> Iterator[Listed]:
        if not prefix.startswith("datasets/"):
            return super().listing(prefix)
        of_records = prefix.endswith(SHARD_RECORDS)
        names = (
            f"{prefix}/cifar10-{split}.tfrecord-{number:06d}-of-{SHARDS}{'.json' * of_records}"
            for split in ("test", "train")
            for number in range(SHARDS)
        )
        return (Listed(name, 3_089_000, 1.8e9 + at, f"{at}.1") for at, name in enumerate(names))

    def read_json(self, name: str, remedy: str = "") -> Any:
        file, sha256 = name.rpartition("/")[2].removesuffix(".json"), f"{hash(name) % 2**64:064x}"
        counts = (100,) * 10
        info = ShardInfo(file=file, records=1000, bytes=3_089_000, sha256=sha256, class_counts=counts)
        pixels = PixelSums(count=1_024_000, sums=(9, 9, 9), squares=(99, 99, 99))
        return WrittenShard(split=file.split("-")[1].split(".")[0], info=info, pixels=pixels).model_dump(mode="json")

    def flush(self, names: Iterable[str]) -> None:
        assert sum(1 for _ in names) == 2 * SHARDS


class Done(PipelineResult):
    def wait_until_finish(self, duration: int | None = None) -> Any:
        return self.state


class Weighing(PipelineRunner):
    """An engine that takes a job's description and is done."""

    bytes = 0

    def run_pipeline(self, pipeline: beam.Pipeline, options: Any) -> PipelineResult:
        self.bytes = pipeline.to_runner_api().ByteSize()
        return Done(PipelineState.DONE)


def opened(spec: ConvertSpec, store: Store) -> ManySplits:
    source: Any = open_source("cifar10", spec.source, store.scratch)
    return ManySplits(**{each.name: getattr(source, each.name) for each in fields(source)})


def convert_many(work: Path) -> dict[str, float]:
    spec = convert_spec(work / "root", write_raw_cifar(work / "raw"), shard_bytes=1000 * 3126, min_shards=1)
    engine, store = Weighing(), ManyShards(Path(spec.root))
    job = Job(JobContext(spec.root, "jobs/many", "prism"), store, silent(), lambda _name: beam.Pipeline(runner=engine))
    with mock.patch.object(conversion, "source_of", opened):
        result = conversion.convert_in(job, effective(spec, store))
    manifest = store.find(f"{result.folder}/manifest.json")
    assert manifest is not None
    assert (result.written, result.shards_reused) == (2 * RECORDS, 2 * SHARDS)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"job": engine.bytes, "manifest": manifest.bytes, "memory": memory}


@pytest.mark.long
def test_a_million_shards_need_less_than_a_gigabyte(tmp_path: Path) -> None:
    found = in_a_process(convert_many, tmp_path)
    assert found["job"] < 1e6
    assert found["manifest"] < 1e8
    assert found["memory"] < 1e9
