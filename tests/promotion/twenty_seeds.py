"""How often promotion promotes an equal model, and how often one that was spoiled; measured through the commands.

    python tests/promotion/twenty_seeds.py FOLDER
    python tests/promotion/twenty_seeds.py FOLDER --runs 5 --train 2500 --set duration.epochs=3
    python tests/promotion/twenty_seeds.py FOLDER --mnist mnist --train 3000 --set model.width=0.25 \\
        --set duration.epochs=8

The same recipe is trained with so many seeds, one after the other, and each model is promoted if the rules let it. Then
as many are trained on data in which labels of one class were drawn at random, and are held against the champion. It
says after each promotion what came of it, and in the end how many had which verdict; benchmarks/RESULTS.md has
the figures.

All stages run in this process, which imports TensorFlow once; nothing else is different from the commands as a person
types them. Forty trainings of the sample take about 20 minutes on two cores.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import keras
import numpy as np
import numpy.typing as npt
from click.testing import CliRunner

from podline.cli import cli
from podline.data.sources import class_names
from podline.data.sources.mnist import SPLITS
from podline.data.sources.sample import FOLDER
from podline.errors import RefusedError, UndecidedError
from podline.progress import Listener, Reporter
from podline.stages.specs import Spec
from podline.stages.table import stage_of
from podline.supervision import running

_LABELS = b"U\x06labels]("
_OF_EACH = 100


def main() -> None:
    """Measures, and prints what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--mnist", type=Path, help="MNIST's files, to draw from; else the sample is drawn")
    parser.add_argument("--train", type=int, default=5000, help="so many training images are drawn")
    parser.add_argument("--shuffled", type=float, default=0.7, help="this share of a class's labels is drawn anew")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the recipe")
    given = parser.parse_args()
    running.run_stage = _in_this_process
    raw = _Mnist(given.mnist) if given.mnist else _Sample()
    bench = _Bench(raw, given.folder, given.train, [word for setting in given.set for word in ("--set", setting)])
    equal = [bench.promoted(bench.drawn, seed) for seed in range(given.runs)]
    _say(f"equal models, without the first one: {_counted(equal[1:])}")
    spoiled = list(_spoiled(bench, given.runs, given.shuffled))
    named = sum(f"class {found['class']}:" in " ".join(found["refusals"]) for found in spoiled)
    _say(f"spoiled ones: {_counted(spoiled)}; {named} refused by class")
    good, bad = (np.array([found["accuracy"] for found in each]) for each in (equal, spoiled))
    usual = {name: np.mean([found["parts"][name] for found in equal]) for name in raw.class_names}
    fell = [100 * (usual[found["class"]] - found["parts"][found["class"]]) for found in spoiled]
    _say(f"accuracy {100 * good.mean():.1f} %, with {100 * good.std(ddof=1):.2f} points between seeds")
    _say(
        f"spoiled {100 * (good.mean() - bad.mean()):.1f} points lower, {min(fell):.0f} to {max(fell):.0f} in the class"
    )


def _counted(found: list[dict[str, Any]]) -> str:
    """How many had each verdict."""
    counts = Counter(each["verdict"] for each in found)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("promoted", "undecided", "refused"))


def _spoiled(bench: _Bench, runs: int, share: float) -> Iterator[dict[str, Any]]:
    """Models of data with one class's labels shuffled, each held against the same champion."""
    for number in range(runs):
        label = number % len(bench.raw.class_names)
        source = bench.folder / f"spoiled-{number}"
        _spoil(bench.raw, bench.drawn, source, label, share, seed=number)
        found = bench.promoted(source, 1000 + number)
        shutil.rmtree(source)
        if found["promoted"]:
            bench.run("models", "rollback", bench.raw.recipe, "--reason", "it was spoiled on purpose")
        yield found | {"class": bench.raw.class_names[label]}


class _Raw(Protocol):
    """Raw data whose labels can be changed.

    Attributes:
        recipe: that learns it, and the data set's name.
        class_names: by label.
    """

    recipe: str
    class_names: tuple[str, ...]

    def draw(self, folder: Path, train: int) -> None:
        """Puts so many training images, and 1,000 test images, into a folder."""
        ...

    def labels(self, folder: Path) -> Iterator[tuple[Path, bytearray, npt.NDArray[np.uint8]]]:
        """Files with training labels, what they hold, and the labels in that, to be changed in place."""
        ...


