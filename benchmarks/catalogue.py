"""The benchmarks by name: each asks child processes for seconds and bytes, and makes rows of them.

Nothing here imports TensorFlow or Beam; the modules that measure do, in processes of :mod:`benchmarks.child`.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.child import measure
from benchmarks.row import BenchmarkRow, cost_row, rate_row
from podline.cluster import VARIABLE
from podline.cores import usable_cores
from podline.frozen import Frozen
from podline.strategies import WORKERS


class Sizes(Frozen):
    """How much each benchmark works on.

    Attributes:
        examples: CIFAR-sized images of the whole conversion job.
        coco_images: COCO-sized JPEGs of the whole conversion job; with fewer, the start of Beam's runner would count.
        pose_images: COCO-sized JPEGs that are read in batches.
        pose_batch_size: of these.
        shard_examples: in one shard; 32,000 are the default shard of 100 MB.
        pass_examples: in a pass of shuffled batches.
        batch_size: of these.
        train_batch_size: of a training step.
        muon_batch_size: of a training step of the recipes that use Muon.
        steps: training steps in a stretch.
        store_examples: CIFAR-sized images of the data set in a bucket.
        store_shard_bytes: of its shards, at most.
        store_object_bytes: of the smaller one of two objects whose memory is compared.
        repetitions: of each side of what takes a second or so.
        long_repetitions: of each side of what takes a process of its own.
    """

    examples: int = 500_000
    coco_images: int = 10_000
    pose_images: int = 1_000
    pose_batch_size: int = 32
    shard_examples: int = 32_000
    pass_examples: int = 50_000
    batch_size: int = 1_024
    train_batch_size: int = 128
    muon_batch_size: int = 1_000
    steps: int = 10
    store_examples: int = 200_000
    store_shard_bytes: int = 20_000_000
    store_object_bytes: int = 50_000_000
    repetitions: int = 7
    long_repetitions: int = 3


# Enough to see that everything works, too little for the figures to mean anything.
QUICK = Sizes(
    examples=3_000,
    coco_images=20,
    pose_images=20,
    pose_batch_size=4,
    shard_examples=256,
    pass_examples=512,
    batch_size=64,
    train_batch_size=8,
    muon_batch_size=8,
    steps=1,
    store_examples=3_000,
    store_shard_bytes=1_000_000,
    store_object_bytes=1_000_000,
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
    """

    name: str
    about: str
    rows: Callable[[Sizes, Path], list[BenchmarkRow]]


