"""Compares raw files with the published ones, by md5."""

from __future__ import annotations

from podline.data.official import OfficialCheck, OtherFile, published
from podline.data.rawfiles import RawFile, md5_of
from podline.data.rows import RawRows


def check_official(source: RawRows) -> OfficialCheck | None:
    """Compare a source's files, and the archive that they came in; None for data that nobody publishes.

    Raises:
        SourceError: a file cannot be read.
    """
    sums = published(source.dataset)
    if sums is None:
        return None
    compared = [_compared(file, sums.files[file.name]) for file in source.raw if file.name in sums.files]
    official = all(other is None for other in compared) if compared else None
    known = sums.archive_md5(source.archive.name) if source.archive else None
    if source.archive and known:
        archive = _compared(source.archive, known)
        official = official or archive is None  # whose files are compared may have been packed anew
        compared.append(archive)
    return OfficialCheck(official=official, others=tuple(other for other in compared if other is not None))


def _compared(file: RawFile, published: str) -> OtherFile | None:
    found = md5_of(file.path)
    return None if found == published else OtherFile(file=file.name, found=found, published=published)
