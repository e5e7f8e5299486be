"""Finds the folders that are named for splits, at any depth, and refuses what may be a split or a class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from podline.data.images.items import HELD_OUT, SPLITS, TRAINING, split_in_name
from podline.data.sources.shown import printable
from podline.errors import SourceError

Folder = tuple[str, ...]
"""The parts of a folder's path in the source."""

_RENAME = "if it is a class, rename the folder; else give images as train/<class>/* and test/<class>/*"
_MOST = 0.5  # of all images


@dataclass(frozen=True)
class SplitFolders:
    """Where splits stand in the paths of images.

    Attributes:
        depth: of the folders that are named for splits; 0 is the source's own.
        above: the folders above them, where classes lie below: ``above/train/<class>``; None where the classes are
            above: ``<class>/train``.
    """

    depth: int
    above: Folder | None

    def split_and_class(self, folder: Folder) -> tuple[str, Folder]:
        """Return the split's folder name and the class of images in a folder; both empty where it is in no split."""
        if len(folder) <= self.depth or folder[self.depth].lower() not in SPLITS:
            return "", ()
        before, split, after = folder[: self.depth], folder[self.depth], folder[self.depth + 1 :]
        if self.above is None:
            return (split, before) if not after else ("", ())
        return (split, after) if before == self.above else ("", ())


def split_folders(folders: Mapping[Folder, int]) -> SplitFolders | None:
    """Return where the splits stand; None where no folder is named for one.

    Args:
        folders: the folders that images lie in → how many.

    Raises:
        SourceError: a folder may be a split or a class.
    """
    named = [folder for folder in folders if any(map(_is_split, folder))]
    if not named:
        _refuse_similar(folders)
        return None
    if len(class_folders(folders)) < 2:
        return None
    reading = _reading(named)
    if reading is None:
        raise SourceError(_unclear(named))
    _require_most(reading, folders)
    return reading


def class_folders(folders: Iterable[Folder]) -> set[Folder]:
    """Return folders, each without its first part that is named for a split."""
    return set(map(_without_split, folders)) - {()}


def _without_split(folder: Folder) -> Folder:
    at = next((at for at, part in enumerate(folder) if _is_split(part)), len(folder))
    return folder[:at] + folder[at + 1 :]


def _is_split(part: str) -> bool:
    return part.lower() in SPLITS


def _reading(named: Sequence[Folder]) -> SplitFolders | None:
    """Return where the splits stand, if that is at one depth and below one folder at most, and one is to train on."""
    depths = {tuple(at for at, part in enumerate(folder) if _is_split(part)) for folder in named}
    depth = min(depths)[0]
    above = {folder[:depth] for folder in named if len(folder) > depth + 1}
    if depths != {(depth,)} or len(above) > 1 or not any(folder[depth].lower() in TRAINING for folder in named):
        return None
    return SplitFolders(depth, next(iter(above), None))


def _require_most(reading: SplitFolders, folders: Mapping[Folder, int]) -> None:
    """Raise an error unless most images have one of several classes, apart from those in a split's folder itself."""
    classes: Counter[Folder] = Counter()
    elsewhere: Counter[Folder] = Counter()
    for folder, count in folders.items():
        split, name = reading.split_and_class(folder)
        if name:
            classes[name] += count
        elif not split:
            elsewhere[folder] += count
    total = classes.total() + elsewhere.total()
    if len(classes) > 1 and classes.total() > _MOST * total:
        return
    split = next(folder[: reading.depth + 1] for folder in folders if reading.split_and_class(folder)[0])
    place, count = elsewhere.most_common(1)[0]
    raise SourceError(
        f"{_path(split)} may be a split or a class: {elsewhere.total():,} of {total:,} images lie beside such folders "
        f"({count:,} in {_path(place)}); move those out of the source, or {_RENAME}"
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
    first = min(named, key=lambda folder: [not _is_split(part) for part in folder])
    at = max(at for at, part in enumerate(first) if _is_split(part))
    found = f"{_path(first[: at + 1])} may be a split or a class"
    if not parents:
        found += f": it is named as images to test on ({', '.join(HELD_OUT)}), and no folder is named {TRAINING[0]}"
    return f"{found}; {_RENAME}"


def _refuse_similar(folders: Mapping[Folder, int]) -> None:
    """Raise an error where most folders of a depth have a split in their names, as ``seg_train`` and ``seg_test``."""
    for depth in range(max(map(len, folders), default=0)):
        splits: dict[str, str] = {}
        covered = 0
        for folder, count in folders.items():
            split = split_in_name(folder[depth]) if len(folder) > depth else ""
            if split:
                splits.setdefault("train" if split in TRAINING else "test", _path(folder[: depth + 1]))
                covered += count
        if len(splits) > 1 and covered > _MOST * sum(folders.values()):
            train, test = splits["train"], splits["test"]
            raise SourceError(
                f"{train} and {test} look like splits, not like classes; rename them to train and test, or give one "
                "of them as the source"
            )


def _path(folder: Folder) -> str:
    return printable("/".join(folder)) + "/"
