"""Class folders: ``train/<class>/…`` and ``test/<class>/…`` at any depth, ``<class>/train/…``, or ``<class>/…`` alone.

A class is named by its folder's path, as ``Latin/character01``.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from podline.data.images.items import Item, Place
from podline.data.images.listing import Found
from podline.data.images.others import outside
from podline.data.images.split_folders import Folder, SplitFolders, class_folders, split_folders


@dataclass(frozen=True)
class Folders:
    """See :class:`podline.data.images.items.Layout`.

    Attributes:
        found: everything in the source.
        depth: where the folders of splits are; None if there are none.
    """

    found: Sequence[Found]
    depth: SplitFolders | None

    @property
    def words(self) -> str:
        """Which folders hold what."""
        return "folders, " + (" and ".join(self._tops) or "<class>/")

    @property
    def splits(self) -> frozenset[str]:
        """By the folders' names."""
        return frozenset(name.lower() for name in self._names)

    @property
    def paths(self) -> frozenset[str]:
        """Every file."""
        return frozenset(file.path for file in self.found)

    @cached_property
    def _names(self) -> list[str]:
        """The names of the folders of splits in which classes are."""
        found = (self._split_and_class(file) for file in self.found if file.bytes >= 0 and not file.hidden)
        return sorted({split for split, name in found if split and name})

    @property
    def _tops(self) -> list[str]:
        if self.depth is None or self.depth.above is None:
            return [f"<class>/{name}/" for name in self._names]
        return ["/".join((*self.depth.above, name, "<class>/")) for name in self._names]

    def items(self) -> Iterator[Item]:
        """Every file, by name."""
        return map(self._item, self.found)

    def _item(self, file: Found) -> Item:
        split, folder = self._split_and_class(file)
        label = unicodedata.normalize("NFC", "/".join(folder))
        reason = self._reason(split, label)
        if reason or file.hidden or file.bytes < 0:
            return outside(file, reason)._replace(split=split.lower())
        return Item(file.name, Place(file.path), label, split.lower(), stray=not file.is_image)

    def _split_and_class(self, file: Found) -> tuple[str, Folder]:
        """Return the name of its split's folder, and its class; a folder without a file is one of its own class."""
        folder = tuple(file.parts if file.bytes < 0 and Path(file.path).is_dir() else file.parts[:-1])
        return self.depth.split_and_class(folder) if self.depth else ("", folder)

    def _reason(self, split: str, label: str) -> str:
        if self.depth and not split:
            return f"lies in none of {', '.join(top.removesuffix('<class>/') for top in self._tops)}"
        return "" if label else "lies in no class folder"


def folders_in(found: Sequence[Found]) -> Folders | None:
    """Return class folders, if images lie in two of them at least.

    Raises:
        SourceError: a folder may be a split or a class.
    """
    files = [file for file in found if file.bytes >= 0 and not file.hidden]
    images = [file for file in files if file.is_image] or files
    folders = Counter(tuple(file.parts[:-1]) for file in images)
    depth = split_folders(folders)
    classes = {depth.split_and_class(folder)[1] if depth else folder for folder in folders} - {()}
    if not depth and len(class_folders(folders)) < 2:
        return None  # as train/1.jpg, test/1.jpg
    return Folders(found, depth) if len(classes) > 1 else None
