"""Describes the result of converting a source of keypoints, as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podline.data.people.layouts import has_annotations
from podline.data.people.source import PeopleSource
from podline.data.sources.remote import on_this_machine
from podline.data_check.images import conversion
from podline.datasets.fingerprint import EffectiveSpec, opened, require_convertible, source_cache
from podline.plurals import plural
from podline.recipes import registry
from podline.recipes.settings import Recipe
from podline.store.contract import Store


@dataclass(frozen=True)
class CheckedKeypoints:
    """A source of keypoints that was decoded, and its conversion."""

    spec: EffectiveSpec
    source: PeopleSource

    def refuse(self, store: Store) -> None:
        """Refuse a source that a run would refuse; see :func:`require_convertible`."""
        require_convertible(self.spec, store, self.source)

    def document(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "found": list(self.source.words),
            "joints": list(self.source.skeleton.annotated),
            "limbs": [list(limb) for limb in self.source.skeleton.limbs],
            "read": self.source.read,
            "splits": self.source.sizes,
            "counted": self.source.counted,
            "warnings": list(self.source.warnings),
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
            *(f"{rule}: {count:,}" for rule, count in self.source.counted.items() if rule not in self.source.warnings),
            *(f"warning: {line}" for line in self.source.warnings),
            *(f"left out: {record.record}: {record.reason}" for record in left_out),
        ]


def check_keypoints(
    source: str, recipe: Recipe, changes: Mapping[str, Any], store: Store, allow_left_out: float
) -> CheckedKeypoints | None:
    """Open a source as its conversion with a changed recipe does; return None without annotations.

    Raises:
        SettingsError: the recipe has no such fields.
        SourceError: the source cannot be converted.
    """
    with on_this_machine(source, source_cache(store)) as place:
        if not has_annotations(place):
            return None
    spec = conversion(source, registry.override(recipe, changes), store, allow_left_out)
    found = opened(spec, store)
    return CheckedKeypoints(spec, found) if isinstance(found, PeopleSource) else None