def _write_shard(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    took = _records("write_shard", work, sizes.shard_examples, sizes.repetitions)
    count = sizes.shard_examples
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


def _keep_files(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    source, images = str(work / "coco"), sizes.pose_images
    measure(work, f"{_COCO}:make_images", source=source, images=images)
    found = measure(
        work,
        f"{_COCO}:keep_files",
        source=source,
        root=str(work / "root"),
        batch_size=sizes.pose_batch_size,
        repetitions=sizes.long_repetitions,
    )
    kept, decoded = found["bytes"]
    convert, read = found["convert"], found["read"]
    about = "COCO-sized images, kept as JPEG files; decoded to 368×368"
    converted = f"conversion of {images:,} {about}"
    return [
        cost_row("keep-files-bytes", ours=[kept], other=[decoded], unit="bytes", note=f"a record of {about}"),
        rate_row("keep-files-convert", count=images, **convert, unit="images/s", note=converted),
        rate_row(
            "keep-files-read",
            count=found["images"],
            **read,
            unit="images/s",
            note=f"shuffled batches of {sizes.pose_batch_size} arrays of {about}",
        ),
    ]


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
        **_data_set(work, sizes.pass_examples),
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


def _train_step(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    batch, steps = sizes.train_batch_size, sizes.steps
    place = _data_set(work, 10 * batch)
    took = measure(
        work, f"{_TRAINING}:train_step", **place, batch_size=batch, steps=steps, repetitions=sizes.repetitions
    )
    ours, other = ([1000 * seconds / steps for seconds in took[side]] for side in ("ours", "other"))
    note = f"a step of the cifar10 recipe's network, batch {batch}, both warm; keras.Model.fit"
    return [cost_row("train-step", ours=ours, other=other, unit="ms", note=note)]


def _precision(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    batch, steps = sizes.muon_batch_size, sizes.steps
    place = _data_set(work, 2 * batch)
    took = measure(
        work, f"{_TRAINING}:precision_step", **place, batch_size=batch, steps=steps, repetitions=sizes.repetitions
    )
    ours, other = ([1000 * seconds / steps for seconds in took[side]] for side in ("ours", "other"))
    note = f"a step of the cifar10-5min recipe, batch {batch:,}, with precision=auto; in float32"
    return [cost_row("precision", ours=ours, other=other, unit="ms", note=note)]


def _first_step(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    batch = sizes.train_batch_size
    place = _data_set(work, 10 * batch)
    ours, other = alternately(
        lambda: measure(work, f"{_TRAINING}:first_step_ours", **place, batch_size=batch),
        lambda: measure(work, f"{_TRAINING}:first_step_fit", **place, batch_size=batch),
        sizes.long_repetitions,
    )
    note = f"from imported libraries to the first loss of the same network, batch {batch}; keras.Model.fit"
    return [cost_row("first-step", ours=ours, other=other, unit="s", note=note)]


def _diagnosis(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    batch, steps = sizes.train_batch_size, 2 * sizes.steps
    found = measure(
        work,
        "benchmarks.overhead:overhead",
        **_data_set(work, 10 * batch),
        batch_size=batch,
        steps=steps,
        repetitions=2 * sizes.repetitions,
    )
    ours, other = ([1000 * seconds / steps for seconds in found[side]] for side in ("ours", "other"))
    note = f"a step of the cifar10 recipe, batch {batch}, with hooks, metrics and diagnosis; the bare step"
    return [cost_row("diagnosis", ours=ours, other=other, unit="ms", note=note)]


def _flow(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    # By name, as a child process is told: the library does not import what is above it.
    found = measure(
        work,
        "benchmarks.flow_overhead:overhead",
        work=str(work),
        steps=_FLOW_STEPS,
        repetitions=sizes.long_repetitions,
    )
    ours, other = median(found["flow"]), median(found["commands"])
    note = (
        f"convert, validate, train {_FLOW_STEPS} steps, evaluate, report, on the drawn sample, from Run to Completed, "
        f"server and worker are up; the same as five commands: {ours - other:+.1f} s, {_FLOW_COST} s + 2 % are allowed"
    )
    retry = "from Retry to the first line of the stage that is not done; the most that it may take"
    return [
        cost_row("flow", ours=[ours], other=[other], unit="s", note=note),
        cost_row("flow-retry", ours=found["retry"], other=[_RETRY_COST], unit="s", note=retry),
    ]


def _strategies(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    """Every strategy that CPUs allow beside the plain one, which is measured before and after the others."""
    batch = sizes.train_batch_size
    place = _data_set(work, 10 * batch)

    def took(strategy: str, worker: int = 0, addresses: Sequence[str] = ()) -> dict[str, list[float]]:
        together = {"cluster": {"worker": list(addresses)}, "task": {"type": "worker", "index": worker}}
        return measure(
            work,
            "benchmarks.strategies:stretches",
            {VARIABLE: json.dumps(together)} if addresses else None,
            **place,
            strategy=strategy,
            batch_size=batch,
            steps=sizes.steps,
            repetitions=sizes.repetitions,
        )

    def by_workers() -> dict[str, list[float]]:
        addresses = _free_addresses(_WORKERS)
        with ThreadPoolExecutor(_WORKERS) as threads:
            chief, *_ = threads.map(lambda worker: took(WORKERS, worker, addresses), range(_WORKERS))
        return chief

    first = took("cpu")
    others = {name: took(name) for name in ("cpu:2", "cpu:8")} | {WORKERS: by_workers()}
    plain = [*first["seconds"], *took("cpu")["seconds"]]
    return [
        rate_row(
            f"strategies-{name}",
            count=batch * sizes.steps,
            ours=found["seconds"],
            other=plain,
            unit="images/s",
            note=f"training the cifar10 recipe on {_DEVICES[name]}, batch {batch}, beside strategy cpu on the same "
            f"{usable_cores()} cores; the losses of the first {sizes.steps} steps differ by "
            f"{_difference(found['losses'], first['losses']):.0e}",
        )
        for name, found in others.items()
    ]


def _difference(losses: Sequence[float], expected: Sequence[float]) -> float:
    """The largest difference, as a share of what is expected."""
    return max(abs(loss - other) / abs(other) for loss, other in zip(losses, expected, strict=True))


def _free_addresses(count: int) -> list[str]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("localhost", 0))) for _ in range(count)]
        return [f"localhost:{each.getsockname()[1]}" for each in sockets]


def _labels(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    found = _records("labels", work, sizes.shard_examples, sizes.repetitions)
    wide = found["bytes_100"][1]
    return [
        _bytes_row(
            "labels-bytes", found, f"a record with a scalar label; with a one-hot one, {wide:,} for 100 classes"
        ),
        _pass_row("labels-time", found, sizes, f"one-hot made on the device; read from the file; {_advice(found)}"),
    ]


def _advice(found: dict[str, Any]) -> str:
    """Which labels are recommended, and why."""
    slower = median(found["ours"]) / median(found["other"])
    if slower <= _AS_FAST:
        return "scalar labels are recommended: they take less room and no more time"
    return f"one-hot labels are recommended where training waits for input: scalar ones take {slower:.1f} times as long"


def _pixels(sizes: Sizes, work: Path) -> list[BenchmarkRow]:
    found = _records("pixels", work, sizes.shard_examples, sizes.repetitions)
    return [
        _bytes_row("pixels-bytes", found, "a record with uint8 pixels; with normalised float32 ones"),
        _pass_row("pixels-time", found, sizes, "uint8 normalised on the device; float32 read from the file"),
    ]


_CONVERSION = "benchmarks.conversion"
_COCO = "benchmarks.coco"
_TRAINING = "benchmarks.training"
_WORKERS = 2
_AS_FAST = 1.1  # up to so many times as long a pass with scalar labels may take to be recommended
# Seconds that Prefect may cost, and that a Retry may take to be at work again.
_FLOW_COST, _RETRY_COST = 10, 20
# As few as let the drawn sample be told from guessing, which the evaluation asks for.
_FLOW_STEPS = 60
_DEVICES = {
    "cpu:2": "2 logical devices",
    "cpu:8": "8 logical devices",
    WORKERS: f"{_WORKERS} processes over the loopback",
}

BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark("write-shard", "writing one shard against a loop of tf.train.Example", _write_shard),
        Benchmark("convert-job", "the whole Beam job against the plain loop, time and memory", _convert_job),
        Benchmark("convert-coco", "COCO-sized JPEGs against cores × a bare decode-and-resize loop", _convert_coco),
        Benchmark("keep-files", "JPEG files in records against decoded pixels, bytes and time", _keep_files),
        Benchmark("pose-input", "augmented batches of people with targets against tf.data from JPEG", _pose_input),
        Benchmark(
            "shuffled-batches", "shuffled batches as host tensors against tf.data with parsing", _shuffled_batches
        ),
        Benchmark("train-step", "a warm training step against keras.Model.fit", _train_step),
        Benchmark("precision", "a training step with precision=auto against float32", _precision),
        Benchmark("first-step", "the first training step against keras.Model.fit", _first_step),
        Benchmark("diagnosis", "a training step that is watched over against a bare one", _diagnosis),
        Benchmark("strategies", "2 and 8 devices and 2 processes against one device, on the same cores", _strategies),
        Benchmark("flow", "a run under Prefect against its stages as commands, and how soon a Retry is at work", _flow),
        Benchmark("labels", "scalar labels against one-hot ones, bytes and time", _labels),
        Benchmark("pixels", "uint8 pixels against float32 ones, bytes and time", _pixels),
    )
}


def _records(function: str, work: Path, examples: int, repetitions: int) -> dict[str, Any]:
    return measure(work, f"benchmarks.records:{function}", folder=str(work), examples=examples, repetitions=repetitions)


def _bytes_row(name: str, found: dict[str, Any], note: str) -> BenchmarkRow:
    ours, other = found["bytes"]
    return cost_row(name, ours=[ours], other=[other], unit="bytes", note=note)


def _pass_row(name: str, found: dict[str, Any], sizes: Sizes, note: str) -> BenchmarkRow:
    ours, other = ([1000 * seconds for seconds in found[side]] for side in ("ours", "other"))
    return cost_row(
        name, ours=ours, other=other, unit="ms", note=f"a shuffled pass over {sizes.shard_examples:,} records: {note}"
    )


def alternately(ours: Callable[[], Any], other: Callable[[], Any], repetitions: int) -> tuple[list[Any], list[Any]]:
    """What each side found in fresh processes; who goes first alternates."""
    found: tuple[list[Any], list[Any]] = ([], [])
    for repetition in range(repetitions):
        turns = [(ours, found[0]), (other, found[1])]
        for side, record in turns if repetition % 2 == 0 else turns[::-1]:
            record.append(side())
    return found


def _data_set(work: Path, examples: int) -> dict[str, str]:
    """Makes a data set with so many training examples; returns the arguments ``root`` and ``folder``."""
    source, root = str(work / "raw"), str(work / "root")
    measure(work, f"{_CONVERSION}:make_raw_files", source=source, examples=examples * 6 // 5)
    return {"root": root, "folder": measure(work, f"{_CONVERSION}:make_data_set", source=source, root=root)}
