"""Describes the result of converting a source of keypoints, as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from podline.data.people.layouts import has_annotations
from podline.data.sources.remote import on_this_machine
from podline.data.sources.source import Source
from podline.datasets.fingerprint import EffectiveSpec, opened, require_convertible, source_cache
from podline.documents.skeleton import Skeleton
from podline.errors import SourceError
from podline.plurals import plural
from podline.recipes.settings import Recipe
from podline.reporting.image_check import conversion
from podline.store.contract import Store


@dataclass(frozen=True)
class CheckedKeypoints:
    """A source of keypoints that was decoded, its conversion, and its skeleton."""

    spec: EffectiveSpec
    source: Source
    skeleton: Skeleton

    def refuse(self, store: Store) -> None:
        """Refuse a source that a run would refuse; see :func:`require_convertible`."""
        require_convertible(self.spec, store, self.source)

    def document(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "found": list(self.source.words),
            "joints": list(self.skeleton.annotated),
            "limbs": [list(limb) for limb in self.skeleton.limbs],
            "read": self.source.read,
            "splits": self.source.sizes,
            "counted": self.source.counted,
            "left_out": [record.model_dump() for record in self.source.quarantined],
        }

    def lines(self) -> list[str]:
        """Return the result as lines of text."""
        skeleton, left_out = self.skeleton, self.source.quarantined
        splits = ", ".join(f"{count:,} {name}" for name, count in self.source.sizes.items())
        written = sum(self.source.sizes.values())
        return [
            *self.source.words,
            f"{plural(len(skeleton.annotated), 'joint')}: {', '.join(skeleton.annotated)}",
            f"read {self.source.read:,} = written {written:,} ({splits}) + quarantined {len(left_out):,}",
            *(f"{rule}: {count:,}" for rule, count in self.source.counted.items()),
            *(f"left out: {record.record}: {record.reason}" for record in left_out),
        ]


def check_keypoints(source: str, recipe: Recipe, store: Store, allow_left_out: float) -> CheckedKeypoints | None:
    """Open a source as its conversion does; return None without annotations.

    Raises:
        SourceError: the source cannot be converted.
    """
    try:
        with on_this_machine(source, source_cache(store)) as place:
            if not has_annotations(place):
                return None
    except SourceError:
        return None
    spec = conversion(source, recipe, store, allow_left_out)
    found = opened(spec, store)
    return CheckedKeypoints(spec, found, found.people.skeleton) if found.people else None
