"""Assigns each image to a split or leaves it out.

The result does not depend on layout, names or order of the images; only the reasons mention names.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from podline.data.images.column_file import array, compute, decoded, encoded
from podline.data.images.image_table import ImageTable, Mask, Numbers, heads
from podline.data.images.items import DEV, HELD_OUT, SPLIT_NAMES, held_out_splits
from podline.data.shown import printable, shortened
from podline.data.sources.class_names import problem_of
from podline.data.sources.duplicates import MAX_SHARED
from podline.documents.manifest import APART, SPLITS, TEST, TRAIN, VALIDATION, split_in_words
from podline.errors import SourceError
from podline.kinds.contract import TextTargets

_FOR = {VALIDATION: "validate", TEST: "test"}
_REMEDY = "get splits without common images, or give the images without any"


def in_general(reason: str) -> str:
    """Return a reason without its details about one image."""
    return reason.partition(": ")[0]


def decide(images: ImageTable, given: frozenset[str], test_share: float, targets: TextTargets) -> dict[str, int]:
    """Set each image's split, or the reason why it is left out.

    Args:
        images: all images.
        given: the source's split names.
        test_share: share of test images if the source has no splits.
        targets: targets of the kind of task.

    Returns:
        Each class that no training image has, with the number of its held-out images, which are left out.

    Raises:
        SourceError: a class name is invalid, or a split shares more than :data:`MAX_SHARED` of its images with another.
    """
    held_out = held_out_splits(given)
    for first, batch in images.batches("label", "split", "group", "reason", "row", "sha256"):
        images.splits[first : first + len(batch)] = _splits(batch, held_out, test_share)
        for at in np.flatnonzero(_is_odd(batch)).tolist():
            images.leave_out(
                first + at, _own_reason(*(batch[name][at].as_py() for name in ("reason", "label", "split")))
            )
    _refuse_names(targets.class_names(set(map(decoded, images.values("label", images.kept())))))
    equal = _equal(images)
    _leave_out_contradicting(images, equal)
    for other, kept_in in APART:
        _leave_out_shared(images, equal, other, kept_in, given=bool(held_out))
        _leave_out_groups(images, other, kept_in)
    untrained = _leave_out_unknown(images, targets)
    images.reasons = dict(sorted(images.reasons.items()))
    return untrained


def _is_odd(batch: Any) -> Mask:
    """Return which images must be left out, independent of the others."""
    known = pa.array([b"", *map(encoded, SPLIT_NAMES)])
    found = (_is_empty(batch["label"]), ~_is_empty(batch["reason"]), ~array(compute.is_in(batch["split"], known)))
    return np.logical_or.reduce([*found, array(batch["row"]) < 0])


def _own_reason(reason: bytes, label: bytes | None, split: bytes) -> str:
    if reason:
        return decoded(reason)
    if not label:
        return "has no class"
    if split and decoded(split) not in SPLIT_NAMES:
        known = ", ".join(name for name in HELD_OUT if name != DEV)  # reasons in existing manifests must not change
        return f"is of the split {shortened(decoded(split))} vs {TRAIN} or {known}"
    return "is empty"


def _refuse_names(labels: Iterable[str]) -> None:
    for label in sorted(labels):
        if problem := problem_of(label):
            raise SourceError(f"the class name {shortened(label)} {problem}; rename the class")


def _splits(batch: Any, held_out: Mapping[str, str], test_share: float) -> npt.NDArray[np.uint8]:
    """Return the splits of images: the source's, else by a hash of the group or of the image."""
    hashed = heads(batch["sha256"])
    grouped = np.flatnonzero(~_is_empty(batch["group"]))
    groups = batch["group"].take(pa.array(grouped)).dictionary_encode()
    numbers = [int.from_bytes(hashlib.sha256(group).digest()[:8]) for group in groups.dictionary.to_pylist()]
    hashed[grouped] = np.array(numbers, np.uint64)[array(groups.indices)]
    known = (array(batch["sha256"]) != b"") & array(batch["label"].is_valid())
    by_hash = known & (hashed < np.uint64(math.ceil(test_share * 2**64)))
    found = np.full(len(batch), SPLITS.index(TRAIN), np.uint8)
    for split, name in held_out.items():
        found[array(compute.equal(batch["split"], encoded(name)))] = SPLITS.index(split)
    found[by_hash & _is_empty(batch["split"]) if held_out else by_hash] = SPLITS.index(TEST)
    return found


def _is_empty(texts: Any) -> Mask:
    return array(compute.fill_null(compute.equal(compute.binary_length(texts), 0), fill_value=True))


class _Equal(NamedTuple):
    """Groups of equal images, stored one after the other.

    Attributes:
        numbers: numbers of the images, ascending within a group.
        labels: numbers that are equal for equal labels, (n,).
        starts: first place of each group.
    """

    numbers: Numbers
    labels: npt.NDArray[np.int32]
    starts: Numbers

    def groups(self, chosen: Mask) -> Iterator[Numbers]:
        """Yield the numbers of some groups, ordered by the first number of each group."""
        ends = np.append(self.starts[1:], len(self.numbers))
        some = np.flatnonzero(chosen)
        for at in some[np.argsort(self.numbers[self.starts[some]])].tolist():
            yield self.numbers[self.starts[at] : ends[at]]


