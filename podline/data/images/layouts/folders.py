"""Class folders: ``train/<class>/…`` and ``test/<class>/…`` at any depth, ``<class>/train/…``, or ``<class>/…`` alone.

The path of a class folder is the class name, such as ``Latin/character01``. Ambiguous folders are refused.
"""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

from podline.base.errors import SourceError
from podline.data.images.items import DEV, HELD_OUT, SPLIT_NAMES, TRAIN_NAMES, Item, Place, split_in_name
from podline.data.images.layout import Layout, outside
from podline.data.images.listing import Files
from podline.data.images.settings import ImagesSettings
from podline.data.shown import printable
from podline.data.sources.class_names import likeness
from podline.data.texts import cleaned

Folder = tuple[str, ...]
"""The components of a folder's path in the source."""

_RENAME = "if it is a class, rename the folder; else give images as train/<class>/* and test/<class>/*"
_PARTITION = re.compile("(?:split|subset|label|class|category|target)=(?=.)", re.IGNORECASE)
_MOST = 0.5  # share of images that counts as most
_TABLES = (  # files with these extensions are no images, unlike files without an extension
    ".parquet",
    ".csv",
    ".tsv",
    ".jsonl",
    ".ndjson",
    ".tar",
    ".tgz",
    ".gz",
    ".zip",
)


class _SplitFolders(NamedTuple):
    """The position of split folders in the paths of images.

    Attributes:
        depth: number of folders above the split folder.
        above: the path above the split folders, for ``above/train/<class>``; None for ``<class>/train``.
    """

    depth: int
    above: Folder | None

    def split_and_class(self, folder: Folder) -> tuple[str, Folder]:
        """Return the split folder's name and the class of a folder's images; both empty outside of split folders."""
        if len(folder) <= self.depth or folder[self.depth].lower() not in SPLIT_NAMES:
            return "", ()
        before, split, after = folder[: self.depth], folder[self.depth], folder[self.depth + 1 :]
        if self.above is None:
            return (split, before) if not after else ("", ())
        return (split, after) if before == self.above else ("", ())


