"""Describes the result of converting a source of keypoints, as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from podline.data.people.layouts import has_annotations
from podline.data.people.source import PeopleSource
from podline.data.sources.left_out import refuse_left_out
from podline.data.sources.remote import on_this_machine
from podline.data.sources.source import open_raw
from podline.datasets.fingerprint import source_cache
from podline.errors import SourceError
from podline.plurals import plural
from podline.recipes import datasets
from podline.store.contract import Store


@dataclass(frozen=True)
class CheckedKeypoints:
    """A source of keypoints that was decoded."""

    source: PeopleSource

    def document(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "found": list(self.source.words),
            "joints": list(self.source.skeleton.annotated),
            "limbs": [list(limb) for limb in self.source.skeleton.limbs],
            "read": self.source.read,
            "splits": self.source.sizes,
            "counted": self.source.counted,
            "left_out": [record.model_dump() for record in self.source.quarantined],
        }

    def lines(self) -> list[str]:
        """Return the result as lines of text."""
        skeleton, left_out = self.source.skeleton, self.source.quarantined
        splits = ", ".join(f"{count:,} {name}" for name, count in self.source.sizes.items())
        written = sum(self.source.sizes.values())
        return [
            *self.source.words,
            f"{plural(len(skeleton.annotated), 'joint')}: {', '.join(skeleton.annotated)}",
            f"read {self.source.read:,} = written {written:,} ({splits}) + quarantined {len(left_out):,}",
            *(f"{rule}: {count:,}" for rule, count in self.source.counted.items()),
            *(f"left out: {record.record}: {record.reason}" for record in left_out),
        ]

    def refuse(self, allow_left_out: float) -> None:
        """Refuse a source that a conversion would refuse.

        Args:
            allow_left_out: the largest share of a split, or of its instances, that may be left out.

        Raises:
            SourceError: too much is left out, or too many images have near-duplicates.
        """
        refuse_left_out(self.source.dataset, self.source.left_out, allow_left_out)
        self.source.remarks()


def check_keypoints(source: str, store: Store) -> CheckedKeypoints | None:
    """Check a source like its conversion with default settings would; return None without annotations.

    Raises:
        SourceError: the source cannot be converted.
    """
    try:
        with on_this_machine(source, source_cache(store)) as place:
            if not has_annotations(place):
                return None
    except SourceError:
        return None
    dataset = datasets.find("keypoints")
    opened = open_raw(dataset, source, dataset.settings_of({}), source_cache(store))
    return CheckedKeypoints(opened) if isinstance(opened, PeopleSource) else None
