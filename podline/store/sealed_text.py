"""Pages that carry their own checksum in a comment on the last line."""

from __future__ import annotations

import re

from podline.store import digests

INDEX = "index.html"
"""The page over all nights, in a store's root."""
_SEAL = re.compile(rb"<!-- sha256 ([0-9a-f]{64}) -->\n\Z")


def sealed(page: str) -> bytes:
    """Return a page as it is published: with the sha256 of all that is before its last line."""
    data = page.encode()
    if not data.endswith(b"\n"):
        data += b"\n"
    return data + f"<!-- sha256 {digests.of_bytes(data)} -->\n".encode()


def seal_problem(data: bytes) -> str:
    """Return what is wrong with a published page; empty if it is whole."""
    match = _SEAL.search(data)
    if match is None:
        return "is cut short: its last line has no checksum"
    found, written = digests.of_bytes(data[: match.start()]), match[1].decode()
    return "" if found == written else f"has sha256 {found[:12]}…, but {written[:12]}… in its last line"
