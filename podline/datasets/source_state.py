"""Tells from the names, sizes and times of a source's files whether it was converted before; no file is opened.

A conversion remembers, on this machine, under a hash of these and of its settings, which data set it made. So the flow
and the Prefect worker never parse a raw file, and a night with nothing new reads none of its bytes.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from podline.data.images.listing import listing, one
from podline.data.sources.remote import is_remote, objects_of
from podline.errors import SourceError
from podline.recipes.datasets import ConverterSettings
from podline.store import digests
from podline.store.contract import Store, explained

_FOLDER = "conversions"
_FINGERPRINT = re.compile("[0-9a-f]{16}")
_ARCHIVES = (".tar", ".tgz", ".gz", ".zip")


class Memory:
    """What this machine knows of one source, converted with one set of settings.

    Attributes:
        key: a hash of the files' names, sizes and times, and of the settings.
        fingerprint: of the data set that it became; empty if that is not known.
    """

    def __init__(self, store: Store, source: str, settings: ConverterSettings, depends: object) -> None:
        """Look the source up as it is now.

        Args:
            store: what it is converted into.
            source: the folder, file or ``gs://`` prefix.
            settings: of the data set.
            depends: JSON of all else that decides what it becomes, or whether it may be converted.

        Raises:
            SourceError: the source does not exist, or cannot be listed.
            StoreError: the memory cannot be read.
        """
        files = _state(source, settings)
        self.key = digests.of_json([files, depends])
        self._file = store.scratch / _FOLDER / f"{self.key}"
        self._store = store
        self.fingerprint = self._read()

    def remember(self, fingerprint: str) -> None:
        """Note which data set the source became.

        Raises:
            StoreError: it cannot be written.
        """
        folder = self._store.own_folder(_FOLDER)
        with explained("write", self._file):
            making = folder / f"{self.key}.{os.getpid()}"
            making.write_text(fingerprint)
            making.replace(self._file)

    def forget(self) -> None:
        """Delete the note: the source is opened the next time.

        Raises:
            StoreError: it cannot be deleted.
        """
        with explained("delete", self._file):
            self._file.unlink(missing_ok=True)

    def _read(self) -> str:
        try:
            text = self._file.read_text()
        except (OSError, ValueError):  # nothing is noted, or it is damaged: the source is opened
            return ""
        return text if _FINGERPRINT.fullmatch(text) else ""


def _state(source: str, settings: ConverterSettings) -> object:
    """Return names, sizes and times of all files that a source's records may come from."""
    if is_remote(source):
        return [source, sorted([found.name, found.bytes, found.version] for found in objects_of(source)[1])]
    place = Path(source).expanduser().absolute()
    if not place.exists():
        raise SourceError(f"{source} does not exist; give an existing folder or file with --source")
    folders = [place.parent / name for name in settings.folders]
    if place.is_dir():
        folders = [place, *(place / name for name in settings.folders)]
    elif place.suffix not in _ARCHIVES:
        folders.append(place.parent)  # a table names files beside it
    files = [] if place.is_dir() else [one(place)]
    for folder in folders:
        files += listing(folder) if folder.is_dir() else []
    return [str(place), [file.state for file in files]]
