"""The benchmarks by name: each runs measurements in child processes, and makes rows of their results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.child import measure
from benchmarks.readers import PINNED, passes
from benchmarks.row import BenchmarkRow, Measured, cost_row, rate_row
from benchmarks.timing import in_turns
from podline.base.cores import usable_cores
from podline.base.errors import SettingsError
from podline.base.frozen import Frozen


class Sizes(Frozen):
    """The amounts of input of all benchmarks.

    Attributes:
        examples: CIFAR-sized images of ``convert-job``.
        folder_images: small JPEGs of ``convert-folders``.
        coco_images: COCO-sized JPEGs of ``convert-coco``; with fewer, the start of Beam's runner would count.
        pose_images: COCO-sized JPEGs of ``pose-input``.
        pose_batch_size: examples in a batch of ``pose-input``.
        shard_examples: records of ``write-shard``; 32,000 are the default shard of 100 MB.
        pass_examples: images in a pass of ``shuffled-batches`` and ``readers``.
        batch_size: examples in a batch of these, and of ``plans``.
        plan_records: records whose shards and order Podline plans.
        plain_records: ids that the plain way permutes in memory.
        plan_files: non-existent files that Podline lists and plans, a multiple of 1,000.
        plain_files: the same for the plain way.
        train_batch_size: examples in a training step.
        steps: training steps in a measurement.
        repetitions: measurements of each side that take about a second.
        long_repetitions: measurements of each side that take a process each.
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


# Enough to test the benchmarks; the figures mean nothing.
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


class Benchmark(NamedTuple):
    """A comparison.

    Attributes:
        about: the comparison in one line.
        rows: function that measures in a given folder for temporary files, and returns the rows.
        by_name: whether it runs only if named, since it needs a GPU or a package index.
    """

    about: str
    rows: Callable[[Sizes, Path], list[BenchmarkRow]]
    by_name: bool = False


