"""Class folders: ``train/<class>/…`` and ``test/<class>/…`` at any depth, ``<class>/train/…``, or ``<class>/…`` alone.

A class is named by its folder's path, as ``Latin/character01``. What may be a split or a class is refused.
"""

from __future__ import annotations

import functools
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from podline.data.images.items import DEV, HELD_OUT, SPLIT_NAMES, TRAINING, Item, Place, split_in_name
from podline.data.images.layout import Layout, outside
from podline.data.images.listing import Files
from podline.data.images.settings import ImagesSettings
from podline.data.shown import printable
from podline.errors import SourceError

Folder = tuple[str, ...]
"""The parts of a folder's path in the source."""

_RENAME = "if it is a class, rename the folder; else give images as train/<class>/* and test/<class>/*"
_MOST = 0.5  # of all images


@dataclass(frozen=True)
class SplitFolders:
    """The places of split names in the paths of images.

    Attributes:
        depth: of the folders that are named for splits; 0 is the source's own.
        above: the folders above them, where classes lie below: ``above/train/<class>``; None where the classes are
            above: ``<class>/train``.
    """

    depth: int
    above: Folder | None

    def split_and_class(self, folder: Folder) -> tuple[str, Folder]:
        """Return the split's folder name and the class of images in a folder; both empty where it is in no split."""
        if len(folder) <= self.depth or folder[self.depth].lower() not in SPLIT_NAMES:
            return "", ()
        before, split, after = folder[: self.depth], folder[self.depth], folder[self.depth + 1 :]
        if self.above is None:
            return (split, before) if not after else ("", ())
        return (split, after) if before == self.above else ("", ())


@dataclass(frozen=True)
class Folders(Layout):
    """See :class:`podline.data.images.layout.Layout`: it reads everything in the source.

    Attributes:
        depth: where the folders of splits are; None if there are none.
    """

    depth: SplitFolders | None

    accepts = "class folders (<class>/*, train/<class>/* or <class>/train/*)"
    opens = ()

    @classmethod
    def find(cls, files: Files, _settings: ImagesSettings, /) -> Self | None:
        """Return class folders, if images lie in two of them at least.

        Raises:
            SourceError: a folder may be a split or a class.
        """
        images = Counter(file.folder for file in files.readable if file.is_image)
        found = images or Counter(file.folder for file in files.readable)
        folders = {_parts(folder): count for folder, count in found.items()}
        depth = split_folders(folders)
        classes = {depth.split_and_class(folder)[1] if depth else folder for folder in folders} - {()}
        if not depth and len(class_folders(folders)) < 2:
            return None  # as train/1.jpg, test/1.jpg
        return cls(files.asked, depth) if len(classes) > 1 else None

    @property
    def words(self) -> str:
        """The folders of each split and class, in words."""
        return "folders, " + (" and ".join(self._tops) or "<class>/")

    @property
    def splits(self) -> frozenset[str]:
        """By the folders' names."""
        return frozenset(name.lower() for name in self._names)

    @cached_property
    def _names(self) -> list[str]:
        """The names of the folders of splits in which classes are."""
        folders = {file.folder for file in self.read if file.bytes >= 0 and not file.hidden}
        return sorted({split for split, name in map(self._split_and_class, folders) if split and name})

    @property
    def _tops(self) -> list[str]:
        if self.depth is None or self.depth.above is None:
            return [f"<class>/{name}/" for name in self._names]
        return ["/".join((*self.depth.above, name, "<class>/")) for name in self._names]

    def items(self) -> Iterator[Item]:
        """Every file, by name."""
        known = functools.cache(self._described)
        for file in self.read:
            split, label, reason = known(file.folder)
            if reason or file.hidden or file.bytes < 0:
                yield outside(file, reason)._replace(split=split)
            else:
                yield Item(file.name, Place(file.path), label, split, stray=not file.is_image)

    def _described(self, folder: str) -> tuple[str, str, str]:
        """Return the split and the class of a folder's images, and why they have none."""
        split, parts = self._split_and_class(folder)
        label = unicodedata.normalize("NFC", "/".join(parts))
        reason = "" if label else "lies in no class folder"
        if self.depth and not split:
            reason = f"lies in none of {', '.join(top.removesuffix('<class>/') for top in self._tops)}"
        return split.lower(), label, reason

    def _split_and_class(self, folder: str) -> tuple[str, Folder]:
        return self.depth.split_and_class(_parts(folder)) if self.depth else ("", _parts(folder))


def _parts(folder: str) -> Folder:
    return tuple(folder.split("/")) if folder else ()


