"""The benchmarks by name: each asks child processes for seconds and bytes, and makes rows of them.

Nothing here imports TensorFlow or Beam; the modules that measure do, in processes of :mod:`benchmarks.child`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.child import measure
from benchmarks.readers import PINNED, passes
from benchmarks.row import BenchmarkRow, cost_row, rate_row
from podline.base.cores import usable_cores
from podline.base.errors import SettingsError
from podline.base.frozen import Frozen


class Sizes(Frozen):
    """How much each benchmark works on.

    Attributes:
        examples: CIFAR-sized images of the whole conversion job.
        folder_images: small JPEGs in class folders of the whole command.
        coco_images: COCO-sized JPEGs of the whole conversion job; with fewer, the start of Beam's runner would count.
        pose_images: COCO-sized JPEGs that are read in batches.
        pose_batch_size: of these.
        shard_examples: in one shard; 32,000 are the default shard of 100 MB.
        pass_examples: in a pass of shuffled batches.
        batch_size: of these.
        plan_records: records whose shards and order are planned.
        plain_records: ids that the plain way permutes in memory.
        plan_files: files that are listed and planned (a multiple of 1,000); they exist in name alone.
        plain_files: the plain way's.
        train_batch_size: of a training step.
        steps: training steps in a stretch.
        repetitions: of each side of what takes a second or so.
        long_repetitions: of each side of what takes a process of its own.
    """

    examples: int = 500_000
    folder_images: int = 60_000
    coco_images: int = 10_000
    pose_images: int = 1_000
    pose_batch_size: int = 32
    shard_examples: int = 32_000
    pass_examples: int = 50_000
    batch_size: int = 1_024
    plan_records: int = 10**9
    plain_records: int = 10**8
    plan_files: int = 14_000_000
    plain_files: int = 1_400_000
    train_batch_size: int = 128
    steps: int = 10
    repetitions: int = 7
    long_repetitions: int = 3


# Enough to see that everything works, too little for the figures to mean anything.
QUICK = Sizes(
    examples=3_000,
    folder_images=200,
    coco_images=20,
    pose_images=20,
    pose_batch_size=4,
    shard_examples=256,
    pass_examples=512,
    batch_size=64,
    plan_records=10**7,
    plain_records=10**6,
    plan_files=20_000,
    plain_files=10_000,
    train_batch_size=8,
    steps=1,
    repetitions=1,
    long_repetitions=1,
)


@dataclass(frozen=True)
class Benchmark:
    """A comparison.

    Attributes:
        name: what the command line calls it.
        about: the comparison in one line.
        rows: measures it; its files go to the folder that it is given.
        by_name: whether it runs only when it is named, since it needs a GPU or a package index.
    """

    name: str
    about: str
    rows: Callable[[Sizes, Path], list[BenchmarkRow]]
    by_name: bool = False


def _write_shard(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    count = sizes.shard_examples
    took = measure(
        work, "benchmarks.records:write_shard", folder=str(work), examples=count, repetitions=sizes.repetitions
    )
    note = f"one TFRecord file of {count:,} CIFAR-10 records; a loop of tf.train.Example and TFRecordWriter"
    return [rate_row("write-shard", count=count, ours=took["ours"], other=took["other"], unit="images/s", note=note)]


def _convert_job(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    source = str(work / "raw")
    measure(work, f"{_CONVERSION}:make_raw_files", source=source, examples=sizes.examples)
    ours, other = alternately(
        lambda: measure(work, f"{_CONVERSION}:convert_ours", source=source, target=str(work / "ours")),
        lambda: measure(work, f"{_CONVERSION}:convert_plain", source=source, target=str(work / "plain")),
        sizes.long_repetitions,
    )
    images = f"{sizes.examples:,} CIFAR-10 images in .bin files"
    return [
        rate_row(
            "convert-job",
            count=sizes.examples,
            ours=[side["seconds"] for side in ours],
            other=[side["seconds"] for side in other],
            unit="images/s",
            note=f"{images}: the whole Beam job, with checksums, statistics and manifest; the plain loop",
        ),
        cost_row(
            "convert-job-memory",
            ours=[side["peak_bytes"] / 1e6 for side in ours],
            other=[side["peak_bytes"] / 1e6 for side in other],
            unit="MB",
            note="peak resident memory of the same processes, libraries included",
        ),
    ]


def _convert_coco(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    source, cores = str(work / "coco"), usable_cores()
    measure(work, f"{_COCO}:make_images", source=source, images=sizes.coco_images)
    ours, other = alternately(
        lambda: measure(work, f"{_COCO}:convert_ours", source=source, target=str(work / "ours")),
        lambda: measure(work, f"{_COCO}:decode_and_resize", source=source),
        sizes.long_repetitions,
    )
    note = (
        f"{sizes.coco_images:,} JPEGs of 640×480: the whole Beam job, as many threads that decode as cores; "
        f"{cores} × what a bare decode-and-resize loop reaches on one core, which writes nothing"
    )
    other = [seconds / cores for seconds in other]
    return [rate_row("convert-coco", count=sizes.coco_images, ours=ours, other=other, unit="images/s", note=note)]


def _convert_folders(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    source, count = str(work / "folders"), sizes.folder_images
    measure(work, f"{_FOLDERS}:make_images", source=source, images=count)
    ours, other = alternately(
        lambda: measure(work, f"{_FOLDERS}:convert_ours", source=source, target=str(work / "ours")),
        lambda: measure(work, f"{_FOLDERS}:convert_plain", source=source, target=str(work / "plain")),
        sizes.long_repetitions,
    )
    note = f"{count:,} JPEGs of 32×32 in class folders, the whole command; OpenCV and TFRecordWriter in two processes"
    return [rate_row("convert-folders", count=count, ours=ours, other=other, unit="images/s", note=note)]


def _pose_input(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    source, root = str(work / "coco"), str(work / "root")
    measure(work, f"{_COCO}:make_images", source=source, images=sizes.pose_images)
    folder = measure(work, f"{_COCO}:make_data_set", source=source, root=root)
    took = measure(
        work,
        "benchmarks.pose_input:batches_with_targets",
        root=root,
        folder=folder,
        source=source,
        batch_size=sizes.pose_batch_size,
        repetitions=sizes.long_repetitions,
    )
    note = (
        f"a shuffled pass over {took['examples']:,} COCO-sized images in batches of {sizes.pose_batch_size}: records, "
        "mirrored, turned, scaled, shifted and recoloured, targets on the device; tf.data that decodes the JPEG files, "
        "mirrors, and draws the targets of each example"
    )
    return [
        rate_row(
            "pose-input", count=took["examples"], ours=took["ours"], other=took["other"], unit="images/s", note=note
        )
    ]


def _shuffled_batches(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    took = measure(
        work,
        "benchmarks.batches:shuffled_batches",
        **data_set(work, sizes.pass_examples),
        batch_size=sizes.batch_size,
        repetitions=sizes.repetitions,
    )
    count = took["examples"]
    note = (
        f"a pass over {count:,} CIFAR-10 images in batches of {sizes.batch_size:,} host tensors; "
        "TFRecordDataset, shuffle, batch, parse_example, decode_raw"
    )
    return [
        rate_row("shuffled-batches", count=count, ours=took["ours"], other=took["other"], unit="images/s", note=note)
    ]


def _readers(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    batch = sizes.batch_size
    count = sizes.pass_examples // batch * batch
    place = data_set(work, count)
    took = passes(work, place, str(work / "raw"), batch, sizes.long_repetitions)
    ours = took.pop("podline")
    note = f"a pass over {count:,} CIFAR-10 images in batches of {batch:,}; "
    return [
        rate_row(
            f"readers-{side}", count=count, ours=ours, other=seconds, unit="images/s", note=note + _OTHER_READERS[side]
        )
        for side, seconds in took.items()
    ]


def _plans(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    batch, records, files = sizes.batch_size, sizes.plan_records, sizes.plan_files
    ours, other = alternately(
        lambda: measure(work, f"{_PLANS}:order_ours", records=records, batch_size=batch),
        lambda: measure(work, f"{_PLANS}:order_plain", records=sizes.plain_records, batch_size=batch),
        sizes.long_repetitions,
    )
    listed = measure(work, f"{_PLANS}:files_ours", files=files, work=str(work))
    plain = measure(work, f"{_PLANS}:files_plain", files=sizes.plain_files)
    sides = f"{records:,} records; a NumPy permutation of {sizes.plain_records:,}"
    of_files = (
        f"{files:,} made-up files: listing, layout, items, splits and order; Python lists of {sizes.plain_files:,}"
    )

    def order_row(name: str, key: str, per: float, unit: str, note: str) -> BenchmarkRow:
        costs = ([side[key] / per for side in found] for found in (ours, other))
        return cost_row(name, ours=next(costs), other=next(costs), unit=unit, note=f"{note} {sides}")

    return [
        order_row("plans-order", "plan", 1, "s", "shards, order and ids of a batch at a random step,"),
        order_row("plans-order-memory", "bytes", 1e6, "MB", "growth of the same processes' peak memory,"),
        order_row("plans-batch", "batch", 1e-3, "ms", f"ids of {batch:,} at a random step once planned,"),
        rate_row(
            "plans-files",
            count=1,
            ours=[listed["seconds"] / files],
            other=[plain["seconds"] / sizes.plain_files],
            unit="files/s",
            note=of_files,
        ),
        cost_row(
            "plans-files-memory",
            ours=[listed["bytes"] / files],
            other=[plain["bytes"] / sizes.plain_files],
            unit="bytes/file",
            note="growth of the same processes' peak memory, mapped files included",
        ),
    ]


def _train_step(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    batch, steps = sizes.train_batch_size, sizes.steps
    place = data_set(work, 10 * batch)
    took = measure(
        work, f"{_TRAINING}:train_step", **place, batch_size=batch, steps=steps, repetitions=sizes.repetitions
    )
    ours, other = ([1000 * seconds / steps for seconds in took[side]] for side in ("ours", "other"))
    note = f"a step of the cifar10 recipe's network, batch {batch}, both warm; keras.Model.fit"
    return [cost_row("train-step", ours=ours, other=other, unit="ms", note=note)]


def _channels_first(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    batch, steps = sizes.train_batch_size, sizes.steps
    if not measure(work, f"{_TRAINING}:gpus"):
        raise SettingsError("channels-first needs a GPU; got none that TensorFlow can use here")
    took = measure(
        work,
        f"{_TRAINING}:layout_steps",
        **data_set(work, 10 * batch),
        batch_size=batch,
        steps=steps,
        repetitions=sizes.repetitions,
        layouts=("channels_first", "channels_last"),
        strategy="gpu",
    )
    ours, other = ([1000 * seconds / steps for seconds in took[side]] for side in ("ours", "other"))
    note = f"a step of the cifar10 recipe's network, batch {batch}, both ours and warm, on a GPU; channels_last"
    return [cost_row("channels-first", ours=ours, other=other, unit="ms", note=note)]


def _first_step(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    batch = sizes.train_batch_size
    place = data_set(work, 10 * batch)
    ours, other = alternately(
        lambda: measure(work, f"{_TRAINING}:first_step_ours", **place, batch_size=batch),
        lambda: measure(work, f"{_TRAINING}:first_step_fit", **place, batch_size=batch),
        sizes.long_repetitions,
    )
    note = f"from imported libraries to the first loss of the same network, batch {batch}; keras.Model.fit"
    return [cost_row("first-step", ours=ours, other=other, unit="s", note=note)]


_CONVERSION = "benchmarks.conversion"
_COCO = "benchmarks.coco"
_FOLDERS = "benchmarks.folders"
_PLANS = "benchmarks.plans"
_TRAINING = "benchmarks.training"

_OTHER_READERS = {
    "tf.data": "TFRecordDataset, shuffle buffer of 10,000, batch, parse_example, decode_raw",
    "grain": f"MapDataset of an uncompressed ArrayRecord file, shuffled as a whole ({PINNED[0]})",
    "webdataset": f"a tar of .npy and .cls, shuffle buffer of 10,000, one process ({PINNED[2]})",
}

BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark("write-shard", "writing one shard against a loop of tf.train.Example", _write_shard),
        Benchmark("convert-job", "the whole Beam job against the plain loop, time and memory", _convert_job),
        Benchmark("convert-coco", "COCO-sized JPEGs against cores × a bare decode-and-resize loop", _convert_coco),
        Benchmark("convert-folders", "small JPEGs in class folders against two plain processes", _convert_folders),
        Benchmark("pose-input", "augmented batches of people with targets against tf.data from JPEG", _pose_input),
        Benchmark(
            "shuffled-batches", "shuffled batches as host tensors against tf.data with parsing", _shuffled_batches
        ),
        Benchmark("plans", "orders of 10⁹ records and 14 million files against what holds them in memory", _plans),
        Benchmark("train-step", "a warm training step against keras.Model.fit", _train_step),
        Benchmark("first-step", "the first training step against keras.Model.fit", _first_step),
        Benchmark("readers", "shuffled batches against grain, WebDataset and tf.data", _readers, by_name=True),
        Benchmark("channels-first", "a step with channels_first against channels_last", _channels_first, by_name=True),
    )
}


def alternately(ours: Callable[[], Any], other: Callable[[], Any], repetitions: int) -> tuple[list[Any], list[Any]]:
    """Measure each side in fresh processes; who goes first alternates."""
    found: tuple[list[Any], list[Any]] = ([], [])
    for repetition in range(repetitions):
        turns = [(ours, found[0]), (other, found[1])]
        for side, record in turns if repetition % 2 == 0 else turns[::-1]:
            record.append(side())
    return found


def data_set(work: Path, examples: int) -> dict[str, str]:
    """Make a data set with this many training examples; return the arguments ``root`` and ``folder``."""
    source, root = str(work / "raw"), str(work / "root")
    measure(work, f"{_CONVERSION}:make_raw_files", source=source, examples=-(-examples * 6 // 5))
    return {"root": root, "folder": measure(work, f"{_CONVERSION}:make_data_set", source=source, root=root)}
