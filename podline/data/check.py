"""Describes how a source of images would be converted: as text, JSON, and picture sheets of examples and duplicates."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from podline.base.drawing.picture_sheet import PictureRow, Sheet, SheetBlock, SheetPicture, sheet
from podline.base.errors import SettingsError, SourceError
from podline.base.figures import duration, size
from podline.base.plurals import first_few, plural
from podline.data.images.items import TEST
from podline.data.images.near import NearPair
from podline.data.people.layouts import has_annotations
from podline.data.rawfiles import require_local
from podline.data.records import layout_of
from podline.data.shards import SourceSplit
from podline.data.shown import printable
from podline.data.sources.remote import on_this_machine
from podline.data.sources.source import Source
from podline.data.versions.fingerprint import EffectiveSpec, effective, opened, require_convertible, source_cache
from podline.recipes import registry
from podline.recipes.kind_table import text_targets
from podline.recipes.settings import Recipe
from podline.stages.from_recipe import converter_settings
from podline.stages.specs import ConvertSpec
from podline.store.contract import Store, explained

_UNTESTED = "no evaluation covers these classes; give a column of splits, or a larger conversion.test_share"
# Upper bounds of a picture's longer side, in pixels.
_BOUNDS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
_EXAMPLES, _CLASSES = 8, 12
_LOOKED_AT = 20_000  # records that are searched for examples
_PAIRS, _PAIRS_IN_A_ROW, _LETTERS = 24, 3, 18


@dataclass(frozen=True)
class Checked:
    """An opened source and the seconds of opening it, which include downloads and the decoding of its images."""

    spec: EffectiveSpec
    source: Source
    seconds: float

    def document(self) -> dict[str, Any]:
        """Return the description of the source as a JSON object."""
        skeleton = self.source.skeleton
        joints = {"joints": skeleton.annotated, "limbs": skeleton.limbs} if skeleton else {}
        return {
            "found": list(self.source.words),
            **joints,
            "read": self.source.read,
            "splits": self.source.sizes,
            "counted": self.source.counted,
            "classes": self._classes(),
            "sizes": self._sizes(),
            "near_duplicates": [self._pair(pair) for pair in self.source.near],
            "warnings": list(self.source.warnings),
            "left_out": [record.model_dump() for record in self.source.quarantined],
            "source_bytes": int(self.source.images.column("bytes").sum()),
            "record_bytes": self._bytes,
            "seconds": self.seconds,
        }

    def lines(self) -> list[str]:
        """Return the description of the source as lines of text."""
        kinds = [reason.kind for reason in self.source.images.reasons.values()]
        left_out, records = Counter(kinds), (record.record for record in reversed(self.source.quarantined))
        first = dict(zip(reversed(kinds), records, strict=True))
        splits, skeleton = tuple(self.source.sizes), self.source.skeleton
        written = sum(self.source.sizes.values())
        joints = skeleton.annotated if skeleton else ()
        classes = self._classes()
        untested = [printable(name, 24) for name, counts in classes.items() if not counts.get(TEST)]
        return [
            *self.source.words,
            *([f"{plural(len(joints), 'joint')}: {', '.join(joints)}"] if joints else []),
            f"read {self.source.read:,} = written {written:,} + quarantined {len(self.source.quarantined):,}",
            "",
            f"{'class' if classes else 'images':24}" + "".join(f"{split:>10}" for split in splits),
            *([] if classes else ["".join([f"{'':24}", *(f"{count:>10,}" for count in self.source.sizes.values())])]),
            *(
                f"{printable(name, 24):24}" + "".join(f"{counts[split]:>10,}" for split in splits)
                for name, counts in classes.items()
            ),
            *([f"no test image of {first_few(untested, 5)}: {_UNTESTED}"] if untested else []),
            *([self.source.doubt.words] if self.source.doubt and not self.source.doubt.certain else []),
            "",
            *(f"{rule}: {count:,}" for rule, count in self.source.counted.items() if rule not in self.source.warnings),
            *(f"longer side {bounds:>12}: {plural(count, 'image')}" for bounds, count in self._sizes().items()),
            "",
            *(
                f"left out: {plural(count, 'file')}: {reason} ({'for example ' if count > 1 else ''}{first[reason]})"
                for reason, count in left_out.most_common()
            ),
            *self.source.near_lines,
            *(f"warning: {line}" for line in self.source.warnings),
            f"the records take {size(self._bytes)}; the source was read in {duration(self.seconds)}",
        ]

    def refuse(self, store: Store) -> None:
        """Raise the error with which a run would refuse this source; do nothing if a run would accept it.

        Raises:
            SourceError: see :func:`require_convertible`; or no result on the test split could prove a model better than
                guessing.
        """
        require_convertible(self.spec, store, self.source)
        if self.source.doubt and self.source.doubt.certain:
            raise SourceError(self.source.doubt.words)

    def write_sheet(self, file: Path) -> None:
        """Draw converted training images into a PNG file: some of each of the first classes, if there are classes.

        Raises:
            SettingsError: the file is not on this machine.
            StoreError: the file cannot be written.
        """
        train, names = self.source.splits[0], self.source.class_names[:_CLASSES]
        every = {"": np.ones(len(train), np.bool_)}
        chosen = dict(zip(names, self._classes_of(train).T, strict=False)) if names else every
        rows = [
            PictureRow(
                printable(name, 14), list(map(SheetPicture, train.read(np.flatnonzero(some)[:_EXAMPLES])["image"]))
            )
            for name, some in chosen.items()
        ]
        _write(sheet([SheetBlock("Training examples", self.source.words[0], rows)]), file)

    def _classes_of(self, split: SourceSplit) -> npt.NDArray[np.bool_]:
        """Return which classes each of a split's first records has: bool (n, classes), n at most :data:`_LOOKED_AT`."""
        found = list[npt.NDArray[np.bool_]]()
        for place in split.kept[:_LOOKED_AT].tolist():
            one = {name: values[place : place + 1] for name, values in split.targets.items()}
            found.append(text_targets(self.source.kind).census(one, len(self.source.class_names)) > 0)
        return np.stack(found)

    def write_pairs(self, file: Path) -> bool:
        """Draw the nearest pairs of near-duplicate images in different splits into a PNG file.

        Returns:
            Whether there are any pairs; without pairs no file is written.

        Raises:
            SettingsError: the file is not on this machine.
            StoreError: the file cannot be written.
        """
        pairs, drawn = self.source.near, []
        if not pairs:
            return False
        for pair in pairs[:_PAIRS]:
            images = (pair.image, pair.repeated)
            captions = [f"{image.split}: {_end(image.label)}\n{_end(image.key)}" for image in images]
            drawn += map(SheetPicture, self.source.pixels(np.array([image.row for image in images])), captions)
        wide = 2 * _PAIRS_IN_A_ROW
        rows = [PictureRow("", drawn[first : first + wide]) for first in range(0, len(drawn), wide)]
        about = f"nearest of {plural(len(pairs), 'pair')}: an image, and the near-duplicate of it in another split"
        _write(sheet([SheetBlock("Near-duplicates", about, rows)]), file)
        return True

    def _pair(self, pair: NearPair) -> dict[str, Any]:
        images = (pair.image, pair.repeated)
        return {
            **{image.split: image.key for image in images},
            **{f"{image.split}_class": image.label for image in images},
            "distance": pair.distance,
        }

    @property
    def _bytes(self) -> int:
        return layout_of(self.source.features).frame_length * sum(self.source.sizes.values())

    def _classes(self) -> dict[str, dict[str, int]]:
        """Count images: class → split → number."""
        counts = self.source.class_counts
        return {
            name: {split: found[at] for split, found in counts.items()}
            for at, name in enumerate(self.source.class_names)
        }

    def _sizes(self) -> dict[str, int]:
        """Count the images that are not left out by range of the longer side, without empty ranges."""
        images = self.source.images
        longer = np.maximum(images.column("width"), images.column("height"))[images.kept()]
        counts = np.bincount(np.searchsorted(_BOUNDS, longer), minlength=len(_BOUNDS) + 1)
        names = [f"to {_BOUNDS[0]}", *(f"{low + 1} to {high}" for low, high in pairwise(_BOUNDS))]
        names.append(f"from {_BOUNDS[-1] + 1}")
        return {name: count for name, count in zip(names, counts.tolist(), strict=True) if count}


