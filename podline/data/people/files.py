"""Find annotation files, and the images that they name, in a folder and its zip files, without unpacking these."""

from __future__ import annotations

import posixpath
import re
import unicodedata
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, takewhile
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from podline.base.errors import SourceError
from podline.data.images.layout import limits_of_file
from podline.data.images.listing import Files, ListedFile
from podline.data.people.deeplabcut import tables_of
from podline.data.places import IMAGE_ENDINGS, Place
from podline.data.rawfiles import reading
from podline.data.sandbox.child import begin
from podline.data.sandbox.limits import limits_of

_FOLDERS = ("annotations", "train", "val", "valid", "validation", "dev", "test")
_OFFICIAL = re.compile(r"person_keypoints_(train|val|test)20(14|17)\.json")
_PACKED = re.compile(r"annotations_trainval(2014|2017)\.zip")
_ROLE = re.compile(r"(?<![a-z])(train|val|dev|test)(?:ing|id|idation)?(?![a-z])")
_IMAGE_FOLDERS = ("", "images", "imgs")  # usual names, preferred among several folders


class AnnotationFile(NamedTuple):
    """The location of an annotation file.

    Attributes:
        path: the file, the zip file that contains it, or a folder with DeepLabCut's tables.
        member: the file's name in the zip file; empty outside of one.
    """

    path: Path
    member: str = ""

    def __str__(self) -> str:
        return f"{self.path}/{self.member}" if self.member else str(self.path)

    @property
    def role(self) -> str:
        """Return the split in the name of the file or its folder: train, val or test; empty if there is none."""
        shown = Path(str(self).lower())
        return _role(shown.name) or _role(shown.parent.name)


def _role(name: str) -> str:
    found = _ROLE.search(name)
    return found[1].replace("dev", "val") if found else ""


def annotation_files(place: Path, *, official: bool = False) -> Iterator[AnnotationFile]:
    """Yield the files in a folder that may have annotations, a folder with DeepLabCut's tables last, or the only file.

    No file is opened. With ``official``, yield only COCO's own files with people.
    """
    if place.is_file():
        yield AnnotationFile(place)
        return
    for folder in (place, *(place / name for name in _FOLDERS)):
        found = sorted(folder.iterdir(), key=lambda path: path.name) if folder.is_dir() else []
        files = [path for path in found if path.name.lower().endswith(".json") and path.is_file()]
        yield from (AnnotationFile(path) for path in files if not official or _OFFICIAL.fullmatch(path.name))
        for path in found:
            if packed := _PACKED.fullmatch(path.name):
                yield from _packed(place, path, packed[1])
    if not official and tables_of(place):
        yield AnnotationFile(place)


def _packed(place: Path, archive: Path, year: str) -> Iterator[AnnotationFile]:
    """Yield COCO's annotation files in a zip file, if their images exist and the files are not also unpacked."""
    for split in ("train", "val"):
        name, images = f"person_keypoints_{split}{year}.json", f"{split}{year}"
        unpacked = any((folder / name).exists() for folder in (place, place / "annotations"))
        there = (place / f"{above}{images}{ending}" for above in ("", "images/") for ending in ("", ".zip"))
        if not unpacked and any(path.exists() for path in there):
            yield AnnotationFile(archive, f"annotations/{name}")


class _Image(NamedTuple):
    """An image file: the components of its path in the source, in Unicode form NFC, and its location."""

    parts: tuple[str, ...]
    place: Place


class _Match(NamedTuple):
    """An image whose path ends with the same components as an annotated name.

    Attributes:
        root: the folder above the common components.
        dropped: number of the name's components that are not in the path.
        image: the file that matches.
    """

    root: tuple[str, ...]
    dropped: int
    image: _Image

    def is_in(self, folder: tuple[str, ...]) -> bool:
        """Return whether the name matches the image's path below ``folder``, which must include ``root``."""
        return len(folder) >= len(self.root) and self.image.parts[:-1][: len(folder)] == folder


