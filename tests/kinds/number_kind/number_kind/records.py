"""The target of a record: a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from podline.arrays import Arrays
from podline.data.images.settings import ImagesSettings
from podline.data.records import Feature
from podline.documents.manifest import Manifest
from podline.kinds.contract import TextTargets


class NumberImages(ImagesSettings):
    """The settings of images with numbers in a table."""

    kind = "number"


class NumberTargets(TextTargets):
    """One number for each image: the field ``number``."""

    def text(self, value: Any, class_names: Sequence[str] = ()) -> str:
        """Return the number as Python writes it."""
        if not np.isfinite(number := float(value)):
            raise ValueError(f"has the number {number} vs a finite one")
        return repr(number)

    def fields(self, class_names: Sequence[str]) -> tuple[Feature, ...]:
        """Return the field."""
        return (Feature("number", "float32", ()),)

    def arrays(self, texts: Sequence[str], class_names: Sequence[str]) -> dict[str, Any]:
        """Return the numbers of texts."""
        return {"number": np.array([float(text) for text in texts], np.float32)}

    def words(self, records: Arrays, class_names: Sequence[str]) -> list[str]:
        """Return numbers as people read them."""
        return [f"{number:.4g}" for number in records["number"].tolist()]

    def check(self, records: Arrays, manifest: Manifest) -> tuple[int, str] | None:
        """Return the first record whose number is not finite."""
        wrong = np.flatnonzero(~np.isfinite(records["number"]))
        return (int(wrong[0]), f"has number={records['number'][wrong[0]]} vs a finite one") if wrong.size else None
