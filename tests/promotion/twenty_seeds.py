"""How often promotion promotes an equal model, and how often one that was spoiled; measured through the commands.

    python tests/promotion/twenty_seeds.py FOLDER
    python tests/promotion/twenty_seeds.py FOLDER --runs 5 --train 2500 --set duration.epochs=3

The same recipe is trained with so many seeds, one after the other, and each model is promoted if the rules let it. Then
as many are trained on data in which labels of one class were drawn at random, and are held against the champion. It
says after each promotion what came of it, and in the end how many had which verdict; docs/promotion.md has the figures.

All stages run in this process, which imports TensorFlow once; nothing else is different from the commands as a person
types them. With the recipe as it is, forty trainings take about an hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
from click.testing import CliRunner

from podline.cli import cli
from podline.data.sources import class_names
from podline.data.sources.sample import FOLDER
from podline.errors import RefusedError, UndecidedError
from podline.progress import Listener, Reporter
from podline.stages.specs import Spec
from podline.stages.table import stage_of
from podline.supervision import running

_LABELS = b"U\x06labels]("


def main() -> None:
    """Measures, and prints what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--train", type=int, default=5000, help="so many training images are drawn")
    parser.add_argument("--shuffled", type=float, default=0.7, help="this share of a class's labels is drawn anew")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the recipe")
    given = parser.parse_args()
    running.run_stage = _in_this_process
    bench = _Bench(given.folder, given.train, [word for setting in given.set for word in ("--set", setting)])
    equal = [bench.promoted(bench.drawn, seed) for seed in range(given.runs)]
    _say(f"equal models, without the first one: {_counted(equal[1:])}")
    spoiled = list(_spoiled(bench, given.runs, given.shuffled))
    named = sum(f"class {found['class']}:" in " ".join(found["refusals"]) for found in spoiled)
    _say(f"spoiled ones: {_counted(spoiled)}; {named} refused by class")
    good, bad = (np.array([found["accuracy"] for found in each]) for each in (equal, spoiled))
    usual = {name: np.mean([found["parts"][name] for found in equal]) for name in class_names.SAMPLE}
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
        label = number % len(class_names.SAMPLE)
        source = bench.folder / f"spoiled-{number}"
        _spoil(bench.drawn, source, label, share, seed=number)
        found = bench.promoted(source, 1000 + number)
        shutil.rmtree(source)
        if found["promoted"]:
            bench.run("models", "rollback", "sample", "--reason", "it was spoiled on purpose")
        yield found | {"class": class_names.SAMPLE[label]}


class _Bench:
    """A store, the drawn data, and the recipe's settings."""

    def __init__(self, folder: Path, train: int, settings: list[str]) -> None:
        self.folder, self.drawn, self._settings = folder, folder / "drawn", settings
        self.run("sample", str(self.drawn), "--train", str(train), root=False)

    def promoted(self, source: Path, seed: int) -> dict[str, Any]:
        """Trains, evaluates and promotes; what the promotion said, and the accuracy, as a whole and by class."""
        data = self.run("convert", "sample", "--source", str(source))["fingerprint"]
        self.run("validate", "sample", "--fingerprint", data)
        recipe = ["sample", "--fingerprint", data, "--set", f"seed={seed}", *self._settings]
        run = self.run("train", *recipe, "--no-preflight")["run"]
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

    def run(self, *words: str, root: bool = True) -> Any:
        """What a command answers; that it does not promote a model is an answer."""
        where = ["--root", str(self.folder / "root"), "--json"] if root else []
        done = CliRunner().invoke(cli, [*words, *where], catch_exceptions=False)
        if done.exit_code not in (0, RefusedError.exit_code, UndecidedError.exit_code):
            sys.exit(f"podline {' '.join(words)}: {done.output}")
        return json.loads(done.stdout) if root else None


def _in_this_process(spec: Spec, listener: Listener, **_limits: Any) -> Any:
    stage = stage_of(spec)
    reporter = Reporter(stage.name, listener)
    return stage.find(spec, reporter) or stage.run(spec, reporter)


def _spoil(source: Path, target: Path, label: int, share: float, seed: int) -> None:
    """Copies the sample, with this share of a class's training labels drawn at random from all classes."""
    shutil.copytree(source, target)
    random = np.random.default_rng(seed)
    for file in sorted((target / FOLDER).glob("data_batch_*")):
        content = bytearray(file.read_bytes())
        start = content.index(_LABELS) + len(_LABELS)
        # A list of labels: an opcode before each, and one that ends the list.
        labels = np.frombuffer(content, np.uint8, content.index(b"e", start) - start, start)[1::2].copy()
        chosen = np.flatnonzero(labels == label)
        chosen = random.permutation(chosen)[: round(share * len(chosen))]
        labels[chosen] = random.integers(0, len(class_names.SAMPLE), len(chosen))
        content[start + 1 : start + 2 * len(labels) : 2] = labels.tobytes()
        file.write_bytes(content)


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
