"""A conversion of COCO that is killed ends with the same bytes once it is run again, and its memory is flat."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest
from coco_files import CocoFiles
from killed_conversions import assert_one_death_costs_nothing, start
from raw_cifar import contents

from podline.beam_jobs.conversion import convert
from podline.progress import silent
from podline.stages.specs import ConvertSpec


def spec_of(root: Path, source: Path, **settings: object) -> ConvertSpec:
    given = {"root": str(root), "dataset": "coco", "source": str(source), "side": 64, "max_people": 3}
    return ConvertSpec.model_validate({**given, "shard_bytes": 80_000, **settings})


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    CocoFiles("val", 6, 101).write(folder, zipped=True)
    return CocoFiles("train", 24).write(folder, zipped=True)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, raw: Path) -> dict[str, bytes]:
    spec = spec_of(tmp_path_factory.mktemp("undisturbed") / "root", raw)
    assert convert(spec, silent()).shards_written == 7
    return contents(spec)


@pytest.mark.parametrize(
    ("function", "call", "shards_left"),
    [
        ("podline.data.sources.coco_decoding:raw_file", 2, {0}),  # the second split is decoded, and not published
        ("podline.store.folder:FolderStore.publish_file", 2, {0}),  # one of two truths is there
        ("podline.data.sources.coco_records:squares_of", 7, {6}),
    ],
)
def test_killed_at_a_bad_moment(
    tmp_path: Path, raw: Path, undisturbed: dict[str, bytes], function: str, call: int, shards_left: set[int]
) -> None:
    spec = spec_of(tmp_path / "root", raw)
    assert_one_death_costs_nothing(spec, undisturbed, function, call, shards_left)


def convert_and_tell_its_memory(spec: ConvertSpec, note: Path) -> None:
    convert(spec, silent())
    unit = 1 if sys.platform == "darwin" else 1024
    note.write_text(str(unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))


@pytest.mark.slow
def test_ten_times_the_images_need_the_same_memory(tmp_path: Path) -> None:
    peaks, written = [], []
    for images in (200, 2_000):
        note = tmp_path / f"note{images}"
        source = CocoFiles("train", images).write(tmp_path / f"raw{images}")
        spec = spec_of(tmp_path / f"root{images}", source, side=128, shard_bytes=2_000_000)
        process = start(convert_and_tell_its_memory, spec, note)
        process.join(240)
        peaks.append(int(note.read_text()))
        written.append(sum(len(content) for name, content in contents(spec).items() if ".tfrecord-" in name))
    assert written[1] - written[0] > 90_000_000
    # The annotations and the plan, about 4 kB for each of these images; a hundredth of them would be in COCO's folders.
    assert peaks[1] - peaks[0] < 15_000_000, peaks
