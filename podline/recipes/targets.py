"""Defines the targets of a kind of task (what its examples have besides images), as arrays and as text."""

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
    """A warning: on this test split, hardly any model or no model can be shown to be better than guessing.

    Attributes:
        certain: whether no model at all can be shown to be better than guessing.
        words: the reason, the number of test images that would be enough, and the remedy.
    """

    certain: bool
    words: str


class Targets:
    """The targets of a kind of task.

    In all methods, ``records`` is field name → values (n, …) of n examples, as the reader returns them; the image may
    be missing.
    """

    def census(self, records: Arrays, classes: int) -> npt.NDArray[np.int64]:  # noqa: ARG002 (without classes)
        """Return the number of examples of each class, int64 (classes,); all zero by default."""
        return np.zeros(classes, np.int64)

    def check(self, records: Arrays, manifest: Manifest) -> tuple[int, str] | None:  # noqa: ARG002 (all are valid)
        """Return the index of the first example with invalid targets, and the problem, such as ``has …``; or None."""
        return None

    def doubt(
        self,
        names: Sequence[str],  # noqa: ARG002 (by default none)
        test: Sequence[int],  # noqa: ARG002
        every: Sequence[int],  # noqa: ARG002
        *,
        is_hashed: bool,  # noqa: ARG002
    ) -> Doubt | None:
        """Return why an evaluation on the test split could not show that a model is better than guessing, or None.

        Args:
            names: the classes.
            test: number of test examples of each class.
            every: number of examples of each class in all splits.
            is_hashed: whether the test split may have been chosen by a hash of the images, by the share ``test_share``.
        """
        return None


class TextTargets(Targets, ABC):
    """The targets of a kind of task that can be given as text; a source of images returns a text per image.

    Equal targets have equal texts, even if sources write them differently.

    Attributes:
        least_classes: least number of classes of a data set.
    """

    least_classes: ClassVar[int] = 0

    @abstractmethod
    def text(self, value: Any, class_names: Sequence[str] = ()) -> str:
        """Convert a source's value to the text of its target.

        Args:
            value: a value from a table, from JSON, or from the reader of a user's data set.
            class_names: the class names, if known; an integer value is then an index into them.

        Raises:
            ValueError: the value is not a target; the message continues a sentence that begins with the image's name.
        """

    def class_names(self, texts: Iterable[str]) -> tuple[str, ...]:  # noqa: ARG002 (without classes)
        """Return the class names that occur in a data set's distinct texts, in the order of class indices."""
        return ()

    @abstractmethod
    def fields(self, class_names: Sequence[str]) -> tuple[Feature, ...]:
        """Return the features of an example besides its image."""

    @abstractmethod
    def arrays(self, texts: Sequence[str], class_names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """Convert n texts to feature name → values (n, …); classes may have any unsigned integer dtype."""

    @abstractmethod
    def words(self, records: Arrays, class_names: Sequence[str]) -> list[str]:
        """Return the target of each example as text for people, such as ``cat`` in ``train[3] is cat``."""
