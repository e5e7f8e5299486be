"""Append-only documents in the store, ``<folder>/000001.json`` and so on.

A document appears complete, or not at all. If two processes write the same number, one succeeds. Both hold for folders
and buckets.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from podline.base.errors import TakenError
from podline.documents.reading import Document, read_model
from podline.store.contract import Store
from podline.store.prefetch import in_order


@dataclass(frozen=True)
class Series(Generic[Document]):
    """For each data set or recipe, a numbered series of documents of one class.

    Attributes:
        folder: folder of the series, with ``{}`` for the name of the data set or recipe.
        document: class of the documents.
        noun: noun for a document in messages, such as "a review".
        remedy: remedy for a damaged document; ``{}`` stands for the folder of the data set or recipe.
    """

    folder: str
    document: type[Document]
    noun: str
    remedy: str

    def name(self, of: str, number: int) -> str:
        """Return the store name of a document, given the name of the data set or recipe and the document's number."""
        return f"{self.folder.format(of)}/{number:06}.json"

    def has(self, name: str) -> bool:
        """Return whether a file in the store, given its name, is a document of this series."""
        return bool(re.fullmatch(rf"{self.folder.format('[^/]+')}/\d{{6}}\.json", name))

    def read(self, store: Store, of: str) -> list[Document]:
        """Return the documents of a data set or recipe, oldest first.

        Raises:
            ArtifactError: a document is damaged.
        """
        return list(self._after(0, store, of).values())

    def append(self, store: Store, of: str, make: Callable[[int, Sequence[Document]], Document | None]) -> int:
        """Publish a document under the next number; return the newest document's number, 0 if there is none.

        Args:
            store: the store.
            of: name of the data set or recipe.
            make: makes the document from its number and the previous documents; None adds nothing. Called again if
                another process has published the number meanwhile.

        Raises:
            ArtifactError: an earlier document is damaged.
            StoreError: the store cannot be written.
        """
        known, last = dict[int, Document](), 0
        while True:
            known |= self._after(last, store, of)
            last = max(known, default=0)
            document = make(last + 1, list(known.values()))
            if document is None:
                return last
            with contextlib.suppress(TakenError):
                store.publish_json(self.name(of, last + 1), document.model_dump(mode="json"))
                return last + 1

    def remedy_of(self, store: Store, of: str) -> str:
        """Return the remedy for a damaged or missing document."""
        return self.remedy.format(store.where(f"{self.folder.partition('/')[0]}/{of}"))

    def _after(self, number: int, store: Store, of: str) -> dict[int, Document]:
        def read(name: str) -> Document:
            return read_model(store, name, self.document, self.noun, self.remedy_of(store, of))

        names = {int(name[-11:-5]): name for name in store.list(self.folder.format(of)) if self.has(name)}
        numbers = [each for each in names if each > number]
        return dict(zip(numbers, in_order(read, map(names.__getitem__, numbers), store.parallel), strict=True))
