"""A feature of a tf.train.Example that a source or a kind of task adds to every record of a data set."""

from __future__ import annotations

from dataclasses import dataclass

from podline.documents.manifest import Fit


@dataclass(frozen=True)
class Feature:
    """A feature of a source's records.

    Attributes:
        name: the feature's key in the tf.train.Example.
        dtype: a NumPy dtype name.
        shape: shape of the decoded value; () for a scalar.
        width: bytes of an int64 scalar's varint; see :func:`podline.data.records.label_feature`.
        fit: how an image file is fitted into a square; see :class:`podline.documents.manifest.FieldInfo`.
        class_names: for a label, the name of class 0, class 1, …
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    width: int = 1
    fit: Fit | None = None
    class_names: tuple[str, ...] = ()
