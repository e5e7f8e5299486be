"""Append-only documents in the store, ``<folder>/000001.json`` and so on.

Each appears whole and under a new number, in a folder as in a bucket: of two writers at once, one gets the number.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import ValidationError

from podline.errors import ArtifactError, TakenError
from podline.frozen import Frozen
from podline.store.contract import Store
from podline.store.prefetch import in_order

Document = TypeVar("Document", bound=Frozen)


@dataclass(frozen=True)
class Series(Generic[Document]):
    """Documents of one class, numbered for each data set or recipe.

    Attributes:
        folder: where they lie, with ``{}`` for the name of the data set or the recipe.
        document: the class.
        noun: what a document is, in words.
        remedy: of a damaged one; ``{}`` is where all of the data set or the recipe lies.
    """

    folder: str
    document: type[Document]
    noun: str
    remedy: str

    def name(self, of: str, number: int) -> str:
        """Return a document's name in the store."""
        return f"{self.folder.format(of)}/{number:06}.json"

    def has(self, name: str) -> bool:
        """Return whether a name in the store is that of a document."""
        return bool(re.fullmatch(rf"{self.folder.format('[^/]+')}/\d{{6}}\.json", name))

    def read(self, store: Store, of: str) -> list[Document]:
        """Return the documents, the oldest first.

        Raises:
            ArtifactError: one is damaged.
        """
        return list(self._after(0, store, of).values())

    def append(self, store: Store, of: str, make: Callable[[int, Sequence[Document]], Document | None]) -> int:
        """Publish a document under the next number; return the newest one's number.

        Args:
            store: the store.
            of: the name of the data set or the recipe.
            make: makes it from its number and the documents before it; None adds nothing. It is called again where
                another writer got the number.

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
        """Return what to do about a document that is damaged or missing."""
        return self.remedy.format(store.where(f"{self.folder.partition('/')[0]}/{of}"))

    def _after(self, number: int, store: Store, of: str) -> dict[int, Document]:
        def read(name: str) -> Document:
            try:
                return self.document.model_validate(store.read_json(name, self.remedy_of(store, of)))
            except ValidationError as error:
                where, problems = store.where(name), error.error_count()
                raise ArtifactError(
                    f"{where} is not {self.noun} ({problems} problems); {self.remedy_of(store, of)}"
                ) from error

        names = {int(name[-11:-5]): name for name in store.list(self.folder.format(of)) if self.has(name)}
        numbers = [each for each in names if each > number]
        return dict(zip(numbers, in_order(read, map(names.__getitem__, numbers), store.parallel), strict=True))