@dataclass(frozen=True)
class Folders(Layout):
    """The layout of class folders, which reads each file in the source.

    Attributes:
        depth: position of the split folders; None without splits.
        folders: the folders with images, or, if no file has an image's extension, with other files than tables.
        class_depth: see ``class_depth`` of :class:`ImagesSettings`.
    """

    depth: _SplitFolders | None
    folders: Collection[Folder]
    class_depth: int

    accepts = "class folders (<class>/*, train/<class>/* or <class>/train/*)"
    opens = ()

    @classmethod
    def find(cls, files: Files, settings: ImagesSettings, /) -> Self | None:
        """Return the layout if at least two class folders have images, else None.

        Raises:
            SourceError: a folder may be a split or a class, or only one class folder has images and the kind of task
                needs two.
        """
        images = Counter(file.folder for file in files.readable if file.is_image)
        found = images or Counter(file.folder for file in files.readable if not file.ends(*_TABLES))
        folders = Counter[Folder]()
        for folder, count in found.items():
            folders[_parts(folder)] += count
        depth = _split_folders(folders)
        classes = {depth.split_and_class(folder)[1] if depth else folder for folder in folders} - {()}
        if not depth and len(named := _class_folders(folders)) < 2:
            if images and named and settings.targets.least_classes > 1:
                raise SourceError(_one_class(*named))
            return None  # for example train/1.jpg, test/1.jpg
        return cls(files.asked, depth, folders, settings.class_depth) if len(classes) > 1 else None

    @property
    def words(self) -> str:
        """Describe the folders of splits and classes."""
        return "folders, " + (" and ".join(self._tops) or "<class>/")

    @property
    def splits(self) -> frozenset[str]:
        """Return the names of the split folders, in lower case."""
        return frozenset(name.lower() for name in self._names)

    @property
    def _names(self) -> list[str]:
        """Return the names of the split folders that contain classes, as on disk."""
        return sorted({split for split, names in self._classes.items() if split and names})

    @cached_property
    def _classes(self) -> Mapping[str, set[Folder]]:
        """Return split folder → its classes."""
        found = defaultdict[str, set[Folder]](set)
        for split, name in map(self._split_and_class, self.folders):
            found[split] |= {name} - {()}
        return found

    @property
    def unlabelled(self) -> frozenset[str]:
        """Return the held-out splits with at most one class folder, if no class folder of training has a similar name.

        Empty if training has no class folders.
        """
        classes = {split.lower(): {likeness(name[-1]) for name in names} for split, names in self._classes.items()}
        trained = set[str]().union(*(classes.get(split, ()) for split in TRAIN_NAMES))
        found = {split for split, names in classes.items() if len(names) < 2 and not names & trained}
        return frozenset(found & {*HELD_OUT}) if trained else frozenset()

    @property
    def notes(self) -> Sequence[str]:
        """Return a line if a class folder with images contains another folder with images, which is another class.

        Empty otherwise.
        """
        names = set[Folder]().union(*self._classes.values())
        within = sorted((name[:at], name) for name in names for at in range(1, len(name)) if name[:at] in names)
        if not within:
            return []
        above, name = within[0]
        remedy = f"if they are one class, --set conversion.class_depth={len(above)} takes the upper folder for both"
        return [f"{_path(above)} and {_path(name)} both have images and are two classes; {remedy}"]

    @property
    def _tops(self) -> list[str]:
        if self.depth is None or self.depth.above is None:
            return [f"<class>/{name}/" for name in self._names]
        return ["/".join((*self.depth.above, name, "<class>/")) for name in self._names]

    def items(self) -> Iterator[Item]:
        """Yield each file of the source, ordered by name."""
        known = functools.cache(self._described)
        for file in self.read:
            split, label, reason = known(file.folder)
            if reason or file.hidden or file.bytes < 0:
                yield outside(file, reason)._replace(split=split)
            else:
                yield Item(file.name, Place(file.path), label, split, stray=not file.is_image)

    def _described(self, folder: str) -> tuple[str, str, str]:
        """Return split, class and reason for the images of a folder; the reason is empty if there is a class."""
        split, parts = self._split_and_class(_parts(folder))
        label = "/".join(parts)
        reason = "" if label else "lies in no class folder"
        if self.depth and not split:
            reason = f"lies in none of {', '.join(top.removesuffix('<class>/') for top in self._tops)}"
        return split.lower(), label, reason

    def _split_and_class(self, folder: Folder) -> tuple[str, Folder]:
        split, name = self.depth.split_and_class(folder) if self.depth else ("", folder)
        return split, name[: self.class_depth or None]


def _parts(folder: str) -> Folder:
    """Return the cleaned components of a path; a Hive partition such as ``label=cat`` becomes its value."""
    return tuple(part for part in (_PARTITION.sub("", cleaned(part)) for part in folder.split("/")) if part)


def _split_folders(folders: Mapping[Folder, int]) -> _SplitFolders | None:
    """Return the position of the split folders; None if no folder has the name of a split, or there is only one class.

    Raises:
        SourceError: a folder may be a split or a class, or only one class has images.
    """
    names = _split_names(folders)
    named = [folder for folder in folders if _places(folder, names)]
    if not named:
        _refuse_similar(folders)
    if not named or len(_class_folders(folders)) < 2:
        return None
    depths = {_places(folder, names) for folder in named}
    depth = min(depths)[0]
    above = {folder[:depth] for folder in named if len(folder) > depth + 1}
    if depths != {(depth,)} or len(above) > 1 or not any(folder[depth].lower() in TRAIN_NAMES for folder in named):
        raise SourceError(_unclear(named))
    found = _SplitFolders(depth, next(iter(above), None))
    _require_most(found, folders)
    return found


