"""Compares accuracy on few images: ``podline run images``, a short script, and the recipe's small network.

    python -m benchmarks.small_sets photos drawings --minutes 5 --work /tmp/small

The script computes features with a frozen EfficientNet-Lite0 at 224 pixels, and fits a logistic regression to them. The
measure is the *macro accuracy*, the mean over classes, on the source's test split. A row for RESULTS.md is printed for
each source.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import numpy.typing as npt

from benchmarks.accuracy import macro
from podline import notebook
from podline.data.versions.examples import Examples
from podline.kinds.classification.guesses import Guesses
from podline.models.build import build_model
from podline.models.published_weights import published_layers
from podline.recipes import registry
from podline.recipes.published_weights import PUBLISHED, Pretrained
from podline.recipes.settings import ModelSettings
from podline.store.opening import open_store

LITE = "efficientnet-lite0"


class Way(NamedTuple):
    """The results of one method on one source.

    Attributes:
        right: whether each test example is answered rightly, (n,).
        labels: the test labels, (n,).
        seconds: time of the training stage, or of the whole script after it has read the images.
    """

    right: npt.NDArray[np.bool_]
    labels: npt.NDArray[np.int64]
    seconds: float

    def __str__(self) -> str:
        """Format the macro accuracy with half of its 95 % interval, and the seconds."""
        found = macro(self.right, self.labels)
        return f"{100 * found.value:.1f} % ± {50 * (found.high - found.low):.1f} ({self.seconds:.0f} s)"


def podline_run(source: Path, root: Path, minutes: float, *options: str) -> Way:
    """Run ``podline run images``; exit code 7 means that the model is not better than guessing."""
    command = [str(Path(sys.executable).with_name("podline")), "run", "images", "--source", str(source), "--json"]
    command += ["--root", str(root), "--minutes", str(minutes), *options]
    ran = subprocess.run(command, check=False, stdout=subprocess.PIPE)  # noqa: S603 (our own, in our own interpreter)
    if ran.returncode not in (0, 7):
        raise SystemExit(f"{' '.join(command)} ended with {ran.returncode}")
    [run] = (root / "runs").glob(f"images.{source.name}-*")
    guesses = Guesses.read(open_store(str(root)), f"runs/{run.name}")
    seconds = json.loads((run / "stages" / "train.json").read_text())["result"]["seconds"]
    return Way(guesses.right, guesses.labels, seconds)


def frozen_network(root: Path) -> keras.Model:
    """Return the layers from images of 224 pixels to features, with ImageNet's weights."""
    model = build_model(ModelSettings(kind=LITE, weights="imagenet"), (224, 224, 3), 1, (0,) * 3, (1,) * 3)
    layers: dict[str, Any] = published_layers(open_store(str(root)), Pretrained(LITE), PUBLISHED[LITE].checksum)
    for layer in model.layers:
        for variable in layer.weights if layer.name != "classifier" else ():
            variable.assign(layers[layer.name][variable.name])
    return keras.Model(model.inputs, model.get_layer("pool").output)


def script(source: Path, root: Path) -> Way:
    """Fit a logistic regression to frozen features, as a short script would."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 (in the extra suspects)

    recipe = registry.override(registry.get("images"), {"few": [], "conversion.side": 224})
    data = notebook.convert(recipe, str(root), source)
    train, test = (Examples(str(root), data.folder, split)[:] for split in ("train", "test"))
    started, network = time.perf_counter(), frozen_network(root)
    features = [network.predict(split["image"], batch_size=64, verbose="0") for split in (train, test)]
    found = LogisticRegression(max_iter=1_000).fit(features[0], train["label"]).predict(features[1])
    return Way(found == test["label"], test["label"], time.perf_counter() - started)


def main() -> None:
    """Print the table's rows."""
    parser = argparse.ArgumentParser(description="Compare accuracy on few images with a short script.")
    parser.add_argument("sources", nargs="+", type=Path, help="folders of images")
    parser.add_argument("--work", type=Path, required=True, help="a folder for data sets and runs")
    parser.add_argument("--minutes", type=float, default=5, help="time limit of each training")
    args = parser.parse_args()
    for source in args.sources:
        work = args.work / source.name
        ways = podline_run(source, work / "ours", args.minutes), script(source, work / "script")
        before = podline_run(source, work / "small", args.minutes, "--set", "few=[]")
        cells, labels = map(str, (*ways, before)), before.labels
        sys.stdout.write(f"| {source.name} | {len(labels):,}, {len(np.unique(labels))} | {' | '.join(cells)} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