class ImageFiles:
    """Finds the images that annotations name, in the files around a source and in its zip files.

    A name may have backslashes, ``.``, ``..``, surrounding blanks, decomposed letters, no extension, or leading folders
    that do not exist here (absolute paths, URLs).
    """

    def __init__(self, files: Files) -> None:
        self._place = files.place
        begin(limits_of_file(0, len(files.around)), files.place)
        self._images = defaultdict[str, list[_Image]](list)
        self._archives = [file for file in files.around if file.ends(".zip")]
        for file in files.around:
            if file.bytes >= 0 and not file.hidden:
                self._add(file.name, Place(file.path))

    def places(self, names: Sequence[str], file: AnnotationFile, top: Path) -> tuple[str, list[Place | None], int]:
        """Find the images that an annotation file names.

        Args:
            names: names of the images, at least one.
            file: the annotation file.
            top: the folder of the source.

        Returns:
            The common folder of the images in the source; the location of each image, or None; the number of image
            files in the images' folders that no name refers to.

        Raises:
            SourceError: no image exists, perhaps since a zip file cannot be read; or several folders could contain
                them.
        """
        matches, problems = [self._matches(name) for name in names], list[SourceError]()
        while self._archives and not any(matches):
            try:
                self._unpack(self._archives.pop(0))
            except SourceError as error:  # the images may be in other files
                problems.append(error)
            matches = [self._matches(name) for name in names]
        if problems and not any(matches):
            raise problems[0]
        root = self._root(matches, names, file, top)
        inside = [
            min((one for one in some if one.is_in(root)), default=None, key=attrgetter("dropped")) for some in matches
        ]
        nearest = dict[Place, int]()
        for match in filter(None, inside):
            nearest[match.image.place] = min(match.dropped, nearest.get(match.image.place, match.dropped))
        folders = {match.image.parts[:-1] for match in inside if match}
        images = (image for some in self._images.values() for image in some if image.parts[:-1] in folders)
        count = sum(_ending(image.parts[-1]) in IMAGE_ENDINGS for image in images)
        places = [one.image.place if one and one.dropped == nearest[one.image.place] else None for one in inside]
        return "/".join(root), places, max(0, count - len(nearest))

    def _root(
        self, matches: Sequence[Sequence[_Match]], names: Sequence[str], file: AnnotationFile, top: Path
    ) -> tuple[str, ...]:
        """Return the folder that contains the named images; if several could, the one nearest to the annotations."""
        dropped = defaultdict[tuple[str, ...], list[int]](list)
        for match in chain.from_iterable(matches):
            dropped[match.root].append(match.dropped)
        if not dropped:
            raise SourceError(
                f"{file}: none of its images ({', '.join(names[:2])} …) is in {self._place}; put them there, next to "
                "the annotations or into images/"
            )
        most, beside = max(map(len, dropped.values())), file.path if file.path.is_dir() else file.path.parent
        near = Path(unicodedata.normalize("NFC", beside.relative_to(top).as_posix())).parts

        def order(root: tuple[str, ...]) -> tuple[float | bool, ...]:
            return (
                2 * len(dropped[root]) >= most,
                -sum(dropped[root]) / len(dropped[root]),
                root[: len(near)] == near,
                bool(file.role) and _role("/".join(root[-2:]).lower()) == file.role,
                root == near,
                "".join(root[-1:]).lower() in _IMAGE_FOLDERS,
                len(dropped[root]),
            )

        best, *others = sorted(dropped, key=order, reverse=True)
        if others and order(others[0]) == order(best):
            folders = " or ".join("/".join(root) or "." for root in sorted((best, others[0])))
            raise SourceError(f"{file}: its images may be in {folders}; move one of these folders out of {self._place}")
        return best

    def _matches(self, name: str) -> list[_Match]:
        """Return the images that may match a name, read as a path, or else as a URL."""
        for parts in _forms(name):
            found = list[_Match]()
            for image in self._images.get(_stem(parts[-1]), ()) if parts else ():
                last = image.parts[-1]
                if last == parts[-1] or (_ending(parts[-1]) not in IMAGE_ENDINGS and _ending(last) in IMAGE_ENDINGS):
                    above = zip(reversed(image.parts[:-1]), reversed(parts[:-1]), strict=False)
                    rank = 1 + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], above))
                    found.append(_Match(image.parts[:-rank], len(parts) - rank, image))
            if found:
                return found
        return []

    def _add(self, name: str, place: Place) -> None:
        parts = tuple(unicodedata.normalize("NFC", name).split("/"))
        self._images[_stem(parts[-1])].append(_Image(parts, place))

    def _unpack(self, file: ListedFile) -> None:
        """Add the images in a zip file to the index."""
        begin(limits_of(file.bytes), file.path)
        with reading(file.path, "a zip file", "fetch it again"), zipfile.ZipFile(file.path) as archive:
            for member in archive.namelist():
                if _ending(member) in IMAGE_ENDINGS:
                    self._add(f"{file.name}/{member}", Place(file.path, member=member))


def _forms(name: str) -> Iterator[tuple[str, ...]]:
    """Yield the components of a name as a path, then as a URL: percent-decoded, the last query value or the path."""
    yield _parts(name)
    path, _, query = name.partition("?")
    *_, value = query.split("=")
    for each in (value, path):
        yield _parts(unquote(each))


def _parts(name: str) -> tuple[str, ...]:
    path = posixpath.normpath(unicodedata.normalize("NFC", name.strip().replace("\\", "/")))
    return tuple(part for part in path.split("/") if part not in ("", ".", ".."))


def _ending(name: str) -> str:
    return posixpath.splitext(name)[1].lower()


def _stem(name: str) -> str:
    return posixpath.splitext(name)[0] if _ending(name) in IMAGE_ENDINGS else name
