"""A feature of records: what a source or a kind of task asks a data set to store beside each image."""

from __future__ import annotations

from dataclasses import dataclass

from podline.documents.manifest import Fit


@dataclass(frozen=True)
class Feature:
    """A feature of a source's records: its key, its dtype and its real shape (() for a scalar).

    Attributes:
        width: bytes of an int64 scalar's varint; see :func:`podline.data.records.label_feature`.
        fit: how an image file in records becomes pixels; see :class:`podline.documents.manifest.FieldInfo`.
        class_names: a label's class names, by value.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    width: int = 1
    fit: Fit | None = None
    class_names: tuple[str, ...] = ()