def _write_shard(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    count = sizes.shard_examples
    seconds = measure(
        work, "benchmarks.records:write_shard", folder=str(work), examples=count, repetitions=sizes.repetitions
    )
    note = f"one TFRecord file of {count:,} CIFAR-10 records; a loop of tf.train.Example and TFRecordWriter"
    return [rate_row("write-shard", seconds, count, note)]


def _convert_job(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    found = _conversions(sizes, work, _CONVERSION, sizes.examples, dataset="cifar10")
    note = f"{sizes.examples:,} CIFAR-10 images in .bin files: the whole Beam job, with checksums, statistics and "
    of_memory = "peak resident memory of the same processes, libraries included"
    return [
        rate_row("convert-job", _each(found, "seconds"), sizes.examples, f"{note}manifest; the plain loop"),
        cost_row("convert-job-memory", _each(found, "peak_bytes", 1e6), of_memory, "MB"),
    ]


def _convert_coco(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    cores = usable_cores()
    seconds = _each(_conversions(sizes, work, _COCO, sizes.coco_images, dataset="coco"), "seconds")
    seconds["other"] = [of_one_core / cores for of_one_core in seconds["other"]]
    note = (
        f"{sizes.coco_images:,} JPEGs of 640×480: the whole Beam job, with a decoding thread per core; the rate of a "
        f"decode-and-resize loop on one core, which writes nothing, times {cores}"
    )
    return [rate_row("convert-coco", seconds, sizes.coco_images, note)]


def _convert_folders(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    count = sizes.folder_images
    found = _conversions(sizes, work, _FOLDERS, count, f"{_FOLDERS}:convert")
    note = f"{count:,} JPEGs of 32×32 in class folders, the whole command; OpenCV and TFRecordWriter in two processes"
    return [rate_row("convert-folders", _each(found, "seconds"), count, note)]


def _conversions(
    sizes: Sizes, work: Path, module: str, images: int, ours: str = "benchmarks.conversion:convert", **more: str
) -> dict[str, list[dict[str, float]]]:
    """Make a module's source of images; return what both sides measured when they converted it."""
    source = str(work / "source")
    measure(work, f"{module}:make_source", source=source, images=images)
    sides = {
        "ours": lambda: measure(work, ours, source=source, target=str(work / "ours"), **more),
        "other": lambda: measure(work, f"{module}:convert_plain", source=source, target=str(work / "plain")),
    }
    return in_turns(sides, sizes.long_repetitions)


def _each(found: dict[str, list[dict[str, float]]], name: str, unit: float = 1.0) -> dict[str, list[float]]:
    """Return one value of each measurement, in multiples of ``unit``."""
    return {side: [values[name] / unit for values in each] for side, each in found.items()}


def _pose_input(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    place = _data_set(work, _COCO, "coco", sizes.pose_images)
    batch_size, repetitions = sizes.pose_batch_size, sizes.long_repetitions
    entry_point = "benchmarks.pose_input:batches_with_targets"
    source = str(work / "source")
    found = measure(work, entry_point, **place, source=source, batch_size=batch_size, repetitions=repetitions)
    note = (
        f"a shuffled pass over {found['examples']:,} COCO-sized images in batches of {batch_size}: records, mirrored, "
        "turned, scaled, shifted and recoloured, targets on the device; tf.data that decodes the JPEG files, mirrors, "
        "and draws the targets of each example"
    )
    return [rate_row("pose-input", found["seconds"], found["examples"], note)]


def _shuffled_batches(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    place, batch_size = _cifar10(work, sizes.pass_examples), sizes.batch_size
    entry_point = "benchmarks.batches:shuffled_batches"
    found = measure(work, entry_point, **place, batch_size=batch_size, repetitions=sizes.repetitions)
    note = (
        f"a pass over {found['examples']:,} CIFAR-10 images in batches of {batch_size:,} host tensors; "
        "TFRecordDataset, shuffle, batch, parse_example, decode_raw"
    )
    return [rate_row("shuffled-batches", found["seconds"], found["examples"], note)]


def _readers(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    batch = sizes.batch_size
    count = sizes.pass_examples // batch * batch
    seconds = passes(work, _cifar10(work, count), str(work / "source"), batch, sizes.long_repetitions)
    note = f"a pass over {count:,} CIFAR-10 images in batches of {batch:,}; "
    return [
        rate_row(f"readers-{side}", {"ours": seconds["podline"], "other": seconds[side]}, count, note + of_side)
        for side, of_side in _OTHER_READERS.items()
    ]


def _plans(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    batch, records, files = sizes.batch_size, sizes.plan_records, sizes.plan_files
    found = in_turns(
        {
            "ours": lambda: measure(work, f"{_PLANS}:order_ours", records=records, batch_size=batch),
            "other": lambda: measure(work, f"{_PLANS}:order_plain", records=sizes.plain_records, batch_size=batch),
        },
        sizes.long_repetitions,
    )
    listed = measure(work, f"{_PLANS}:files_ours", files=files, work=str(work))
    plain = measure(work, f"{_PLANS}:files_plain", files=sizes.plain_files)
    sides = f"{records:,} records; a NumPy permutation of {sizes.plain_records:,}"
    of_files = (
        f"{files:,} made-up files: listing, layout, items, splits and order; Python lists of {sizes.plain_files:,}"
    )
    of_memory = "growth of the same processes' peak memory,"

    def by_file(name: str) -> Measured:
        return {"ours": [listed[name] / files], "other": [plain[name] / sizes.plain_files]}

    return [
        cost_row("plans-order", _each(found, "plan"), f"shards, order and ids of a batch at any step, {sides}", "s"),
        cost_row("plans-order-memory", _each(found, "bytes", 1e6), f"{of_memory} {sides}", "MB"),
        cost_row(
            "plans-batch",
            _each(found, "batch", 1e-3),
            f"ids of {batch:,} at any step after planning, {sides}",
            "ms",
        ),
        rate_row("plans-files", by_file("seconds"), 1, of_files, "files/s"),
        cost_row("plans-files-memory", by_file("bytes"), f"{of_memory} mapped files included", "bytes/file"),
    ]


def _train_step(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    note = "after a first call; keras.Model.fit"
    return [_step_row("train-step", sizes, work, f"{_TRAINING}:train_step", note)]


def _channels_first(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    if not measure(work, f"{_TRAINING}:gpus"):
        raise SettingsError("channels-first needs a GPU, and TensorFlow finds none; run it on a machine with a GPU")
    note = "on a GPU, after a first call; the same with channels_last"
    return [_step_row("channels-first", sizes, work, f"{_TRAINING}:layout_steps", note)]


def _step_row(name: str, sizes: Sizes, work: Path, entry_point: str, note: str) -> BenchmarkRow:
    batch, steps = sizes.train_batch_size, sizes.steps
    place = _cifar10(work, 10 * batch)
    seconds = measure(work, entry_point, **place, batch_size=batch, steps=steps, repetitions=sizes.repetitions)
    costs = {side: [1000 * each / steps for each in of_side] for side, of_side in seconds.items()}
    return cost_row(name, costs, f"a step of the cifar10 recipe's network, batch {batch}, {note}", "ms")


def _first_step(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    batch = sizes.train_batch_size
    place = _cifar10(work, 10 * batch)
    seconds = in_turns(
        {
            "ours": lambda: measure(work, f"{_TRAINING}:first_step_ours", **place, batch_size=batch),
            "other": lambda: measure(work, f"{_TRAINING}:first_step_fit", **place, batch_size=batch),
        },
        sizes.long_repetitions,
    )
    note = f"from the imports to the first loss of the same network, batch {batch}; keras.Model.fit"
    return [cost_row("first-step", seconds, note, "s")]


def _cifar10(work: Path, examples: int) -> dict[str, str]:
    """Make a data set with this many training examples; return the arguments ``root`` and ``folder``."""
    return _data_set(work, _CONVERSION, "cifar10", -(-examples * 6 // 5))


def _data_set(work: Path, module: str, dataset: str, images: int) -> dict[str, str]:
    source, root = str(work / "source"), str(work / "root")
    measure(work, f"{module}:make_source", source=source, images=images)
    folder: Any = measure(work, f"{_CONVERSION}:make_data_set", dataset=dataset, source=source, root=root)
    return {"root": root, "folder": folder}


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
    "write-shard": Benchmark("writing one shard against a loop of tf.train.Example", _write_shard),
    "convert-job": Benchmark("the whole Beam job against the plain loop, time and memory", _convert_job),
    "convert-coco": Benchmark("COCO-sized JPEGs against cores × a bare decode-and-resize loop", _convert_coco),
    "convert-folders": Benchmark("small JPEGs in class folders against two plain processes", _convert_folders),
    "pose-input": Benchmark("augmented batches of people with targets against tf.data from JPEG", _pose_input),
    "shuffled-batches": Benchmark("shuffled batches as host tensors against tf.data with parsing", _shuffled_batches),
    "plans": Benchmark("plans for 10⁹ records and 14 million files against plans in memory", _plans),
    "train-step": Benchmark("a training step after the first against keras.Model.fit", _train_step),
    "first-step": Benchmark("the first training step against keras.Model.fit", _first_step),
    "readers": Benchmark("shuffled batches against grain, WebDataset and tf.data", _readers, by_name=True),
    "channels-first": Benchmark("a step with channels_first against channels_last", _channels_first, by_name=True),
}
