"""Class folders: ``train/<class>/…`` and ``test/<class>/…``, or ``<class>/…`` alone.

A class is named by its folder's path, as ``Latin/character01``.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from podline.data.images.items import SPLITS, TRAINING, Item, Place
from podline.data.images.listing import Found


@dataclass(frozen=True)
class Folders:
    """See :class:`podline.data.images.items.Layout`.

    Attributes:
        found: everything in the source.
        tops: folders of splits → the split; empty if the source's own folders are the classes.
    """

    found: Sequence[Found]
    tops: Mapping[str, str]

    @property
    def words(self) -> str:
        """Which folders hold what."""
        return "folders, " + (" and ".join(f"{top}/<class>/" for top in self.tops) or "<class>/")

    @property
    def state(self) -> object:
        """Every file."""
        return [file.state for file in self.found]

    @property
    def splits(self) -> frozenset[str]:
        """By the folders' names."""
        return frozenset(self.tops.values())

    def items(self) -> Iterator[Item]:
        """Every file, by name."""
        return map(self._item, self.found)

    def _item(self, file: Found) -> Item:
        split, label = self._class_of(file)
        reason = self._reason(file, split, label)
        return Item(file.name, Place(file.path), label or None, split, reason=reason, stray=bool(reason))

    def _class_of(self, file: Found) -> tuple[str, str]:
        """Its split and its class; a folder without a file is one of its own class."""
        folders = file.parts if file.bytes < 0 and Path(file.path).is_dir() else file.parts[:-1]
        split = self.tops.get(folders[0], "") if folders else ""
        return split, unicodedata.normalize("NFC", "/".join(folders[1:] if self.tops else folders))

    def _reason(self, file: Found, split: str, label: str) -> str:
        if file.hidden:
            return "is hidden, or the system's own"
        if self.tops and not split:
            return f"lies in none of {', '.join(f'{top}/' for top in self.tops)}"
        if not label:
            return "lies in no class folder"
        if file.bytes < 0:
            return "is a folder without a file" if Path(file.path).is_dir() else "is no file that can be read"
        return ""


def folders_in(found: Sequence[Found]) -> Folders | None:
    """Class folders, if files lie in two of them at least."""
    files = [file.parts for file in found if file.bytes >= 0 and not file.hidden]
    tops = {parts[0]: parts[0].lower() for parts in files if len(parts) > 2 and parts[0].lower() in SPLITS}
    if not any(split in TRAINING for split in tops.values()):
        tops = {}
    classes = {tuple(parts[1:-1] if tops else parts[:-1]) for parts in files if not tops or parts[0] in tops}
    named = [
        folder for folder in classes if folder and folder[0].lower() not in SPLITS
    ]  # in train/1.jpg it is no class
    return Folders(found, tops) if len(named) > 1 else None