class _Sample:
    """The drawn sample."""

    recipe, class_names = "sample", class_names.SAMPLE

    def draw(self, folder: Path, train: int) -> None:
        """See :class:`_Raw`."""
        CliRunner().invoke(cli, ["data", "draw", str(folder), "--train", str(train)], catch_exceptions=False)

    def labels(self, folder: Path) -> Iterator[tuple[Path, bytearray, npt.NDArray[np.uint8]]]:
        """See :class:`_Raw`."""
        for file in sorted((folder / FOLDER).glob("data_batch_*")):
            content = bytearray(file.read_bytes())
            start = content.index(_LABELS) + len(_LABELS)
            # A list of labels: an opcode before each, and one that ends the list.
            yield file, content, np.frombuffer(content, np.uint8, content.index(b"e", start) - start, start)[1::2]


class _Mnist:
    """Some of MNIST's training images, and 100 test images of each class."""

    recipe, class_names = "mnist", class_names.MNIST

    def __init__(self, source: Path) -> None:
        self._source = source

    def draw(self, folder: Path, train: int) -> None:
        """See :class:`_Raw`."""
        folder.mkdir(parents=True)
        for split, (images, labels) in SPLITS.items():
            told, shown = (gzip.decompress((self._source / f"{name}.gz").read_bytes()) for name in (labels, images))
            answers, pixels = np.frombuffer(told, np.uint8, offset=8), np.frombuffer(shown, np.uint8, offset=16)
            if split == "train":
                chosen = np.random.default_rng(0).permutation(len(answers))[:train]
            else:
                chosen = np.concatenate([np.flatnonzero(answers == label)[:_OF_EACH] for label in range(10)])
            count = len(chosen).to_bytes(4, "big")
            pixels = pixels.reshape(len(answers), -1)[chosen]
            (folder / labels).write_bytes(told[:4] + count + answers[chosen].tobytes())
            (folder / images).write_bytes(shown[:4] + count + shown[8:16] + pixels.tobytes())

    def labels(self, folder: Path) -> Iterator[tuple[Path, bytearray, npt.NDArray[np.uint8]]]:
        """See :class:`_Raw`."""
        file = folder / SPLITS["train"][1]
        content = bytearray(file.read_bytes())
        yield file, content, np.frombuffer(content, np.uint8, offset=8)


class _Bench:
    """A store, the drawn data, and the recipe's settings."""

    def __init__(self, raw: _Raw, folder: Path, train: int, settings: list[str]) -> None:
        self.raw, self.folder, self.drawn, self._settings = raw, folder, folder / "drawn", settings
        raw.draw(self.drawn, train)

    def promoted(self, source: Path, seed: int) -> dict[str, Any]:
        """Trains, evaluates and promotes; what the promotion said, and the accuracy, as a whole and by class."""
        data = self.run("convert", self.raw.recipe, "--source", str(source))["fingerprint"]
        self.run("validate", self.raw.recipe, "--fingerprint", data)
        recipe = [self.raw.recipe, "--fingerprint", data, "--set", f"seed={seed}", *self._settings]
        run = self.run("train", *recipe)["run"]
        self.run("evaluate", *recipe)
        found = self.run("models", "promote", run)
        outcome = self.run("runs", "show", run)["outcome"]
        keras.backend.clear_session()
        accuracy = outcome["metrics"]["top1"]["value"]
        _say(f"seed {seed}: {100 * accuracy:.1f} %, {found['headline']}", *found["refusals"], found["doubt"])
        return found | {
            "accuracy": accuracy,
            "parts": {name: part["value"] for name, part in outcome["parts"].items()},
        }

    def run(self, *words: str) -> Any:
        """What a command answers; that it does not promote a model is an answer."""
        where = ["--root", str(self.folder / "root"), "--json"]
        done = CliRunner().invoke(cli, [*words, *where], catch_exceptions=False)
        if done.exit_code not in (0, RefusedError.exit_code, UndecidedError.exit_code):
            sys.exit(f"podline {' '.join(words)}: {done.output}")
        return json.loads(done.stdout)


def _in_this_process(spec: Spec, listener: Listener, **_limits: Any) -> Any:
    stage = stage_of(spec)
    reporter = Reporter(stage.name, listener)
    return stage.find(spec, reporter) or stage.run(spec, reporter)


def _spoil(raw: _Raw, source: Path, target: Path, label: int, share: float, seed: int) -> None:
    """Copies raw data, with this share of a class's training labels drawn at random from all classes."""
    shutil.copytree(source, target)
    random = np.random.default_rng(seed)
    for file, content, labels in raw.labels(target):
        chosen = np.flatnonzero(labels == label)
        chosen = random.permutation(chosen)[: round(share * len(chosen))]
        labels[chosen] = random.integers(0, len(raw.class_names), len(chosen))
        file.write_bytes(content)


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
