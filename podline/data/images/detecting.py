"""Finds out which layout a source has."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from podline.data.images.layout import Files, Layout
from podline.data.images.listing import Found, listed_in_bucket, listing, one
from podline.data.images.settings import AUTO, ImagesSettings
from podline.data.sources.lfs import refuse_lfs_pointer
from podline.data.sources.rawfiles import parsing
from podline.data.sources.remote import is_remote
from podline.data.sources.unpacking import unpacking
from podline.errors import SourceError
from podline.recipes.parts import LAYOUTS

_ARCHIVES = (".tar", ".tgz", ".gz", ".zip")  # whatever lies beside one is not meant


def source_files(source: str, settings: ImagesSettings, work: Path) -> Files:
    """Return the files of a source; none is opened.

    Args:
        source: a folder or a file, here or in ``gs://``.
        settings: may name a folder of images.
        work: the cache folder, for what is in a bucket.

    Raises:
        SourceError: nothing is there.
        StoreError: the bucket cannot be read.
    """
    if is_remote(source):
        files = listed_in_bucket(source, work)
        return Files(files, files)
    place = Path(source).expanduser().absolute()
    if not place.exists():
        raise SourceError(f"{source} does not exist; give a folder or a file: {_accepted()}")
    asked = [one(place)] if place.is_file() else listing(place)
    folder = place.parent if place.is_file() else place
    if settings.images:
        return Files(asked, _images(folder / Path(settings.images).expanduser()))
    return Files(asked, listing(folder) if place.is_file() and place.suffix not in _ARCHIVES else asked)


def _images(folder: Path) -> list[Found]:
    if not folder.is_dir():
        raise SourceError(f"{folder} is no folder vs one with a table's images, as --set conversion.images says")
    return listing(folder)


def found_layout(source: str, files: Files, settings: ImagesSettings) -> tuple[str, Layout]:
    """Return the layout of a source, by its name.

    Args:
        source: what errors call it.
        files: of the source.
        settings: may say which layout it is.

    Raises:
        SourceError: nothing is there, or nothing that is known, or more than one.
        SettingsError: there is no such layout, or an installed one cannot be imported.
    """
    fitting: dict[str, Layout] = {}
    problems: list[str] = []
    kinds: dict[str, type[Layout]] = {name: LAYOUTS.load(name) for name in settings.layouts}
    for name, kind in sorted(kinds.items(), key=lambda found: not found[1].exclusive):
        try:
            with parsing(source, name):
                layout = kind.find(files, settings)
        except SourceError as error:
            if kind.exclusive:
                raise
            problems.append(str(error))
            continue
        if layout and kind.exclusive:
            return name, layout
        fitting |= {name: layout} if layout else {}
    if len(fitting) > 1:
        words = "; ".join(layout.words for layout in fitting.values())
        raise SourceError(f"{source} has several layouts: {words}; say which by --layout {' or '.join(fitting)}")
    if not fitting:
        wanted = "images" if settings.layout == AUTO else f"images as {settings.layout}"
        why = "".join(f"; {problem}" for problem in [*dict.fromkeys(problems)][:2])
        remedy = "" if "Git LFS" in why else f"; {_remedy(files)}"
        raise SourceError(f"{source} is no source of {wanted}: it holds {_summary(files.asked)}{why}{remedy}")
    return next(iter(fitting.items()))


def others(layout: Layout, files: Files) -> list[Found]:
    """Return the files that a layout does not read: of the source, and of the folders of images that a table names."""
    read, asked = layout.paths, {file.path for file in files.asked}
    found = [file for file in files.asked if file.path not in read]
    if folders := {posixpath.dirname(path) for path in read - asked}:
        beside = (file for file in files.around if file.path not in read and file.path not in asked)
        found += [file for file in beside if posixpath.dirname(file.path) in folders]
    return found


def _accepted() -> str:
    return ", ".join(LAYOUTS.load(name).accepts for name in LAYOUTS.names()) + "; see docs/images.md"


def _remedy(files: Files) -> str:
    """What to do where nothing fits: unpack an archive, or give what is accepted."""
    for file in files.ending(".zip"):
        refuse_lfs_pointer(Path(file.path), file.path)
    remedy = unpacking([file.name if is_remote(file.path) else file.path for file in files.asked if not file.hidden])
    if remedy:
        return f"of archives only tar files of a WebDataset (photo.jpg beside photo.cls) are read as they are: {remedy}"
    return f"accepted are {_accepted()}"


def _summary(files: Sequence[Found]) -> str:
    """How many files of which kinds there are."""
    kinds = Counter(PurePosixPath(file.name).suffix.lower() or "other" for file in files if file.bytes >= 0)
    return ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(5)) or "nothing"
