"""Defines what the records of a kind of task hold beside their images: its targets, as arrays and as text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from podline.base.arrays import Arrays
from podline.documents.feature import Feature
from podline.documents.manifest import Manifest


class Doubt(NamedTuple):
    """A doubt about a test split: no figure on it, or hardly one, can be told from guessing.

    Attributes:
        certain: whether no answers could be shown to be better than guessing.
        words: the reason, the number of test images that would be enough, and the remedy.
    """

    certain: bool
    words: str


class Targets:
    """The targets of a kind: the content of its records beside the image.

    ``records`` are fields of some records by name, (n, …) each, as the reader returns them, with or without the image.
    """

    def census(self, records: Arrays, classes: int) -> npt.NDArray[np.int64]:  # noqa: ARG002 (without classes)
        """Return the number of records of each class, (classes,)."""
        return np.zeros(classes, np.int64)

    def check(self, records: Arrays, manifest: Manifest) -> tuple[int, str] | None:  # noqa: ARG002 (all are valid)
        """Return the place of the first record with invalid targets, and a phrase for after its name; or None."""
        return None

    def doubt(
        self,
        names: Sequence[str],  # noqa: ARG002 (by default none)
        test: Sequence[int],  # noqa: ARG002
        every: Sequence[int],  # noqa: ARG002
        *,
        is_hashed: bool,  # noqa: ARG002
    ) -> Doubt | None:
        """Return what an evaluation on the test split cannot prove, known before the training; None by default.

        Args:
            names: the classes.
            test: number of test examples of each class.
            every: number of examples of each class in all splits.
            is_hashed: whether a hash of the images may have made the test split, with the share ``test_share``.
        """
        return None


class TextTargets(Targets, ABC):
    """The targets of a kind whose targets can be given as text; sources of images return a text per image.

    Each target has exactly one text, however a source writes it.

    Attributes:
        least_classes: least number of classes of a data set.
    """

    least_classes: ClassVar[int] = 0

    @abstractmethod
    def text(self, value: Any, class_names: Sequence[str] = ()) -> str:
        """Convert a source's value to the text of its target.

        Args:
            value: a value from a table, from JSON, or from the reader of a user's data set.
            class_names: the class names if known beforehand; an integer is then an index of them.

        Raises:
            ValueError: the value is not a target; the message is a phrase after the image's name.
        """

    def class_names(self, texts: Iterable[str]) -> tuple[str, ...]:  # noqa: ARG002 (without classes)
        """Return the class names in the distinct texts of a data set, in the order of their numbers."""
        return ()

    @abstractmethod
    def fields(self, class_names: Sequence[str]) -> tuple[Feature, ...]:
        """Return the features of a record beside its image."""

    @abstractmethod
    def arrays(self, texts: Sequence[str], class_names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """Convert texts to the values of these features, (n, …) each; classes as any unsigned integers."""

    @abstractmethod
    def words(self, records: Arrays, class_names: Sequence[str]) -> list[str]:
        """Return records' targets as text, as in ``train[3] is cat``."""