def _end(text: str | None) -> str:
    """Return the end of a long name, where names differ most."""
    shown = printable(text or "", 1_000)
    return shown if len(shown) <= _LETTERS else f"…{shown[-_LETTERS:]}"


def _write(figure: Sheet, file: Path) -> None:
    require_local(file)
    with explained("write", file), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a letter missing in the font becomes a box
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, format="png")


def conversion(source: str, recipe: Recipe, store: Store, allow_left_out: float) -> EffectiveSpec:
    """Return the spec of a source's conversion, with all defaults; see :func:`check` for the arguments."""
    settings = converter_settings(recipe.dataset, recipe, {})
    spec = ConvertSpec(
        root=store.uri, dataset=recipe.dataset, source=source, settings=settings, allow_left_out=allow_left_out
    )
    return effective(spec, store)


def check(
    source: str, recipe: Recipe, people: Recipe, changes: Mapping[str, Any], store: Store, allow_left_out: float
) -> Checked:
    """Open a source and decode its images, as a conversion would.

    Args:
        source: a folder, a file, or a ``gs://`` URI.
        recipe: the recipe for images with classes or labels.
        people: the recipe for keypoints, used if the source has annotations of people instead.
        changes: changed fields of the recipe.
        store: the store whose cache keeps the decoded images.
        allow_left_out: the largest share of a split that may be left out.

    Raises:
        SettingsError: the recipe's data set does not consist of the user's own images, or ``changes`` has a field that
            the recipe lacks or an invalid value.
        SourceError: the source cannot be opened.
        StoreError: the cache cannot be written.
    """
    started = time.monotonic()
    try:
        spec = conversion(source, registry.override(recipe, changes), store, allow_left_out)
        found = opened(spec, store)
    except (SourceError, SettingsError):
        with on_this_machine(source, source_cache(store)) as place:
            if not has_annotations(place):
                raise
        spec = conversion(source, registry.override(people, changes), store, allow_left_out)
        found = opened(spec, store)
    if found.settings is None:
        raise SettingsError(
            f"the recipe reads the data set {recipe.dataset}, expected images of your own; choose a recipe for images"
        )
    return Checked(spec, found, time.monotonic() - started)
