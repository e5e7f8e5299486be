"""Finds out which layout a source has."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from podline.data.images import tables
from podline.data.images.folders import folders_in
from podline.data.images.items import Layout
from podline.data.images.listing import Found, listed_in_bucket, listing, one
from podline.data.images.others import WithOthers
from podline.data.images.parquet import holds_images, images_in
from podline.data.images.prepared import prepared_in
from podline.data.images.settings import ImagesSettings
from podline.data.images.webdataset import ENDINGS as ARCHIVES
from podline.data.images.webdataset import webdataset_in
from podline.data.sources.lfs import refuse_lfs_pointer
from podline.data.sources.rawfiles import reading
from podline.data.sources.remote import is_remote
from podline.data.sources.unpacking import unpacking
from podline.errors import SourceError

_ACCEPTED = (
    "class folders (<class>/*, train/<class>/* or <class>/train/*), a table of files and labels (CSV, TSV, JSON Lines, "
    "Parquet), WebDataset's tar files, Parquet with images, or a folder that TensorFlow Datasets has prepared; see "
    "docs/images.md"
)


def found_layout(source: str, settings: ImagesSettings, work: Path) -> Layout:
    """Return the layout of a source; see :func:`source_files` and :func:`fitting_layout`."""
    return fitting_layout(source, *source_files(source, settings, work), settings)


def fitting_layout(source: str, files: Sequence[Found], asked: Sequence[Found], settings: ImagesSettings) -> Layout:
    """Return the layout of a source.

    Args:
        source: what errors call it.
        files: all files that may be meant.
        asked: those that the source names.
        settings: may say which layout it is.

    Raises:
        SourceError: nothing is there, or nothing that is known, or more than one.
    """
    fitting, problems = _layouts(files, asked, settings)
    if settings.layout != "auto":
        fitting = {name: layout for name, layout in fitting.items() if name == settings.layout}
    if len(fitting) > 1:
        words = "; ".join(layout.words for layout in fitting.values())
        raise SourceError(f"{source} has several layouts: {words}; say which by --layout {' or '.join(fitting)}")
    if not fitting:
        why = "".join(f"; {problem}" for problem in problems[:2])
        wanted = "images" if settings.layout == "auto" else f"images as {settings.layout}"
        remedy = "" if "Git LFS" in why else f"; {_remedy(asked)}"
        raise SourceError(f"{source} is no source of {wanted}: it holds {_summary(asked)}{why}{remedy}")
    ((name, layout),) = fitting.items()
    reason = "is not named by the table" if name == "table" else "lies beside the files of the data set"
    return WithOthers(layout, _others(layout, files, asked), reason)


def _others(layout: Layout, files: Sequence[Found], asked: Sequence[Found]) -> list[Found]:
    """Return the files that a layout does not read: of the source, and of the folders of images that a table names."""
    read, named = layout.paths, {file.path for file in asked}
    folders = {posixpath.dirname(path) for path in read - named}
    beside = (file for file in files if posixpath.dirname(file.path) in folders)
    return [file for path, file in {file.path: file for file in (*asked, *beside)}.items() if path not in read]


def _remedy(asked: Sequence[Found]) -> str:
    """What to do where nothing fits: unpack an archive, or give what is accepted."""
    remedy = unpacking([file.name if is_remote(file.path) else file.path for file in asked if not file.hidden])
    if remedy:
        return f"of archives only tar files of a WebDataset (photo.jpg beside photo.cls) are read as they are: {remedy}"
    return f"accepted are {_ACCEPTED}"


def source_files(source: str, settings: ImagesSettings, work: Path) -> tuple[list[Found], list[Found]]:
    """Return all files that may be meant, and those that the source names; none is opened.

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
        return files, files
    place = Path(source).expanduser().absolute()
    if not place.exists():
        raise SourceError(f"{source} does not exist; give a folder or a file: {_ACCEPTED}")
    if not place.is_file():
        files = listing(place)
        return _images(place, settings) or files, files
    file = one(place)
    beside = listing(place.parent) if place.suffix in tables.ENDINGS else [file]
    return _images(place.parent, settings) or beside, [file]


def _images(place: Path, settings: ImagesSettings) -> list[Found]:
    """The files of the folder that the setting ``images`` names, if it names one."""
    if not settings.images:
        return []
    folder = place / Path(settings.images).expanduser()
    if not folder.is_dir():
        raise SourceError(f"{folder} is no folder vs one with a table's images, as --set conversion.images says")
    return listing(folder)


def _layouts(
    files: Sequence[Found], asked: Sequence[Found], settings: ImagesSettings
) -> tuple[dict[str, Layout], list[SourceError]]:
    """Every layout that fits, by its name; and what is wrong with what does not."""
    whole = [file for file in asked if file.bytes >= 0 and not file.hidden]
    if settings.layout in ("auto", "tfds") and (prepared := prepared_in(whole, settings)):
        return {"tfds": prepared}, []  # its files fit no other, though folders of versions look like classes
    pointers: list[SourceError] = []
    for file in [file for file in whole if file.name.endswith((*tables.ENDINGS, *ARCHIVES, ".zip"))]:
        try:
            with reading(file.path):
                refuse_lfs_pointer(Path(file.path), file.path)
        except SourceError as error:
            pointers.append(error)
            whole.remove(file)
    parquet = [file for file in whole if file.name.endswith(".parquet") and holds_images(file.path)]
    other = [file for file in whole if file.name.endswith(tables.ENDINGS) and file not in parquet]
    table, problems = tables.tables_in(other, files, settings)
    problems = pointers + problems
    found: dict[str, Layout | None] = {"folders": None, "table": table}
    try:
        found["folders"] = folders_in(asked)
    except SourceError as error:
        problems.insert(len(pointers), error)
    try:
        found["webdataset"] = webdataset_in([file for file in whole if file.name.endswith(ARCHIVES)], settings)
        found["parquet"] = images_in(parquet, settings)
    except SourceError as error:
        problems.append(error)
    return {name: layout for name, layout in found.items() if layout is not None}, problems


def _summary(files: Sequence[Found]) -> str:
    """How many files of which kinds there are."""
    kinds = Counter(PurePosixPath(file.name).suffix.lower() or "other" for file in files if file.bytes >= 0)
    return ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(5)) or "nothing"
