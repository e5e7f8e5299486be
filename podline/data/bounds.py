"""Bounds on untrusted files, each with its reason.

A bound is either far beyond what the official files have, or in proportion to the bytes that are there: a small file
never costs much. docs/reference/limits.md shows them as a table, and a test holds the two together.
"""

from __future__ import annotations

PIXELS = 48_000_000
"""Of an image: OpenCV holds the decoded pixels twice, six bytes for each. COCO's largest have 0.4 million."""

IMAGE_BYTES = 64_000_000
"""Of an image's file; COCO's largest has less than a million."""

PACKED_RATIO = 16
"""Bytes that a packed byte may become, on average. Images become 1 to 5, annotations 4 to 8, spaces 1,000."""

UNPACKED_FREE = 64_000_000
"""Bytes that any packed file may become, however small it is."""

UNPACKED_BYTES = 4 << 30
"""Of an archive or a gzipped file, unpacked; the official ones have less than 190 MB."""

NAME_BYTES = 255
"""Of a member's or an image's file name: no file system that is in use takes more."""

CLASS_FILE_BYTES = 1_000_000
"""Of a file with class names, which is read whole; the official ones have less than 2,000."""

CLASS_NAME_LETTERS = 255
"""Of a class's name."""

ENTRY_LETTERS = 2_000_000
"""Of one line of JSON in a table, which is parsed whole; COCO's largest entry, a crowd, has less than 100,000."""

FREE_CONTAINERS = 10_000
"""Lists and objects in a JSON file that is read whole: results, and the truth to score them by."""

BYTES_OF_A_CONTAINER = 16
"""Bytes for which it may have one more; COCO's have one for about 60."""

OUTLINE_PIXELS = 2_000_000
"""Length of all outlines of an image's unlabelled people together: drawing takes time in proportion to it."""

OUTLINE_RUNS = 4_000_000
"""Run lengths of an image's unlabelled people together; COCO's crowds have some thousands."""

OUTLINES = 10_000
"""Polygons of an annotation; COCO's have some dozens."""


def unpacked(packed: int) -> int:
    """Return the limit of unpacked bytes for a number of packed bytes."""
    return UNPACKED_FREE + PACKED_RATIO * packed


def containers(size: int) -> int:
    """Return how many lists and objects a JSON file of this many bytes may have."""
    return FREE_CONTAINERS + size // BYTES_OF_A_CONTAINER
