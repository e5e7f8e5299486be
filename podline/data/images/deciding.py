"""Assign each image of a source to a split, or leave it out.

The result is independent of layout, names and order of the images; only the reasons mention names.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.base.errors import SourceError
from podline.data.images.arrow_file import encoded
from podline.data.images.image_table import ImageTable, Numbers
from podline.data.images.items import DEV, HELD_OUT, SPLIT_NAMES, held_out_splits
from podline.data.reasons import Reason
from podline.data.shown import printable, shortened
from podline.data.sources.class_names import problem_of
from podline.documents.manifest import APART, SPLITS, TEST, TRAINING, VALIDATION, split_in_words
from podline.recipes.targets import TextTargets

# Above this share of test images that are also training images, a test says nothing about new images.
MAX_SHARED = 0.01
# Above this share of contradicting labels, the labels probably belong to other images; a smaller share is noise.
MAX_CONTRADICTING = 0.01
_FOR = {VALIDATION: "validate", TEST: "test"}
_REMEDY = "give splits without common images, or images without splits"


class Decided(NamedTuple):
    """Findings of :func:`decide`, for reports.

    Attributes:
        untrained: class without training images → number of its held-out images, which are left out.
        contradicting: split → number of records with the same image as another record, but another label; only for
            published data sets, and without splits that have none.
    """

    untrained: dict[str, int]
    contradicting: dict[str, int]


def decide(
    images: ImageTable,
    given: frozenset[str],
    test_share: float,
    targets: TextTargets | None,
    *,
    published: bool = False,
) -> Decided:
    """Assign a split to each image, or the reason why it is left out.

    Args:
        images: all images; reviews may have left some out already.
        given: the split names of the source.
        test_share: share of test images if the source has no splits, 0 … 1.
        targets: the target type of the kind of task if labels are its texts, else None.
        published: whether the source is a published data set, of which few records may be left out. Then equal images
            with different labels are only counted, and a class needs no training image.

    Raises:
        SourceError: a class name is invalid; a split of the source shares more than :data:`MAX_SHARED` of its images
            with another; or more than :data:`MAX_CONTRADICTING` of a published data set's split, and more than two
            images, have contradicting labels.
    """
    held_out = held_out_splits(given)
    _leave_out_odd(images)
    images.splits[:] = _splits(images, held_out, test_share)
    if targets:
        _refuse_names(targets.class_names(images.labels.of(images.kept())))
    equal = _equal(images)
    if not published:
        _leave_out_contradicting(images, equal)
    for other, kept_in in APART:
        _leave_out_shared(images, equal, other, kept_in, given=bool(held_out))
        _leave_out_groups(images, other, kept_in)
    contradicting = _count_contradicting(images, equal) if published else {}
    untrained = _leave_out_unknown(images, targets) if targets and not published else {}
    images.reasons = dict(sorted(images.reasons.items()))
    return Decided(untrained, contradicting)


def refuse_empty(place: str, images: ImageTable, splits: Iterable[str], remedy: str = "") -> None:
    """Raise an error if a split has no image.

    Raises:
        SourceError: a split has no image; the message has the most frequent reason for leaving images out.
    """
    for split in splits:
        if not images.kept(split).any():
            raise SourceError(
                f"{place}: the {split} split has no image, expected at least one{remedy}{most_left_out(images)}"
            )


def most_left_out(images: ImageTable) -> str:
    """Return how many images are left out, with an example of the most frequent reason, as the end of a message.

    Empty if no image is left out.
    """
    if not images.reasons:
        return ""
    ((kind, _count),) = Counter(reason.kind for reason in images.reasons.values()).most_common(1)
    number, reason = next((number, reason) for number, reason in images.reasons.items() if reason.kind == kind)
    key = printable(images.text("key", number))
    return f"; {len(images.reasons):,} of {len(images):,} files are left out: {key} {reason}"


def _leave_out_odd(images: ImageTable) -> None:
    """Leave out images that are invalid by themselves: undecodable, without class, or of an unknown split."""
    reasons, splits, labels = images.texts("reason"), images.texts("split"), images.labels
    known = ", ".join(name for name in HELD_OUT if name != DEV)  # the text is in existing manifests
    has_class, has_split = ~labels.are({""}) & (labels.codes >= 0), splits.are({"", *SPLIT_NAMES})
    odd = ~reasons.are({""}) | ~has_class | ~has_split | (images.column("row") < 0)
    for number in np.flatnonzero(odd & ~images.left_out).tolist():
        reason = (
            "is empty"
            if has_split[number]
            else f"is of the split {shortened(splits.at(number))} vs {TRAINING} or {known}"
        )
        images.leave_out(number, Reason.of(reasons.at(number) or (reason if has_class[number] else "has no class")))


def _refuse_names(labels: Iterable[str]) -> None:
    for label in sorted(labels):
        if problem := problem_of(label):
            raise SourceError(f"the class name {shortened(label)} {problem}; rename the class")


def _splits(images: ImageTable, held_out: Mapping[str, str], test_share: float) -> npt.NDArray[np.uint8]:
    """Return each image's split, uint8 (n,): as in the source, else by a hash of its group, or by its identity.

    If the hash would leave a split empty, the image or group with the nearest hash goes there.
    """
    splits, groups, digests = images.texts("split"), images.texts("group"), images.column("identity")
    hashed = _beginnings(digests)
    of_groups = [hashlib.sha256(encoded(group)).digest()[:8] for group in groups.values]
    grouped = ~groups.are({""})
    hashed[grouped] = _beginnings(np.array(of_groups, "S8"))[groups.codes[grouped]]
    limit, draws = math.ceil(test_share * 2**64), hashed[images.kept()]
    if not held_out and len(draws) and draws.min() < draws.max():
        limit = min(max(limit, int(draws.min()) + 1), int(draws.max()))
    tested = (hashed < limit) & (digests != b"") & (images.labels.codes >= 0)
    found = np.full(len(images), SPLITS.index(TRAINING), np.uint8)
    found[tested & splits.are({""}) if held_out else tested] = SPLITS.index(TEST)
    for split, name in held_out.items():
        found[splits.are({name})] = SPLITS.index(split)
    return found


def _beginnings(digests: npt.NDArray[np.bytes_]) -> npt.NDArray[np.uint64]:
    """Return the first 8 bytes of each digest as uint64, (n,)."""
    return digests.astype("S8").view(">u8").astype(np.uint64)


def _equal(images: ImageTable) -> list[Numbers]:
    """Return groups of two or more images with equal pixels: their numbers, ascending; ordered by the first."""
    numbers = np.flatnonzero(images.kept())
    _, which, counts = np.unique(images.column("pixels")[numbers], return_inverse=True, return_counts=True)
    repeated = np.flatnonzero(counts[which] > 1)
    order = repeated[np.argsort(which[repeated], kind="stable")]
    groups = np.split(numbers[order], np.flatnonzero(np.diff(which[order])) + 1)
    return sorted(filter(len, groups), key=lambda group: group[0].item())


def _leave_out_contradicting(images: ImageTable, equal: list[Numbers]) -> None:
    for group in _contradicting(images, equal):
        of_first, of_second = _two_labels(images, group)
        for number in group.tolist():
            other = of_second if images.labels.codes[number] == images.labels.codes[group[0]] else of_first
            images.leave_out(number, Reason("the same image as one of another class", other))


def _contradicting(images: ImageTable, equal: Iterable[Numbers]) -> list[Numbers]:
    """Return the groups of equal images whose labels differ."""
    return [group for group in equal if len(np.unique(images.labels.codes[group])) > 1]


def _two_labels(images: ImageTable, group: Numbers) -> list[str]:
    """Return "NAME is LABEL" for two equal images with different labels."""
    labels = images.labels.codes[group]
    pair = [group[0], group[labels != labels[0]][0]]
    names = zip(images.keys(pair), pair, strict=True)
    return [f"{printable(key)} is {shortened(images.labels.at(number))}" for key, number in names]


def _count_contradicting(images: ImageTable, equal: list[Numbers]) -> dict[str, int]:
    """Return split → number of images that equal one with another label, without zeros; see :func:`decide`."""
    counts, groups = dict[str, int](), list(_contradicting(images, equal))
    for split in SPLITS:
        kept = images.kept(split)
        odd = _contradicting(images, (group[kept[group]] for group in groups))
        count, every = sum(map(len, odd)), np.count_nonzero(kept)
        if count > max(MAX_CONTRADICTING * every, 2):  # one pair proves nothing, even in a small split
            raise SourceError(
                f"{count:,} of the {every:,} records of the {split} split have the same image as another record, but "
                f"another label (such as {' and '.join(_two_labels(images, odd[0]))}) vs {MAX_CONTRADICTING:.0%} at "
                "most: labels and images do not belong together; correct the labels, or leave these images out"
            )
        counts |= {split: count} if count else {}
    return counts


def _leave_out_shared(images: ImageTable, equal: list[Numbers], other: str, kept_in: str, *, given: bool) -> None:
    """Leave out images of the split ``other`` that are also in ``kept_in``.

    If the source itself has splits (``given``), raise an error if there are too many of these images.
    """
    masks = images.kept(kept_in), images.kept(other)
    parts = ([group[mask[group]] for mask in masks] for group in equal)
    groups = [(ours, theirs) for ours, theirs in parts if len(ours) and len(theirs)]
    count, shared = np.count_nonzero(masks[0]), sum(len(ours) for ours, _ in groups)
    keys = list(map(printable, images.keys(ours[0] for ours, _ in groups)))
    if given and shared > MAX_SHARED * count:
        raise SourceError(
            f"{shared:,} of the {count:,} {kept_in} images (such as {keys[0]}) are also {split_in_words(other)} images "
            f"vs {MAX_SHARED:.0%} at most: the score would not hold for new images; {_REMEDY}"
        )
    for key, (_, theirs) in zip(keys, groups, strict=True):
        for number in theirs.tolist():
            images.leave_out(number, Reason(f"the same image as one of the {kept_in} split", key))


def _leave_out_groups(images: ImageTable, other: str, kept_in: str) -> None:
    """Leave out images of ``other`` whose group also has images in ``kept_in``; this occurs only with given splits."""
    groups = images.texts("group")
    shared = groups.are(groups.of(images.kept(kept_in)) - {""})
    for number in np.flatnonzero(shared & images.kept(other)).tolist():
        group = shortened(groups.at(number))
        images.leave_out(number, Reason(f"is of the group {group}, as images to {_FOR[kept_in]} on"))


def _leave_out_unknown(images: ImageTable, targets: TextTargets) -> dict[str, int]:
    """Leave out held-out images of classes without training images; return class → number of these images."""
    counts = Counter[str]()
    trained = {*targets.class_names(images.labels.of(images.kept(TRAINING)))}
    for split in (VALIDATION, TEST):
        found = images.labels.of(images.kept(split))
        unknown = {text: name for text in found for name in targets.class_names([text]) if name not in trained}
        for number in np.flatnonzero(images.labels.are(unknown) & images.kept(split)).tolist():
            name = unknown[images.labels.at(number)]
            counts[name] += 1
            images.leave_out(number, Reason(f"is of the class {shortened(name)}, which no training image is"))
    return dict(sorted(counts.items()))
