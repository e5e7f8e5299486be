"""Decides, from what each image is, which split it is of and what is left out.

Nothing here depends on a layout, on names or on the order of images, but for the words of a reason.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from podline.data.images.items import HELD_OUT, SPLITS, TEST, TRAIN, test_split_of
from podline.data.shown import printable, shortened
from podline.data.sources.class_names import problem_of
from podline.data.sources.duplicates import MAX_SHARED
from podline.errors import SourceError
from podline.kinds.contract import TextTargets

_REMEDY = "the evaluation would lie inside the training set; get splits that are apart, or give the images without any"


@dataclass(slots=True)
class Image:
    """An image that was looked at, or what lies among images.

    Attributes:
        key: its path in the source, or archive and name.
        label: its class; None where it has none.
        split: as the source says it, in small letters; train or test, once that is decided.
        group: images of one group stay on one side; empty where there is none.
        reason: why it is left out, empty if it is not; what follows a colon is about this image alone.
        stray: whether it was never meant to be an image.
        row: the number of its pixels; -1 of one that was not looked at.
        sha256: of its file, hexadecimal.
        pixels_sha256: of its pixels as the data set has them.
        bytes: of its file.
        width: of the picture as it is shown.
        height: of the picture as it is shown.
        turned: whether EXIF turns it.
    """

    key: str
    label: str | None
    split: str
    group: str
    reason: str = ""
    stray: bool = False
    row: int = -1
    sha256: str = ""
    pixels_sha256: str = ""
    bytes: int = 0
    width: int = 0
    height: int = 0
    turned: bool = False


def kept(images: Iterable[Image], split: str | None = None) -> list[Image]:
    """Return the images that are not left out, of one split or of both."""
    return [image for image in images if not image.reason and split in (None, image.split)]


def in_general(reason: str) -> str:
    """Return a reason without what is about one image alone."""
    return reason.partition(": ")[0]


def decide(images: list[Image], given: frozenset[str], test_share: float, targets: TextTargets) -> None:
    """Set the split of each image, train or test, and why it is left out.

    Args:
        images: all of them.
        given: the splits that the source has, by its own names.
        test_share: of images without a split.
        targets: of the kind of task.

    Raises:
        SourceError: a class's name cannot be one, or more test images than :data:`MAX_SHARED` can be trained on.
    """
    test = test_split_of(given)
    for image in images:
        image.reason = image.reason or _own_reason(image)
    _refuse_names(targets.class_names({image.label for image in kept(images) if image.label}))
    for image in images:
        image.split = _split_of(image, test, test_share)
    _leave_out_contradicting(images)
    _leave_out_shared(images, given_test=bool(test))
    _leave_out_groups(images)
    _leave_out_unknown(images, targets)


def _own_reason(image: Image) -> str:
    if not image.label:
        return "has no class"
    if image.split and image.split not in SPLITS:
        return f"is of the split {shortened(image.split)} vs {TRAIN} or {', '.join(HELD_OUT)}"
    return ""


def _refuse_names(labels: Sequence[str]) -> None:
    for label in sorted(labels):
        if problem := problem_of(label):
            raise SourceError(f"the class name {shortened(label)} {problem}; rename the class")


def _split_of(image: Image, test: str, test_share: float) -> str:
    """Return the split that the source says, else one by a hash of the image's group, or of the image itself."""
    if image.split and test:
        return TEST if image.split == test else TRAIN
    if not image.sha256 or image.label is None:
        return TRAIN
    group = image.group.encode("utf-8", "surrogatepass")
    sha256 = hashlib.sha256(group).hexdigest() if group else image.sha256
    return TEST if int(sha256[:16], 16) < test_share * 2**64 else TRAIN


def _equal(images: list[Image]) -> list[list[Image]]:
    """Return images that are kept and look the same, in groups of two at least."""
    groups: dict[str, list[Image]] = defaultdict(list)
    for image in kept(images):
        groups[image.pixels_sha256].append(image)
    return [group for group in groups.values() if len(group) > 1]


def _leave_out_contradicting(images: list[Image]) -> None:
    for group in _equal(images):
        first = group[0]
        second = next((image for image in group if image.label != first.label), None)
        for image in group if second else ():
            other = second if second and image.label == first.label else first
            named = f"{printable(other.key)} is {shortened(other.label)}"
            image.reason = f"the same image as one of another class: {named}"


def _leave_out_shared(images: list[Image], *, given_test: bool) -> None:
    """Leave out training images that the test split has too."""
    shared: list[Image] = []
    for group in _equal(images):
        of_test = kept(group, TEST)
        if of_test and len(of_test) < len(group):
            shared += of_test
            for image in kept(group, TRAIN):
                image.reason = f"the same image as one of the test split: {printable(of_test[0].key)}"
    count = len(kept(images, TEST))
    if given_test and len(shared) > MAX_SHARED * count:
        raise SourceError(
            f"{len(shared):,} of the {count:,} test images ({printable(shared[0].key)}, for one) are training images "
            f"as well vs {MAX_SHARED:.0%} at most: {_REMEDY}"
        )


def _leave_out_groups(images: list[Image]) -> None:
    """Leave out training images of a group that the test split has too: possible where the source gives splits."""
    groups = {image.group for image in kept(images, TEST)} - {""}
    for image in kept(images, TRAIN):
        if image.group in groups:
            image.reason = f"is of the group {shortened(image.group)}, as images to test on"


def _leave_out_unknown(images: list[Image], targets: TextTargets) -> None:
    """Leave out test images of a class that no training image has."""
    trained = {*targets.class_names({image.label or "" for image in kept(images, TRAIN)})}
    for image in kept(images, TEST):
        for name in [name for name in targets.class_names([image.label or ""]) if name not in trained][:1]:
            image.reason = f"is of the class {shortened(name)}, which no training image is"