def _equal(images: ImageTable) -> _Equal:
    kept = images.kept()
    sorted_heads = images.heads("pixels_sha256", kept)
    sorted_heads.sort()
    repeated = np.unique(sorted_heads[1:][sorted_heads[1:] == sorted_heads[:-1]])
    del sorted_heads
    numbers, pixels, labels = [np.zeros(0, np.int64)], [np.zeros(0, "S32")], [pa.array([], pa.binary())]
    for first, batch in images.batches("label", "pixels_sha256"):
        mine = heads(batch["pixels_sha256"])
        is_repeated = np.searchsorted(repeated, mine, "right") > np.searchsorted(repeated, mine)
        found = kept[first : first + len(batch)] & is_repeated
        numbers.append(first + np.flatnonzero(found))
        pixels.append(array(batch["pixels_sha256"])[found])
        labels.append(batch["label"].filter(found))
    _, which = np.unique(np.concatenate(pixels), return_inverse=True)
    order = np.argsort(which, kind="stable")
    codes = array(pa.concat_arrays(labels).dictionary_encode().indices)
    starts = np.flatnonzero(np.diff(which[order], prepend=-1))
    return _Equal(np.concatenate(numbers)[order], codes[order], starts)


def _leave_out_contradicting(images: ImageTable, equal: _Equal) -> None:
    mixed = np.minimum.reduceat(equal.labels, equal.starts) != np.maximum.reduceat(equal.labels, equal.starts)
    groups = [group.tolist() for group in equal.groups(mixed)]
    named = dict(images.some(np.array(sorted(chain.from_iterable(groups)), np.int64), "key", "label"))
    for group in groups:
        first = named[group[0]]
        second = next(named[number] for number in group if named[number][1] != first[1])
        for number in group:
            key, label = second if named[number][1] == first[1] else first
            images.leave_out(number, f"the same image as one of another class: {printable(key)} is {shortened(label)}")


def _leave_out_shared(images: ImageTable, equal: _Equal, other: str, kept_in: str, *, given: bool) -> None:
    """Leave out images of a split that also occur in another split, where they are kept."""
    masks = images.kept(kept_in), images.kept(other)
    ours, theirs = (np.logical_or.reduceat(mask[equal.numbers], equal.starts) for mask in masks)
    groups = [tuple(group[mask[group]] for mask in masks) for group in equal.groups(ours & theirs)]
    count, shared = np.count_nonzero(masks[0]), sum(len(ours) for ours, _ in groups)
    firsts = np.array([ours[0] for ours, _ in groups], np.int64)
    keys = {number: printable(key) for number, (key,) in images.some(np.sort(firsts), "key")}
    if given and shared > MAX_SHARED * count:
        raise SourceError(
            f"{shared:,} of the {count:,} {kept_in} images ({keys[int(firsts[0])]}, for one) are "
            f"{split_in_words(other)} images as well vs {MAX_SHARED:.0%} at most: the score would not hold for new "
            f"images; {_REMEDY}"
        )
    for first, (_, theirs) in zip(firsts.tolist(), groups, strict=True):
        for number in theirs.tolist():
            images.leave_out(number, f"the same image as one of the {kept_in} split: {keys[first]}")


def _leave_out_groups(images: ImageTable, other: str, kept_in: str) -> None:
    """Leave out images of a group that another split keeps; only a source with given splits can have such groups."""
    groups = images.values("group", images.kept(kept_in)) - {b""}
    for number, group in _having("group", groups, images, other):
        images.leave_out(number, f"is of the group {shortened(group)}, as images to {_FOR[kept_in]} on")


def _leave_out_unknown(images: ImageTable, targets: TextTargets) -> dict[str, int]:
    """Leave out test and validation images of a class that no training image has; count them by class."""
    counts = Counter[str]()
    trained = {*targets.class_names(set(map(decoded, images.values("label", images.kept(TRAIN)))))}
    for split in (VALIDATION, TEST):
        found = images.values("label", images.kept(split))
        unknown = {text: name for text in found for name in targets.class_names([decoded(text)]) if name not in trained}
        for number, label in _having("label", set(unknown), images, split):
            name = unknown[encoded(label)]
            counts[name] += 1
            images.leave_out(number, f"is of the class {shortened(name)}, which no training image is")
    return dict(sorted(counts.items()))


def _having(name: str, values: set[bytes], images: ImageTable, split: str) -> Iterator[tuple[int, str]]:
    """Yield each image of a split whose value in a column is one of ``values``, with this value."""
    wanted, kept = pa.array(list(values), pa.binary()), images.kept(split)
    for first, batch in images.batches(name) if values else ():
        found = kept[first : first + len(batch)] & array(compute.is_in(batch[name], wanted))
        for at in np.flatnonzero(found).tolist():
            yield first + at, decoded(batch[name][at].as_py())
