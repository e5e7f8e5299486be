"""Upper limits for untrusted files, each with its reason.

A limit is either far above the official files, or proportional to the size of the file, so that a small file is always
cheap. docs/reference/limits.md lists the limits; a test compares the two.
"""

from __future__ import annotations

PIXELS = 48_000_000
"""Pixels of an image in memory: the default of the setting ``parse_pixels``. OpenCV needs six bytes per pixel."""

IMAGE_BYTES = 128_000_000
"""Bytes of an image file; COCO's largest has less than a million."""

PACKED_RATIO = 16
"""Unpacked bytes per packed byte of a file. Images have a ratio of 1 to 5, annotations 4 to 8, blanks 1,000."""

UNPACKED_FREE = 64_000_000
"""Unpacked bytes that every packed file may have in addition to :data:`PACKED_RATIO`."""

UNPACKED_BYTES = 4 << 30
"""Unpacked bytes of an archive or a gzipped file; official files have less than 190 MB."""

NAME_BYTES = 255
"""Bytes of the name of an archive member or image file; no common file system allows more."""

CLASS_FILE_BYTES = 1_000_000
"""Bytes of a file with class names, which is read whole; official files have less than 2,000."""

CLASS_NAME_LETTERS = 255
"""Letters of a class name, since class names may become names of folders."""

ENTRY_LETTERS = 2_000_000
"""Bytes of one entry of a JSON table, which is parsed whole; COCO's largest entry, a crowd, has less than 100,000."""

OUTLINE_PIXELS = 2_000_000
"""Total outline length, in pixels, of an image's unlabelled people; drawing time is proportional to it."""

OUTLINE_RUNS = 4_000_000
"""Total number of run lengths of an image's unlabelled people; COCO's crowds have some thousands."""

OUTLINES = 10_000
"""Polygons of an annotation; COCO's annotations have some dozens."""


def unpacked(packed: int) -> int:
    """Return the limit of unpacked bytes for ``packed`` packed bytes."""
    return UNPACKED_FREE + PACKED_RATIO * packed
