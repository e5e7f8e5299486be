"""Files of a source that its layout does not read: an image among them counts as left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from podline.data.images.items import Item, Layout, Place
from podline.data.images.listing import Found


@dataclass(frozen=True)
class WithOthers:
    """A layout, and the files of its source that it does not read; see :class:`podline.data.images.items.Layout`."""

    layout: Layout
    others: Sequence[Found]
    reason: str

    @property
    def words(self) -> str:
        """The layout's."""
        return self.layout.words

    @property
    def splits(self) -> frozenset[str]:
        """The layout's."""
        return self.layout.splits

    @property
    def paths(self) -> frozenset[str]:
        """Every file."""
        return self.layout.paths | {file.path for file in self.others}

    def items(self) -> Iterator[Item]:
        """The layout's, then the other files."""
        return chain(self.layout.items(), (outside(file, self.reason) for file in self.others))


def outside(file: Found, reason: str) -> Item:
    """Return a file that is left out: as a file of the system, as unreadable, or for another reason."""
    if file.hidden:
        return Item(file.name, b"", reason="is hidden, or the system's own", stray=True)
    if file.bytes < 0:
        empty = Path(file.path).is_dir()
        problem = "is a folder without a file" if empty else "is no file that can be read"
        return Item(file.name, b"", reason=problem, stray=empty or not file.is_image)
    return Item(file.name, Place(file.path), reason=reason, stray=not file.is_image)