def split_folders(folders: Mapping[Folder, int]) -> SplitFolders | None:
    """Return where the splits stand; None where no folder is named for one.

    Args:
        folders: the folders that images lie in → how many.

    Raises:
        SourceError: a folder may be a split or a class.
    """
    names = _split_names(folders)
    named = [folder for folder in folders if _places(folder, names)]
    if not named:
        _refuse_similar(folders)
    if not named or len(class_folders(folders)) < 2:
        return None
    depths = {_places(folder, names) for folder in named}
    depth = min(depths)[0]
    above = {folder[:depth] for folder in named if len(folder) > depth + 1}
    if depths != {(depth,)} or len(above) > 1 or not any(folder[depth].lower() in TRAINING for folder in named):
        raise SourceError(_unclear(named))
    found = SplitFolders(depth, next(iter(above), None))
    _require_most(found, folders)
    return found


def class_folders(folders: Collection[Folder]) -> set[Folder]:
    """Return folders, each without its first part that is named for a split."""
    names, found = _split_names(folders), set[Folder]()
    for folder in folders:
        at = next(iter(_places(folder, names)), len(folder))
        found.add(folder[:at] + folder[at + 1 :])
    return found - {()}


def _split_names(folders: Collection[Folder]) -> frozenset[str]:
    """Return the folder names that mean a split; ``dev`` does only beside another such name, else it is a class."""
    there = {part.lower() for folder in folders for part in folder} & SPLIT_NAMES
    return SPLIT_NAMES - {DEV} if there == {DEV} else SPLIT_NAMES


def _places(folder: Folder, names: frozenset[str] = SPLIT_NAMES) -> tuple[int, ...]:
    """Return where parts of a path are named for splits; dev is a class in a path with another such name."""
    found = [at for at, part in enumerate(folder) if part.lower() in names]
    return tuple([at for at in found if folder[at].lower() != DEV] or found)


def _require_most(found: SplitFolders, folders: Mapping[Folder, int]) -> None:
    """Raise an error unless most images have one of several classes, apart from those in a split's folder itself."""
    places = {folder: found.split_and_class(folder) for folder in folders}
    total = sum(folders[folder] for folder, (split, name) in places.items() if name or not split)
    elsewhere = {folder: folders[folder] for folder, (split, _) in places.items() if not split}
    beside = sum(elsewhere.values())
    if len({name for _, name in places.values() if name}) > 1 and beside < _MOST * total:
        return
    split = next(folder[: found.depth + 1] for folder, (split, _) in places.items() if split)
    place = max(elsewhere, key=elsewhere.__getitem__)
    raise SourceError(
        f"{_path(split)} may be a split or a class: {beside:,} of {total:,} images lie beside such folders "
        f"({elsewhere[place]:,} in {_path(place)}); move those out of the source, or {_RENAME}"
    )


def _unclear(named: Sequence[Folder]) -> str:
    parents = sorted({folder[:at] for folder in named for at, part in enumerate(folder) if part.lower() in TRAINING})
    if len(parents) > 1:
        shown = [_path((*parent, "train")) for parent in parents[:3]]
        sources = " or ".join(_path(parent).rstrip("/") for parent in parents[:3] if parent) or "one"
        return (
            f"several folders hold splits ({', '.join(shown)}): nothing says what belongs together; "
            f"give one of them as the source ({sources}), or sort the images into train/<class>/* and test/<class>/*"
        )
    first = min(named, key=lambda folder: [part.lower() not in SPLIT_NAMES for part in folder])
    at = _places(first)[-1]
    found = f"{_path(first[: at + 1])} may be a split or a class"
    if not parents:
        found += f": it is named as images to test on ({', '.join(HELD_OUT)}), and no folder is named {TRAINING[0]}"
    return f"{found}; {_RENAME}"


def _refuse_similar(folders: Mapping[Folder, int]) -> None:
    """Raise an error where most folders of a depth have a split in their names, as ``seg_train`` and ``seg_test``."""
    for depth in range(max(map(len, folders), default=0)):
        deep = {folder: split_in_name(folder[depth]) for folder in folders if len(folder) > depth}
        places = {split in TRAINING: _path(folder[: depth + 1]) for folder, split in deep.items() if split}
        covered = sum(folders[folder] for folder, split in deep.items() if split)
        if len(places) > 1 and covered > _MOST * sum(folders.values()):
            raise SourceError(
                f"{places[True]} and {places[False]} look like splits, not like classes; rename them to train and "
                "test, or give one of them as the source"
            )


def _path(folder: Folder) -> str:
    return printable("/".join(folder)) + "/"
