"""Detects the layout of a folder or an archive, and opens it as a data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from podline.base.cores import usable_cores
from podline.base.errors import SourceError
from podline.base.plurals import first_few
from podline.data.images.arrays import open_arrays
from podline.data.raw_arrays import Arrays
from podline.data.rawfiles import RawFile, made_once, raw_file, reading, renaming
from podline.data.sandbox.pool import CALLER, Sandbox
from podline.data.sources import class_names
from podline.data.sources.archives import GZIP_MAGIC, decompress, in_child, unpack
from podline.data.sources.cifar import CIFAR10, CIFAR100, Family, of_binaries, of_pickles
from podline.data.sources.mnist import SPLITS, of_mnist
from podline.data.sources.remote import on_this_machine
from podline.data.sources.source import Source
from podline.recipes.datasets import ConverterSettings, DataSet
from podline.recipes.official import official_name
from podline.store import digests
from podline.store.prefetch import in_order

_TORCHVISION = "MNIST/raw"  # torchvision's folder of MNIST


class PublishedForm(NamedTuple):
    """A published file layout of a data set.

    Attributes:
        title: common name of the layout, for messages.
        datasets: names of the data sets that use the layout.
        folder: the top folder in the archive; the files may also be outside this folder.
        archive: the official archive's name, or empty.
        required: official names of the files that must exist.
        optional: official names of files that are read if they exist.
        arrays: a function that describes a source, given a data set's name, its files by official name, and a sandbox;
            it raises a :class:`SourceError` for an invalid file.
    """

    title: str
    datasets: tuple[str, ...]
    folder: str
    archive: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    arrays: Callable[[str, Mapping[str, RawFile], Sandbox], Arrays]


def _cifar(family: Family, datasets: tuple[str, ...], python: str, binary: str) -> tuple[PublishedForm, PublishedForm]:
    """Return the two layouts of CIFAR-10 or CIFAR-100, with the top folders of their archives."""
    title, archive = family.title, family.title.lower()
    bins = tuple(f"{name}.bin" for name in family.batches)
    names = tuple(kind.names_file for kind in family.labels)
    return (
        PublishedForm(
            f"{title} in python layout", datasets, python, f"{archive}-python.tar.gz",
            family.batches, (family.meta,), of_pickles,
        ),
        PublishedForm(
            f"{title} in binary layout", datasets, binary, f"{archive}-binary.tar.gz",
            bins, names, of_binaries,
        ),
    )  # fmt: skip


LAYOUTS = (
    *_cifar(CIFAR10, ("cifar10", "sample"), "cifar-10-batches-py", "cifar-10-batches-bin"),
    *_cifar(CIFAR100, ("cifar100",), "cifar-100-python", "cifar-100-binary"),
    PublishedForm("MNIST", ("mnist",), _TORCHVISION, "", tuple(chain(*SPLITS.values())), (), of_mnist),
)
_WANTED = frozenset(name for layout in LAYOUTS for name in (*layout.required, *layout.optional))


def open_layout(dataset: DataSet, source: str, _settings: ConverterSettings, work: Path) -> Source:
    """Open a data set of one of :data:`LAYOUTS`; see :func:`open_source`."""
    return open_source(dataset.name, source, work)


def open_source(dataset: str, uri: str, work: Path) -> Source:
    """Open a raw data set: hash its files, and decode their images once.

    Args:
        dataset: name of the expected data set.
        uri: a folder, or ``gs://bucket/prefix``, with the official files (gzipped or not), their top folder or the
            official archive; or the archive itself.
        work: the cache folder for unpacked files; complete ones are reused.

    Returns:
        The source; an archive and its unpacked folder give equal sources, except for the paths of files.

    Raises:
        SourceError: the source does not exist, a file is missing or damaged, or the source is another data set.
        StoreError: the cache folder cannot be written.
    """
    unpacked: dict[str, str] = {}
    archives = {PurePosixPath(uri).name, *(layout.archive for layout in LAYOUTS if dataset in layout.datasets)}

    def wanted(name: str) -> bool:
        file = PurePosixPath(name).name
        return official_name(file) in _WANTED or file in archives

    with on_this_machine(uri, work, wanted) as place, renaming(unpacked), reading(place):
        if not place.exists():
            raise SourceError(f"{place} does not exist; {_fetch(dataset, place)}")
        if place.is_file() and official_name(place.name) in _WANTED:
            raise SourceError(f"{place} is one file of a data set, expected the folder with all files; give the folder")
        return _open_place(dataset, place, work, unpacked)


def _open_place(dataset: str, place: Path, work: Path, unpacked: dict[str, str]) -> Source:
    """Open a folder or an archive; add the path of each unpacked copy and of its original to ``unpacked``."""
    archive, known, folders = None, {}, [place]
    if place.is_file():
        archive = raw_file(place.name, place)
        files = made_once(work, archive.sha256, lambda folder: in_child(unpack, place, _WANTED, folder))
        unpacked[str(work / archive.sha256)] = str(place)
        known = {file.path: file for file in files}
        folders = sorted({path.parent for path in known})
    finds = _finds(folders)
    fitting = [(layout, files) for layout, files in finds if dataset in layout.datasets]
    own = [layout for layout in LAYOUTS if dataset in layout.datasets]
    packed = next((path for layout in own if layout.archive and (path := place / layout.archive).is_file()), None)
    if not fitting and packed is not None:
        return _open_place(dataset, packed, work, unpacked)
    if not fitting:
        raise SourceError(_nothing_fits(dataset, place, [layout for layout, _ in finds]))
    layout, paths = min(fitting, key=lambda find: len({*find[0].required} - {*find[1]}))
    if missing := [name for name in layout.required if name not in paths]:
        raise SourceError(
            f"{place} has {layout.title} without {', '.join(missing)}; "
            f"unpack the official archive again, or {_fetch(dataset, 'DIR')}"
        )

    def plain(name: str) -> RawFile:
        """Return a file; unpack it if its first bytes are those of gzip, whatever its name."""
        path = paths[name]
        file = (known.get(path) or raw_file(name, path))._replace(name=name)
        if path.is_relative_to(work):  # the time of a file in the cache is the time of its last use
            file = file._replace(modified=0)
        with path.open("rb") as stream:
            if stream.read(2) != GZIP_MAGIC:
                return file
        key = digests.of_json([file.sha256, name])
        (made,) = made_once(work, key, lambda folder: in_child(decompress, path, name, folder))
        unpacked[str(made.path)] = str(path)
        return made._replace(modified=0)

    files = dict(zip(paths, in_order(plain, paths, usable_cores()), strict=True))
    with Sandbox(CALLER, layout.arrays) as sandbox:
        arrays = layout.arrays(dataset, files, sandbox)
        if archive is not None:
            arrays = replace(arrays, archive=archive._replace(name=layout.archive))
        source = open_arrays(arrays, str(place), work, sandbox)
    _refuse_other_names(source, place)
    return source


def _finds(places: list[Path]) -> list[tuple[PublishedForm, dict[str, Path]]]:
    """Return the layouts in some folders and their official subfolders, with the path of each file by official name."""
    finds = []
    for layout in LAYOUTS:
        for folder in sorted({folder for place in places for folder in (place, place / layout.folder)}):
            paths = sorted(folder.glob("*"), reverse=True)  # of several spellings of a name, the shortest comes last
            there = {official_name(path.name): path for path in paths if path.is_file()}
            files = {name: there[name] for name in (*layout.required, *layout.optional) if name in there}
            if not files.keys().isdisjoint(layout.required):
                finds.append((layout, files))
    return finds


def _refuse_other_names(source: Source, place: Path) -> None:
    """Refuse the sample given as CIFAR-10, and CIFAR-10 given as the sample: only their class names differ."""
    for other, names in (("cifar10", class_names.CIFAR10), ("sample", class_names.SAMPLE)):
        if source.dataset != other and source.class_names == names:
            raise SourceError(
                f"{place} has the classes of {other} ({names[0]}, {names[1]}, …), expected {source.dataset}; "
                f"use `podline run {other} --source {place}`"
            )


def _nothing_fits(dataset: str, place: Path, others: list[PublishedForm]) -> str:
    """Return the error for a source without the data set: the data sets that it has instead, and the remedy."""
    others += [layout for layout in LAYOUTS if layout.archive and (place / layout.archive).is_file()]
    if others:
        return (
            f"{place} contains {others[0].title}, expected {dataset}; "
            f"use `podline run {others[0].datasets[0]} --source {place}`, or {_fetch(dataset, 'DIR')}"
        )
    expected = next(layout for layout in LAYOUTS if dataset in layout.datasets)
    wanted = f"{expected.required[0]} and the other files of {expected.title}"
    if place.is_file():
        return f"{place} does not contain {wanted}; {_fetch(dataset, 'DIR')}"
    names = sorted(path.name for path in place.iterdir())
    content = f"contains {first_few(names, 6)}" if names else "is empty"
    return f"{place} {content}, expected {wanted}; {_fetch(dataset, place)}"


def _fetch(dataset: str, folder: Path | str) -> str:
    """Return the remedy for a missing data set: the command that obtains it."""
    command = f"podline data draw {folder}" if dataset == "sample" else f"podline data download {dataset} {folder}"
    return f"get it with `{command}`"