def _class_folders(folders: Collection[Folder]) -> set[Folder]:
    """Return the folders' paths without the first component that names a split; omit paths that are then empty."""
    names, found = _split_names(folders), set[Folder]()
    for folder in folders:
        at = next(iter(_places(folder, names)), len(folder))
        found.add(folder[:at] + folder[at + 1 :])
    return found - {()}


def _split_names(folders: Collection[Folder]) -> frozenset[str]:
    """Return the folder names that mean splits; ``dev`` means a split only next to another split name."""
    there = {part.lower() for folder in folders for part in folder} & SPLIT_NAMES
    return SPLIT_NAMES - {DEV} if there == {DEV} else SPLIT_NAMES


def _places(folder: Folder, names: frozenset[str] = SPLIT_NAMES) -> tuple[int, ...]:
    """Return the depths at which a path has a split name; ``dev`` counts only if there is no other."""
    found = [at for at, part in enumerate(folder) if part.lower() in names]
    return tuple([at for at in found if folder[at].lower() != DEV] or found)


def _require_most(found: _SplitFolders, folders: Mapping[Folder, int]) -> None:
    """Raise an error unless there are several classes, and more than half of the images are in split folders."""
    places = {folder: found.split_and_class(folder) for folder in folders}
    total = sum(folders[folder] for folder, (split, name) in places.items() if name or not split)
    elsewhere = {folder: folders[folder] for folder, (split, _) in places.items() if not split}
    beside = sum(elsewhere.values())
    names = {name for _, name in places.values() if name}
    if len(names) > 1 and beside < _MOST * total:
        return
    if not elsewhere:  # for example raw/train/cat/1.jpg, raw/test/1.jpg
        raise SourceError(_one_class(*names))
    split = next(folder[: found.depth + 1] for folder, (split, _) in places.items() if split)
    place = max(elsewhere, key=elsewhere.__getitem__)
    raise SourceError(
        f"cannot tell whether {_path(split)} is a split or a class: {beside:,} of {total:,} images are in folders not "
        f"named like a split ({elsewhere[place]:,} in {_path(place)}); move these out of the source, or {_RENAME}"
    )


def _one_class(name: Folder) -> str:
    return f"got one class, {printable('/'.join(name))!r}, expected two at least; add another class folder"


def _unclear(named: Sequence[Folder]) -> str:
    parents = sorted({folder[:at] for folder in named for at, part in enumerate(folder) if part.lower() in TRAIN_NAMES})
    if len(parents) > 1:
        shown = [_path((*parent, "train")) for parent in parents[:3]]
        sources = " or ".join(_path(parent).rstrip("/") for parent in parents[:3] if parent)
        return (
            f"several folders have splits ({', '.join(shown)}), and how they belong together is unknown; "
            f"give one of them as the source ({sources}), or sort the images into train/<class>/* and test/<class>/*"
        )
    first = min(named, key=lambda folder: [part.lower() not in SPLIT_NAMES for part in folder])
    at = _places(first)[-1]
    found = f"cannot tell whether {_path(first[: at + 1])} is a split or a class"
    if not parents:
        found += f": its name is one for test images ({', '.join(HELD_OUT)}), but no folder is named {TRAIN_NAMES[0]}"
    return f"{found}; {_RENAME}"


def _refuse_similar(folders: Mapping[Folder, int]) -> None:
    """Refuse folders whose names contain a split, such as ``seg_train`` and ``seg_test``, if they have most images."""
    for depth in range(max(map(len, folders), default=0)):
        deep = {folder: split_in_name(folder[depth]) for folder in folders if len(folder) > depth}
        places = {split in TRAIN_NAMES: _path(folder[: depth + 1]) for folder, split in deep.items() if split}
        covered = sum(folders[folder] for folder, split in deep.items() if split)
        if len(places) > 1 and covered > _MOST * sum(folders.values()):
            raise SourceError(
                f"{places[True]} and {places[False]} look like splits, not classes; rename them to train and test, or "
                "give one of them as the source"
            )


def _path(folder: Folder) -> str:
    return printable("/".join(folder)) + "/"
