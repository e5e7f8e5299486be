"""Detects the layout of a folder or an archive, and opens it as a data set."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from podline.data import bounds
from podline.data.rawfiles import RawFile, made_once, raw_file, reading
from podline.data.sources import class_names
from podline.data.sources.archives import in_child
from podline.data.sources.cifar import CIFAR10, CIFAR100, open_binary, open_pickled
from podline.data.sources.mnist import SPLITS, open_mnist, spellings
from podline.data.sources.remote import AnyPath, RemotePath, is_remote, open_remote, raw_files
from podline.data.sources.source import Source
from podline.errors import SourceError
from podline.recipes.datasets import ConverterSettings, DataSet


@dataclass(frozen=True)
class Layout:
    """A way in which a data set is published.

    Attributes:
        title: what people call it.
        datasets: the data sets that may come in it.
        folder: where its archive unpacks to; the files may also lie without it.
        archive: the official archive's name; empty where there is none.
        required: official names of the files that must be there.
        optional: the files that are read where they are there.
        open: makes a source of a data set's name, its files by official name, and the cache folder.
        spellings: the file names under which a file may be found.
    """

    title: str
    datasets: tuple[str, ...]
    folder: str
    archive: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    open: Callable[[str, dict[str, RawFile], Path], Source]
    spellings: Callable[[str], tuple[str, ...]] = lambda name: (name,)


@dataclass(frozen=True)
class Find:
    """The files of one layout in one place, by official name."""

    layout: Layout
    files: dict[str, AnyPath]

    @property
    def missing(self) -> list[str]:
        """Required files that are not there."""
        return [name for name in self.layout.required if name not in self.files]


LAYOUTS = (
    Layout(
        title="CIFAR-10 in python layout",
        datasets=("cifar10", "sample"),
        folder="cifar-10-batches-py",
        archive="cifar-10-python.tar.gz",
        required=CIFAR10.batches,
        optional=(CIFAR10.meta,),
        open=open_pickled,
    ),
    Layout(
        title="CIFAR-10 in binary layout",
        datasets=("cifar10", "sample"),
        folder="cifar-10-batches-bin",
        archive="cifar-10-binary.tar.gz",
        required=tuple(f"{name}.bin" for name in CIFAR10.batches),
        optional=tuple(kind.names_file for kind in CIFAR10.labels),
        open=open_binary,
    ),
    Layout(
        title="CIFAR-100 in python layout",
        datasets=("cifar100",),
        folder="cifar-100-python",
        archive="cifar-100-python.tar.gz",
        required=CIFAR100.batches,
        optional=(CIFAR100.meta,),
        open=open_pickled,
    ),
    Layout(
        title="CIFAR-100 in binary layout",
        datasets=("cifar100",),
        folder="cifar-100-binary",
        archive="cifar-100-binary.tar.gz",
        required=tuple(f"{name}.bin" for name in CIFAR100.batches),
        optional=tuple(kind.names_file for kind in CIFAR100.labels),
        open=open_binary,
    ),
    Layout(
        title="MNIST",
        datasets=("mnist",),
        folder="MNIST/raw",  # where torchvision puts them
        archive="",
        required=tuple(name for pair in SPLITS.values() for name in pair),
        optional=(),
        open=open_mnist,
        spellings=spellings,
    ),
)
_CLASS_FILES = frozenset(name for layout in LAYOUTS for name in layout.optional)
# Base names of files of any layout → bytes that each may have in an archive.
_WANTED = {
    spelling: bounds.CLASS_FILE_BYTES if name in _CLASS_FILES else bounds.UNPACKED_BYTES
    for layout in LAYOUTS
    for name in (*layout.required, *layout.optional)
    for spelling in layout.spellings(name)
}


def open_layout(dataset: DataSet, source: str, _settings: ConverterSettings, work: Path) -> Source:
    """Open a data set of one of :data:`LAYOUTS`; see :func:`open_source`."""
    return open_source(dataset.name, source, work)


def open_source(dataset: str, uri: str, work: Path) -> Source:
    """Open a raw data set: reads its labels, hashes its files, and finds where its images are.

    Args:
        dataset: what it should be.
        uri: a folder, or ``gs://bucket/prefix``, with the official files, with the folder that they unpack to, or with
            the official archive; or the archive itself.
        work: the cache folder for unpacked files; what is there and whole is used again.

    Returns:
        The source; an archive and the folder that it unpacks to give equal ones, but for the paths of the files.

    Raises:
        SourceError: nothing is there, a file is missing or damaged, or it is another data set.
        StoreError: the cache folder cannot be written.
    """
    if "://" in uri and not is_remote(uri):
        raise SourceError(f"{uri}: a source is a folder, a .tar.gz, or one of these in gs://; {_fetch(dataset, 'DIR')}")
    place = open_remote(uri) if is_remote(uri) else Path(uri).expanduser().absolute()
    with reading(str(place)):
        if not place.exists():
            raise SourceError(f"{place} does not exist; {_fetch(dataset, place)}")
        return _open_place(dataset, place, work)


def _open_place(dataset: str, place: AnyPath, work: Path) -> Source:
    if place.is_file() and place.name in _WANTED:
        raise SourceError(_one_of_several(dataset, place))
    archive, unpacked = _unpacked(place, work) if place.is_file() else (None, {})
    finds = _finds({path.parent for path in unpacked} if unpacked else {place})
    fitting = [find for find in finds if dataset in find.layout.datasets]
    packed = _archive_in(place, dataset)
    if not fitting and packed is not None:
        return _open_place(dataset, packed, work)
    if not fitting:
        raise SourceError(_nothing_fits(dataset, place, finds))
    find = min(fitting, key=lambda find: len(find.missing))
    if find.missing:
        raise SourceError(
            f"{place} has {find.layout.title} without {', '.join(find.missing)}; "
            f"unpack the official archive again, or {_fetch(dataset, 'DIR')}"
        )

    files = raw_files({name: path for name, path in find.files.items() if path not in unpacked}, work)
    files |= {name: replace(unpacked[path], name=name) for name, path in find.files.items() if path in unpacked}
    files = {name: files[name] for name in find.files}
    source = find.layout.open(dataset, files, work)
    if archive is not None:
        source = replace(source, archive=replace(archive, name=find.layout.archive))
    _refuse_other_names(source, place)
    return source


def _finds(places: Iterable[AnyPath]) -> list[Find]:
    """Return what lies in some folders, or in the official folders below them, in the order of :data:`LAYOUTS`."""
    finds = []
    for layout in LAYOUTS:
        for folder in sorted({folder for place in places for folder in (place, place / layout.folder)}):
            files = {
                name: next(
                    (folder / spelling for spelling in layout.spellings(name) if (folder / spelling).is_file()), None
                )
                for name in (*layout.required, *layout.optional)
            }
            present = {name: path for name, path in files.items() if path is not None}
            if any(name in present for name in layout.required):
                finds.append(Find(layout, present))
    return finds


def _unpacked(archive: AnyPath, work: Path) -> tuple[RawFile, dict[Path, RawFile]]:
    """Return an archive, and those of its files that any layout wants, by where they were put."""
    local = archive.staged(work) if isinstance(archive, RemotePath) else archive
    packed = replace(raw_file(archive.name, local), shown=str(archive))
    files = made_once(work, packed.sha256, lambda folder: in_child("unpack", local, _WANTED, folder))
    return packed, {work / packed.sha256 / file.name: replace(file, shown=f"{archive}/{file.name}") for file in files}


def _archive_in(place: AnyPath, dataset: str) -> AnyPath | None:
    """Return the official archive of a data set in a folder."""
    names = (layout.archive for layout in LAYOUTS if dataset in layout.datasets and layout.archive)
    return next((place / name for name in names if (place / name).is_file()), None)


def _refuse_other_names(source: Source, place: AnyPath) -> None:
    """CIFAR-10 and the drawn sample share a layout; their class names tell them apart."""
    for other, names in (("cifar10", class_names.CIFAR10), ("sample", class_names.SAMPLE)):
        if source.dataset != other and source.class_names == names:
            raise SourceError(
                f"{place} has the classes of {other} ({names[0]}, {names[1]}, …) vs {source.dataset} asked for; "
                f"use `podline run {other} --source {place}`"
            )


def _one_of_several(dataset: str, place: AnyPath) -> str:
    """Return what to give in place of one file of a data set."""
    layout = next(
        layout
        for layout in LAYOUTS
        if any(place.name in layout.spellings(name) for name in (*layout.required, *layout.optional))
    )
    used = dataset if dataset in layout.datasets else layout.datasets[0]
    folder = str(place).removesuffix(place.name).rstrip("/") or "/"
    return (
        f"{place} is one of the files of {layout.title} vs the folder that has them all; "
        f"use `podline run {used} --source {folder}`"
    )


def _nothing_fits(dataset: str, place: AnyPath, finds: list[Find]) -> str:
    """Return what a place holds in place of the data set that was asked for, and what to do."""
    others = [find.layout for find in finds]
    others += [layout for layout in LAYOUTS if layout.archive and (place / layout.archive).is_file()]
    if others:
        return (
            f"{place} holds {others[0].title} vs {dataset} asked for; "
            f"use `podline run {others[0].datasets[0]} --source {place}`, or {_fetch(dataset, 'DIR')}"
        )
    expected = next(layout for layout in LAYOUTS if dataset in layout.datasets)
    wanted = f"{expected.required[0]} and the other files of {expected.title}"
    if place.is_file():
        return f"{place} does not hold {wanted}; {_fetch(dataset, 'DIR')}"
    names = sorted(path.name for path in place.iterdir())
    holds = f"holds {', '.join(names[:6])}{' …' if len(names) > 6 else ''}" if names else "is empty"
    return f"{place} {holds} vs {wanted}; {_fetch(dataset, place)}"


def _fetch(dataset: str, folder: AnyPath | str) -> str:
    """How to come by a data set."""
    command = f"podline sample {folder}" if dataset == "sample" else f"podline data download {dataset} {folder}"
    return f"get it with `{command}`"
